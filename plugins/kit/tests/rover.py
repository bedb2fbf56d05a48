"""A correct robot for planted faults: two wheels that are commanded by speed, and a gripper that is open or closed."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import EpisodeError, Field, RobotSpec, RobotState, Spec
from hal.guarding.stop_latch import check_clears
from hal.robot import check_reset_options

SPEC = RobotSpec(
    "rover",
    Spec("rover_sensors", (
        Field("wheel_speed", (2,), "float32", -20.0, 20.0, "rad/s", "of both wheels", ("left", "right")),
        Field("grip", (), "int8", 0, 1, "1", "1 is closed"),
        Field("lamp_seen", (), "int32", 0, 3, "1", "brightness"),
    )),
    Spec("rover_commands", (
        Field("speed", (2,), "float32", -10.0, 10.0, "rad/s", "of both wheels", ("left", "right")),
        Field("close", (), "int8", 0, 1, "1", "1 closes the gripper"),
        Field("lamp", (), "int32", 0, 3, "1", "brightness"),
    )),
    rate_hz=20.0,
    home={"speed": (0.0, 0.0), "close": 0, "lamp": 1},
    measured_by={"speed": "wheel_speed", "close": "grip"},
)  # fmt: skip


class Rover:
    """The wheels change their speed by at most 4 rad/s in a period; the gripper obeys at once."""

    spec = SPEC
    simulated = True

    def __init__(self) -> None:
        self.now, self.stopped, self.closed, self.steps = 10**9, None, False, 0
        self.speed, self.grip, self.lamp = np.zeros(2), 0, 1
        self.told: dict[str, Any] | None = None

    def reset(self, options: Any) -> RobotState:
        if self.closed:
            raise EpisodeError("reset after close")
        check_clears(self.stopped, options)
        check_reset_options(self.spec.commands, options)
        self.stopped = None
        self.begin({**self.spec.home, **options.get("start", {})})
        self.now += 50_000_000
        return self.state()

    def begin(self, start: Any) -> None:
        self.obey({name: np.array(value) for name, value in start.items()})
        self.speed = self.told["speed"].copy()

    def step(self, command: Any) -> RobotState:
        if self.closed or self.told is None:
            raise EpisodeError("step before reset, or after close")
        self.refuse()
        self.obey(self.checked(command))
        self.steps += 1
        self.advance()
        return self.state()

    def refuse(self) -> None:
        check_clears(self.stopped, {})

    def checked(self, command: Any) -> Any:
        return self.spec.commands.validate(command, "command")

    def obey(self, values: Any) -> None:
        self.told = {
            "speed": np.array(values["speed"], float),
            "close": int(values["close"]),
            "lamp": int(values["lamp"]),
        }
        self.grip, self.lamp = self.told["close"], self.told["lamp"]

    def advance(self) -> None:
        self.now += 50_000_000
        goal = np.zeros(2) if self.stopped is not None else self.told["speed"]
        self.speed = self.speed + np.clip(goal - self.speed, -4.0, 4.0)

    def stop(self, reason: str) -> None:
        if self.stopped is None:
            self.stopped = str(reason)

    def read(self) -> RobotState:
        """Measure; wheels that were stopped run out meanwhile."""
        if self.stopped is not None:
            self.advance()
        return self.state()

    def close(self) -> None:
        """Brake."""
        self.closed, self.speed = True, np.zeros(2)

    def state(self) -> RobotState:
        sensors = {"wheel_speed": self.speed.astype(np.float32), "grip": np.array(self.grip, np.int8),
                   "lamp_seen": np.array(self.lamp, np.int32)}  # fmt: skip
        return RobotState(sensors, self.applied(), self.now)

    def applied(self) -> dict[str, np.ndarray]:
        told = self.told or {"speed": np.zeros(2), "close": 0, "lamp": 1}
        return {"speed": np.asarray(told["speed"], np.float32), "close": np.array(told["close"], np.int8),
                "lamp": np.array(told["lamp"], np.int32)}  # fmt: skip
