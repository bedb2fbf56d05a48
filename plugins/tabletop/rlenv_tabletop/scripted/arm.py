"""Solve tasks of SO-101 arms with scripted policies: push, pick and place, and lift in pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import (
    CHAIN,
    CUBE_HALF,
    GRASP,
    HIGH,
    LOW,
    ROLL_ZERO,
    TIP,
    finger_axis,
    inverse_kinematics,
    steepest,
)
from rlenv_tabletop.robots import BAR_HALF, SIDES

__all__ = [
    "LAG_S", "STEP_RAD", "ScriptedPairLift", "ScriptedPickPlace", "ScriptedPush", "blend", "coming_position",
    "fingers_middle", "grasp_and_carry", "heading_to", "holds", "let_go", "placed", "ramp", "roll_to",
    "same_turn", "toward", "yaw_of",
]  # fmt: skip

STEP_RAD = 0.09
"""Largest motion of a goal by a scripted policy in one control period, rad: 2.7 rad/s at 30 Hz, below the guard's 4
rad/s."""

_GAIN = 0.5
"""Share of a short distance covered in one control period: the servos lag, so the whole distance would overshoot."""

LAG_S = 0.06
"""Lag of a servo behind its goal, s: damping over stiffness. The nominal servo has 0.068, the identified arm 0.08 to
0.10 (`sim.robots.twin.IDENTIFIED`); less than the true lag is safe, more makes the fingers wander."""

_LEAD_RAD = 0.6
"""Largest distance of a goal from where its joint is heading, rad, so that the goal of a blocked joint does not run
away."""

_PAN_X = CHAIN[0].offset[0]
_WRIST_RAD = 2.2
"""Largest roll of the wrist, rad, which leaves room for half a turn to either side."""


def ramp(value: np.ndarray, none: float, full: float) -> np.ndarray:
    """Return a share that rises linearly from 0 at ``none`` to 1 at ``full``, and is constant beyond both."""
    share: np.ndarray = np.clip((value - none) / (full - none), 0.0, 1.0)
    return share


def blend(share: np.ndarray, one: np.ndarray | float, other: np.ndarray | float) -> np.ndarray:
    """Return ``share * one + (1 - share) * other``; the share's shape is the leading axes.

    Args:
        share: from 0 to 1, shape (...).
        one: values for a share of 1, shape (...), or (..., n) with one share for all n.
        other: values for a share of 0, shape as for ``one``.
    """
    if max(np.ndim(one), np.ndim(other)) > np.ndim(share):
        share = share[..., None]
    mixed: np.ndarray = share * one + (1.0 - share) * other
    return mixed


def coming_position(joint_position: np.ndarray, joint_velocity: np.ndarray) -> np.ndarray:
    """Return where joints come to rest if their goals stay, without sag under gravity, rad; all shapes (..., n).

    A servo follows its goal with the lag ``T``: ``T dq/dt = goal - sag - q``, so ``q + T dq/dt`` is ``goal - sag``.
    """
    return np.asarray(joint_position, np.float64) + LAG_S * np.asarray(joint_velocity, np.float64)


def toward(
    goal: np.ndarray,
    coming: np.ndarray,
    place: np.ndarray,
    roll: np.ndarray,
    step: np.ndarray | float = STEP_RAD,
    tool: tuple[float, float, float] = TIP,
    pitch: np.ndarray | None = None,
    lead: np.ndarray | float = _LEAD_RAD,
) -> np.ndarray:
    """Return the next goals of the five joints on the way to a pose with the tool point at ``place``, pointing down.

    Goals move by a share of the joints' remaining distance, not of the goals' own. A soft servo's goals therefore rise
    until its sag is compensated, so that the tool reaches the place with any servo.

    Args:
        goal: current goals of the joints, rad, shape (..., 5).
        coming: `coming_position` of the joints, rad, shape (..., 5).
        place: target of the tool point in the base frame, metres, shape (..., 3).
        roll: target roll of the wrist, rad, shape (...).
        tool: `hal.robots.so101.TIP`, the middle of the closed fingers, or ``GRASP``, the middle of the open ones.
        step: largest motion of the joint with the longest way, rad, shape (...) or a number; the other joints keep
            pace.
        pitch: pitch of the gripper below the horizontal, rad, shape (...); by default as steep as the arm can.
        lead: largest distance of a goal from where its joint is heading, rad, shape (...) or a number.

    Returns:
        Goals, rad, float32, shape (..., 5); ``goal`` where the place is out of reach.
    """
    wanted = inverse_kinematics(place, _pitch_to(place) if pitch is None else pitch, roll, tool)
    lost = np.isnan(wanted[..., :1])
    if lost.any():
        wanted = np.where(lost, inverse_kinematics(place, steepest(place, roll, tool), roll, tool), wanted)
    change = np.where(np.isnan(wanted), 0.0, wanted - coming)
    longest = np.abs(change).max(axis=-1)
    moved = goal + change * np.minimum(_GAIN, step / np.maximum(longest, 1e-9))[..., None]
    lead = np.asarray(lead)[..., None]
    moved = np.clip(moved, np.minimum(goal, coming - lead), np.maximum(goal, coming + lead))
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
        joint_position: angles of the joints, rad, shape (..., 6).
    """
    pan, pitch, roll = joint_position[..., 0], joint_position[..., 1:4].sum(axis=-1), joint_position[..., 4]
    axis = finger_axis(pan, pitch, roll)
    middle: np.ndarray = np.asarray(gripper_position, np.float64) + (GRASP[1] - TIP[1]) * axis
    return middle


