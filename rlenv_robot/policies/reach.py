"""The vectors of `so101-reach`: distances to the target in cylinder coordinates, and changes of the joint goals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal import Spec
from hal.robots.so101 import CHAIN, SO101
from rlenv_robot.tasks.flat_hints import ARM_STRIDE
from rlenv_robot.tasks.reach import Reach

__all__ = ["ReachVectors"]

_JOINTS = 5  # the gripper itself stays as it is
_PAN_X = CHAIN[0].offset[0]


class ReachVectors:
    """Vectors of 13 numbers that fit the arm's geometry, with which a search learns `so101-reach` in a minute.

    The elements are the distance from gripper to target in cylinder coordinates about the shoulder's axis (3), the
    target's position (2), the three angles that lift the arm (3), and the difference between each joint's goal and
    position (5). An action moves the goals of the five joints by at most `ARM_STRIDE` in one control period, so that
    feedback corrects sagging.
    """

    size = 13
    action_size = _JOINTS

    @property
    def observation(self) -> Spec:
        """The observation of `so101-reach`."""
        return Reach().observation

    @property
    def action(self) -> Spec:
        """The action of `so101-reach`."""
        return Reach().action

    def observe(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the thirteen numbers, about unit size, shape (..., 13)."""
        gripper, target = observation["gripper_position"], observation["target_position"]
        joints = observation["joint_position"]
        behind = observation["joint_goal"][..., :_JOINTS] - joints[..., :_JOINTS]
        x, y = target[..., 0] - _PAN_X, target[..., 1]
        radius = np.hypot(x, y)
        turn = np.arctan2(y, x) - np.arctan2(gripper[..., 1], gripper[..., 0] - _PAN_X)
        outward = radius - np.hypot(gripper[..., 0] - _PAN_X, gripper[..., 1])
        above = target[..., 2] - gripper[..., 2]
        parts = (turn / 0.3, outward / 0.1, above / 0.1, (radius - 0.25) / 0.1, (target[..., 2] - 0.15) / 0.1)
        return np.concatenate([np.stack(parts, axis=-1), joints[..., 1:4], behind / 0.1], axis=-1)

    def act(self, vector: np.ndarray, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return joint targets, rad, shape (..., 6): the servos' goals, moved by the action vector (..., 5)."""
        target = np.array(observation["joint_goal"])
        target[..., :_JOINTS] += (ARM_STRIDE * vector).astype(target.dtype)
        low, high = SO101.commands["joint_target"].bounds
        return {"joint_target": np.clip(target, low, high)}
