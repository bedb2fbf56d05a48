"""`so101-pick-place`: take a cube and bring it to a target on the table or above it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hal import Spec
from hal.robots.so101 import CUBE_HALF, SO101_CUBE
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import CubeTask, Rewards, place_on_table, start_near_home
from rlenv_robot.tasks.task import Arrays, Episode

__all__ = ["PickPlace"]

_LOWEST_M = 0.05
_HIGHEST_M = 0.12
_OPEN_RAD = 0.8


@dataclass(frozen=True)
class PickPlace(CubeTask):
    """Take a cube and bring it to a target, on the table or above it.

    Reward of a step, at most 1: ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) -
    0.5 |q* - q*before|^2`` with ``g`` the distance from finger tips to cube, ``d`` that from cube to target, both
    after the step, and ``q*`` the joint goals of the arm without its gripper in rad. With ``rewards="sparse"`` it is
    1 within the tolerance, else 0. The task terminates where the cube falls off the table, and is truncated after
    ``steps``.

    Attributes:
        tolerance_m: the distance that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        above: share of the episodes whose target is 5 to 12 cm above the table, 0 to 1; the others' is on it.
        area: share of the table's area (in width and in depth) that targets are drawn from, above 0 to 1; less is
            nearer to the middle, and easier.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.02
    rewards: Rewards = "dense"
    above: float = 0.5
    area: float = 1.0
    steps: int = 180

    name = "so101-pick-place"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.above <= 1:
            raise ValueError(f"above is {self.above}, it must be from 0 to 1")

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's own command."""
        return replace(SO101_CUBE.commands, name="so101_pick_place_action")

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target, and a start near home with an open gripper; the robot's reset draws where the cube lies."""
        start = start_near_home(rng)
        start[5] = _OPEN_RAD
        x, y = place_on_table(rng, self.area)
        height = float(rng.uniform(_LOWEST_M, _HIGHEST_M)) if rng.uniform() < self.above else CUBE_HALF
        return self._episode((x, y, height), start, options)

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action: it is the command."""
        return action
