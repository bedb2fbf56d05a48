"""What an environment is about. A robot with a task is one world; a board game is another."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hal import Field, Spec
from hal.frame_layout import FrameLayout

__all__ = ["NOTHING", "EnvDescription", "TimeStep", "World", "first_part"]

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""An empty mapping that nobody can fill by mistake."""


class TimeStep(NamedTuple):
    """What a world answers to a reset or an action.

    Attributes:
        observation: by the names in the world's observation spec.
        reward: a number, or a mapping from agent to number.
        terminated: the task's own end.
        truncated: an end by time, fault or interruption.
        extra_info: what Table 1 calls extra information; a new dictionary that the receiver owns.
        stamp_ns: capture time on the world's clock.
        applied, sensors: a robot's own values for the record, by the names in the layout.
        acted: False where nobody knows whether the action was carried out (the robot was lost): no training
            data is made of it.
    """

    observation: Mapping[str, np.ndarray]
    reward: float | Mapping[str, float]
    terminated: bool
    truncated: bool
    extra_info: dict[str, Any]
    stamp_ns: int = 0
    applied: Mapping[str, np.ndarray] = NOTHING
    sensors: Mapping[str, np.ndarray] = NOTHING
    acted: bool = True


@dataclass(frozen=True)
class EnvDescription:
    """What a user must know of a world beyond its specs (clause 6.4). Names map to a sentence each.

    Attributes:
        about: what it is about, in Markdown.
        reward: the reward's type, range and meaning; with several agents, of each.
        reset_options: what ``reset`` takes.
        step_extra: what ``step`` takes in ``extra_info``, besides ``log_probability`` and ``intervention``.
        extra_info: what Table 1's ``extra_info`` may hold, besides ``error``.
        error_codes: of the world's own rules, besides those of `hal.Violation`.
        conditions: what differs from episode to episode beside the start: kind (``timing``, ``randomise``) -> lines of
            path, what it is drawn from, and unit.
    """

    about: str
    reward: Field
    reset_options: Mapping[str, str] = field(default_factory=dict)
    step_extra: Mapping[str, str] = field(default_factory=dict)
    extra_info: Mapping[str, str] = field(default_factory=dict)
    error_codes: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)


def first_part(of: object) -> str:
    """The docstring of an object's class up to its first section (``Args:``, ``Attributes:``, ...)."""
    text = inspect.getdoc(type(of)) or ""
    return re.split(r"^[A-Z][a-z]+:$", text, maxsplit=1, flags=re.MULTILINE)[0].strip()


@runtime_checkable
class World(Protocol):
    """The inside of an `Environment`: it knows no tables, no frame numbers and no recorder."""

    @property
    def name(self) -> str:
        """What `rlenv_robot.make` calls it."""
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
    def description(self) -> EnvDescription:
        """What the specs can't say."""
        ...

    @property
    def layout(self) -> FrameLayout:
        """What a recorded frame holds."""
        ...

    def reset(self, options: Mapping[str, Any]) -> TimeStep:
        """Begin an episode.

        Raises:
            ValueError: an option that the world does not know, or with a wrong value.
        """
        ...

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, Any]) -> TimeStep:
        """Carry out an action that fits ``action``.

        Raises:
            IllegalAction: it breaks a rule that the spec can't express; nothing changed.
        """
        ...

    def episode_info(self) -> dict[str, Any]:
        """What the record keeps of the running episode, as plain data (goal, seed, ...)."""
        ...

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        """The present state for people, uint8 of shape (height, width, 3), RGB.

        Raises:
            RobotError: no picture can be made here, with the reason.
        """
        ...

    def stop(self, reason: str) -> None:
        """Hold still; from any thread."""
        ...

    def close(self) -> None:
        """Let go of everything. Twice is fine."""
        ...
