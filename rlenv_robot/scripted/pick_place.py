"""A scripted policy for `so101-pick-place`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101 import CUBE_HALF
from rlenv_robot.scripted.motion import fingers_middle, grasp_and_carry, yaw_of

__all__ = ["ScriptedPickPlace"]


class ScriptedPickPlace:
    """A `rlenv_robot.policies.policy.Policy` without memory: takes the cube from above and holds it at the target.

    Of the cube's four sides the fingers take the pair that they meet with the least turn of the wrist.
    """

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For observations with any leading axes."""
        goals = grasp_and_carry(
            observation["joint_goal"],
            observation["joint_velocity"],
            fingers_middle(observation["gripper_position"], observation["joint_position"]),
            observation["cube_position"],
            yaw_of(observation["cube_orientation"]),
            observation["target_position"],
            2 * CUBE_HALF,
            period=np.pi / 2,
        )
        return {"joint_target": goals}
