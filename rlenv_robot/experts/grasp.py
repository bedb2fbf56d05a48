"""Taking a thing with flat sides from above, and carrying it: a feedback law without memory and without jumps."""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import LOW
from hal.robots.so101_inverse import finger_axis
from rlenv_robot.experts.motion import blend, pan_to, ramp, same_turn, toward

__all__ = ["grasp_and_carry", "holds"]

_OPEN = 0.8
_CLOSED = LOW[5] + 0.02
_CLOSING_STEP = 0.12
_CLEAR_M = 0.05
_STRETCH_M = 0.03


def holds(joint_goal: np.ndarray, joint_velocity: np.ndarray, tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """How surely the gripper has closed on the thing, from 0 to 1, shape (...); arguments as for `grasp_and_carry`."""
    jaw, speed = joint_goal[..., 5].astype(np.float64), np.abs(joint_velocity[..., 5].astype(np.float64))
    told_to_close = ramp(jaw, _CLOSED + 0.15, _CLOSED + 0.05)
    surely: np.ndarray = _around(tips, thing) * told_to_close * ramp(speed, 1.0, 0.3)
    return surely


def grasp_and_carry(
    joint_goal: np.ndarray,
    joint_velocity: np.ndarray,
    tips: np.ndarray,
    thing: np.ndarray,
    side: np.ndarray,
    target: np.ndarray,
    width_m: float,
    period: float = np.pi,
    ready: np.ndarray | float = 1.0,
) -> np.ndarray:
    """The next joint goals of one arm. What it is doing is told by its gripper's goal: open, closing or closed.

    Args:
        joint_goal, joint_velocity: of the six joints, rad and rad/s, shape (..., 6).
        tips: the point between the finger tips, metres in the arm's base frame, shape (..., 3).
        thing: the middle of what is to be held, likewise.
        side: the angle about the vertical at which the fingers close, rad, shape (...).
        target: where ``thing`` shall go, shape (..., 3).
        width_m: of the thing between the fingers.
        period: the turn of ``side`` after which the thing looks the same; pi/2 for a cube.
        ready: from 0 to 1, shape (...): how far it may lift what it holds.

    Returns:
        Rad, float32, shape (..., 6).
    """
    arm, jaw = joint_goal[..., :5].astype(np.float64), joint_goal[..., 5].astype(np.float64)
    tips, thing, target = (np.asarray(value, np.float64) for value in (tips, thing, target))
    pan = pan_to(thing)
    roll = same_turn(arm[..., 4], pan + np.pi / 2 - side, period)
    axis = finger_axis(pan, np.pi / 2, roll)
    # The fixed finger's face is 6.3 mm beside the tips' middle: it comes down a little beside the thing.
    before = thing - axis * (width_m / 2 - 0.0063 + 0.004)
    off = np.hypot(*np.moveaxis((tips - before)[..., :2], -1, 0))
    down = ramp(off, 0.012, 0.008) * ramp(tips[..., 2] - thing[..., 2], 0.010, 0.006)
    begun = ramp(jaw, _OPEN - 0.05, _OPEN - 0.2) * _around(tips, thing)
    closing = np.maximum(down, begun)
    lifting = holds(joint_goal, joint_velocity, tips, thing) * ready

    height = np.clip((off - 0.004) * 6, 0.0, _CLEAR_M)
    above = before + np.stack([np.zeros_like(height), np.zeros_like(height), height], axis=-1)
    place = blend(lifting, tips + _leg(thing, target), blend(closing, tips, above))
    moved = toward(arm, place, blend(closing, arm[..., 4], roll))
    moved = blend(closing * (1 - lifting), arm, moved)
    wanted = np.clip(jaw + _CLOSING_STEP * (1 - 2 * closing), _CLOSED, _OPEN)
    return np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)


def _around(tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """How surely the thing is between the fingers, from 0 to 1, shape (...)."""
    return ramp(np.sqrt(np.square(np.asarray(tips, np.float64) - thing).sum(axis=-1)), 0.035, 0.028)


def _leg(thing: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The next stretch of the way of what is held: up, over, and down, metres."""
    way = target - thing
    across = np.hypot(way[..., 0], way[..., 1])
    cruise = np.maximum(target[..., 2], _CLEAR_M)
    climb = blend(ramp(across, 0.010, 0.025), cruise - thing[..., 2], way[..., 2])
    over = ramp(climb, 0.035, 0.015)
    leg = np.stack([way[..., 0] * over, way[..., 1] * over, climb], axis=-1)
    length = np.sqrt(np.square(leg).sum(axis=-1, keepdims=True))
    result: np.ndarray = leg * np.minimum(1.0, _STRETCH_M / np.maximum(length, 1e-9))
    return result
