"""What scripted policies of the SO-101 share: from a place for the finger tips to joint goals, a little at a time."""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import HIGH, LOW
from hal.robots.so101_inverse import inverse_kinematics, steepest

__all__ = ["STEP_RAD", "pan_to", "toward", "yaw_of"]

STEP_RAD = 0.09
"""The farthest that a scripted policy moves a goal in a control period: 2.7 rad/s at 30 Hz, under the guard's 4."""


def toward(goal: np.ndarray, place: np.ndarray, roll: np.ndarray, step: float = STEP_RAD) -> np.ndarray:
    """The next goals of the five joints, on the way to where the finger tips are at ``place``, pointing down.

    Args:
        goal: of the joints now, rad, shape (..., 5).
        place: metres in the base frame, shape (..., 3).
        roll: of the wrist, rad, shape (...).
        step: the farthest that the joint with the longest way moves, rad; the others keep pace.

    Returns:
        Rad, float32, shape (..., 5); ``goal`` where the place is out of reach.
    """
    wanted = inverse_kinematics(place, steepest(place, roll), roll)
    change = np.where(np.isnan(wanted), 0.0, wanted - goal)
    longest = np.abs(change).max(axis=-1, keepdims=True)
    moved = goal + change * np.minimum(1.0, step / np.maximum(longest, 1e-9))
    low, high = np.asarray(LOW[:5], np.float32), np.asarray(HIGH[:5], np.float32)
    bounded: np.ndarray = np.clip(moved.astype(np.float32), low, high)
    return bounded


def pan_to(place: np.ndarray) -> np.ndarray:
    """The angle of the shoulder's pan at which the arm faces a place, rad; (..., 3) -> (...)."""
    angle: np.ndarray = np.nan_to_num(inverse_kinematics(place, steepest(place), 0.0)[..., 0])
    return angle


def yaw_of(orientation: np.ndarray) -> np.ndarray:
    """How far a body is turned about the vertical, rad, from a unit quaternion (w, x, y, z); (..., 4) -> (...)."""
    w, x, y, z = np.moveaxis(np.asarray(orientation, np.float64), -1, 0)
    angle: np.ndarray = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return angle
