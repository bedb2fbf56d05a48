"""A task for the proof of the path from an instruction and an image to a moving arm: `launch` the tests read it.

The gripper's tip shall be over the cube of one colour. The agent observes the arm and an image, not the cubes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Spec
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, start_open
from rlenv_robot.tasks.task import Arrays, Episode, Task
from rlenv_tabletop.table import CubesTask
from rlenv_vision.image_task import with_images

__all__ = ["HEIGHT_M", "OverCube", "blue", "green", "red"]

HEIGHT_M = 0.09
"""Height of the tip over the table, metres."""
CAMERA, SIZE = "overhead", (320, 240)
HIDDEN = ("cube_positions", "cube_orientations", "place_positions", "gripper_position")


@dataclass(frozen=True)
class OverCube(CubesTask):
    """Bring the gripper's tip over the cube of a colour. Success: at most 20 mm beside its middle, in the last half second.

    Attributes:
        colour: number of the cube: red, green, blue.
        cubes: number of cubes.
    """

    colour: int = 0
    cubes: int = 3
    rewards: Rewards = "dense"
    area: float = 0.8
    steps: int = 120

    name = "so101-over-cube"

    @cached_property
    def goal(self) -> Spec:
        """The goal: none, since it is said in words."""
        return Spec("so101_over_cube_goal")

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a start near home."""
        return Episode({}, {"joint_target": start_open(rng)})

    def _places(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        return sensors["cube_positions"]

    def beside(self, sensors: Arrays) -> np.ndarray:
        """Return the tip's horizontal distance from the cube, metres."""
        gap = sensors["gripper_position"][..., :2] - sensors["cube_positions"][..., self.colour, :2]
        return np.linalg.norm(gap, axis=-1)

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the tip is over the cube."""
        return self.beside(sensors) <= 0.02

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the tip's distance beside the cube, and whether it is over it."""
        beside = self.beside(sensors)
        return {"distance_mm": beside * 1e3, "settled_share": (beside <= 0.02).astype(np.float64)}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return 1 over the cube, less beside it."""
        return np.exp(-self.beside(following) / 0.05)


def _task(colour: int) -> Task:
    return with_images(OverCube(colour), {CAMERA: SIZE}, hide=HIDDEN)


def red() -> Task:
    """Return the task for the red cube."""
    return _task(0)


def green() -> Task:
    """Return the task for the green cube."""
    return _task(1)


def blue() -> Task:
    """Return the task for the blue cube."""
    return _task(2)
