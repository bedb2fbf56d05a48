"""What a robot is asked to do: goals, observation, reward and ends, as pure functions of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from hal import Spec

if TYPE_CHECKING:
    from rlenv_robot.tasks.agents import Agent

__all__ = ["Arrays", "Episode", "GoalTask", "MultiAgentTask", "Task", "VerdictTask"]

Arrays = Mapping[str, np.ndarray]
"""Named arrays that share their leading axes: none for one live step, (N,) for N robots, (T,) for a log."""


@dataclass(frozen=True, slots=True)
class Episode:
    """What is drawn for one episode.

    Attributes:
        goal: by the names in ``task.goal``, without leading axes.
        start: the command at which the robot starts (``Robot.reset``'s option ``start``); empty for home.
    """

    goal: Arrays
    start: Arrays = field(default_factory=dict)


@runtime_checkable
class Task(Protocol):
    """One task for one kind of robot.

    Every function but `begin` is pure and takes arrays with any leading axes, so the same code rewards one
    live step, thousands of simulated ones, and years of old logs (R3.1). ``goal`` is broadcast against the
    leading axes of ``sensors``: a single episode's goal, or one a row.

    A task may be more than that: a `GoalTask`, a `VerdictTask`, a `MultiAgentTask`, a task with vectors of its own
    (`rlenv_robot.adapters.flat.HasFlatHints`) or with a robot that has no name
    (`rlenv_robot.robot_models.HasRobotModel`).
    """

    @property
    def name(self) -> str:
        """What `rlenv_robot.make` calls it."""
        ...

    @property
    def robot(self) -> str:
        """The kind of robot that it is for: ``RobotSpec.name``."""
        ...

    @property
    def observation(self) -> Spec:
        """What the agent sees."""
        ...

    @property
    def action(self) -> Spec:
        """What the agent may do."""
        ...

    @property
    def goal(self) -> Spec:
        """What is drawn anew for each episode."""
        ...

    @property
    def state(self) -> Spec:
        """Privileged state: in ``extra_info["state"]`` in training, out of reach at inference. May be empty."""
        ...

    @property
    def steps(self) -> int:
        """Control periods after which an episode is truncated."""
        ...

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Episode:
        """Draw an episode; ``options["goal"]`` (name -> value) fixes parts of it.

        Raises:
            IllegalAction: a given goal breaks the spec.
        """
        ...

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """The robot's command for a legal action."""
        ...

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """By the names in ``observation``."""
        ...

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """By the names in ``state``."""
        ...

    def reward(
        self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays
    ) -> np.ndarray | Mapping[str, np.ndarray]:
        """Of the action between two readings; float, shape = leading axes.

        A `MultiAgentTask` returns a mapping from agent to its reward.
        """
        ...

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Whether the task ends at this reading; bool, shape = leading axes."""
        ...

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Whether the task is fulfilled at this reading; bool, shape = leading axes."""
        ...

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Figures for people, by name with the unit in it (``distance_mm``); shape = leading axes."""
        ...


@runtime_checkable
class GoalTask(Protocol):
    """A `Task` whose goals can be read from sensors.

    Old episodes are rewarded for what they reached by it (``open_source(..., goal="hindsight")``, the option ``goals``
    of `SourceData.sample_steps`); without it a task is refused there.
    """

    def hindsight(self, sensors: Arrays) -> Arrays:
        """Return the goal that the last of some readings reached, by the names in ``goal``.

        Args:
            sensors: name -> (T, ..., n); the first axis is time, any others may follow.

        Returns:
            name -> (..., n), without the axis of time.
        """
        ...


@runtime_checkable
class VerdictTask(Protocol):
    """A `Task` whose reward asks for a person's verdict at the end of an episode."""

    @property
    def verdict_question(self) -> str:
        """What the person is asked, such as "is the cube in the box?"; empty for the usual question."""
        ...

    def verdict_reward(self, verdict: str) -> float:
        """Return what the verdict (``success``, ``failure`` or ``discard``) adds to the reward of the last step."""
        ...


@runtime_checkable
class MultiAgentTask(Protocol):
    """A `Task` of several agents; its ``reward`` is a mapping from agent to reward."""

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The agents, in the order of their turns."""
        ...
