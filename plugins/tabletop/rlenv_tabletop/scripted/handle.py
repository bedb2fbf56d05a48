"""Grasp a handle, move it along the path of its part, and let go of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import GRASP, LOW, TIP, finger_axis
from rlenv_tabletop.robots import GRIP_HALF, HANDLE_HALF, grip_position, lid_normal
from rlenv_tabletop.scripted.arm import (
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

__all__ = ["ScriptedDrawer", "ScriptedLid", "grasp_move_and_leave", "stretch"]

_OPEN = 0.8
_CLOSED = LOW[5] + 0.02
_CLOSING_STEP = 0.12

_ABOVE_M = 0.05
"""Largest height above the handle at which the fingers approach it, metres."""

_LEAVE_M = 0.09
"""Height above the handle to which the open fingers retreat, metres."""

_STRETCH_M = 0.03

_ALONG_M = 0.008
"""Distance along the handle from its middle within which the fingers grasp it, metres."""

_TURN_RAD = 0.4
"""Angle of the arc segment along which a lid is moved at a time, rad."""

_UP = np.array([0.0, 0.0, 1.0])


def grasp_move_and_leave(
    observation: Mapping[str, np.ndarray],
    side: np.ndarray,
    leg: np.ndarray,
    width_m: float,
    done: np.ndarray,
    normal: np.ndarray = _UP,
    turn: np.ndarray | float = 0.0,
    pitch: np.ndarray | None = None,
    leave_m: float = _LEAVE_M,
) -> np.ndarray:
    """Return the next joint goals of an arm that grasps a handle from above, moves it, and leaves it.

    The gripper's goal encodes the phase, as for `rlenv_tabletop.scripted.grasp_and_carry`: open, closing, closed, and
    open again once ``done``.

    Args:
        observation: observation of the arm and ``handle_position``, with any leading axes.
        side: angle about the vertical at which the fingers close, rad, shape (...).
        leg: next segment of the held handle's path, metres, shape (..., 3).
        width_m: width of the handle between the fingers, metres.
        done: confidence that the handle is at its target, 0 to 1, shape (...).
        normal: direction from which the fingers approach and in which they retreat, unit vectors, shape (..., 3).
        turn: change of the handle's pitch along ``leg``, rad, shape (...).
        pitch: pitch of the gripper in approach and retreat, as for `rlenv_tabletop.scripted.toward`.
        leave_m: distance from the handle to which the open fingers retreat, metres.

    Returns:
        Joint goals, rad, float32, shape (..., 6).
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
    off = _off(tips - before, side, normal)
    down = ramp(off, 0.012, 0.008) * ramp(((tips - thing) * normal).sum(axis=-1), 0.0075, 0.0025)
    begun = ramp(jaw, _OPEN - 0.05, _OPEN - 0.2) * _around(tips, thing)
    closing = np.maximum(down, begun) * (1 - done)
    held = holds(goal, velocity, tips, thing)
    opened = ramp(position[..., 5].astype(np.float64), 0.35, 0.6)

    above = before + normal * np.clip((off - 0.004) * 10, 0.0, _ABOVE_M)[..., None]
    free = toward(arm, coming, blend(done, thing + normal * leave_m, above), roll, tool=GRASP, pitch=pitch)
    # What is held leads the gripper, so its turns are left as they are: goals that fight the joint only wind up.
    held_pitch = coming[..., 1:4].sum(axis=-1) + turn
    led = toward(arm, coming, tips + leg, coming[..., 4], tool=GRASP, pitch=held_pitch)
    moved = blend(held, led, free)
    moved = blend(np.maximum(closing * (1 - held), done * (1 - opened)), arm, moved)
    wanted = np.clip(jaw + _CLOSING_STEP * (1 - 2 * closing), _CLOSED, _OPEN)
    return np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)


def _settled(error: np.ndarray, joint_goal: np.ndarray) -> np.ndarray:
    """Return the confidence that a part is at its target, 0 to 1, shape (...).

    An open gripper is content with more than a closed one, so that a part which moves a little as it is let go of is
    left all the same.

    Args:
        error: the part's distance from its target in tolerances, shape (...).
        joint_goal: the goal of the six joints, rad, shape (..., 6).
    """
    opened = ramp(joint_goal[..., 5].astype(np.float64), _CLOSED + 0.1, _CLOSED + 0.5)
    none, full = 0.65 + 0.3 * opened, 0.35 + 0.35 * opened
    share: np.ndarray = np.clip((none - error) / (none - full), 0.0, 1.0)
    return share


def _around(tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Return how surely the handle is between the fingers, 0 to 1, shape (...)."""
    return ramp(np.sqrt(np.square(tips - thing).sum(axis=-1)), 0.035, 0.028)


def _off(gap: np.ndarray, side: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Return how far the fingers are off a place, metres: across the handle, and along it beyond `_ALONG_M`.

    Distance along the normal does not count.
    """
    flat = gap - normal * (gap * normal).sum(axis=-1)[..., None]
    lateral = np.stack([np.cos(side), np.sin(side), np.zeros_like(side)], axis=-1)
    across = (flat * lateral).sum(axis=-1)
    along = np.sqrt(np.square(flat - lateral * across[..., None]).sum(axis=-1))
    off: np.ndarray = np.hypot(across, np.maximum(along - _ALONG_M, 0.0))
    return off


def stretch(way: np.ndarray, longest: float = _STRETCH_M) -> np.ndarray:
    """Return a displacement shortened to at most ``longest``, metres, shape (..., 3)."""
    length = np.sqrt(np.square(way).sum(axis=-1, keepdims=True))
    part: np.ndarray = way * np.minimum(1.0, longest / np.maximum(length, 1e-9))
    return part


class ScriptedDrawer:
    """A stateless `rlenv_robot.policies.policy.Policy` that grasps the handle from above, moves it along the drawer's
    path to the target, and leaves it upwards.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, for observations with any leading axes."""
        way = np.asarray(observation["handle_target"], np.float64) - observation["handle_position"]
        error = np.sqrt(np.square(way).sum(axis=-1))
        side = np.asarray(observation["cabinet_yaw"], np.float64)[..., 0] + np.pi / 2
        done = _settled(error / 0.01, observation["joint_goal"])
        goals = grasp_move_and_leave(observation, side, stretch(way), 2 * HANDLE_HALF[1], done)
        return {"joint_target": goals}


class ScriptedLid:
    """A stateless `rlenv_robot.policies.policy.Policy` that grasps the handle perpendicular to the lid, moves it along
    its arc to the target, turning with it, and leaves it perpendicular to the lid.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, for observations with any leading axes."""
        place, yaw, angle, target = (
            np.asarray(observation[name], np.float64)
            for name in ("box_position", "box_yaw", "lid_angle", "target_angle")
        )
        turn = np.clip(target - angle, -_TURN_RAD, _TURN_RAD)
        leg = grip_position(place, yaw, angle + turn) - grip_position(place, yaw, angle)
        done = _settled(np.abs(target - angle)[..., 0] / 0.1, observation["joint_goal"])
        pitch = np.pi / 2 - 0.1 - 1.1 * angle[..., 0]
        goals = grasp_move_and_leave(
            observation, yaw[..., 0] + np.pi / 2, leg, 2 * GRIP_HALF[1], done, lid_normal(yaw, angle), -turn[..., 0],
            pitch, leave_m=0.065,
        )  # fmt: skip
        return {"joint_target": goals}