def roll_to(yaw: np.ndarray) -> np.ndarray:
    """Return the angle of ``wrist_roll`` for a yaw of a gripper that points down, rad, shape (...).

    Args:
        yaw: the arm's heading minus the direction perpendicular to the fingers' axis, rad, shape (...).
    """
    angle: np.ndarray = ROLL_ZERO - yaw
    return angle


def heading_to(place: np.ndarray) -> np.ndarray:
    """Return the direction from the shoulder to a place, rad about the vertical; (..., 3) -> (...)."""
    angle: np.ndarray = np.arctan2(place[..., 1], place[..., 0] - _PAN_X)
    return angle


def same_turn(now: np.ndarray, wanted: np.ndarray, period: float) -> np.ndarray:
    """Return the roll nearest to the current one among those that differ from ``wanted`` by whole periods, rad.

    Args:
        now: current roll of the wrist, rad, shape (...).
        wanted: target roll of the wrist, rad, shape (...).
        period: turn after which an object looks the same to the fingers, rad; pi for two opposite sides, pi/2 for a
            cube.
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
    """Return the confidence that the gripper holds the object, 0 to 1, (...); see `grasp_and_carry`."""
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
    open_rad: float = _OPEN,
    descent: tuple[float, float] = (0.004, 6.0),
) -> np.ndarray:
    """Return the next joint goals to grasp and carry an object; the gripper's goal is the phase.

    Args:
        joint_goal: goals of the six joints, rad, shape (..., 6).
        joint_position: angles of the joints, rad, shape (..., 6).
        joint_velocity: velocities of the joints, rad/s, shape (..., 6).
        tips: the point between the finger tips, metres in the arm's base frame, shape (..., 3).
        thing: the middle of the object, in the same frame, metres, shape (..., 3).
        side: angle about the vertical at which the fingers close, rad, shape (...).
        target: target of the object's middle, metres, shape (..., 3).
        width_m: width of the object between the fingers, metres.
        period: turn of ``side`` after which the object looks the same, rad; pi/2 for a cube.
        ready: how far the arm may lift the object, 0 to 1, shape (...).
        open_rad: the gripper's angle on the way to the object, rad; a smaller angle avoids touching objects beside it.
        descent: horizontal distance from its place within which the gripper is at the bottom, metres, and its height
            for each metre beyond. A gentle slope does not turn sideways errors into vertical motion; a steep one stays
            clear of objects nearby.

    Returns:
        Joint goals, rad, float32, shape (..., 6).
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
    begun = ramp(jaw, open_rad - 0.05, open_rad - 0.2) * _around(tips, thing)
    closing = np.maximum(down, begun)
    lifting = holds(joint_goal, joint_velocity, tips, thing) * ready

    height = np.clip((off - descent[0]) * descent[1], 0.0, _CLEAR_M)
    above = before + np.stack([np.zeros_like(height), np.zeros_like(height), height], axis=-1)
    place = blend(lifting, tips + _leg(thing, target), blend(closing, tips, above))
    moved = toward(arm, coming, place, blend(closing, coming[..., 4], roll), tool=GRASP)
    moved = blend(closing * (1 - lifting), arm, moved)
    widest = np.maximum(open_rad, jaw - _CLOSING_STEP)
    wanted = np.clip(jaw + _CLOSING_STEP * (1 - 2 * closing), _CLOSED, widest)
    return np.concatenate([moved, wanted[..., None]], axis=-1).astype(np.float32)


