"""Take a handle, move it along the way of its part, and let go of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import GRASP, LOW, TIP, finger_axis
from hal.robots.so101_cabinet import HANDLE_HALF
from rlenv_robot.scripted.arm import (
    blend,
    coming_position,
    fingers_middle,
    heading_to,
    holds,
    ramp,
    roll_to,
    same_turn,
    toward,
)

__all__ = ["ScriptedDrawer", "grasp_move_and_leave", "stretch"]

_OPEN = 0.8
_CLOSED = LOW[5] + 0.02
_CLOSING_STEP = 0.12

_ABOVE_M = 0.05
"""The greatest height over the handle at which the fingers come to it, metres."""

_LEAVE_M = 0.09
"""Height over the handle to which the open fingers leave it, metres."""

_STRETCH_M = 0.03

_ALONG_M = 0.008
"""Distance along the handle from its middle within which the fingers take it, metres."""

_UP = np.array([0.0, 0.0, 1.0])


def grasp_move_and_leave(
    observation: Mapping[str, np.ndarray], side: np.ndarray, leg: np.ndarray, width_m: float, done: np.ndarray
) -> np.ndarray:
    """Return the next joint goals of an arm that takes a handle from above, moves it, and leaves it.

    The gripper's goal is the phase, as for `rlenv_robot.scripted.grasp_and_carry`: open, closing, closed, and open
    again once ``done``.

    Args:
        observation: of the arm, and ``handle_position``, with any leading axes.
        side: the angle about the vertical at which the fingers close, rad, shape (...).
        leg: the next stretch of the held handle's way, metres, shape (..., 3).
        width_m: of the handle between the fingers.
        done: from 0 to 1, shape (...): how surely the handle is where it shall be.

    Returns:
        Rad, float32, shape (..., 6).
    """
    goal, position, velocity = (observation[f"joint_{name}"] for name in ("goal", "position", "velocity"))
    arm, jaw = goal[..., :5].astype(np.float64), goal[..., 5].astype(np.float64)
    coming = coming_position(position, velocity)[..., :5]
    tips = fingers_middle(observation["gripper_position"], position)
    thing = np.asarray(observation["handle_position"], np.float64)
    heading = heading_to(thing)
    roll = same_turn(arm[..., 4], roll_to(heading + np.pi / 2 - side), np.pi)
    axis = finger_axis(-heading, np.pi / 2, roll)
    before = thing - axis * (width_m / 2 + TIP[1] - GRASP[1] + 0.004)
    off = _off(tips - before, side)
    down = ramp(off, 0.012, 0.008) * ramp(tips[..., 2] - thing[..., 2], 0.0075, 0.0025)
    begun = ramp(jaw, _OPEN - 0.05, _OPEN - 0.2) * _around(tips, thing)
    closing = np.maximum(down, begun) * (1 - done)
    moving = holds(goal, velocity, tips, thing) * (1 - done)
    opened = ramp(position[..., 5].astype(np.float64), 0.35, 0.6)

    above = before + _UP * np.clip((off - 0.004) * 6, 0.0, _ABOVE_M)[..., None]
    free = toward(arm, coming, blend(done, thing + _UP * _LEAVE_M, above), roll, tool=GRASP)
    # What is held leads the gripper, so its turns are left as they are: goals that fight the joint only wind up.
    led = toward(arm, coming, tips + leg, coming[..., 4], tool=GRASP, pitch=coming[..., 1:4].sum(axis=-1))
    moved = blend(moving, led, free)
    moved = blend(np.maximum(closing * (1 - moving), done * (1 - opened)), arm, moved)
    wanted = np.clip(jaw + _CLOSING_STEP * (1 - 2 * closing), _CLOSED, _OPEN)
    return np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)


def _around(tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Return how surely the handle is between the fingers, 0 to 1, shape (...)."""
    return ramp(np.sqrt(np.square(tips - thing).sum(axis=-1)), 0.035, 0.028)


def _off(gap: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return how far the fingers are off a place, metres: across the handle, and along it beyond `_ALONG_M`."""
    across = gap[..., 0] * np.cos(side) + gap[..., 1] * np.sin(side)
    along = np.abs(gap[..., 1] * np.cos(side) - gap[..., 0] * np.sin(side))
    off: np.ndarray = np.hypot(across, np.maximum(along - _ALONG_M, 0.0))
    return off


def stretch(way: np.ndarray, longest: float = _STRETCH_M) -> np.ndarray:
    """Return a way, or its first part where it is longer, metres, shape (..., 3)."""
    length = np.sqrt(np.square(way).sum(axis=-1, keepdims=True))
    part: np.ndarray = way * np.minimum(1.0, longest / np.maximum(length, 1e-9))
    return part


class ScriptedDrawer:
    """A `rlenv_robot.policies.policy.Policy` without memory: takes the handle from above, moves it along the drawer's
    way to the target, and leaves it upwards.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action for observations with any leading axes."""
        way = np.asarray(observation["handle_target"], np.float64) - observation["handle_position"]
        error = np.sqrt(np.square(way).sum(axis=-1))
        side = np.asarray(observation["cabinet_yaw"], np.float64)[..., 0] + np.pi / 2
        done = ramp(error, 0.006, 0.003)
        goals = grasp_move_and_leave(observation, side, stretch(way), 2 * HANDLE_HALF[1], done)
        return {"joint_target": goals}
