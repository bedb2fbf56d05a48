"""Robots that need no world, for the tests of what is built around robots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from hal import Field, Limits, RobotSpec, RobotState, Spec

TWO_JOINTS = RobotSpec(
    name="two_joints",
    sensors=Spec("sensors", (Field("angle", (2,), "float32", -10, 10, "rad", elements=("hip", "knee")),)),
    commands=Spec("commands", (Field("target", (2,), "float32", -1, 1, "rad", elements=("hip", "knee")),)),
    rate_hz=10,
    limits=Limits(max_velocity={"target": 2.0}, max_lead={"target": 0.5}),
    home={"target": (0.0, 0.0)},
    measured_by={"target": "angle"},
    max_age_s={"angle": 0.1},
)


class Puppet:
    """Follows each command by the share ``follows`` of the way, and writes down what it was told."""

    def __init__(self, spec: RobotSpec = TWO_JOINTS, at: tuple[float, ...] = (0.0, 0.0), follows: float = 1.0) -> None:
        self.spec, self.follows = spec, follows
        self.angle = np.asarray(at, np.float32)
        self.applied = self.angle.copy()
        self.age_ns: dict[str, int] = {}
        self.told: list[np.ndarray] = []
        self.calls: list[str] = []
        self.stamp_ns = 0

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.calls.append("reset")
        return self._robot_state()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.calls.append("step")
        self.applied = np.asarray(command["target"]).copy()
        self.told.append(self.applied)
        self.stamp_ns += round(1e9 / self.spec.rate_hz)
        self.angle = self.angle + np.float32(self.follows) * (self.applied - self.angle)
        return self._robot_state()

    def _robot_state(self) -> RobotState:
        return RobotState({"angle": self.angle.copy()}, {"target": self.applied.copy()}, self.stamp_ns, self.age_ns)

    def stop(self, reason: str) -> None:
        self.calls.append(f"stop {reason}")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def puppet() -> Callable[..., Puppet]:
    return Puppet
