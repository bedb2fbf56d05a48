"""Find and calibrate servo arms, and describe two arms by tables: a Koch v1.1 and a gimbal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_robot.robot_models import RobotModel

__all__ = ["gimbal", "koch"]

_FOLDER = Path(__file__).parent


def gimbal() -> RobotModel:
    """Return the robot model of a pan-tilt head with two STS3215 servos."""
    return _model("gimbal.arm.toml")


def koch() -> RobotModel:
    """Return the robot model of the Koch v1.1 follower arm."""
    return _model("koch.arm.toml")


def _model(file: str) -> RobotModel:
    from hal.drivers.arm_table import load_arm
    from rlenv_robot.robot_models import RobotModel

    return RobotModel.from_arm(load_arm(_FOLDER / file))
