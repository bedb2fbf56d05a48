"""`so101-errand`: bring cubes to described places: fetch one, sort all, or stack two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from hal import Field, Spec
from hal.robots.vectors import components
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, start_open
from rlenv_robot.tasks.task import Arrays, Episode, with_fixed_goal
from rlenv_robot.tasks.text_hints import TextHints
from rlenv_tabletop.robots import MOST_CUBES, TRAYS, so101_table_spec
from rlenv_tabletop.table import LET_GO_RAD, TRAY_OF, TableScene, at_height, in_tray, lost

__all__ = ["TRAYS", "Describe", "Errand", "ErrandKind"]

ErrandKind = Literal["fetch", "sort", "stack"]
"""``fetch`` one cube to a tray, ``sort`` all by colour, or ``stack`` one onto another."""

Describe = Literal["colour", "likeness"]
"""Ways to describe a cube: by its colour, or by a thing of that colour."""

_STACK_M = 0.015
_HELD_CM = 3.5
_NOWHERE = -1
_LIKENESSES: Mapping[str, tuple[str, ...]] = {
    "red": ("a tomato", "blood", "a fire engine"), "green": ("grass", "a frog", "a cucumber"),
    "blue": ("the sky", "the sea", "a sapphire"), "yellow": ("a lemon", "the sun", "a canary"),
}  # fmt: skip


@dataclass(frozen=True)
class Errand(TableScene):
    """Bring cubes to the places that an errand names.

    ``fetch`` brings one cube to one of two trays. ``sort`` brings red and yellow cubes to the left tray, green and blue
    ones to the right. ``stack`` puts one cube onto another. An errand is done when every cube that it names lies in its
    place and the gripper has let go; then the task terminates, as it does where a cube falls off the table.

    Reward of a step: ``P(after) - P(before)``, and 1 in the step that does the errand; ``P`` is the mean over the
    errand's cubes of ``0.5 [in its place] + 0.5 exp(-d / 0.1 m)`` with ``d`` the distance from the place. With
    ``rewards="sparse"`` the reward is only the 1.

    Attributes:
        errand: ``fetch``, ``sort`` or ``stack``.
        cubes: number of cubes on the table, 1 to 4; 2 at least to stack.
        described: description of the cube to ``fetch``: ``colour`` ("the red cube") or ``likeness`` ("the cube in the
            colour of a tomato").
        area: share of the table's area (in width and in depth) on which the cubes lie, above 0 to 1.
        rewards: ``dense`` or ``sparse``.
        steps: length of an episode in control periods of 1/30 s.

    Raises:
        ValueError: a setting is out of range.
    """

    errand: ErrandKind = "fetch"
    cubes: int = 1
    described: Describe = "colour"
    area: float = 1.0
    rewards: Rewards = "dense"
    steps: int = 1800

    name = "so101-errand"

    def __post_init__(self) -> None:
        for key, value, kinds in (("errand", self.errand, ErrandKind), ("described", self.described, Describe)):
            if value not in get_args(kinds):
                raise ValueError(f"{key} is {value!r}, allowed are {', '.join(map(repr, get_args(kinds)))}")
        self._check_table(2 if self.errand == "stack" else 1, MOST_CUBES, self.rewards, self.steps)

    # -- robot and specs ---------------------------------------------------------------------------------

    @cached_property
    def observation(self) -> Spec:
        """The observation: the arm's sensors, the cubes' poses, and the errand."""
        sensors = so101_table_spec(self.cubes).sensors
        return Spec("so101_errand_observation", (*sensors.fields, *self.goal.fields))

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's command."""
        return replace(so101_table_spec(self.cubes).commands, name="so101_errand_action")

    @cached_property
    def goal(self) -> Spec:
        """The goal: the place of each cube, and the words that describe the cube to fetch."""
        last = len(self.place_names) - 1
        meaning = f"where {', '.join(self.object_names)} shall be: -1 anywhere, {_numbered(self.place_names)}"
        likeness = Field(
            "likeness", (), "int32", -1, 2, meaning="which likeness describes the cube to fetch; -1 its colour"
        )
        return Spec("so101_errand_goal", (Field("places", (self.cubes,), "int32", -1, last, meaning=meaning), likeness))

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec("so101_errand_state")

    # -- an episode --------------------------------------------------------------------------------------

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw an errand, and a start near home with an open gripper. The robot's reset draws the cubes' positions."""
        start = start_open(rng)
        places = np.full(self.cubes, _NOWHERE, np.int32)
        likeness = -1
        if self.errand == "fetch":
            places[rng.integers(self.cubes)] = rng.integers(len(TRAYS))
            if self.described == "likeness":
                likeness = int(rng.integers(3))
        elif self.errand == "sort":
            places[:] = [list(TRAYS).index(TRAY_OF[name]) for name in self.object_names]
        else:
            upper, lower = rng.permutation(self.cubes)[:2].tolist()
            places[upper] = len(TRAYS) + lower
        goal: Arrays = {"places": places, "likeness": np.array(likeness, np.int32)}
        return Episode(with_fixed_goal(self.goal, goal, options), {"joint_target": start})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the robot's command."""
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors, and the errand broadcast to their leading axes."""
        leading = sensors["cube_positions"].shape[:-2]
        errand = {name: np.broadcast_to(goal[name], leading + self.goal[name].shape) for name in self.goal.names}
        return {**sensors, **errand}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    # -- judging -----------------------------------------------------------------------------------------

    def _judge(self, sensors: Arrays, goal: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each cube whether it is named and whether it is placed, and its way to there, metres; (..., N)."""
        cubes = sensors["cube_positions"]
        places = np.broadcast_to(goal["places"], cubes.shape[:-1])
        named = places != _NOWHERE
        wanted = np.take_along_axis(self._every_place(cubes), np.maximum(places, 0)[..., None], axis=-2)
        gap = cubes - wanted
        x, y, z = components(gap)
        stacked = (np.hypot(x, y) <= _STACK_M) & at_height(z)
        placed = np.where(places < len(TRAYS), in_tray(x, y, z), stacked)
        return named, placed & named, np.sqrt(np.square(gap).sum(axis=-1))

    def _potential(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        named, placed, away = self._judge(sensors, goal)
        value = np.where(named, 0.5 * placed + 0.5 * np.exp(-away / 0.1), 0.0)
        result: np.ndarray = value.sum(axis=-1) / np.maximum(named.sum(axis=-1), 1)
        return result

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class describes; shape: the leading axes."""
        done: np.ndarray = (self.success(following, goal) & ~self.success(sensors, goal)).astype(np.float64)
        if self.rewards == "sparse":
            return done
        shaped: np.ndarray = done + self._potential(following, goal) - self._potential(sensors, goal)
        return shaped

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether every named cube is in its place and the gripper has let go; bool, shape: the leading axes."""
        named, placed, _ = self._judge(sensors, goal)
        let_go = sensors["joint_position"][..., 5] >= LET_GO_RAD
        result: np.ndarray = (placed | ~named).all(axis=-1) & let_go
        return result

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the errand is done, or a cube fell off the table; bool, shape: the leading axes."""
        result: np.ndarray = lost(sensors["cube_positions"]) | self.success(sensors, goal)
        return result

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the share of the errand's cubes that are in their places."""
        named, placed, _ = self._judge(sensors, goal)
        return {"placed_share": placed.sum(axis=-1) / np.maximum(named.sum(axis=-1), 1)}

    # -- words -------------------------------------------------------------------------------------------

    def text_hints(self) -> TextHints:
        """Return the errand and the scene in words."""
        return TextHints("You move the cubes on a table with a robot's arm.", write=self.write)

    def write(self, observation: Arrays) -> str:
        """Return an observation in words: the errand, the cubes and the gripper's state, with lengths in cm."""
        cubes = np.asarray(observation["cube_positions"], np.float64) * 100.0
        whole = np.rint(cubes).astype(int).tolist()
        scene = "; ".join(f"{name} at {x} {y} {z}" for name, (x, y, z) in zip(self.object_names, whole, strict=True))
        tips = np.asarray(observation["gripper_position"], np.float64) * 100.0
        held = np.flatnonzero(np.linalg.norm(cubes - tips, axis=-1) < _HELD_CM)
        shut = float(observation["joint_position"][5]) < LET_GO_RAD
        hand = f"holds {self.object_names[int(held[0])]}" if len(held) and shut else "empty"
        return f"Task: {self._errand(observation)}.\nCubes: {scene}.\nGripper: {hand}."

    def _errand(self, observation: Arrays) -> str:
        places = observation["places"].tolist()
        likeness = int(observation["likeness"])
        if self.errand == "sort":
            return "bring red and yellow to the left tray, green and blue to the right tray"
        thing, place = next((number, place) for number, place in enumerate(places) if place != _NOWHERE)
        colour = self.object_names[thing]
        name = f"the {colour} cube" if likeness < 0 else f"the cube in the colour of {_LIKENESSES[colour][likeness]}"
        if place < len(TRAYS):
            return f"bring {name} to the {self.place_names[place]} tray"
        return f"put {name} on the {self.object_names[place - len(TRAYS)]} cube"


def _numbered(names: tuple[str, ...]) -> str:
    return ", ".join(f"{number} {name}" for number, name in enumerate(names))
