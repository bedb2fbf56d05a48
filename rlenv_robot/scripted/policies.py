"""Solve the tasks with a cube by a script: push, pick and place, and lift in pairs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import CUBE_HALF
from hal.robots.so101_pair import BAR_HALF, SIDES
from rlenv_robot.scripted.motion import (
    STEP_RAD,
    blend,
    coming_position,
    fingers_middle,
    grasp_and_carry,
    heading_to,
    holds,
    ramp,
    roll_to,
    same_turn,
    toward,
    yaw_of,
)

__all__ = ["ScriptedPairLift", "ScriptedPickPlace", "ScriptedPush"]

_BEHIND_M = 0.038
_OVER_M = 0.07
_PUSH_RAD = 0.04
_STROKE_M = 0.03


class ScriptedPush:
    """A `rlenv_robot.policies.policy.Policy` without memory: goes behind the cube, then pushes it along the line to
    the target.

    Where the cube leaves the line, the fingers are lifted over it, or go round behind it, and push again.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action for observations with any leading axes."""
        cube = np.asarray(observation["cube_position"], np.float64)[..., :2]
        way = np.asarray(observation["target_position"], np.float64)[..., :2] - cube
        tips = np.asarray(observation["gripper_position"], np.float64)
        goal = observation["joint_goal"][..., :5].astype(np.float64)
        far = np.hypot(way[..., 0], way[..., 1])
        ahead = way / np.maximum(far, 0.004)[..., None]
        rest = tips[..., :2] - cube
        along = (rest * ahead).sum(axis=-1)
        beside = np.abs(rest[..., 0] * ahead[..., 1] - rest[..., 1] * ahead[..., 0])

        left = ramp(far, 0.003, 0.008)
        pushing = ramp(tips[..., 2], 0.04, 0.03) * ramp(along, -0.009, -0.017) * ramp(beside, 0.015, 0.007)
        stroke = cube + ahead * (along + np.minimum(far, _STROKE_M))[..., None]
        around, height = _behind(cube, ahead, along, tips)
        place = blend(left, blend(pushing, stroke, around), tips[..., :2])
        height = blend(left, blend(pushing, CUBE_HALF, height), _OVER_M)
        place = np.concatenate([place, height[..., None]], axis=-1)
        # The broad side of the closed fingers faces the cube.
        coming = coming_position(observation["joint_position"], observation["joint_velocity"])[..., :5]
        facing = same_turn(goal[..., 4], roll_to(heading_to(place) - np.arctan2(ahead[..., 1], ahead[..., 0])), np.pi)
        roll = blend((1 - pushing) * left, facing, coming[..., 4])
        return {"arm_target": toward(goal, coming, place, roll, blend(pushing * left, _PUSH_RAD, STEP_RAD))}


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
    """A `rlenv_robot.policies.policy.Policy` without memory: takes the cube from above and holds it at the target.

    Of the cube's four sides the fingers take the pair that they meet with the least turn of the wrist.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action for observations with any leading axes."""
        goals = grasp_and_carry(
            observation["joint_goal"],
            observation["joint_position"],
            observation["joint_velocity"],
            fingers_middle(observation["gripper_position"], observation["joint_position"]),
            observation["cube_position"],
            yaw_of(observation["cube_orientation"]),
            observation["target_position"],
            2 * CUBE_HALF,
            period=np.pi / 2,
        )
        return {"joint_target": goals}


# -- so101-pair-lift -----------------------------------------------------------------------------------------


class ScriptedPairLift:
    """A `rlenv_robot.policies.policy.Policy` without memory for the joint action: both take their ends, then both lift.

    It sees the whole observation, as neither arm may lift before the other holds. Messages it leaves at 0.

    Args:
        message_size: the task's.
    """

    def __init__(self, message_size: int = 0) -> None:
        self._message_size = message_size

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the joint action for whole observations with any leading axes."""
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
    )
