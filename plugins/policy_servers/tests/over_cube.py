"""A task for the proof of the path from an instruction and an image to a moving arm.

The gripper's tip shall be over the cube of one colour. The agent observes the arm and an image, not the cubes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Spec
from hal.cameras.image_sensors import ImageSensor, with_image_fields
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, start_open
from rlenv_robot.tasks.task import Arrays, Episode
from rlenv_tabletop.models import so101_table_model
from rlenv_tabletop.robots import so101_table_spec
from rlenv_tabletop.table import CubesTask
from sim.model import SimModel

__all__ = ["HEIGHT_M", "MODEL", "OverCube", "blue", "green", "long", "red"]

HEIGHT_M = 0.09
"""Height of the tip over the table, metres."""
CUBES, AREA = 3, 0.8
SENSORS = (ImageSensor("overhead", 320, 240),)
SPEC = with_image_fields(so101_table_spec(CUBES), SENSORS)
OBSERVED = ("joint_position", "joint_velocity", "joint_goal", "overhead_image")


def simulated(looks: bool = True) -> SimModel:
    """Return the simulated arm, whose image is one of its sensors."""
    from sim.rendering.image_sensors import with_image_sensors

    return with_image_sensors(so101_table_model(CUBES, AREA).make_sim_model(looks=True), SENSORS)


MODEL = RobotModel(SPEC.name, SPEC, simulated)
"""The arm, the cubes and the camera, also for a profile's ``robot.kind``."""


@dataclass(frozen=True)
class OverCube(CubesTask):
    """Bring the tip over the cube of a colour. Success: at most 20 mm beside its middle, in the last half second.

    Attributes:
        colour: number of the cube: red, green, blue.
    """

    colour: int = 0
    rewards: Rewards = "dense"
    steps: int = 90

    name = "so101-over-cube"
    cubes, area = CUBES, AREA
    robot_model = MODEL

    @cached_property
    def observation(self) -> Spec:
        """The arm and the image."""
        return Spec(self._called("observation"), tuple(SPEC.sensors[name] for name in OBSERVED))

    @cached_property
    def goal(self) -> Spec:
        """Return an empty spec: the instruction names the cube."""
        return Spec(self._called("goal"))

    @cached_property
    def state(self) -> Spec:
        """The cubes' places, which the agent does not observe."""
        return Spec(self._called("state"), (SPEC.sensors["cube_positions"],))

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a start near home."""
        return Episode({}, {"joint_target": start_open(rng)})

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the arm and the image."""
        return {name: sensors[name] for name in OBSERVED}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the cubes' places."""
        return {"cube_positions": sensors["cube_positions"]}

    def beside(self, sensors: Arrays) -> np.ndarray:
        """Return the tip's horizontal distance from the cube, metres."""
        gap = sensors["gripper_position"][..., :2] - sensors["cube_positions"][..., self.colour, :2]
        return np.asarray(np.linalg.norm(gap, axis=-1))

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


def red() -> OverCube:
    """Return the task for the red cube."""
    return OverCube(0)


def green() -> OverCube:
    """Return the task for the green cube."""
    return OverCube(1)


def blue() -> OverCube:
    """Return the task for the blue cube."""
    return OverCube(2)


def long() -> OverCube:
    """Return the task for the green cube with episodes of 30 seconds."""
    return OverCube(1, steps=900)
