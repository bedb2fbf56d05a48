"""A scripted policy for `so101-pair-lift`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal.robots.so101_pair import BAR_HALF, SIDES
from rlenv_robot.scripted.motion import fingers_middle, grasp_and_carry, holds

__all__ = ["ScriptedPairLift"]


class ScriptedPairLift:
    """A `rlenv_robot.policies.policy.Policy` without memory for the joint action: both take their ends, then both lift.

    It sees the whole observation, as neither arm may lift before the other holds. Messages it leaves at 0.

    Args:
        message_size: the task's.
    """

    def __init__(self, message_size: int = 0) -> None:
        self._message_size = message_size

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """For whole observations with any leading axes."""
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
        own["joint_velocity"],
        _tips(own),
        own["handle_position"],
        np.arctan2(ahead[..., 1], ahead[..., 0]) + np.pi / 2,
        own["handle_target"],
        2 * BAR_HALF[1],
        ready=ready,
    )
