"""The ranges in which robots of one make differ, as plain data for ``timing`` and ``randomise``.

A policy that is trained within these ranges also works on robots that nobody has measured. ``launch/any_so101.toml``
has the same numbers for `so101`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hal.robots.go2 import FEET
from hal.robots.so101 import JOINTS

__all__ = ["Variation", "arm_variation", "go2_variation", "so101_cube_variation", "so101_variation"]

Variation = Mapping[str, Mapping[str, Any]]
"""Plain data of ``timing`` for `sim.latency.DelayModel.from_dict`, and of ``randomise`` for `Randomise.from_dict`."""

_DEAD_TIME: Mapping[str, Any] = {"uniform": [0.010, 0.065]}
"""From a sent goal to the first motion, s: the host's queue, bus and firmware. Published SO-101s: 8 to 64 ms."""

_BACKLASH: Mapping[str, Any] = {"uniform": [0.0, 0.0349]}
"""Play between motor and joint, rad: 0 to 2 degrees. The maker's model has 1, a user measured 1 (SO-ARM100, #134)."""

_SERVO: Mapping[str, Mapping[str, Any]] = {
    "damping": {"uniform": [0.2, 0.7], "unit": "N m s/rad"},
    "frictionloss": {"uniform": [0.03, 0.27], "unit": "N m"},
    "armature": {"uniform": [0.01, 0.03], "unit": "kg m^2"},
    "load_friction": {"uniform": [0.0, 0.15], "unit": "1"},
}
"""Joints of a servo; the friction of the arm of `sim.robots.twin.IDENTIFIED` is 0.04 to 0.23 N m. The share of the
torque that becomes friction is assumed: gears that pass on 85 to 100 %."""

_STIFFNESS: Mapping[str, Any] = {"log_uniform": [2.5, 50.0], "unit": "N m/rad"}
"""Published arms have 5 to 50 N m/rad, by the gain P and the supply's voltage. The wrist of
`sim.robots.twin.IDENTIFIED` has 3.2, that of its siblings down to 2.5."""

_MASS: Mapping[str, Any] = {"uniform": [0.8, 1.2], "scale": True}
_GRIP: Mapping[str, Any] = {"uniform": [0.7, 1.3], "scale": True}
"""Friction of a cube or bar, as for `sim.robots.twin.thing_factors`."""


def so101_variation() -> Variation:
    """Return the ranges in which SO-101s differ."""
    return arm_variation(("*",), ("joint_target",))


def so101_cube_variation() -> Variation:
    """Return the ranges in which SO-101s and their cubes differ."""
    return arm_variation(JOINTS, ("joint_target",), ("cube",))


def go2_variation() -> Variation:
    """Return the ranges in which quadrupeds differ, around those of `Go2Faults.sibling`; assumed, not measured."""
    randomise: dict[str, Any] = {
        "actuator.*.kp": {"uniform": [0.85, 1.1], "scale": True, "together": True},
        "joint.*.frictionloss": {"uniform": [0.5, 2.0], "scale": True, "together": True},
        "body.base.mass": {"uniform": [0.0, 2.0], "add": True, "unit": "kg"},
    }
    for name in (*FEET, "floor"):
        randomise[f"geom.{name}.friction[0]"] = {"uniform": [0.4, 1.0], "unit": "1"}
    return {"timing": {"command_delay": {"uniform": [0.0, 0.016]}}, "randomise": randomise}


def arm_variation(joints: Sequence[str], commands: Sequence[str], things: Sequence[str] = ()) -> Variation:
    """Return the ranges in which one or several SO-101s and the objects on their table differ.

    Args:
        joints: names of the arms' joints, with wildcards.
        commands: names of the arms' commands.
        things: names of the geoms of cubes, bars and so on; each draws its own friction.
    """
    randomise: dict[str, Any] = {"actuator.*.kp": _STIFFNESS}
    randomise |= {f"joint.{name}.{field}": line for field, line in _SERVO.items() for name in joints}
    randomise["body.*.mass"] = _MASS
    randomise |= {f"geom.{thing}.friction[0]": _GRIP for thing in things}
    timing = {"command_delay": _DEAD_TIME, "backlash": dict.fromkeys(commands, _BACKLASH)}
    return {"timing": timing, "randomise": randomise}
