"""Move an SO-101 by script: from a place for the finger tips to joint goals, one small step at a time.

Nothing here jumps: where a script goes over from one thing to another, it does so over a centimetre or a tenth of a
radian. Then an arm does not chatter, and a network can learn the script.
"""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import (
    CHAIN,
    GRASP,
    HIGH,
    LOW,
    ROLL_ZERO,
    TIP,
    finger_axis,
    inverse_kinematics,
    steepest,
)

__all__ = [
    "STEP_RAD", "blend", "coming_position", "fingers_middle", "grasp_and_carry", "heading_to", "holds", "ramp",
    "roll_to", "same_turn", "toward", "yaw_of",
]  # fmt: skip

STEP_RAD = 0.09
"""The farthest that a scripted policy moves a goal in a control period: 2.7 rad/s at 30 Hz, under the guard's 4."""

_GAIN = 0.5
"""Share of the way to a near place in a control period: the servos follow late, and a whole way would overshoot."""

_LAG_S = 0.06
"""Lag of a servo behind its goal, s: damping over stiffness. The nominal servo has 0.068, the identified arm 0.08 to
0.10 (`sim.robots.twin.IDENTIFIED`); less than the true lag is safe, more makes the fingers wander."""

_LEAD_RAD = 0.6
"""The farthest that a goal may be from where its joint is going, rad: no more is added where something blocks it."""

_PAN_X = CHAIN[0].offset[0]
_WRIST_RAD = 2.2
"""Largest roll of the wrist, rad; it leaves room for half a turn on either side."""


def ramp(value: np.ndarray, none: float, full: float) -> np.ndarray:
    """Return a share that rises linearly from 0 at ``none`` to 1 at ``full``, and is constant beyond both."""
    share: np.ndarray = np.clip((value - none) / (full - none), 0.0, 1.0)
    return share


def blend(share: np.ndarray, one: np.ndarray | float, other: np.ndarray | float) -> np.ndarray:
    """Return ``share * one + (1 - share) * other``; the share's shape is the leading axes.

    Args:
        share: from 0 to 1, shape (...).
        one, other: shape (...), or (..., n) with a share for all n.
    """
    if max(np.ndim(one), np.ndim(other)) > np.ndim(share):
        share = share[..., None]
    mixed: np.ndarray = share * one + (1.0 - share) * other
    return mixed


def coming_position(joint_position: np.ndarray, joint_velocity: np.ndarray) -> np.ndarray:
    """Return where joints come to rest if their goals stay, but for the sag under gravity, rad; all shapes (..., n).

    A servo follows its goal with the lag ``T``: ``T dq/dt = goal - sag - q``, so ``q + T dq/dt`` is ``goal - sag``.
    """
    return np.asarray(joint_position, np.float64) + _LAG_S * np.asarray(joint_velocity, np.float64)


def toward(
    goal: np.ndarray,
    coming: np.ndarray,
    place: np.ndarray,
    roll: np.ndarray,
    step: np.ndarray | float = STEP_RAD,
    tool: tuple[float, float, float] = TIP,
) -> np.ndarray:
    """Return the next goals of the five joints on the way to where the tool's point is at ``place``, pointing down.

    Goals move by a share of what the joints, not the goals, are away from the place. So a soft servo's goals rise until
    its sag is made up for, and in the end the tool is where it shall be, whatever the servo.

    Args:
        goal: of the joints now, rad, shape (..., 5).
        coming: `coming_position` of the joints, rad, shape (..., 5).
        place: metres in the base frame, shape (..., 3).
        roll: of the wrist, rad, shape (...).
        tool: `hal.robots.so101.TIP`, the middle of the closed fingers, or ``GRASP``, the middle of the open ones.
        step: the farthest that the joint with the longest way moves, rad, shape (...) or a number; the others keep
            pace.

    Returns:
        Rad, float32, shape (..., 5); ``goal`` where the place is out of reach.
    """
    wanted = inverse_kinematics(place, _pitch_to(place), roll, tool)
    lost = np.isnan(wanted[..., :1])
    if lost.any():
        wanted = np.where(lost, inverse_kinematics(place, steepest(place, roll, tool), roll, tool), wanted)
    change = np.where(np.isnan(wanted), 0.0, wanted - coming)
    longest = np.abs(change).max(axis=-1)
    moved = goal + change * np.minimum(_GAIN, step / np.maximum(longest, 1e-9))[..., None]
    moved = np.clip(moved, np.minimum(goal, coming - _LEAD_RAD), np.maximum(goal, coming + _LEAD_RAD))
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


def fingers_middle(gripper_position: np.ndarray, joint_position: np.ndarray) -> np.ndarray:
    """Return the middle between the open finger tips, metres in the base frame, shape (..., 3).

    Args:
        gripper_position: the sensor: the tip of the fixed finger's face, metres, shape (..., 3).
        joint_position: rad, shape (..., 6).
    """
    pan, pitch, roll = joint_position[..., 0], joint_position[..., 1:4].sum(axis=-1), joint_position[..., 4]
    axis = finger_axis(pan, pitch, roll)
    middle: np.ndarray = np.asarray(gripper_position, np.float64) + (GRASP[1] - TIP[1]) * axis
    return middle


