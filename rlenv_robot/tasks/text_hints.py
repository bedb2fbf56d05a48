"""A task's or a world's advice on how its observations and actions are written as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["HasPlaces", "HasTextHints", "TextCommand", "TextHints"]


@dataclass(frozen=True, slots=True)
class TextCommand:
    """One command with which an action is written, such as ``Up`` or ``grasp(object=1)``.

    Attributes:
        name: the command's word: letters, digits and underscores.
        arguments: the action's fields that the text gives, in the order in which they may be given without a name.
        fixed: action field -> the value that the command gives it. Fields in neither are zero, or the value next to
            zero in their range.
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
        instruction: what the agent is to do, in words; begins the instructions of an episode.
        commands: the commands of the action; none for a single one, ``command``, that gives every field.
        names: scalar action field of whole numbers -> a word for each of its values, from the lowest on.
        units: observation field -> the unit in which it is written (``cm``, ``deg``).
        digits: observation field -> the number of digits after the point.
        omit: the observation's fields that are not written.
        write: returns the text of an observation, in place of a template.
    """

    instruction: str = ""
    commands: tuple[TextCommand, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    digits: Mapping[str, int] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    write: Callable[[Mapping[str, np.ndarray]], str] | None = None


@runtime_checkable
class HasTextHints(Protocol):
    """A task or a world that gives hints. The method is optional: without it, the text follows from the specs."""

    def text_hints(self) -> TextHints:
        """Return how observations and actions are written as text."""
        ...


@runtime_checkable
class HasPlaces(Protocol):
    """A task on a table whose things and places have names, for skills such as ``put(place=left)``."""

    @property
    def object_names(self) -> tuple[str, ...]:
        """The names of the things, in the order of the robot's sensors."""
        ...

    @property
    def place_names(self) -> tuple[str, ...]:
        """The names of the places where a thing can be put."""
        ...

    def place_position(
        self, number: int, sensors: Mapping[str, np.ndarray], goal: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Return the position that the middle of a thing has at a place, metres, shape (3,).

        Args:
            number: of the place.
            sensors: of the present, without leading axes.
            goal: of the present, without leading axes.
        """
        ...