_PUT_DOWN_M = 2 * CUBE_HALF
_RETREAT_M = 0.08


def placed(joint_position: np.ndarray, thing: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the confidence that an object may be released at its target, 0 to 1, (...); 0 for a target in the air.

    Open fingers leave an object up to 9 mm from its target; closed fingers bring it to within 5 mm.

    Args:
        joint_position: angles of the joints, rad, shape (..., 6).
        thing: middle of the object, metres, shape (..., 3).
        target: target of the object's middle, metres, shape (..., 3).
    """
    way = np.asarray(thing, np.float64) - target
    away, opened = np.hypot(way[..., 0], way[..., 1]), ramp(joint_position[..., 5], 0.2, 0.4)
    near = blend(opened, ramp(away, 0.013, 0.009), ramp(away, 0.010, 0.005))
    lies = ramp(np.abs(way[..., 2]), 0.012, 0.006)
    surely: np.ndarray = near * lies * ramp(target[..., 2], _PUT_DOWN_M + 0.005, _PUT_DOWN_M)
    return surely


def let_go(
    joint_goal: np.ndarray, joint_position: np.ndarray, joint_velocity: np.ndarray, tips: np.ndarray, thing: np.ndarray
) -> np.ndarray:
    """Return the next joint goals, (..., 6), to release an object and stay above it; see `grasp_and_carry`."""
    arm, jaw = joint_goal[..., :5].astype(np.float64), joint_goal[..., 5].astype(np.float64)
    coming = coming_position(joint_position, joint_velocity)[..., :5]
    opened = ramp(joint_position[..., 5], 0.4, 0.6)
    height = (tips - thing)[..., 2]
    # Straight up until the fingers are clear of the thing, then over it.
    above = np.array(thing, np.float64)
    above[..., :2] = blend(ramp(height, 0.03, 0.05), above[..., :2], np.asarray(tips)[..., :2])
    above[..., 2] += _RETREAT_M
    moved = blend(opened, toward(arm, coming, above, coming[..., 4], tool=GRASP), arm)
    return np.concatenate([moved, np.minimum(jaw + _CLOSING_STEP, _OPEN)[..., None]], axis=-1).astype(np.float32)


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


# -- policies --------------------------------------------------------------------------------------------------------


_BEHIND_M = 0.038
_OVER_M = 0.07
_STROKE_M = 0.03
_PUSH_RAD = 0.025
_PUSH_LEAD_RAD = 0.25
"""Largest lead of goals while pushing, rad. A sticking joint breaks loose with the lead of its goal, and throws the
cube past the target; a small lead keeps the cube within the tolerance."""

_ARRIVED_M = (0.010, 0.014)
_BEYOND_M = 0.01
"""Distance by which a stroke aims beyond the target, metres, so that the last steps do not become too small to overcome
friction."""


class ScriptedPush:
    """A stateless `rlenv_robot.policies.policy.Policy` that goes behind the cube, then pushes it along the line to the
    target.

    If the cube leaves the line, the fingers go over it or around it, and push again.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, for observations with any leading axes."""
        cube = np.asarray(observation["cube_position"], np.float64)[..., :2]
        way = np.asarray(observation["target_position"], np.float64)[..., :2] - cube
        tips = np.asarray(observation["gripper_position"], np.float64)
        goal = observation["joint_goal"][..., :5].astype(np.float64)
        far = np.hypot(way[..., 0], way[..., 1])
        ahead = way / np.maximum(far, 0.004)[..., None]
        rest = tips[..., :2] - cube
        along = (rest * ahead).sum(axis=-1)
        beside = np.abs(rest[..., 0] * ahead[..., 1] - rest[..., 1] * ahead[..., 0])

        left = ramp(far, *_ARRIVED_M)
        pushing = ramp(tips[..., 2], 0.04, 0.03) * ramp(along, -0.009, -0.017) * ramp(beside, 0.015, 0.007)
        stroke = cube + ahead * (along + np.minimum(far + _BEYOND_M, _STROKE_M))[..., None]
        around, height = _behind(cube, ahead, along, tips)
        place = blend(left, blend(pushing, stroke, around), tips[..., :2])
        height = blend(left, blend(pushing, CUBE_HALF, height), _OVER_M)
        place = np.concatenate([place, height[..., None]], axis=-1)
        # The broad side of the closed fingers faces the cube.
        coming = coming_position(observation["joint_position"], observation["joint_velocity"])[..., :5]
        facing = same_turn(goal[..., 4], roll_to(heading_to(place) - np.arctan2(ahead[..., 1], ahead[..., 0])), np.pi)
        roll = blend((1 - pushing) * left, facing, coming[..., 4])
        step = blend(pushing * left, _PUSH_RAD, STEP_RAD)
        lead = blend(pushing * left, _PUSH_LEAD_RAD, _LEAD_RAD)
        return {"arm_target": toward(goal, coming, place, roll, step, lead=lead)}


def _behind(cube: np.ndarray, ahead: np.ndarray, along: np.ndarray, tips: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """On the way to behind the cube: where on the table, shape (..., 2), and how high above it, shape (...); metres."""
    behind, at = cube - ahead * _BEHIND_M, tips[..., :2]
    off = np.hypot(*np.moveaxis(at - behind, -1, 0))
    # Over the cube where it is in between, and along the table from where it is not.
    height = np.clip(CUBE_HALF + 4 * (off - 0.006) * ramp(along, -0.026, -0.014), CUBE_HALF, _OVER_M)
    # First up, then across.
    return blend(ramp(height - tips[..., 2], 0.035, 0.015), behind, at), height


# -- so101-pick-place ----------------------------------------------------------------------------------------


class ScriptedPickPlace:
    """A stateless `rlenv_robot.policies.policy.Policy` that grasps the cube from above and brings it to the target.

    The fingers grasp the pair of the cube's sides that needs the least turn of the wrist. At a target in the air the
    arm holds the cube; on the table the fingers release it and stay above it.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action by field, for observations with any leading axes."""
        goal, position, velocity = (observation[name] for name in ("joint_goal", "joint_position", "joint_velocity"))
        tips = fingers_middle(observation["gripper_position"], position)
        cube, target = observation["cube_position"], observation["target_position"]
        side = yaw_of(observation["cube_orientation"])
        carried = grasp_and_carry(goal, position, velocity, tips, cube, side, target, 2 * CUBE_HALF, period=np.pi / 2)
        released = let_go(goal, position, velocity, tips, cube)
        return {"joint_target": blend(placed(position, cube, target), released, carried).astype(np.float32)}


# -- so101-pair-lift -----------------------------------------------------------------------------------------

_BAR_DESCENT = (0.006, 3.0)


class ScriptedPairLift:
    """A stateless `rlenv_robot.policies.policy.Policy` for both arms: they grasp the bar's ends, then lift.

    It takes the whole observation, since neither arm may lift before the other holds the bar. Messages are 0.

    Args:
        message_size: the task's ``message_size``.
    """

    def __init__(self, message_size: int = 0) -> None:
        self._message_size = message_size

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the joint action by field, for whole observations with any leading axes."""
        seen = {side: {name.removeprefix(f"{side}_"): value for name, value in observation.items()
                       if name.startswith(side)} for side in SIDES}  # fmt: skip
        held = [holds(own["joint_goal"], own["joint_velocity"], _tips(own), own["handle_position"])
                for own in seen.values()]  # fmt: skip
        both = np.multiply(*held)
        action = {f"{side}_joint_target": _goals(own, both) for side, own in seen.items()}
        if self._message_size:
            silence = np.zeros((*both.shape, self._message_size), np.float32)
            action |= {f"{side}_message": silence for side in SIDES}
        return action


def _tips(own: Mapping[str, np.ndarray]) -> np.ndarray:
    return fingers_middle(own["gripper_position"], own["joint_position"])


def _goals(own: Mapping[str, np.ndarray], ready: np.ndarray) -> np.ndarray:
    ahead = own["handle_direction"]
    return grasp_and_carry(
        own["joint_goal"],
        own["joint_position"],
        own["joint_velocity"],
        _tips(own),
        own["handle_position"],
        np.arctan2(ahead[..., 1], ahead[..., 0]) + np.pi / 2,
        own["handle_target"],
        2 * BAR_HALF[1],
        ready=ready,
        descent=_BAR_DESCENT,
    )
