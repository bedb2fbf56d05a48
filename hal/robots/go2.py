"""Describe a quadruped of twelve joints in the dimensions of Unitree's Go2: its sensors and its commands."""

from __future__ import annotations

import numpy as np

from hal.field import Bound, Field
from hal.limits import Limits
from hal.robot import RobotSpec
from hal.spec import Spec

__all__ = ["FEET", "GO2", "HIGH", "JOINTS", "LOW", "STANCE", "TORQUE_LIMIT"]

_LEGS = ("FR", "FL", "RR", "RL")

JOINTS = tuple(f"{leg}_{joint}" for leg in _LEGS for joint in ("hip", "thigh", "calf"))
"""The joints in the order of the maker's motor numbers 0 to 11: legs front right, front left, rear right, rear left."""

FEET = tuple(f"{leg}_foot" for leg in _LEGS)
"""The feet, in the order of the legs."""

_HIP, _CALF = (-1.0472, 1.0472), (-2.7227, -0.83776)
_FRONT, _REAR = (_HIP, (-1.5708, 3.4907), _CALF), (_HIP, (-0.5236, 4.5379), _CALF)
_RANGES = _FRONT * 2 + _REAR * 2

LOW = tuple(low for low, _ in _RANGES)
HIGH = tuple(high for _, high in _RANGES)
"""Joint ranges, rad (the maker's public description go2_description)."""

TORQUE_LIMIT = (23.7, 23.7, 45.43) * 4
"""Largest torques of the motors, N m (go2_description)."""

STANCE = (0.0, 0.9, -1.8) * 4
"""Joint angles at which the robot stands with its feet under its hips, rad."""


def _joints(name: str, unit: str, meaning: str, low: Bound, high: Bound) -> Field:
    return Field(name, (12,), "float32", low, high, unit, meaning, JOINTS)


def _axes(name: str, unit: str, meaning: str, bound: float) -> Field:
    return Field(name, (3,), "float32", -bound, bound, unit, meaning, ("x", "y", "z"))


_TURN = 2 * np.pi

GO2 = RobotSpec(
    name="go2",
    sensors=Spec("go2_sensors", (
        _joints("joint_position", "rad", "measured joint angles", -_TURN, _TURN),
        _joints("joint_velocity", "rad/s", "measured joint velocities", -100.0, 100.0),
        _joints("joint_goal", "rad", "the goal that the motors hold", LOW, HIGH),
        _joints("joint_torque", "N m", "what the motors gave, one physics step ago", -46.0, 46.0),
        _axes("angular_velocity", "rad/s", "of the trunk in its own frame, as the gyroscope tells", 100.0),
        Field("orientation", (4,), "float32", -1.0, 1.0, "1", "of the trunk, unit quaternion", ("w", "x", "y", "z")),
        Field("foot_force", (4,), "float32", 0.0, 5000.0, "N", "on the feet, one physics step ago", FEET),
        _axes("position", "m", "of the trunk in the world: exact in simulation, an estimate on a robot", 1e4),
        _axes("linear_velocity", "m/s", "of the trunk in its own frame: exact in simulation, an estimate on a robot",
              100.0),
    )),
    commands=Spec("go2_commands", (_joints("joint_target", "rad", "goal angles of the motors", LOW, HIGH),)),
    rate_hz=50.0,
    limits=Limits(max_velocity={"joint_target": 25.0}),
    home={"joint_target": STANCE},
    measured_by={"joint_target": "joint_position"},
    max_age_s={"joint_position": 0.04, "joint_velocity": 0.04, "angular_velocity": 0.04, "orientation": 0.04},
    max_rate={"joint_position": 30.1},
)  # fmt: skip
"""The robot at 50 Hz, a common rate of walking policies. Its 25 rad/s are under the motors' no-load speed of 30.1."""
