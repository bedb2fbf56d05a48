"""Arms that are tables of joints: the Koch v1.1 of Dynamixels, and a gimbal of two Feetech servos."""

from __future__ import annotations

from pathlib import Path

from hal.drivers.arm_table import load_arm
from rlenv_robot.robot_models import RobotModel

__all__ = ["gimbal", "koch"]

_FOLDER = Path(__file__).parent


def gimbal() -> RobotModel:
    """Return the robot model of a pan and tilt head of two STS3215."""
    return RobotModel.from_arm(load_arm(_FOLDER / "gimbal.arm.toml"))


def koch() -> RobotModel:
    """Return the robot model of the follower arm Koch v1.1."""
    return RobotModel.from_arm(load_arm(_FOLDER / "koch.arm.toml"))
