"""Describe how a task's or a world's observations and actions are written as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["HasPlaces", "HasTextHints", "TextCommand", "TextHints"]


@dataclass(frozen=True, slots=True)
class TextCommand:
    """A command that expresses an action as text, such as ``Up`` or ``grasp(object=1)``.

    Attributes:
        name: the word of the command: letters, digits and underscores.
        arguments: the action's fields that are arguments, in the order in which they may be given without a name.
        fixed: action field -> its value in this command. Fields in neither are 0, or the value in their range nearest
            to 0.
        meaning: one sentence for the agent.
    """

    name: str
    arguments: tuple[str, ...] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class TextHints:
    """Settings of `rlenv_language.text.view.TextWorld` that suit a world.

    Attributes:
        instruction: the agent's task in words, the beginning of an episode's instructions.
        commands: the commands of the action; empty for a single one, ``command``, with every field as an argument.
        names: scalar integer field of the action -> a word for each of its values, from the lowest.
        units: observation field -> the unit in which it is written (``cm``, ``deg``).
        digits: observation field -> the number of digits after the decimal point.
        omit: the observation fields that are omitted.
        write: returns the text of an observation, instead of a template.
        symbols: character that ``write`` uses -> its meaning.
    """

    instruction: str = ""
    commands: tuple[TextCommand, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    digits: Mapping[str, int] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    write: Callable[[Mapping[str, np.ndarray]], str] | None = None
    symbols: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class HasTextHints(Protocol):
    """A task or a world with hints. The method is optional: without it, the text follows from the specs."""

    def text_hints(self) -> TextHints:
        """Return how observations and actions are written as text."""
        ...


@runtime_checkable
class HasPlaces(Protocol):
    """A task on a table with named objects and places, for skills such as ``put(place=left)``."""

    @property
    def object_names(self) -> tuple[str, ...]:
        """The names of the objects, in the order of the robot's sensors."""
        ...

    @property
    def place_names(self) -> tuple[str, ...]:
        """The names of the places where an object can be put."""
        ...

    def place_position(
        self, number: int, sensors: Mapping[str, np.ndarray], goal: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Return the position of an object's centre at a place, metres, shape (3,).

        Args:
            number: index of the place.
            sensors: the present sensors, without leading axes.
            goal: the present goal, without leading axes.
        """
        ...
