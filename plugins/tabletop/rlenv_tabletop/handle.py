"""Move a part by its handle and let go of it: the rules that these tasks share, and the tasks `Drawer` and `Lid`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np

from hal import Field, Spec
from hal.robots.vectors import bounded, component, distance
from rlenv_robot.robot_models import RobotModel, find_robot_model
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, goal_change, start_open
from rlenv_robot.tasks.flat_hints import ARM_SCALES, ARM_STRIDE, SERVO_GAP, Difference, FlatHints
from rlenv_robot.tasks.memoise import memoise_by_identity
from rlenv_robot.tasks.task import Arrays, Episode, check_settings, with_fixed_goal
from rlenv_tabletop.robots import SO101_BOX, SO101_CABINET, TRAVEL, WIDEST, grip_position, handle_position

if TYPE_CHECKING:
    from sim.model import SimModel

__all__ = ["Drawer", "HandleTask", "Job", "Lid"]

Job = Literal["open", "close"]
"""``open`` begins with a closed part, ``close`` with an open one."""

_NEVER = cast("np.ndarray", np.False_)

_AXES = ("x", "y", "z")
_REST_S = 0.5


class HandleTask:
    """A task that succeeds when a part rests at a target along its joint and the gripper has left its handle.

    This is a base class of dataclasses. Success is judged by means over the last half second of an episode: of the
    part's distance from the target, of the part's speed, and of the gripper's distance from the handle.

    Attributes:
        name: the task's name for `rlenv_robot.make`.
        rewards: ``dense`` or ``sparse``.
        job: ``open``, from a closed part, or ``close``, from an open one.
        clearance_m: smallest distance between finger tips and handle that counts as let go, metres.
        steps: length of an episode in control periods.

    Raises:
        ValueError: a setting is out of range.
    """

    robot: str
    name: str
    rewards: Rewards
    job: Job
    clearance_m: float
    steps: int

    _specs: Spec
    """The robot's sensors."""

    _place: str
    """The sensor of the part's place along its joint; the goal's field is called ``target_`` and the rest of its name.
    """

    _range: tuple[float, float]
    """The range of the part's places."""

    _tolerance_name: str
    _drawn_name: str
    """The settings that hold the error that counts as success, and the range of the places that are drawn."""

    _figures: Mapping[str, float]
    """The names of error, speed and clearance for people, and what one of each is in SI units."""

    _wide: float
    _close: float
    """The errors over which the reward's two terms fall to 1/e, in the unit of the part's place."""

    _slowest: float
    """The mean speed up to which the part is at rest, in the unit of its place for each second."""

    _start_lift_rad: float = 0.0
    """Added to ``shoulder_lift`` of a start for ``close``, rad: an open lid would be inside a gripper at home."""

    @cached_property
    def _tolerance(self) -> float:
        """The error that counts as success, in the unit of the part's place."""
        value: float = getattr(self, self._tolerance_name)
        return value

    @property
    def _drawn(self) -> tuple[float, float]:
        """The range of the places that are drawn: of the target, or for ``close`` of the start."""
        ends: tuple[float, float] = getattr(self, self._drawn_name)
        return ends

    def _opened(self) -> tuple[Callable[..., SimModel], Callable[..., SimModel]]:
        """Return what makes the simulation and the twin; both take the range of the starts."""
        raise NotImplementedError

    def _handle(self, sensors: Arrays, place: np.ndarray) -> np.ndarray:
        """Return the handle's middle where the part is at a place, metres, shape (..., 3); not to be changed."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        object.__setattr__(self, self._drawn_name, tuple(self._drawn))  # a profile gives a list
        check_settings(self.steps, clearance_m=self.clearance_m, **{self._tolerance_name: self._tolerance})
        for name, value, kinds in (("rewards", self.rewards, Rewards), ("job", self.job, Job)):
            if value not in get_args(kinds):
                raise ValueError(f"{name} is {value!r}, allowed are {' and '.join(map(repr, get_args(kinds)))}")
        (low, high), (_, widest) = self._drawn, self._range
        if not self._tolerance < low <= high <= widest:
            unit = self._specs[self._place].unit
            raise ValueError(
                f"{self._drawn_name} is {self._drawn}, it must be a range above {self._tolerance_name}, "
                f"{self._tolerance}, to {widest} {unit}"
            )

    @cached_property
    def robot_model(self) -> RobotModel:
        """The robot model. For ``close`` its simulation starts with an open part."""
        model = find_robot_model(self.robot)
        if self.job == "open":
            return model
        simulated, twin = (partial(make, **{self._drawn_name: self._drawn}) for make in self._opened())
        return replace(model, simulated=simulated, twin=twin)

    # -- specs -------------------------------------------------------------------------------------------

    @cached_property
    def observation(self) -> Spec:
        """The observation: the robot's sensors, the handle's position, its target position, and the goal."""
        handle = Field("handle_position", (3,), "float32", -20.0, 20.0, "m", "middle of the handle", _AXES)
        target = Field("handle_target", (3,), "float32", -20.0, 20.0, "m", "where the handle's middle shall be", _AXES)
        return Spec(self._called("observation"), (*self._specs.fields, handle, target, *self.goal.fields))

    @cached_property
    def action(self) -> Spec:
        """The action: the arm's command."""
        return replace(SO101_CABINET.commands, name=self._called("action"))

    @cached_property
    def goal(self) -> Spec:
        """The goal: the part's target along its joint."""
        sensor = self._specs[self._place]
        low, high = self._range
        meaning = f"what {self._place} shall be"
        return Spec(self._called("goal"), (replace(sensor, name=self._target, low=low, high=high, meaning=meaning),))

    @cached_property
    def _target(self) -> str:
        """The name of the goal's field."""
        return f"target_{self._place.split('_')[-1]}"

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec(self._called("state"))

    def _called(self, part: str) -> str:
        return f"{self.name.replace('-', '_')}_{part}"

    # -- episodes ----------------------------------------------------------------------------------------

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target, and a start near home with an open gripper. The robot's reset draws the fixture's pose."""
        drawn = float(rng.uniform(*self._drawn))
        place = drawn if self.job == "open" else 0.0
        goal: Arrays = {self._target: np.array([place], np.float32)}
        start = start_open(rng)
        if self.job == "close":
            start[1] += self._start_lift_rad
        return Episode(with_fixed_goal(self.goal, goal, options), {"joint_target": start})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the robot's command."""
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors, the handle's position and its target, and the goal broadcast to their leading axes."""
        name, place = self._target, sensors[self._place]
        target = goal[name] if goal[name].shape == place.shape else np.broadcast_to(goal[name], place.shape)
        return {
            **sensors,
            "handle_position": self._handle(sensors, place).copy(),
            "handle_target": self._handle(sensors, target).copy(),
            name: target,
        }

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    # -- judging -----------------------------------------------------------------------------------------

    def _error(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return how far the part is from its target; shape: the leading axes."""
        return abs(component(sensors[self._place], 0) - component(goal[self._target], 0))

    def _speed(self, sensors: Arrays) -> np.ndarray:
        """Return how fast the part moves; shape: the leading axes."""
        return abs(component(sensors[self._place.rsplit("_", 1)[0] + "_velocity"], 0))

    def _away(self, sensors: Arrays) -> np.ndarray:
        """Return the distance from the finger tips to the handle, metres; shape: the leading axes."""
        return distance(sensors["gripper_position"], self._handle(sensors, sensors[self._place]))

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the task's class describes; shape: the leading axes."""
        if self.rewards == "sparse":
            return self.success(following, goal).astype(np.float64)
        error, near = self._error(following, goal), np.exp(-self._away(following) / 0.05)
        done = bounded(2 - 2 * error / self._tolerance, 0.0, 1.0)
        value: np.ndarray = 0.25 * np.exp(-error / self._wide) + 0.25 * np.exp(-error / self._close) + 0.2 * near
        value += 0.5 * done * (1 - near) - 0.5 * goal_change(sensors, following)
        return value

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return False for all: every episode lasts its number of steps, since the part must come to rest."""
        rows = sensors[self._place].shape[:-1]
        return np.zeros(rows, bool) if rows else _NEVER

    @property
    def averaged_readings(self) -> int:
        """The number of readings in half a second, over which success is judged."""
        return round(_REST_S * SO101_CABINET.rate_hz)

    def average_success(self, means: Arrays, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the part, averaged over the last readings, was at its target, at rest and released."""
        error, speed, clearance = (means[name] * scale for name, scale in self._figures.items())
        good: np.ndarray = (error <= self._tolerance) & (speed <= self._slowest) & (clearance >= self.clearance_m)
        return good

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the part is at its target, at rest and released in this reading."""
        return self.average_success(self.metrics(sensors, goal), sensors, goal)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the part's error and speed, and the gripper's distance from the handle."""
        values = self._error(sensors, goal), self._speed(sensors), self._away(sensors)
        return {name: value / scale for (name, scale), value in zip(self._figures.items(), values, strict=True)}

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the goal that the last reading along the time axis reached."""
        return {self._target: np.clip(sensors[self._place][-1], *self._range)}


_drawer_handle, _lid_handle = memoise_by_identity(handle_position), memoise_by_identity(grip_position)


# -- so101-drawer --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawer(HandleTask):
    """Pull a drawer open by its handle to a given opening, or push it closed, and let go of it.

    The cabinet stands clamped on the table, at a place and an angle that the robot's reset draws. An episode succeeds
    if, averaged over its last half second, the drawer is within ``tolerance_m`` of the target, moves at most 5 mm/s,
    and the finger tips are at least ``clearance_m`` from the handle.

    Reward of a step, at most 1: ``0.2 exp(-g / 0.05 m) + 0.25 exp(-e / 0.05 m) + 0.25 exp(-e / 0.01 m) + 0.5 w (1 -
    exp(-g / 0.05 m)) - 0.5 |q* - q*before|^2`` where ``g`` is the distance from finger tips to handle and ``e`` that of
    the opening from its target, both after the step, ``w`` falls from 1 where ``e`` is half the tolerance to 0 where
    ``e`` is the tolerance, and ``q*`` are the joint goals of the arm without its gripper in rad. The term with ``w``
    rewards leaving the handle once the drawer is at its target. With ``rewards="sparse"`` the reward is 1 if the
    reading alone would be a success, else 0. An episode is truncated after ``steps``.

    Attributes:
        tolerance_m: the largest distance of the opening from its target that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        job: ``open``, from a closed drawer, or ``close``, from an open one.
        opening: range from which the target opening is drawn, or for ``close`` the initial opening, metres.
        clearance_m: smallest distance between finger tips and handle that counts as let go, metres.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.01
    rewards: Rewards = "dense"
    job: Job = "open"
    opening: tuple[float, float] = (0.04, 0.08)
    clearance_m: float = 0.04
    steps: int = 180

    name = "so101-drawer"
    robot = "so101-cabinet"

    _specs = SO101_CABINET.sensors
    _tolerance_name, _drawn_name = "tolerance_m", "opening"
    _place = "drawer_opening"
    _range = (0.0, TRAVEL)
    _wide, _close, _slowest = 0.05, 0.01, 0.005
    _figures = MappingProxyType({"opening_error_mm": 1e-3, "speed_mm_s": 1e-3, "clearance_mm": 1e-3})

    def _opened(self) -> tuple[Callable[..., SimModel], Callable[..., SimModel]]:
        from rlenv_tabletop.scenes import so101_cabinet, so101_cabinet_twin

        return so101_cabinet, so101_cabinet_twin

    def _handle(self, sensors: Arrays, place: np.ndarray) -> np.ndarray:
        return _drawer_handle(sensors["cabinet_position"], sensors["cabinet_yaw"], place)

    def flat_hints(self) -> FlatHints:
        """Return the scales of vectors with which this task was trained (launch/train_clone.py)."""
        scales = {
            **ARM_SCALES, "cabinet_position": 0.2, "cabinet_yaw": 0.5, "drawer_opening": 0.05, "drawer_velocity": 0.2,
            "handle_position": 0.2, "handle_target": 0.2, "target_opening": 0.05,
        }  # fmt: skip
        differences = (
            Difference("handle_position", "gripper_position", 0.05),
            Difference("handle_target", "handle_position", 0.05),
            Difference("target_opening", "drawer_opening", 0.02),
            SERVO_GAP,
        )
        return FlatHints(scales, differences, "joint_goal", ARM_STRIDE)


# -- so101-lid -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lid(HandleTask):
    """Lift the hinged lid of a box by its handle to a given angle, or close it, and let go of it.

    The box stands clamped on the table, at a place and an angle that the robot's reset draws. Its hinge is on the side
    facing the arm, and friction holds the lid where it is left. An episode succeeds if over its last half second, in
    the mean, the lid is within ``tolerance_rad`` of the target, moves at most 0.05 rad/s, and the finger tips are at
    least ``clearance_m`` from the handle.

    Reward of a step, at most 1: ``0.2 exp(-g / 0.05 m) + 0.25 exp(-e / 0.5 rad) + 0.25 exp(-e / 0.1 rad) + 0.5 w (1 -
    exp(-g / 0.05 m)) - 0.5 |q* - q*before|^2`` where ``g`` is the distance from finger tips to handle and ``e`` that of
    the lid's angle from its target, both after the step, ``w`` falls from 1 where ``e`` is half the tolerance to 0
    where ``e`` is the tolerance, and ``q*`` are the joint goals of the arm without its gripper in rad. The term with
    ``w`` rewards leaving the handle once the lid is at its target. With ``rewards="sparse"`` the reward is 1 if the
    reading alone would be a success, else 0. An episode is truncated after ``steps``.

    Attributes:
        tolerance_rad: the largest distance of the angle from its target that counts as success, rad.
        rewards: ``dense`` or ``sparse``.
        job: ``open``, from a closed lid, or ``close``, from an open one.
        angle: range from which the target angle is drawn, or for ``close`` the initial angle, rad.
        clearance_m: smallest distance between finger tips and handle that counts as let go, metres.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_rad: float = 0.1
    rewards: Rewards = "dense"
    job: Job = "open"
    angle: tuple[float, float] = (0.4, 0.9)
    clearance_m: float = 0.04
    steps: int = 180

    name = "so101-lid"
    robot = "so101-box"

    _specs = SO101_BOX.sensors
    _tolerance_name, _drawn_name = "tolerance_rad", "angle"
    _place = "lid_angle"
    _range = (0.0, WIDEST)
    _wide, _close, _slowest = 0.5, 0.1, 0.05
    _start_lift_rad = -0.5
    _figures = MappingProxyType({"angle_error_rad": 1.0, "speed_rad_s": 1.0, "clearance_mm": 1e-3})

    def _opened(self) -> tuple[Callable[..., SimModel], Callable[..., SimModel]]:
        from rlenv_tabletop.scenes import so101_box, so101_box_twin

        return so101_box, so101_box_twin

    def _handle(self, sensors: Arrays, place: np.ndarray) -> np.ndarray:
        return _lid_handle(sensors["box_position"], sensors["box_yaw"], place)

    def flat_hints(self) -> FlatHints:
        """Return the scales of vectors with which this task was trained (launch/train_clone.py)."""
        scales = {
            **ARM_SCALES, "box_position": 0.2, "box_yaw": 0.5, "lid_angle": 0.5, "lid_velocity": 2.0,
            "handle_position": 0.2, "handle_target": 0.2, "target_angle": 0.5,
        }  # fmt: skip
        differences = (
            Difference("handle_position", "gripper_position", 0.05),
            Difference("handle_target", "handle_position", 0.05),
            Difference("target_angle", "lid_angle", 0.2),
            SERVO_GAP,
        )
        return FlatHints(scales, differences, "joint_goal", ARM_STRIDE)
