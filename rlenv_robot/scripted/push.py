"""A scripted policy for `so101-push`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import CUBE_HALF
from rlenv_robot.scripted.motion import STEP_RAD, blend, heading_to, ramp, roll_to, same_turn, toward

__all__ = ["ScriptedPush"]

_BEHIND_M = 0.032
_OVER_M = 0.07
_PUSH_RAD = 0.04
_STROKE_M = 0.03


class ScriptedPush:
    """A `rlenv_robot.policies.policy.Policy` without memory: goes behind the cube, then pushes it along the line to
    the target.

    Where the cube leaves the line, the fingers are lifted over it, or go round behind it, and push again.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For observations with any leading axes."""
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
        facing = same_turn(goal[..., 4], roll_to(heading_to(place) - np.arctan2(ahead[..., 1], ahead[..., 0])), np.pi)
        roll = blend((1 - pushing) * left, facing, goal[..., 4])
        return {"arm_target": toward(goal, place, roll, blend(pushing * left, _PUSH_RAD, STEP_RAD))}


def _behind(cube: np.ndarray, ahead: np.ndarray, along: np.ndarray, tips: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """On the way to behind the cube: where on the table, shape (..., 2), and how high above it, shape (...); metres."""
    behind, at = cube - ahead * _BEHIND_M, tips[..., :2]
    off = np.hypot(*np.moveaxis(at - behind, -1, 0))
    # Over the cube where it is in between, and along the table from where it is not.
    height = np.clip(CUBE_HALF + 4 * (off - 0.006) * ramp(along, -0.026, -0.014), CUBE_HALF, _OVER_M)
    # First up, then across.
    return blend(ramp(height - tips[..., 2], 0.035, 0.015), behind, at), height
