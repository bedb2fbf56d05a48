"""Inverse kinematics of the SO-101, in closed form: joint angles that bring the finger tips somewhere."""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import CHAIN, HIGH, LOW, TIP

__all__ = ["finger_axis", "inverse_kinematics", "steepest"]

_PAN_X, _PAN_Z = CHAIN[0].offset[0], CHAIN[0].offset[2]
_LIFT_X, _LIFT_Z = CHAIN[1].offset[0], CHAIN[1].offset[2]
_UPPER = np.hypot(CHAIN[2].offset[0], CHAIN[2].offset[2])
_UPPER_ANGLE = np.arctan2(CHAIN[2].offset[2], CHAIN[2].offset[0])
_LOWER = np.hypot(CHAIN[3].offset[0], CHAIN[3].offset[2])
_LOWER_ANGLE = np.arctan2(CHAIN[3].offset[2], CHAIN[3].offset[0])
_HAND = CHAIN[4].offset[0] + TIP[0]

_STEEPNESS = np.arange(np.pi / 2, 0.3, -0.05)
"""Pitches that `steepest` tries, rad, from straight down."""


def inverse_kinematics(position: np.ndarray, pitch: np.ndarray | float, roll: np.ndarray | float) -> np.ndarray:
    """The five angles of the arm with its elbow up, for which `forward_kinematics` gives ``position``.

    Shoulder, elbow and wrist turn about parallel axes, so their sum is the gripper's pitch, and what is left is a
    triangle of upper arm, forearm and the way from shoulder to wrist (law of cosines).

    Args:
        position: of the point between the finger tips in the base frame, metres, shape (..., 3).
        pitch: of the gripper below the horizontal, rad; pi/2 points straight down. Shape (...) or a number.
        roll: of the wrist, rad, likewise.

    Returns:
        Angles in rad, shape (..., 5); NaN where the place is out of reach or a joint out of its range.
    """
    point = np.asarray(position, np.float64)
    pan = np.arctan2(point[..., 1], point[..., 0] - _PAN_X)
    ahead = np.hypot(point[..., 1], point[..., 0] - _PAN_X) - _LIFT_X - _HAND * np.cos(pitch)
    above = point[..., 2] - _PAN_Z - _LIFT_Z + _HAND * np.sin(pitch)
    reach = np.hypot(ahead, above)
    with np.errstate(invalid="ignore", divide="ignore"):  # out of reach becomes NaN
        bend = np.arccos((_UPPER**2 + reach**2 - _LOWER**2) / (2 * _UPPER * reach))
    upper = np.arctan2(above, ahead) + bend
    lower = np.arctan2(above - _UPPER * np.sin(upper), ahead - _UPPER * np.cos(upper))
    lift = _UPPER_ANGLE - upper
    elbow = _LOWER_ANGLE - lower - lift
    angles = np.stack(np.broadcast_arrays(pan, lift, elbow, pitch - lift - elbow, roll), axis=-1)
    legal = (angles >= LOW[:5]) & (angles <= HIGH[:5])
    return np.where(legal.all(axis=-1, keepdims=True), angles, np.nan)


def steepest(position: np.ndarray, roll: np.ndarray | float = 0.0) -> np.ndarray:
    """The steepest pitch, straight down at most, with which a place can be reached.

    Args:
        position: metres, shape (..., 3).
        roll: rad, shape (...) or a number.

    Returns:
        Rad, shape (...); NaN where no pitch of 0.3 rad or more reaches it.
    """
    point = np.asarray(position, np.float64)[..., None, :]
    found = ~np.isnan(inverse_kinematics(point, _STEEPNESS, np.asarray(roll)[..., None])[..., 0])
    return np.where(found.any(axis=-1), _STEEPNESS[found.argmax(axis=-1)], np.nan)


def finger_axis(pan: np.ndarray, pitch: np.ndarray | float, roll: np.ndarray) -> np.ndarray:
    """The direction from the fixed finger to the jaw in the base frame, unit vectors of shape (..., 3)."""
    ahead = np.sin(roll) * np.sin(pitch)
    beside = np.cos(roll)
    axis = (
        np.cos(pan) * ahead - np.sin(pan) * beside,
        np.sin(pan) * ahead + np.cos(pan) * beside,
        np.sin(roll) * np.cos(pitch),
    )
    return np.stack(np.broadcast_arrays(*axis), axis=-1)
