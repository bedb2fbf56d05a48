"""A correct robot for planted faults: an arm of three joints with a camera and ages."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import CameraSpec, EpisodeError, Field, Image, Limits, RobotSpec, RobotState, RobotStopped, Spec
from hal.robot import check_reset_options

JOINTS = ("turn", "lift", "bend")
SCARA = RobotSpec(
    "scara3",
    Spec("scara3_sensors", (
        Field("angle", (3,), "float32", -4.0, 4.0, "rad", "measured joint angles", JOINTS),
        Field("speed", (3,), "float32", -20.0, 20.0, "rad/s", "measured joint speeds", JOINTS),
        Field("load", (3,), "float32", -50.0, 50.0, "A", "motor currents, sampled every second period", JOINTS),
    )),
    Spec("scara3_commands", (
        Field("target", (3,), "float32", (-1.5, -1.0, -2.0), (1.5, 1.2, 2.0), "rad", "goal angles", JOINTS),
    )),
    rate_hz=50.0,
    limits=Limits(max_velocity={"target": 1.5}),
    cameras=(CameraSpec("top", 24, 16),),
    home={"target": (0.2, -0.3, 0.5)},
    measured_by={"target": "angle"},
    max_age_s={"angle": 0.05, "load": 0.1},
)  # fmt: skip

PERIOD_NS = 20_000_000


class Scara:
    """A simulated arm whose servos follow a limited goal with a lag of a period."""

    simulated = True
    spec = SCARA

    def __init__(self) -> None:
        self.q, self.before = np.zeros(3), np.zeros(3)
        self.goal: np.ndarray | None = None
        self.count = self.frame = 0
        self.load, self.load_at = np.zeros(3), 0
        self.stopped, self.closed = "", False

    # -- the five members -----------------------------------------------------------------------------

    def reset(self, options: Any) -> RobotState:
        if self.closed:
            raise EpisodeError("reset after close")
        check_reset_options(self.spec.commands, options)
        self.clear(options)
        start = np.array({**self.spec.home, **options.get("start", {})}["target"], float)
        self.goal = self.place(start)
        self.q, self.before = self.goal.copy(), self.goal.copy()
        self.frame = 0
        self.count += 50
        self.sample()
        return self.state()

    def clear(self, options: Any) -> None:
        why = options.get("clear_stop")
        if self.stopped and not (isinstance(why, str) and why.strip()):
            raise RobotStopped(self.stopped)
        self.stopped = ""

    def place(self, start: np.ndarray) -> np.ndarray:
        return start

    def step(self, command: Any) -> RobotState:
        if self.closed or self.goal is None:
            raise EpisodeError("step before reset, or after close")
        target = self.check(command)
        self.refuse()
        self.goal = self.limit(target)
        self.frame += 1
        self.tick()
        return self.state()

    def check(self, command: Any) -> np.ndarray:
        return self.spec.commands.validate(command, "command")["target"].astype(float)

    def refuse(self) -> None:
        if self.stopped:
            raise RobotStopped(self.stopped)

    def limit(self, target: np.ndarray) -> np.ndarray:
        return np.clip(target, self.goal - 0.03, self.goal + 0.03)

    def tick(self) -> None:
        self.before = self.q
        self.q = self.follow(self.q, self.goal)
        self.count += 1
        if self.count % 2 == 0:
            self.sample()

    def follow(self, q: np.ndarray, goal: np.ndarray) -> np.ndarray:
        return q + 0.7 * (goal - q)

    def sample(self) -> None:
        self.load, self.load_at = 0.5 + 3.0 * (self.goal - self.q) + np.sin(self.q), self.count

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or reason or "stopped"

    def close(self) -> None:
        self.closed = True

    # -- measurements ---------------------------------------------------------------------------------

    def read(self) -> RobotState:
        self.count += 1
        self.before = self.q
        return self.state()

    def state(self) -> RobotState:
        return RobotState(self.sensors(), self.applied(), self.stamp(), self.ages(), self.images())

    def sensors(self) -> dict[str, np.ndarray]:
        values = {"angle": self.angle(), "speed": (self.q - self.before) * 50, "load": self.load}
        return {name: np.array(value, np.float32) for name, value in values.items()}

    def angle(self) -> np.ndarray:
        return self.q

    def applied(self) -> dict[str, np.ndarray]:
        return {"target": self.goal.astype(np.float32)}

    def stamp(self) -> int:
        return self.count * PERIOD_NS

    def ages(self) -> dict[str, int]:
        return {"load": (self.count - self.load_at) * PERIOD_NS}

    def images(self) -> dict[str, Image]:
        at = self.count - self.count % 3
        return {"top": Image(self.pixels(at), "rgb8", at * PERIOD_NS)}

    def pixels(self, at: int) -> np.ndarray:
        image = np.zeros((16, 24, 3), np.uint8)
        image[:, at % 24] = 200
        image[at % 16, :, 1] = 90
        return image
