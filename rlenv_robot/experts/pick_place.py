"""A scripted policy for `so101-pick-place`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101_cube import CUBE_HALF
from rlenv_robot.experts.grasp import grasp_and_carry
from rlenv_robot.experts.motion import pan_to, yaw_of

__all__ = ["PickPlaceExpert"]


class PickPlaceExpert:
    """A `rlenv_robot.policy.Policy` without memory: takes the cube from above and holds it at the target."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For observations with any leading axes."""
        cube = observation["cube_position"]
        # Any of the cube's four sides will do: the one that the fingers meet with the least turn of the wrist.
        straight = pan_to(cube) + np.pi / 2
        turned = yaw_of(observation["cube_orientation"]) - straight
        side = straight + (turned + np.pi / 4) % (np.pi / 2) - np.pi / 4
        goals = grasp_and_carry(
            observation["joint_goal"],
            observation["joint_velocity"],
            observation["gripper_position"],
            cube,
            side,
            observation["target_position"],
            2 * CUBE_HALF,
        )
        return {"joint_target": goals}
