"""Two SO-101 arms that face each other across a table, and a bar between them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hal.field import Field
from hal.limits import Limits
from hal.robot import CameraSpec, RobotSpec
from hal.robots.so101 import SO101
from hal.spec import Spec

__all__ = ["APART", "BAR_HALF", "HOME", "SIDES", "SO101_PAIR", "from_right", "turn_from_right"]

SIDES = ("left", "right")
"""The base of the left arm is the origin of the table. The base of the right arm is `APART` ahead, turned by pi."""

APART = 0.60
"""Distance between the two bases along x, metres."""

BAR_HALF = (0.12, 0.0125, 0.010)
"""Half the bar's length, width and height, metres; it lies along x between the arms."""

HOME = (0.0, -1.0, 0.8, 1.0, -1.5221, 0.0)
"""Joint angles of each arm at rest, rad: drawn back, so that the two grippers are 14 cm apart."""


_APART_64, _TURN_64 = np.array((APART, 0.0, 0.0)), np.array((-1.0, -1.0, 1.0))
_APART_32, _TURN_32 = _APART_64.astype(np.float32), _TURN_64.astype(np.float32)


def from_right(point: np.ndarray) -> np.ndarray:
    """Convert a point from the frame of the right base to the table's frame, or back; shape (..., 3), metres."""
    converted: np.ndarray = turn_from_right(point) + (_APART_32 if point.dtype == np.float32 else _APART_64)
    return converted


def turn_from_right(direction: np.ndarray) -> np.ndarray:
    """Convert a direction as `from_right` converts a point."""
    converted: np.ndarray = direction * (_TURN_32 if direction.dtype == np.float32 else _TURN_64)
    return converted


def _of_side(side: str, spec: Spec) -> tuple[Field, ...]:
    return tuple(replace(field, name=f"{side}_{field.name}", meaning=f"{side} arm: {field.meaning}") for field in spec)


_AXES = ("x", "y", "z")

SO101_PAIR = RobotSpec(
    name="so101-pair",
    sensors=Spec("so101_pair_sensors", (
        *_of_side("left", SO101.sensors),
        *_of_side("right", SO101.sensors),
        Field("bar_position", (3,), "float32", -10.0, 10.0, "m", "middle of the bar on the table", _AXES),
        Field("bar_orientation", (4,), "float32", -1.0, 1.0, "1", "unit quaternion", ("w", "x", "y", "z")),
        Field("bar_velocity", (3,), "float32", -100.0, 100.0, "m/s", "of the bar's middle", _AXES),
        Field("bar_turning", (3,), "float32", -1000.0, 1000.0, "rad/s", "of the bar, about its own axes", _AXES),
    )),
    commands=Spec("so101_pair_commands", tuple(field for side in SIDES for field in _of_side(side, SO101.commands))),
    rate_hz=SO101.rate_hz,
    limits=Limits(
        max_velocity={f"{side}_joint_target": SO101.limits.max_velocity["joint_target"] for side in SIDES},
        max_lead={f"{side}_joint_target": SO101.limits.max_lead["joint_target"] for side in SIDES},
    ),
    cameras=(CameraSpec("overhead", 640, 480, "looks down on the table"),),
    home={f"{side}_joint_target": HOME for side in SIDES},
    measured_by={f"{side}_joint_target": f"{side}_joint_position" for side in SIDES},
    max_age_s={f"{side}_{name}": age for side in SIDES for name, age in SO101.max_age_s.items()},
    max_rate={f"{side}_{name}": rate for side in SIDES for name, rate in SO101.max_rate.items()},
)  # fmt: skip
"""One robot with two arms on one clock. A simulation knows the pose of the bar; real arms need a tracker for it."""
