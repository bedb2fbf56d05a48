"""A scripted policy for `so101-push`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101_cube import CUBE_HALF
from rlenv_robot.experts.motion import pan_to, toward

__all__ = ["PushExpert"]

_BEHIND_M = 0.036
_OVER_M = 0.07
_LANE_M = 0.008
_DONE_M = 0.006
_PUSH_RAD = 0.03


class PushExpert:
    """A `rlenv_robot.policy.Policy` without memory: goes behind the cube, then pushes it along the line to the target.

    Where the cube leaves the line, the fingers are lifted over it and come down behind it again.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For observations with any leading axes."""
        cube = np.asarray(observation["cube_position"], np.float64)[..., :2]
        way = np.asarray(observation["target_position"], np.float64)[..., :2] - cube
        tips = np.asarray(observation["gripper_position"], np.float64)
        far = np.hypot(way[..., 0], way[..., 1])
        ahead = way / np.maximum(far, 1e-9)[..., None]
        rest = tips[..., :2] - cube
        along = (rest * ahead).sum(axis=-1)
        beside = np.abs(rest[..., 0] * ahead[..., 1] - rest[..., 1] * ahead[..., 0])
        low = tips[..., 2] < 0.03
        pushing = low & (along < -0.012) & (beside < _LANE_M) & (far > _DONE_M)
        behind = cube - ahead * _BEHIND_M
        off = np.hypot(*np.moveaxis(tips[..., :2] - behind, -1, 0))
        height = np.where(far <= _DONE_M, _OVER_M, np.clip(CUBE_HALF + (off - 0.006) * 4, CUBE_HALF, _OVER_M))
        place = np.where(pushing[..., None], tips[..., :2] + ahead * np.minimum(far, 0.03)[..., None], behind)
        height = np.where(pushing, CUBE_HALF, height)
        # Straight up first: across only where the fingers pass over the cube.
        blocked = ~pushing & (height >= _OVER_M) & (tips[..., 2] < 0.05)
        place = np.where((blocked | (far <= _DONE_M))[..., None], tips[..., :2], place)
        place = np.concatenate([place, height[..., None]], axis=-1)
        # The broad side of the closed fingers faces the cube.
        roll = pan_to(place) - np.arctan2(ahead[..., 1], ahead[..., 0])
        roll = (roll + np.pi / 2) % np.pi - np.pi / 2
        goal = observation["joint_goal"][..., :5].astype(np.float64)
        roll = np.where(pushing, goal[..., 4], roll)
        quick, slow = toward(goal, place, roll), toward(goal, place, roll, _PUSH_RAD)
        return {"arm_target": np.where(pushing[..., None], slow, quick)}
