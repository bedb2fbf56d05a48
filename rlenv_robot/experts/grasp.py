"""Taking a thing with flat sides from above, and carrying it: a feedback law without memory."""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import LOW
from hal.robots.so101_inverse import finger_axis
from rlenv_robot.experts.motion import pan_to, toward

__all__ = ["grasp_and_carry", "holds"]

_OPEN = 0.8
_CLOSED = LOW[5] + 0.02
_CLOSING_STEP = 0.12
_CLEAR_M = 0.05
_AWAY_M = 0.008
_NEAR_M = 0.03


def holds(joint_goal: np.ndarray, joint_velocity: np.ndarray, tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Whether the gripper has closed on the thing: bool, shape (...). The arguments are `grasp_and_carry`'s."""
    near = np.sqrt(np.square(np.asarray(tips, np.float64) - thing).sum(axis=-1)) < _NEAR_M
    held: np.ndarray = near & (joint_goal[..., 5] <= _CLOSED + 1e-3) & (np.abs(joint_velocity[..., 5]) < 0.1)
    return held


def grasp_and_carry(
    joint_goal: np.ndarray,
    joint_velocity: np.ndarray,
    tips: np.ndarray,
    thing: np.ndarray,
    side: np.ndarray,
    target: np.ndarray,
    width_m: float,
    rest: np.ndarray | None = None,
) -> np.ndarray:
    """The next joint goals of one arm. What it is doing is told by its gripper's goal: open, closing or closed.

    Args:
        joint_goal, joint_velocity: of the six joints, rad and rad/s, shape (..., 6).
        tips: the point between the finger tips, metres in the arm's base frame, shape (..., 3).
        thing: the middle of what is to be held, likewise.
        side: the angle about the vertical at which the fingers close, rad, shape (...); a half turn is the same.
        target: where ``thing`` shall go, shape (..., 3).
        width_m: of the thing between the fingers.
        rest: shape (...), bool: who shall not lift yet, though it holds.

    Returns:
        Rad, float32, shape (..., 6).
    """
    arm, jaw = joint_goal[..., :5].astype(np.float64), joint_goal[..., 5]
    tips, thing, target = (np.asarray(value, np.float64) for value in (tips, thing, target))
    pan = pan_to(thing)
    roll = _half_turn(pan + np.pi / 2 - side)
    axis = finger_axis(pan, np.pi / 2, roll)
    # The fixed finger's face is 6.3 mm beside the tips' middle: it comes down a little beside the thing.
    before = thing - axis * (width_m / 2 - 0.0063 + 0.004)
    off = np.hypot(*np.moveaxis((tips - before)[..., :2], -1, 0))
    down = (off < _AWAY_M) & (tips[..., 2] < thing[..., 2] + 0.006)
    held = (jaw < _OPEN - 0.05) & (np.sqrt(np.square(tips - thing).sum(axis=-1)) < _NEAR_M)
    closing = down | held
    shut = holds(joint_goal, joint_velocity, tips, thing)
    lifting = shut if rest is None else shut & ~rest

    height = np.clip((off - 0.004) * 6, 0.0, _CLEAR_M)
    aim = before + np.stack([np.zeros_like(height), np.zeros_like(height), height], axis=-1)
    carry = tips + _leg(thing, target)
    place = np.where(lifting[..., None], carry, np.where(closing[..., None], tips, aim))
    wrist = np.where(closing, arm[..., 4], roll)
    moved = toward(arm, place, wrist)
    moved = np.where((closing & ~lifting)[..., None], joint_goal[..., :5], moved)
    wanted = np.where(closing, np.maximum(jaw - _CLOSING_STEP, _CLOSED), np.minimum(jaw + _CLOSING_STEP, _OPEN))
    return np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)


def _leg(thing: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The next stretch of the way of what is held: up, over, and down, metres."""
    way = target - thing
    across = np.hypot(way[..., 0], way[..., 1])
    cruise = np.maximum(target[..., 2], _CLEAR_M)
    climb = np.where(across > 0.015, cruise - thing[..., 2], way[..., 2])
    over = np.where(climb > 0.02, 0.0, 1.0)
    leg = np.stack([way[..., 0] * over, way[..., 1] * over, climb], axis=-1)
    length = np.sqrt(np.square(leg).sum(axis=-1, keepdims=True))
    result: np.ndarray = leg * np.minimum(1.0, 0.03 / np.maximum(length, 1e-9))
    return result


def _half_turn(angle: np.ndarray) -> np.ndarray:
    """The same direction of the fingers within a quarter turn of straight."""
    result: np.ndarray = (angle + np.pi / 2) % np.pi - np.pi / 2
    return result
