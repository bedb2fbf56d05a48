"""Joints by the names that ROS 2 has: of one arm, of two, and their commands as one vector."""

from __future__ import annotations

import numpy as np
import pytest

from hal import Field, Limits, RobotSpec, Spec
from hal.joints import JointCommands, joint_sensors


def joints(name: str, unit: str = "rad") -> Field:
    return Field(name, (2,), "float32", -1.0, 1.0, unit, elements=("pan", "lift"))


PAIR = RobotSpec(
    "pair",
    Spec("sensors", (
        joints("left_joint_position"), joints("left_joint_velocity", "rad/s"), joints("right_joint_position"),
        Field("joint_position_age", (), "float32", unit="s"),
    )),
    Spec("commands", (
        joints("left_joint_target"), Field("lamp", (), "uint8", 0, 3), joints("right_joint_target"),
    )),
    rate_hz=50,
    limits=Limits(max_velocity={"left_joint_target": (1.0, 2.0)}),
    measured_by={"left_joint_target": "left_joint_position", "right_joint_target": "right_joint_position"},
)  # fmt: skip


def test_the_joints_of_two_arms_have_different_names() -> None:
    left, right = joint_sensors(PAIR)
    assert left.joints == ("left_pan", "left_lift")
    assert (left.velocity, right.velocity) == ("left_joint_velocity", "")
    assert right.joints == ("right_pan", "right_lift")


def test_commands_of_joints_are_one_vector_and_others_are_left_out() -> None:
    commands = JointCommands(PAIR)
    assert commands.names == ("left_pan", "left_lift", "right_pan", "right_lift")
    assert commands.max_velocity.tolist() == [1.0, 2.0, np.inf, np.inf]
    made = commands.command(np.array([0.1, 0.2, 0.3, 1.0 + 1e-9]))
    assert list(made) == ["left_joint_target", "right_joint_target"]
    PAIR.commands.validate({**made, "lamp": np.uint8(0)}, "command")
    assert commands.vector(made) == pytest.approx([0.1, 0.2, 0.3, 1.0])


def test_a_robot_without_joints_has_none() -> None:
    spec = RobotSpec(
        "lamp", Spec("s", (Field("light", (), "float32"),)), Spec("c", (Field("lamp", (), "float32"),)), 10
    )
    assert joint_sensors(spec) == ()
    assert JointCommands(spec).names == ()
