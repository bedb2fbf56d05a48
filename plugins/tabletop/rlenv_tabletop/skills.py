"""Skills of an SO-101 at a table as actions: one step moves, grasps, puts, releases or pushes, and takes seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hal import Field, IllegalAction, Spec, Violation
from hal.robots.so101 import CUBE_HALF, GRASP, LOW, SIDEWAYS, SO101, inverse_kinematics, steepest
from recorder.frame_layout import FrameLayout
from rlenv_robot.registry import make
from rlenv_robot.tables import ExtraInfo, Options
from rlenv_robot.tasks.task import TaskWorld, task_world
from rlenv_robot.tasks.text_hints import HasPlaces, HasTextHints, TextCommand, TextHints
from rlenv_robot.world import EnvDescription, TimeStep, World, WorldWrapper
from rlenv_tabletop.scripted import (
    STEP_RAD,
    ScriptedPush,
    coming_position,
    fingers_middle,
    grasp_and_carry,
    holds,
    toward,
    yaw_of,
)

__all__ = ["SKILLS", "SkillWorld", "errand_skills", "pick_place_skills", "push_skills"]

SKILLS = ("move_to", "grasp", "put", "release", "push", "set_joints")
"""The skills by number."""

_MEANINGS = {
    "move_to": "move the finger tips, and what they hold, to a position",
    "grasp": "take a thing from above and lift it",
    "put": "bring the thing that you hold over a place and let it go",
    "release": "open the gripper and move up",
    "push": "push a thing over the table to a position with closed fingers",
    "set_joints": "move every joint to an angle",
}
_ARGUMENTS = {
    "move_to": ("position",), "grasp": ("object",), "put": ("place",), "release": (), "push": ("object", "position"),
    "set_joints": ("joint_target",),
}  # fmt: skip
_PERIODS = {"move_to": 90, "grasp": 150, "put": 210, "release": 45, "push": 300, "set_joints": 60}
"""Control periods of 1/30 s after which a skill gives up."""

_LIFT_M = 0.06
_OPEN_RAD = 0.8
_JAW_STEP_RAD = 0.12
_NEAR_M = 0.012
_CRUISE_M = 0.08
_NEAR_RAD = 0.08
_JOINTS = SO101.commands["joint_target"]

Sensors = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class _Move:
    """One skill with its arguments."""

    skill: str
    number: int
    position: np.ndarray
    joints: np.ndarray


class SkillWorld(WorldWrapper):
    """A world of an SO-101 in which each step is a skill that scripted policies carry out over seconds.

    The guard limits the inner world's actions as always. The reward of a step is the sum of the inner rewards; the
    observation is the last one. ``extra_info["skill"]`` is {name, reached, periods}, and ``effective`` says whether the
    skill achieved its purpose. A recording has one frame per skill, not per control period.

    Args:
        world: world of an SO-101 with one cube (sensor ``cube_position``) or several (``cube_positions``) and an action
            with ``joint_target`` or ``arm_target``; this world takes ownership of it.
        name: this world's name; by default the inner world's.

    Raises:
        ValueError: the world is not of this kind.
    """

    def __init__(self, world: World, name: str = "") -> None:
        super().__init__(world)
        self._name = name or world.name
        inner = task_world(world)
        sensors = world.layout.sensors
        if inner is None or not {"cube_position", "cube_positions"} & set(sensors.names):
            raise ValueError(f"{world.name!r} has no arm with cubes, which skills need")
        if world.action.names not in (("joint_target",), ("arm_target",)):
            raise ValueError(f"{world.name!r} has the action {', '.join(world.action.names)}, expected joint_target")
        self._inner: TaskWorld = inner
        task = inner.task
        self._places = task if isinstance(task, HasPlaces) else None
        self.object_names = self._places.object_names if self._places else ("cube",)
        target = "target_position" in world.observation
        self.place_names = self._places.place_names if self._places else ("target",) if target else ()
        self._last: TimeStep | None = None

    # -- description -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The world's name."""
        return self._name

    @cached_property
    def action(self) -> Spec:
        """The action: the skill's number, and the skills' arguments. A skill ignores those that it does not take."""
        numbered = ", ".join(f"{number} {name}" for number, name in enumerate(SKILLS))
        objects = ", ".join(f"{number} {name}" for number, name in enumerate(self.object_names))
        fields = [
            Field("skill", (), "int32", 0, len(SKILLS) - 1, meaning=numbered),
            Field("object", (), "int32", 0, len(self.object_names) - 1, meaning=objects),
            Field(
                "position", (3,), "float32", (0.1, -0.25, 0.0), (0.36, 0.25, 0.25), "m",
                "in the base frame: x forward, y left, z up", ("x", "y", "z"),
            ),
            replace(_JOINTS, meaning="goal angles of the joints"),
        ]  # fmt: skip
        if self.place_names:
            places = ", ".join(f"{number} {name}" for number, name in enumerate(self.place_names))
            fields.insert(2, Field("place", (), "int32", 0, len(self.place_names) - 1, meaning=places))
        return Spec("so101_skill", tuple(fields))

    @property
    def description(self) -> EnvDescription:
        """The inner world's description, and that of the skills."""
        inner = self._world.description
        return replace(
            inner,
            about=f"{inner.about}\n\nA step is a skill, which takes up to {max(_PERIODS.values()) / 30:.0f} s.",
            extra_info={
                **inner.extra_info,
                "skill": "{name, reached, periods}: what was done, whether it reached its end, and how long it took",
                "effective": "whether the skill reached its end",
            },
            error_codes={
                **inner.error_codes,
                "reach": "the position is out of the arm's reach",
                "nothing_held": "there is nothing in the gripper to put anywhere",
            },
        )

    @cached_property
    def layout(self) -> FrameLayout:
        """The inner world's observation, the skills, and the robot's commands and sensors."""
        return replace(self._world.layout, action=self.action, policy=Spec("policy"))

    def text_hints(self) -> TextHints:
        """Return the skills as commands, with the inner task's text hints."""
        task = self._inner.task
        hints = task.text_hints() if isinstance(task, HasTextHints) else TextHints()
        commands = tuple(
            TextCommand(name, _ARGUMENTS[name], {"skill": number}, _MEANINGS[name])
            for number, name in enumerate(SKILLS)
            if set(_ARGUMENTS[name]) <= set(self.action.names)
        )
        names = {"object": self.object_names, **({"place": self.place_names} if self.place_names else {})}
        return replace(hints, commands=commands, names=names)

    # -- reset and step ----------------------------------------------------------------------------------

    def reset(self, options: Options) -> TimeStep:
        """Reset the inner world."""
        self._last = self._world.reset(options)
        return self._last

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Carry out a skill to its end, or to the end of the episode.

        Raises:
            IllegalAction: the position is out of reach (``reach``), or there is nothing to put (``nothing_held``);
                nothing moved.
        """
        assert self._last is not None  # the environment resets first
        skill = SKILLS[int(action["skill"])]
        number = int(action["place"]) if skill == "put" else int(action["object"])
        move = _Move(skill, number, np.asarray(action["position"], np.float64), action["joint_target"])
        self._check(move, self._last.sensors)
        total, periods, reached, timestep = 0.0, 0, False, self._last
        for goals, reached in self._goals(move):
            if reached or periods >= _PERIODS[skill]:
                break
            timestep = self._world.step(self._inner_action(goals), extra_info)
            self._last, periods = timestep, periods + 1
            assert not isinstance(timestep.reward, Mapping)  # an arm alone is one agent
            total += timestep.reward
            if timestep.terminated or timestep.truncated:
                break
        # An end of the episode that the task calls a success is one of the skill too.
        reached = reached or bool(timestep.terminated and timestep.extra_info.get("success"))
        extra: ExtraInfo = {**timestep.extra_info, "skill": {"name": skill, "reached": reached, "periods": periods},
                            "effective": reached}  # fmt: skip
        self._last = timestep = timestep._replace(reward=total, extra_info=extra)
        return timestep

    def _inner_action(self, goals: np.ndarray) -> dict[str, np.ndarray]:
        goals = np.clip(goals, *_JOINTS.bounds).astype(np.float32)
        return {"joint_target": goals} if "joint_target" in self._world.action else {"arm_target": goals[:5]}

    def _check(self, move: _Move, sensors: Sensors) -> None:
        """Refuse a skill that can't begin.

        Raises:
            IllegalAction: with code reach or nothing_held.
        """
        if move.skill in ("move_to", "push"):
            place = move.position if move.skill == "move_to" else np.array((*move.position[:2], CUBE_HALF))
            if not _reachable(place):
                x, y, z = (f"{value:.3g}" for value in place)
                message = f"action.position {x}, {y}, {z} m is out of the arm's reach"
                raise IllegalAction(Violation("reach", "action.position", (), message))
        if move.skill == "put" and self._held(sensors) is None:
            raise IllegalAction(Violation("nothing_held", "action.skill", (), "the gripper holds nothing: grasp first"))

    # -- skills: each yields the next joint goals, rad, shape (6,), and whether its end is reached ----------

    def _goals(self, move: _Move) -> Iterator[tuple[np.ndarray, bool]]:
        if move.skill == "grasp":
            return self._grasp(move.number)
        if move.skill == "put":
            return self._put(move.number)
        if move.skill == "release":
            return self._release()
        if move.skill == "push":
            return self._push(move.number, move.position)
        return self._move_to(move.position) if move.skill == "move_to" else self._set_joints(move.joints)

    @property
    def _sensors(self) -> Sensors:
        assert self._last is not None
        return self._last.sensors

    def _cubes(self, sensors: Sensors) -> tuple[np.ndarray, np.ndarray]:
        """Return the cubes' middles in metres, (N, 3), and their turns about the vertical in rad, (N,)."""
        if "cube_positions" in sensors:
            return sensors["cube_positions"].astype(np.float64), yaw_of(sensors["cube_orientations"])
        return sensors["cube_position"].astype(np.float64)[None], yaw_of(sensors["cube_orientation"])[None]

    def _held(self, sensors: Sensors) -> int | None:
        """Return the number of the cube that the gripper holds."""
        cubes, _ = self._cubes(sensors)
        tips = fingers_middle(sensors["gripper_position"], sensors["joint_position"])
        surely = [float(holds(sensors["joint_goal"], sensors["joint_velocity"], tips, cube)) for cube in cubes]
        best = int(np.argmax(surely))
        return best if surely[best] > 0.5 else None

    def _carry(self, number: int, target: np.ndarray) -> np.ndarray:
        """Return the next goals on the way of taking a cube and bringing it to a target."""
        sensors = self._sensors
        cubes, turns = self._cubes(sensors)
        tips = fingers_middle(sensors["gripper_position"], sensors["joint_position"])
        return grasp_and_carry(
            sensors["joint_goal"], sensors["joint_position"], sensors["joint_velocity"], tips, cubes[number],
            turns[number], target, 2 * CUBE_HALF, np.pi / 2,
        )  # fmt: skip

    def _grasp(self, number: int) -> Iterator[tuple[np.ndarray, bool]]:
        cubes, _ = self._cubes(self._sensors)
        target = cubes[number] + (0.0, 0.0, _LIFT_M)
        while True:
            cubes, _ = self._cubes(self._sensors)
            lifted = cubes[number][2] > target[2] - _LIFT_M / 3 and self._held(self._sensors) == number
            yield self._carry(number, target), bool(lifted)

    def _put(self, place: int) -> Iterator[tuple[np.ndarray, bool]]:
        number = self._held(self._sensors)
        assert number is not None  # _check refuses an empty gripper
        while True:
            target = self._place(place)
            cube = self._cubes(self._sensors)[0][number]
            gap = cube - target
            if np.hypot(gap[0], gap[1]) < 0.008 and abs(gap[2]) < 0.006:
                break
            yield self._carry(number, target), False
        yield from self._release()

    def _place(self, number: int) -> np.ndarray:
        if self._places is None:
            assert self._last is not None
            return np.asarray(self._last.observation["target_position"], np.float64)
        goal = {name: self._last.observation[name] for name in self._inner.task.goal.names if self._last}
        return np.asarray(self._places.place_position(number, self._sensors, goal), np.float64)

    def _release(self) -> Iterator[tuple[np.ndarray, bool]]:
        top = self._tips()[2] + 0.05
        while True:
            goals = self._sensors["joint_goal"].astype(np.float64)
            opened = goals[5] >= _OPEN_RAD - 0.05 and self._sensors["joint_position"][5] >= _OPEN_RAD - 0.2
            if opened:
                goals[:5] = self._toward((*self._tips()[:2], top))
            goals[5] = min(goals[5] + _JAW_STEP_RAD, _OPEN_RAD)
            yield goals, bool(opened and self._tips()[2] > top - 0.02)

    def _move_to(self, position: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
        held = self._held(self._sensors)
        while True:
            at = self._tips() if held is None else self._cubes(self._sensors)[0][held]
            reached = bool(np.linalg.norm(at - position) < _NEAR_M)
            if held is not None:
                yield self._carry(held, position), reached
                continue
            across = float(np.hypot(*(at - position)[:2]))
            height = position[2] if across < 0.02 else max(position[2], _CRUISE_M)
            goals = self._sensors["joint_goal"].astype(np.float64)
            goals[:5] = self._toward((*position[:2], height))
            yield goals, reached

    def _push(self, number: int, position: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
        script, target = ScriptedPush(), np.array((*position[:2], CUBE_HALF))
        while True:
            sensors = self._sensors
            cube = self._cubes(sensors)[0][number]
            seen = {**sensors, "cube_position": cube, "target_position": target}
            goals = sensors["joint_goal"].astype(np.float64)
            closed = goals[5] <= LOW[5] + 0.05
            if closed:
                goals[:5] = script.act(seen)["arm_target"]
            goals[5] = max(goals[5] - _JAW_STEP_RAD, LOW[5])
            yield goals, bool(np.hypot(*(cube - target)[:2]) < _NEAR_M)

    def _set_joints(self, target: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
        while True:
            goals = self._sensors["joint_goal"].astype(np.float64)
            way = target.astype(np.float64) - goals
            longest = float(np.abs(way).max())
            at = bool(longest < 1e-6 and np.abs(self._sensors["joint_position"] - target).max() < _NEAR_RAD)
            yield goals + way * min(1.0, STEP_RAD / max(longest, 1e-9)), at

    def _tips(self) -> np.ndarray:
        return fingers_middle(self._sensors["gripper_position"], self._sensors["joint_position"])

    def _toward(self, place: tuple[float, ...]) -> np.ndarray:
        sensors = self._sensors
        goals = sensors["joint_goal"][:5].astype(np.float64)
        coming = coming_position(sensors["joint_position"], sensors["joint_velocity"])[:5]
        return toward(goals, coming, np.array(place), goals[4], tool=GRASP)


def _reachable(place: np.ndarray) -> bool:
    roll = np.array(SIDEWAYS)
    straight = inverse_kinematics(place, np.pi / 2, roll, GRASP)
    return not (np.isnan(straight).any() and np.isnan(steepest(place, roll, GRASP)))


def errand_skills(**settings: Any) -> SkillWorld:
    """Return `so101-errand` by skills, in simulation.

    Args:
        settings: those of `rlenv_tabletop.errand.Errand`.
    """
    return SkillWorld(make("so101-errand", **settings).world, "so101-errand-skills")


def push_skills(**settings: Any) -> SkillWorld:
    """Return `so101-push` by skills, in simulation.

    Args:
        settings: those of `rlenv_robot.tasks.cube.Push`.
    """
    return SkillWorld(make("so101-push", **settings).world, "so101-push-skills")


def pick_place_skills(**settings: Any) -> SkillWorld:
    """Return `so101-pick-place` by skills, in simulation.

    Args:
        settings: those of `rlenv_robot.tasks.cube.PickPlace`.
    """
    return SkillWorld(make("so101-pick-place", **settings).world, "so101-pick-place-skills")
