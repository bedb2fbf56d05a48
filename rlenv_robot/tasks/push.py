"""`so101-push`: push a cube over the table to a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hal import Spec
from hal.robots.so101 import CUBE_HALF, LOW, SO101
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import CubeTask, Rewards, place_on_table, start_near_home
from rlenv_robot.tasks.task import Arrays, Episode

__all__ = ["Push"]

_JOINTS = SO101.commands["joint_target"]


@dataclass(frozen=True)
class Push(CubeTask):
    """Push a cube over the table with closed fingers.

    The action is the arm's five joints; the gripper is kept closed. Reward of a step, at most 1:
    ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) - 0.5 |q* - q*before|^2`` with ``g`` the
    distance from finger tips to cube, ``d`` that from cube to target, both after the step, and ``q*`` the joint
    goals in rad. With ``rewards="sparse"`` it is 1 within the tolerance, else 0. The task terminates where the cube
    falls off the table, and is truncated after ``steps``.

    Attributes:
        tolerance_m: the distance that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        area: share of the table's area (in width and in depth) that targets are drawn from, above 0 to 1; less is
            nearer to the middle, and easier.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.02
    rewards: Rewards = "dense"
    area: float = 1.0
    steps: int = 240

    name = "so101-push"

    @cached_property
    def action(self) -> Spec:
        """The action: goals of the arm's joints."""
        low, high = _JOINTS.bounds
        arm = replace(_JOINTS, name="arm_target", shape=(5,), low=tuple(low[:5].tolist()),
                      high=tuple(high[:5].tolist()), meaning="goal angles of the arm's servos; the gripper is closed",
                      elements=_JOINTS.elements[:5])  # fmt: skip
        return Spec("so101_push_action", (arm,))

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target on the table, and a start near home; the robot's reset draws where the cube lies."""
        start = start_near_home(rng)
        start[5] = LOW[5]
        return self._episode((*place_on_table(rng, self.area), CUBE_HALF), start, options)

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the arm's goals, and the gripper's at its closed end."""
        arm = action["arm_target"]
        closed = np.full((*arm.shape[:-1], 1), _JOINTS.bounds[0][5], arm.dtype)
        return {"joint_target": np.concatenate([arm, closed], axis=-1)}
