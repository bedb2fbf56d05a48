"""Shared rules of the tasks with cubes at a table: the cubes' places, success, and the base classes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast, get_args

import numpy as np

from hal import Field, Spec
from hal.robots.so101 import CUBE_HALF
from hal.robots.vectors import all_of, any_of, as_number, choose, component, components, distance, larger
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.tasks.cube import Rewards, goal_change
from rlenv_robot.tasks.flat_hints import ARM_SCALES, ARM_STRIDE, SERVO_GAP, Difference, FlatHints
from rlenv_robot.tasks.task import Arrays, check_settings
from rlenv_tabletop.models import so101_table_model
from rlenv_tabletop.robots import COLOURS, TRAY_HALF_M, TRAYS, so101_table_spec

__all__ = [
    "LET_GO_RAD", "TABLE_TRAYS", "TRAY_OF", "CubesTask", "TableScene", "at_height", "in_tray", "lost",
    "place_field", "tops",
]  # fmt: skip

TABLE_TRAYS = np.array([(*middle, CUBE_HALF) for middle in TRAYS.values()], np.float32)
"""Position of a cube in the middle of each tray, metres, shape (trays, 3)."""

TRAY_OF: Mapping[str, str] = {"red": "left", "green": "right", "blue": "right", "yellow": "left"}
"""Colour of a cube -> the tray to which it is sorted."""

LET_GO_RAD = 0.35
"""Smallest angle of a gripper that has let go, rad; with a cube between its fingers it is 0.2."""

_HEIGHT_M = 0.01
_LOST_M = -0.05
_AWAY_M = 0.045
_STILL_RAD_S = 0.3
_WINDOW = 15
_NO_WAY = cast("np.ndarray", np.float32(0))


# -- judging: all arguments are metres, with any leading axes -----------------------------------------------------


def tops(cubes: np.ndarray) -> np.ndarray:
    """Return the positions on top of cubes, metres; shape (..., N, 3) to (..., N, 3)."""
    above: np.ndarray = cubes + _edge(cubes.dtype)
    return above


@functools.cache
def _edge(dtype: np.dtype) -> np.ndarray:
    """Return the way from the middle of a cube to that of one on it, shape (3,)."""
    return np.array((0.0, 0.0, 2 * CUBE_HALF), dtype)


def at_height(z: np.ndarray) -> np.ndarray:
    """Return whether a cube is within 10 mm of its place's height, given the difference ``z``, metres; shape (...)."""
    level: np.ndarray = abs(z) <= _HEIGHT_M
    return level