def roll_to(yaw: np.ndarray) -> np.ndarray:
    """Return the angle of ``wrist_roll`` of a gripper that points down, rad, shape (...).

    Args:
        yaw: the arm's heading less the direction square to the fingers' axis, rad, shape (...).
    """
    angle: np.ndarray = ROLL_ZERO - yaw
    return angle


def heading_to(place: np.ndarray) -> np.ndarray:
    """Return the direction in which a place lies from the shoulder, rad about the vertical; (..., 3) -> (...)."""
    angle: np.ndarray = np.arctan2(place[..., 1], place[..., 0] - _PAN_X)
    return angle


def same_turn(now: np.ndarray, wanted: np.ndarray, period: float) -> np.ndarray:
    """Return the roll nearest to the present one that is equal to the wanted one up to whole periods, rad.

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
    """Return a body's yaw about the vertical, rad, from its unit quaternion (w, x, y, z); (..., 4) -> (...)."""
    w, x, y, z = np.moveaxis(np.asarray(orientation, np.float64), -1, 0)
    angle: np.ndarray = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return angle


# -- Taking a thing with flat sides from above, and carrying it: a feedback law without memory and without jumps --


_OPEN = 0.8
_CLOSED = LOW[5] + 0.02
_CLOSING_STEP = 0.12
_CLEAR_M = 0.05
_STRETCH_M = 0.03


def holds(joint_goal: np.ndarray, joint_velocity: np.ndarray, tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Return how surely the gripper holds the thing, 0 to 1, shape (...); arguments as for `grasp_and_carry`."""
    jaw, speed = joint_goal[..., 5].astype(np.float64), np.abs(joint_velocity[..., 5].astype(np.float64))
    told_to_close = ramp(jaw, _CLOSED + 0.15, _CLOSED + 0.05)
    surely: np.ndarray = _around(tips, thing) * told_to_close * ramp(speed, 1.0, 0.3)
    return surely


def grasp_and_carry(
    joint_goal: np.ndarray,
    joint_position: np.ndarray,
    joint_velocity: np.ndarray,
    tips: np.ndarray,
    thing: np.ndarray,
    side: np.ndarray,
    target: np.ndarray,
    width_m: float,
    period: float = np.pi,
    ready: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Return the next joint goals of one arm. Its gripper's goal is the phase: open, closing or closed.

    Args:
        joint_goal, joint_position, joint_velocity: of the six joints, rad and rad/s, shape (..., 6).
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
    coming = coming_position(joint_position, joint_velocity)[..., :5]
    tips, thing, target = (np.asarray(value, np.float64) for value in (tips, thing, target))
    heading = heading_to(thing)
    roll = same_turn(arm[..., 4], roll_to(heading + np.pi / 2 - side), period)
    axis = finger_axis(-heading, np.pi / 2, roll)
    # The fixed finger's face comes down a little beside the thing.
    before = thing - axis * (width_m / 2 + TIP[1] - GRASP[1] + 0.004)
    off = np.hypot(*np.moveaxis((tips - before)[..., :2], -1, 0))
    down = ramp(off, 0.012, 0.008) * ramp(tips[..., 2] - thing[..., 2], 0.0075, 0.0025)
    begun = ramp(jaw, _OPEN - 0.05, _OPEN - 0.2) * _around(tips, thing)
    closing = np.maximum(down, begun)
    lifting = holds(joint_goal, joint_velocity, tips, thing) * ready

    height = np.clip((off - 0.004) * 6, 0.0, _CLEAR_M)
    above = before + np.stack([np.zeros_like(height), np.zeros_like(height), height], axis=-1)
    place = blend(lifting, tips + _leg(thing, target), blend(closing, tips, above))
    moved = toward(arm, coming, place, blend(closing, coming[..., 4], roll), tool=GRASP)
    moved = blend(closing * (1 - lifting), arm, moved)
    wanted = np.clip(jaw + _CLOSING_STEP * (1 - 2 * closing), _CLOSED, _OPEN)
    return np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)


def _around(tips: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Return how surely the thing is between the fingers, 0 to 1, shape (...)."""
    return ramp(np.sqrt(np.square(np.asarray(tips, np.float64) - thing).sum(axis=-1)), 0.035, 0.028)


def _leg(thing: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the next stretch of the held thing's way: up, over, and down, metres."""
    way = target - thing
    across = np.hypot(way[..., 0], way[..., 1])
    cruise = np.maximum(target[..., 2], _CLEAR_M)
    climb = blend(ramp(across, 0.010, 0.025), cruise - thing[..., 2], way[..., 2])
    over = ramp(climb, 0.035, 0.015)
    leg = np.stack([way[..., 0] * over, way[..., 1] * over, climb], axis=-1)
    length = np.sqrt(np.square(leg).sum(axis=-1, keepdims=True))
    result: np.ndarray = leg * np.minimum(1.0, _STRETCH_M / np.maximum(length, 1e-9))
    return result
