"""What scripted policies of the SO-101 share: from a place for the finger tips to joint goals, a little at a time.

Nothing here jumps: where a script goes over from one thing to another, it does so over a centimetre or a tenth of a
radian. Then an arm does not chatter, and a network can learn the script.
"""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import CHAIN, HIGH, LOW
from hal.robots.so101_inverse import inverse_kinematics, steepest

__all__ = ["STEP_RAD", "blend", "pan_to", "ramp", "same_turn", "toward", "yaw_of"]

STEP_RAD = 0.09
"""The farthest that a scripted policy moves a goal in a control period: 2.7 rad/s at 30 Hz, under the guard's 4."""

_GAIN = 0.4
"""Share of the way to a near place in a control period: the servos follow late, and a whole way would overshoot."""

_PAN_X = CHAIN[0].offset[0]
_WRIST_RAD = 2.2
"""The wrist's roll stays within it, so that half a turn of another's choosing is left on either side."""


def ramp(value: np.ndarray, none: float, full: float) -> np.ndarray:
    """A share that goes in a straight line from 0 at ``none`` to 1 at ``full``, and stays there on both sides."""
    share: np.ndarray = np.clip((value - none) / (full - none), 0.0, 1.0)
    return share


def blend(share: np.ndarray, one: np.ndarray | float, other: np.ndarray | float) -> np.ndarray:
    """So much of the one and the rest of the other.

    Args:
        share: from 0 to 1, shape (...).
        one, other: shape (...), or (..., n) with a share for all n.
    """
    if max(np.ndim(one), np.ndim(other)) > np.ndim(share):
        share = share[..., None]
    mixed: np.ndarray = share * one + (1.0 - share) * other
    return mixed


def toward(goal: np.ndarray, place: np.ndarray, roll: np.ndarray, step: np.ndarray | float = STEP_RAD) -> np.ndarray:
    """The next goals of the five joints, on the way to where the finger tips are at ``place``, pointing down.

    Args:
        goal: of the joints now, rad, shape (..., 5).
        place: metres in the base frame, shape (..., 3).
        roll: of the wrist, rad, shape (...).
        step: the farthest that the joint with the longest way moves, rad, shape (...) or a number; the others keep
            pace.

    Returns:
        Rad, float32, shape (..., 5); ``goal`` where the place is out of reach.
    """
    wanted = inverse_kinematics(place, _pitch_to(place), roll)
    lost = np.isnan(wanted[..., :1])
    if lost.any():
        wanted = np.where(lost, inverse_kinematics(place, steepest(place, roll), roll), wanted)
    change = np.where(np.isnan(wanted), 0.0, wanted - goal)
    longest = np.abs(change).max(axis=-1)
    moved = goal + change * np.minimum(_GAIN, step / np.maximum(longest, 1e-9))[..., None]
    low, high = np.asarray(LOW[:5], np.float32), np.asarray(HIGH[:5], np.float32)
    bounded: np.ndarray = np.clip(moved.astype(np.float32), low, high)
    return bounded


def _pitch_to(place: np.ndarray) -> np.ndarray:
    """Straight down where things lie, flatter higher up and farther away: a little under `steepest`, without its steps.

    Its slopes were laid under a map of `steepest` from 0.14 to 0.36 m ahead and up to 0.16 m above the table.
    """
    ahead = np.hypot(place[..., 1], place[..., 0] - _PAN_X) + _PAN_X
    flatter = 7 * np.maximum(place[..., 2] - 0.04, 0.0) + 8 * np.maximum(ahead - 0.31, 0.0)
    pitch: np.ndarray = np.maximum(np.pi / 2 - flatter, 0.5)
    return pitch


def pan_to(place: np.ndarray) -> np.ndarray:
    """The angle of the shoulder's pan at which the arm faces a place, rad; (..., 3) -> (...)."""
    angle: np.ndarray = np.arctan2(place[..., 1], place[..., 0] - _PAN_X)
    return angle


def same_turn(now: np.ndarray, wanted: np.ndarray, period: float) -> np.ndarray:
    """The roll nearest to the present one that serves as well as the wanted one, rad.

    Args:
        now: the wrist's roll, shape (...).
        wanted: likewise.
        period: after which a thing looks the same to the fingers; pi for one with two sides, pi/2 for a cube.
    """
    nearest = now + (wanted - now + period / 2) % period - period / 2
    beyond = np.ceil(np.maximum(np.abs(nearest) - _WRIST_RAD, 0.0) / period)
    result: np.ndarray = nearest - np.sign(nearest) * beyond * period
    return result


def yaw_of(orientation: np.ndarray) -> np.ndarray:
    """How far a body is turned about the vertical, rad, from a unit quaternion (w, x, y, z); (..., 4) -> (...)."""
    w, x, y, z = np.moveaxis(np.asarray(orientation, np.float64), -1, 0)
    angle: np.ndarray = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return angle
