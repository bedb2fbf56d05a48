"""`so101-sort`: bring each cube to the tray of its colour."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Spec
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, start_open
from rlenv_robot.tasks.task import Arrays, Episode, with_fixed_goal
from rlenv_robot.tasks.text_hints import TextHints
from rlenv_tabletop.robots import MOST_CUBES, TRAYS
from rlenv_tabletop.table import TABLE_TRAYS, TRAY_OF, CubesTask, in_tray, place_field

__all__ = ["Sort"]


@dataclass(frozen=True)
class Sort(CubesTask):
    """Sort cubes: red and yellow to the left tray, green and blue to the right tray.

    A tray is a square of 70 mm on the table. An episode succeeds if during its last half second each cube's middle is
    in its tray, on the table, the gripper is open, its finger tips are at least 45 mm from the middle of every cube,
    and no joint of the arm is faster than 0.3 rad/s.

    Reward of a step, at most 1: ``0.2 exp(-g / 0.05 m) + 0.5 P + 0.3 S - 0.5 |q* - q*before|^2`` where ``g`` is the
    distance from finger tips to the first cube that is not in its tray (0 if all are), ``P`` the mean of ``0.5 [in its
    tray] + 0.5 exp(-d / 0.1 m)`` over the cubes, ``d`` a cube's distance from the middle of its tray, ``S`` 1 if this
    reading alone meets the conditions of success, else 0, all after the step, and ``q*`` are the joint goals of the arm
    without its gripper in rad. With ``rewards="sparse"`` the reward is ``S``. The task terminates if a cube falls off
    the table, and is truncated after ``steps``.

    Attributes:
        cubes: number of cubes, 1 to 4.
        rewards: ``dense`` or ``sparse``.
        area: share of the table's area (in width and in depth) on which the cubes lie at first, above 0 to 1.
        steps: length of an episode in control periods of 1/30 s.
    """

    cubes: int = 2
    rewards: Rewards = "dense"
    area: float = 1.0
    steps: int = 420

    name = "so101-sort"

    def __post_init__(self) -> None:
        self._check_table(1, MOST_CUBES, self.rewards, self.steps)

    @cached_property
    def goal(self) -> Spec:
        """The goal: the middle of each cube's tray."""
        return Spec("so101_sort_goal", (place_field(self.cubes),))

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a start near home with an open gripper. The robot's reset draws the cubes' positions."""
        trays = [list(TRAYS).index(TRAY_OF[name]) for name in self.object_names]
        goal: Arrays = {"place_positions": TABLE_TRAYS[trays]}
        return Episode(with_fixed_goal(self.goal, goal, options), {"joint_target": start_open(rng)})

    def _places(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the goal, broadcast to the leading axes of the readings."""
        places, shape = goal["place_positions"], sensors["cube_positions"].shape
        return places if places.shape == shape else np.broadcast_to(places, shape)

    def _placed(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        return in_tray(x, y, z)

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the goal that the last reading along the time axis reached: trays around the cubes' positions."""
        return {"place_positions": sensors["cube_positions"][-1]}

    def text_hints(self) -> TextHints:
        """Return the trays of the cubes in words."""
        lines = ", ".join(f"the {name} cube to the {TRAY_OF[name]} tray" for name in self.object_names)
        return TextHints(f"Bring {lines}, then open the gripper and move it away.", units={"cube_positions": "cm"})
