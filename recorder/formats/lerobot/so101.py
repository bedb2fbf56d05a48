"""Convert LeRobot's data of an SO-101 to SI: the sensors and commands of our robot, from which tasks reward."""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import HIGH, JOINTS, LOW, SO101, forward_kinematics, from_lerobot
from recorder.formats.lerobot.features import Features

__all__ = ["COMMANDS", "SENSORS", "fill", "in_units", "why_not"]

KINDS = ("so101", "so101_follower", "so100", "so100_follower")
ELEMENTS = tuple(f"{joint}.pos" for joint in JOINTS)
SENSORS, COMMANDS = SO101.sensors, SO101.commands
MARGIN = 10.0
"""Largest distance of a measured joint from -100..100 in LeRobot's units; beyond it the units must be others."""


def why_not(robot_type: str, features: Features) -> str | None:
    """Return why the columns are no SO-101's in calibrated units: empty for another robot, None if they are."""
    if robot_type not in KINDS:
        return ""
    for part, name in ((features.observation, "state"), (features.action, "target")):
        fields = [feature.field for feature in part if feature.field.name == name]
        if len(fields) != 1 or fields[0].elements != ELEMENTS:
            return f"{part[0].column if part else name} is not named {', '.join(ELEMENTS)}"
    return None


def in_units(*values: np.ndarray) -> bool:
    """Return whether values can be in LeRobot's calibrated units (data recorded in degrees exceed them)."""
    low = np.array([-100.0] * 5 + [0.0]) - MARGIN
    return all(bool(((value >= low) & (value <= 100 + MARGIN)).all()) for value in values)


def fill(rows: np.ndarray, state: np.ndarray, target: np.ndarray) -> None:
    """Write sensors and applied commands of one episode.

    Velocities are differences of positions over differences of stamps, 0 in row 0. What the servos held in
    row 0 was not recorded; the measured position, within the joints' range, stands in for it.

    Args:
        rows: shape (T,), with ``stamp_ns`` filled.
        state: measured positions in LeRobot's units, shape (T, 6).
        target: the goals that led to rows 1 to T - 1, in LeRobot's units, shape (T - 1, 6).
    """
    position = from_lerobot(np.asarray(state, np.float64))
    goal = np.empty_like(position)
    goal[0] = np.clip(position[0], LOW, HIGH)
    goal[1:] = from_lerobot(np.asarray(target, np.float64))
    seconds = np.diff(rows["stamp_ns"])[:, None] / 1e9
    rows["sensor_joint_position"] = position
    rows["sensor_joint_velocity"][1:] = np.diff(position, axis=0) / seconds
    rows["sensor_joint_goal"] = rows["applied_joint_target"] = goal
    rows["sensor_gripper_position"] = forward_kinematics(position)
