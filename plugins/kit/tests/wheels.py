"""A correct robot for planted faults: a mobile base with a mast and a lamp, which is no simulation."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from hal import EpisodeError, Field, Limits, RobotSpec, RobotState, RobotStopped, Spec
from hal.robot import check_reset_options

BASE = RobotSpec(
    "cart_base",
    Spec("cart_base_sensors", (
        Field("odometry", (3,), "float64", -1000.0, 1000.0, "1", "x and y in m, heading in rad"),
        Field("twist_measured", (2,), "float32", -3.0, 3.0, "1", "forward m/s, turn rad/s", ("forward", "turn")),
        Field("height", (), "float32", -0.1, 1.2, "m", "height of the mast"),
        Field("battery", (), "float32", 0.0, 60.0, "V", "voltage"),
    )),
    Spec("cart_base_commands", (
        Field("twist", (2,), "float32", (-0.5, -1.0), (0.5, 1.0), "1", "forward m/s, turn rad/s", ("forward", "turn")),
        Field("mast", (), "float32", 0.0, 1.0, "m", "height to go to"),
        Field("lamp", (), "uint8", 0, 3, "1", "brightness"),
    )),
    rate_hz=100.0,
    limits=Limits(max_velocity={"mast": 0.4}),
    home={"twist": (0.0, 0.0), "mast": 0.3, "lamp": 0},
    measured_by={"twist": "twist_measured", "mast": "height"},
)  # fmt: skip


class Base:
    """A mobile base: wheels with a lag, a mast with a speed limit, a lamp.

    Its clock is faster than this machine's, so that tests are short; ``real_time`` makes it this machine's.
    """

    real_time = False

    spec = BASE
    period_s = 0.01

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pose, self.twist, self.height = np.zeros(3), np.zeros(2), 0.3
        self.goal: dict[str, Any] | None = None
        self.now = 5_000_000_000
        self.stopped, self.closed, self.frame = "", False, 0

    def reset(self, options: Any) -> RobotState:
        if self.closed:
            raise EpisodeError("reset after close")
        check_reset_options(self.spec.commands, options)
        self.clear(options)
        self.goal = {"twist": np.zeros(2), "mast": self.height, "lamp": 0}
        start = {**self.spec.home, **options.get("start", {})}
        self.go_to(start)
        self.frame = 0
        return self.state()

    def clear(self, options: Any) -> None:
        why = options.get("clear_stop")
        if self.stopped and not (isinstance(why, str) and why.strip()):
            raise RobotStopped(self.stopped)
        self.stopped = ""

    def go_to(self, start: Any) -> None:
        """Lift the mast to its start, then set the other commands."""
        while abs(self.height - float(start["mast"])) > 1e-6:
            self.refuse()
            self.goal["mast"] = self.limited(float(start["mast"]))
            self.move()
        self.goal = {"twist": np.array(start["twist"], float), "mast": self.goal["mast"], "lamp": int(start["lamp"])}
        self.move()
        self.refuse()

    def step(self, command: Any) -> RobotState:
        if self.closed or self.goal is None:
            raise EpisodeError("step before reset, or after close")
        values = self.check(command)
        self.refuse()
        self.command(values)
        self.frame += 1
        self.move()
        return self.state()

    def check(self, command: Any) -> dict[str, np.ndarray]:
        return self.spec.commands.validate(command, "command")

    def command(self, values: Any) -> None:
        mast = self.limited(float(values["mast"]))
        self.goal = {"twist": np.array(values["twist"], float), "mast": mast, "lamp": int(values["lamp"])}

    def limited(self, mast: float) -> float:
        return float(np.clip(mast, self.goal["mast"] - 0.004, self.goal["mast"] + 0.004))

    def refuse(self) -> None:
        if self.stopped:
            raise RobotStopped(self.stopped)

    def move(self) -> None:
        self.pace()
        twist = np.zeros(2) if self.stopped else self.goal["twist"]
        self.integrate(twist)

    def integrate(self, twist: np.ndarray) -> None:
        self.twist = self.twist + 0.6 * (twist - self.twist)
        if np.abs(self.twist - twist).max() < 1e-4:
            self.twist = twist.copy()
        heading = self.pose[2]
        self.pose = self.pose + 0.01 * np.array(
            [self.twist[0] * np.cos(heading), self.twist[0] * np.sin(heading), self.twist[1]]
        )
        if not self.stopped:
            self.height = self.goal["mast"]

    def pace(self) -> None:
        time.sleep(self.period_s if self.real_time else 0.0002)
        self.now += round(self.period_s * 1e9)

    def stop(self, reason: str) -> None:
        self.stopped = self.stopped or str(reason) or "stopped"

    def close(self) -> None:
        """Brake: the wheels run out."""
        self.closed = True
        Base.stop(self, "closed")

    def read(self) -> RobotState:
        """Measure; wheels that were stopped run out meanwhile."""
        self.now += round(self.period_s * 1e9)
        self.coast()
        return self.state()

    def coast(self) -> None:
        if self.stopped:
            self.integrate(np.zeros(2))

    def state(self) -> RobotState:
        return RobotState(self.sensors(), self.applied(), self.stamp())

    def sensors(self) -> dict[str, np.ndarray]:
        return {
            "odometry": self.pose.copy(),
            "twist_measured": self.twist.astype(np.float32),
            "height": np.array(self.height, np.float32),
            "battery": np.array(24.0 - 1e-4 * self.frame, np.float32),
        }

    def applied(self) -> dict[str, np.ndarray]:
        return {
            "twist": (self.goal["twist"] * (not self.stopped)).astype(np.float32),
            "mast": np.array(self.goal["mast"], np.float32),
            "lamp": np.array(self.goal["lamp"], np.uint8),
        }

    def stamp(self) -> int:
        return time.monotonic_ns() if self.real_time else self.now
