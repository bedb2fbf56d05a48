"""`so101-stack`: build a tower of cubes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Spec
from hal.robots.so101 import CUBE_HALF
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, start_open
from rlenv_robot.tasks.memoise import memoise_by_identity
from rlenv_robot.tasks.task import Arrays, Episode
from rlenv_robot.tasks.text_hints import TextHints
from rlenv_tabletop.table import CubesTask, at_height, tops

__all__ = ["Stack"]

_MOST_CUBES = 3


@dataclass(frozen=True)
class Stack(CubesTask):
    """Stack cubes: the green cube on the red one and, with three cubes, the blue cube on the green one.

    The tower stands where the red cube lies. An episode succeeds if during its last half second each cube is on the one
    below, within the tolerance, the gripper is open, its finger tips are at least 45 mm from the middle of every cube,
    and no joint of the arm is faster than 0.3 rad/s.

    Reward of a step, at most 1: ``0.2 exp(-g / 0.05 m) + 0.5 P + 0.3 S - 0.5 |q* - q*before|^2`` where ``g`` is the
    distance from finger tips to the first cube that is not in its place (0 if all are), ``P`` the mean of ``0.5 [in its
    place] + 0.5 exp(-d / 0.1 m)`` over the cubes above the red one, ``d`` a cube's distance from its place, ``S`` 1 if
    this reading alone meets the conditions of success, else 0, all after the step, and ``q*`` are the joint goals of
    the arm without its gripper in rad. With ``rewards="sparse"`` the reward is ``S``. The task terminates if a cube
    falls off the table, and is truncated after ``steps``.

    Attributes:
        cubes: number of cubes, 2 or 3.
        tolerance_m: largest horizontal distance between the middles of a cube and the one below, metres.
        rewards: ``dense`` or ``sparse``.
        area: share of the table's area (in width and in depth) on which the cubes lie at first, above 0 to 1.
        steps: length of an episode in control periods of 1/30 s.
    """

    cubes: int = 2
    tolerance_m: float = 0.01
    rewards: Rewards = "dense"
    area: float = 1.0
    steps: int = 240

    name = "so101-stack"
    _shows_trays = False

    def __post_init__(self) -> None:
        self._check_table(2, _MOST_CUBES, self.rewards, self.steps, tolerance_m=self.tolerance_m)

    @cached_property
    def goal(self) -> Spec:
        """The goal: empty, since the tower stands where the red cube lies."""
        return Spec("so101_stack_goal")

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a start near home with an open gripper. The robot's reset draws the cubes' positions."""
        return Episode({}, {"joint_target": start_open(rng)})

    def _places(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the red cube's own place on the table, and the top of the next lower cube for each other cube."""
        return _tower(sensors["cube_positions"])

    def _placed(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        placed: np.ndarray = (np.hypot(x, y) <= self.tolerance_m) & at_height(z)
        return placed

    def _mean(self, values: Sequence[np.ndarray]) -> np.ndarray:
        return super()._mean(values[1:])

    def text_hints(self) -> TextHints:
        """Return the tower in words."""
        names = self.object_names
        tower = " and ".join(f"the {upper} cube on the {lower} cube" for lower, upper in itertools.pairwise(names))
        return TextHints(f"Put {tower}, then open the gripper and move it away.", units={"cube_positions": "cm"})


@memoise_by_identity
def _tower(cubes: np.ndarray) -> np.ndarray:
    """Return the place of each cube in the tower, given where all are, metres; shape (..., N, 3) to (..., N, 3)."""
    places = np.empty_like(cubes)
    places[..., 1:, :] = tops(cubes[..., :-1, :])
    places[..., 0, :] = cubes[..., 0, :]
    places[..., 0, 2] = CUBE_HALF
    return places