def in_tray(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return whether a cube lies in a tray, given its offset from the tray's middle, metres, each of shape (...)."""
    inside: np.ndarray = (abs(x) <= TRAY_HALF_M) & (abs(y) <= TRAY_HALF_M) & at_height(z)
    return inside


def lost(cubes: np.ndarray) -> np.ndarray:
    """Return whether any cube fell off the table, given positions in metres; shape (..., N, 3) to (...)."""
    return any_of([height < _LOST_M for height in components(component(cubes, 2))])


# -- what tasks at the table share --------------------------------------------------------------------------------


def place_field(cubes: int) -> Field:
    """Return the field for the places of this many cubes."""
    meaning = f"where the middles of the cubes shall be, of {', '.join(COLOURS[:cubes])}"
    return Field("place_positions", (cubes, 3), "float32", -10.0, 10.0, "m", meaning, ("x", "y", "z"))


class TableScene:
    """The robot, the cubes and the places of a task at the table; a base class of dataclasses.

    Attributes:
        cubes: number of cubes on the table.
        area: share of the table's area (in width and in depth) on which the cubes lie, above 0 to 1.
    """

    cubes: int
    area: float

    _shows_trays = True

    def _check_table(self, least: int, most: int, rewards: str, steps: int, **above_zero: float) -> None:
        """Refuse settings of which no episode can be made.

        Raises:
            ValueError: the message names the setting.
        """
        check_settings(steps, **above_zero)
        if rewards not in get_args(Rewards):
            raise ValueError(f"rewards is {rewards!r}, allowed are {', '.join(map(repr, get_args(Rewards)))}")
        if not 0 < self.area <= 1:
            raise ValueError(f"area is {self.area}, it must be above 0 and at most 1")
        if not least <= self.cubes <= most:
            raise ValueError(f"cubes is {self.cubes}, it must be from {least} to {most}")

    @property
    def robot(self) -> str:
        """The name of the robot model: the arm with this number of cubes."""
        return f"so101-table-{self.cubes}"

    @cached_property
    def robot_model(self) -> RobotModel:
        """The robot model, whose simulation places cubes in this task's area."""
        return so101_table_model(self.cubes, self.area, self._shows_trays)

    @cached_property
    def object_names(self) -> tuple[str, ...]:
        """The cubes, by colour."""
        return COLOURS[: self.cubes]

    @cached_property
    def place_names(self) -> tuple[str, ...]:
        """The trays, and the top of each cube."""
        return (*TRAYS, *(f"on_{name}" for name in self.object_names))

    def place_position(self, number: int, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the position of a cube at a place, metres, shape (3,)."""
        position: np.ndarray = self._every_place(sensors["cube_positions"])[..., number, :]
        return position

    def _every_place(self, cubes: np.ndarray) -> np.ndarray:
        """Return the middles of cubes that were put at each place, metres, shape (..., P, 3)."""
        trays = TABLE_TRAYS.astype(cubes.dtype)
        return np.concatenate([np.broadcast_to(trays, (*cubes.shape[:-2], *trays.shape)), tops(cubes)], axis=-2)


class CubesTask(TableScene):
    """A task to bring cubes to places, judged over the last half second; a base class, as `TableScene` is.

    A reading is settled if every cube is in its place, the gripper is open, its finger tips are at least 45 mm from the
    middle of every cube, and no joint of the arm is faster than 0.3 rad/s. An episode succeeds if its last 15 readings
    are settled: a cube that nothing touches for half a second is at rest.

    Attributes:
        rewards: ``dense`` or ``sparse``.
        steps: length of an episode in control periods of 1/30 s.
    """

    name: str
    rewards: Rewards
    steps: int

    averaged_readings = _WINDOW
    """The number of readings at the end of an episode that must be settled: half a second."""

    @cached_property
    def observation(self) -> Spec:
        """The observation: the arm's sensors, the cubes' poses, and the target position of each cube."""
        sensors = so101_table_spec(self.cubes).sensors
        return Spec(self._called("observation"), (*sensors.fields, place_field(self.cubes)))

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's command."""
        return replace(so101_table_spec(self.cubes).commands, name=self._called("action"))

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec(self._called("state"))

    def _called(self, part: str) -> str:
        return f"{self.name.replace('-', '_')}_{part}"

    def _places(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return the target of each cube's middle, metres, shape (..., N, 3)."""
        raise NotImplementedError

    def _placed(self, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        """Return whether a cube is in its place, given its gap from there, metres, each of shape (...)."""
        raise NotImplementedError

    def _judge(self, sensors: Arrays, goal: Arrays) -> tuple[list[np.ndarray], ...]:
        """Return for each cube whether it is in its place, its way to there and from the finger tips, metres; (...)."""
        cubes, tips = sensors["cube_positions"], sensors["gripper_position"]
        gaps = cubes - self._places(sensors, goal)
        placed: list[np.ndarray] = []
        aways: list[np.ndarray] = []
        reaches: list[np.ndarray] = []
        for cube in range(self.cubes):
            x, y, z = components(gaps[..., cube, :])
            placed.append(self._placed(x, y, z))
            aways.append(np.sqrt(x * x + y * y + z * z))
            reaches.append(distance(tips, cubes[..., cube, :]))
        return placed, aways, reaches

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the robot's command."""
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors, and the target positions of the cubes."""
        return {**sensors, "place_positions": self._places(sensors, goal).copy()}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the task's class describes; shape: the leading axes."""
        placed, aways, reaches = self._judge(following, goal)
        settled = _settled(following, placed, reaches)
        if self.rewards == "sparse":
            return as_number(settled)
        close = np.exp(-_reach_on(placed, reaches) / 0.05)
        value: np.ndarray = 0.2 * close + 0.3 * as_number(settled) - 0.5 * goal_change(sensors, following)
        nears = [np.exp(-away / 0.1) for away in aways]
        value += self._mean([0.25 * as_number(one) + 0.25 * near for one, near in zip(placed, nears, strict=True)])
        return value

    def _mean(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean over the cubes that have to be moved, of a value (...) for each cube."""
        mean: np.ndarray = functools.reduce(operator.add, values) / len(values)
        return mean

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the reading is settled; bool, shape: the leading axes."""
        placed, _, reaches = self._judge(sensors, goal)
        return _settled(sensors, placed, reaches)

    def average_success(self, means: Arrays, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether all of the last readings were settled; bool, shape: the leading axes."""
        always: np.ndarray = np.asarray(means["settled_share"]) > 1.0 - 0.5 / _WINDOW
        return always

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether a cube fell off the table; bool, shape: the leading axes."""
        return lost(sensors["cube_positions"])

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the largest distance of a cube from its place, the share of cubes in place, and 1 where settled."""
        placed, aways, reaches = self._judge(sensors, goal)
        return {
            "distance_mm": functools.reduce(larger, aways) * 1e3,
            "placed_share": self._mean([as_number(one) for one in placed]),
            "settled_share": as_number(_settled(sensors, placed, reaches)),
        }

    def flat_hints(self) -> FlatHints:
        """Return the scales of vectors with which these tasks were trained (launch/train_clone.py)."""
        differences = (
            Difference("cube_positions", "gripper_position", 0.05),
            Difference("place_positions", "cube_positions", 0.05),
            SERVO_GAP,
        )
        return FlatHints(
            {**ARM_SCALES, "cube_positions": 0.2, "place_positions": 0.2}, differences, "joint_goal", ARM_STRIDE
        )


def _reach_on(placed: Sequence[np.ndarray], reaches: Sequence[np.ndarray]) -> np.ndarray:
    """Return the distance from the finger tips to the first cube out of place, 0 where there is none.

    Args:
        placed: whether each cube is in its place, (...).
        reaches: the distance of each cube from the finger tips, metres, (...).
    """
    reach = _NO_WAY
    for is_placed, cube in zip(reversed(placed), reversed(reaches), strict=True):
        reach = choose(is_placed, reach, cube)
    return reach


def _settled(sensors: Arrays, placed: Sequence[np.ndarray], reaches: Sequence[np.ndarray]) -> np.ndarray:
    """Return whether a reading is settled (`CubesTask`); bool, shape: the leading axes. Arguments as for
    `_reach_on`.
    """
    let_go: np.ndarray = component(sensors["joint_position"], 5) >= LET_GO_RAD
    let_go = all_of([*placed, *(reach >= _AWAY_M for reach in reaches), let_go])
    if let_go.ndim == 0 and not let_go:  # mostly, and then the speeds don't count
        return let_go
    return all_of([let_go, *(abs(speed) <= _STILL_RAD_S for speed in components(sensors["joint_velocity"][..., :5]))])
