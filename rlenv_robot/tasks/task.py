"""Define the contract of a task: goals, observation, reward and ends, as pure functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from hal import Robot, Spec
from rlenv_robot.robot_models import HasRobotModel
from rlenv_robot.tables import FieldValues, HasStepExtra, Options
from rlenv_robot.tasks.flat_hints import HasFlatHints
from rlenv_robot.world import World, WorldWrapper, check_members

__all__ = [
    "Arrays",
    "AveragedTask",
    "Episode",
    "GoalTask",
    "PeakTask",
    "ReachedGoalTask",
    "Task",
    "TaskWorld",
    "VerdictTask",
    "check_settings",
    "check_task",
    "fixed_goal",
    "task_world",
    "with_fixed_goal",
]

Arrays = Mapping[str, np.ndarray]
"""Named arrays that share their leading axes: none for one live step, (N,) for N robots, (T,) for a log."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The goal and the start of one episode, as drawn by `Task.begin`.

    Attributes:
        goal: by the names in ``task.goal``, without leading axes.
        start: the command at which the robot starts (``Robot.reset``'s option ``start``); empty for home.
    """

    goal: Arrays
    start: Arrays = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """One task for one robot model.

    Every function but `begin` is pure and takes arrays with any leading axes, so the same code computes the rewards of
    a live step, of thousands of simulated ones, and of old logs (R3.1). ``goal`` is broadcast against the leading axes
    of ``sensors``: it is that of a single episode, or one per row.

    A task may also be a `GoalTask`, an `AveragedTask`, a `PeakTask`, a `VerdictTask`, a
    `rlenv_robot.tasks.agents.MultiAgent`, a task with advice on vectors (`rlenv_robot.tasks.flat_hints.HasFlatHints`),
    with a robot model (`rlenv_robot.robot_models.HasRobotModel`), or with further inputs in each step
    (`rlenv_robot.tables.HasStepExtra`).
    """

    @property
    def name(self) -> str:
        """The name of the task in `rlenv_robot.make`."""
        ...

    @property
    def robot(self) -> str:
        """The name of the robot model that the task is for: ``RobotSpec.name``."""
        ...

    @property
    def observation(self) -> Spec:
        """The spec of the agent's observation."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of the agent's action."""
        ...

    @property
    def goal(self) -> Spec:
        """The spec of the goal, which is drawn for each episode."""
        ...

    @property
    def state(self) -> Spec:
        """The spec of the privileged state, which is in ``extra_info["state"]`` in training only; may be empty."""
        ...

    @property
    def steps(self) -> int:
        """The number of control periods after which an episode is truncated."""
        ...

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw an episode; ``options["goal"]`` (name -> value) sets parts of its goal.

        Raises:
            IllegalAction: a given goal violates the spec.
        """
        ...

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Convert a legal action to the robot's command."""
        ...

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the observation, by the names in ``observation``."""
        ...

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the privileged state, by the names in ``state``."""
        ...

    def reward(
        self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays
    ) -> np.ndarray | Mapping[str, np.ndarray]:
        """Return the reward of the action between two readings; float, shape = leading axes.

        A `rlenv_robot.tasks.agents.MultiAgent` returns a mapping from agent to its reward.
        """
        ...

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the task ends at this reading; bool, shape = leading axes."""
        ...

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the task is fulfilled at this reading; bool, shape = leading axes."""
        ...

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return metrics for people, by name including the unit (``distance_mm``); shape = leading axes."""
        ...


def check_settings(steps: int, **above_zero: float) -> None:
    """Refuse settings that allow no episode.

    Args:
        steps: length of an episode, control periods.
        above_zero: setting -> value, such as a tolerance.

    Raises:
        ValueError: a setting is out of range; the message names it.
    """
    for name, value in above_zero.items():
        if not value > 0:
            raise ValueError(f"{name} is {value}, it must be above 0")
    if steps < 1 or steps != int(steps):
        raise ValueError(f"steps is {steps}, it must be a whole number of at least 1")


def fixed_goal(options: Options) -> FieldValues:
    """Return the parts of the goal that the option ``goal`` sets, unchecked; empty if it is missing.

    Raises:
        ValueError: the option is not a mapping.
    """
    goal = options.get("goal")
    if goal is None:
        return {}
    if not isinstance(goal, Mapping):
        raise ValueError(f"reset option 'goal' is {goal!r:.80}, it must be a mapping from name to value")
    return goal


def with_fixed_goal(spec: Spec, drawn: Arrays, options: Options) -> Arrays:
    """Return the goal of an episode: the drawn one, with the parts that the option ``goal`` sets.

    Args:
        spec: the spec of the goal.
        drawn: name -> value of every field.
        options: as for `Task.begin`.

    Raises:
        ValueError: the option is not a mapping.
        IllegalAction: a part that the option sets violates the spec.
    """
    fixed = fixed_goal(options)
    return spec.validate({**drawn, **fixed}, "goal") if fixed else drawn


@runtime_checkable
class GoalTask(Protocol):
    """A `Task` with goals that sensors can show to be reached.

    Old episodes are rewarded for the goals that they reached (``open_source(..., goal="hindsight")``, the option
    ``goals`` of `SourceData.sample_steps`), which other tasks do not support.
    """

    def hindsight(self, sensors: Arrays) -> Arrays:
        """Return the goal that the last of some readings reached, by the names in ``goal``.

        Args:
            sensors: name -> (T, ..., n); the first axis is time, any others may follow.

        Returns:
            name -> (..., n), without the time axis.
        """
        ...


@runtime_checkable
class ReachedGoalTask(GoalTask, Protocol):
    """A `GoalTask` with a success that a reached and a wanted goal alone decide, so that any two can be compared."""

    def is_reached(self, achieved: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether a reached goal is as good as the wanted one; bool, shape = leading axes.

        Args:
            achieved: name -> (..., n), as `hindsight` returns it.
            goal: name -> (..., n).

        Raises:
            ValueError: with these settings of the task, success depends on more than the goal.
        """
        ...


@runtime_checkable
class AveragedTask(Protocol):
    """A `Task` with success defined by the mean of its metrics over the last readings of an episode.

    The metrics at an episode's end are these means. `Task.success` and `Task.metrics` judge a single reading.
    """

    @property
    def averaged_readings(self) -> int:
        """The number of last readings that are averaged, at least 1; a shorter episode is averaged as a whole."""
        ...

    def average_success(self, means: Arrays, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the task is fulfilled; bool, shape = leading axes.

        Args:
            means: metric -> its mean over the last readings, shape = leading axes.
            sensors: the last reading.
            goal: as for `Task.success`.
        """
        ...


@runtime_checkable
class PeakTask(Protocol):
    """An `AveragedTask` with success also defined by the largest values of an episode, as that a thing was lifted.

    At an episode's end these values stand in the place of the means of the same name.
    """

    def peaks(self, sensors: Arrays) -> Arrays:
        """Return those of `Task.metrics` whose largest value counts, each at least 0, shape = leading axes.

        The largest is that of all readings after an episode's steps. Every step computes them, so they should be cheap.
        """
        ...


@runtime_checkable
class VerdictTask(Protocol):
    """A `Task` with a reward that depends on a person's verdict at the end of an episode."""

    @property
    def verdict_question(self) -> str:
        """The question to the person, such as "is the cube in the box?"; empty for the default one."""
        ...

    def verdict_reward(self, verdict: str) -> float:
        """Return the reward that a verdict (``success``, ``failure`` or ``discard``) adds to that of the last step."""
        ...


@runtime_checkable
class TaskWorld(Protocol):
    """A `World` of a robot with a task, such as `rlenv_robot.robot_env.core.RobotWorld`."""

    @property
    def robot(self) -> Robot:
        """The robot."""
        ...

    @property
    def task(self) -> Task:
        """The task."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the episodes that follow."""
        ...


def task_world(world: World) -> TaskWorld | None:
    """Return the world of a robot with a task that a world wraps; None if there is none."""
    inner = world.unwrapped if isinstance(world, WorldWrapper) else world
    return inner if isinstance(inner, TaskWorld) else None


def check_task(task: Task) -> None:
    """Refuse an object that is not a task, or has a method with a name that seems misspelt (``hindsigth``).

    Raises:
        TypeError: the object is not a task; the message names the class, the member and the contract.
    """
    check_members(
        task, Task, (ReachedGoalTask, AveragedTask, PeakTask, VerdictTask, HasFlatHints, HasRobotModel, HasStepExtra)
    )
