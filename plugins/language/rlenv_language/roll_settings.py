"""Take the settings of ROLL's environments (alibaba/ROLL, ``env_config``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlenv_language.text.view import TextRules
from rlenv_robot.tasks.text_hints import TextHints

__all__ = ["ROLL_KEYS", "from_roll"]

_TASKS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "sokoban": {
        "dim_room": ("rows", "columns"), "num_boxes": ("boxes",), "max_steps": ("steps",), "search_depth": (),
    },
    "frozen-lake": {"p": ("ice",), "is_slippery": ("slippery",), "max_steps": ("steps",), "map_seed": ()},
}  # fmt: skip
"""Task -> ROLL's key -> the task's settings that it gives; none where our episodes are drawn otherwise."""

_TAGS = "<answer>(.*?)</answer>"
"""ROLL's usual ``action_pattern``. It means our tags: the last pair after thinking counts, where ROLL's first does."""

ROLL_KEYS = (
    "max_steps", "format_penalty", "action_pattern", "special_token_list", "env_instruction", "action_lookup",
    "grid_lookup", "grid_vocab", "render_mode",
)  # fmt: skip
"""Keys of ROLL that each environment takes."""


@dataclass(frozen=True, slots=True)
class _Words:
    """Changes of an environment's words.

    Attributes:
        instruction: replaces the instruction; empty to keep it.
        actions: the commands' new names in their order; empty to keep them.
        symbols: the new symbols in their order; empty to keep them.
        vocabulary: symbol -> its new meaning; empty to keep them.
    """

    instruction: str = ""
    actions: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    vocabulary: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, hints: TextHints) -> TextHints:
        """Return hints with the changes.

        Raises:
            ValueError: a number of names or symbols differs from the environment's.
        """
        if self.instruction:
            hints = replace(hints, instruction=self.instruction)
        if self.actions:
            _check("action_lookup", self.actions, [one.name for one in hints.commands if not one.arguments])
            named = zip(hints.commands, self.actions, strict=True)
            hints = replace(hints, commands=tuple(replace(command, name=name) for command, name in named))
        write = hints.write
        if self.symbols:
            _check("grid_lookup", self.symbols, list(hints.symbols))
            table = str.maketrans(dict(zip(hints.symbols, self.symbols, strict=True)))
            symbols = dict(zip(self.symbols, hints.symbols.values(), strict=True))
            assert write is not None  # whatever has symbols writes them

            def written(observation: Mapping[str, np.ndarray]) -> str:
                return write(observation).translate(table)

            hints = replace(hints, symbols=symbols, write=written)
        return replace(hints, symbols={**hints.symbols, **dict(self.vocabulary)})


def _check(key: str, got: tuple[str, ...], present: list[str]) -> None:
    if len(got) != len(present):
        raise ValueError(f"{key} has {len(got)} values, expected {len(present)}, in place of {', '.join(present)}")


def from_roll(
    name: str, options: Mapping[str, Any], rules: TextRules
) -> tuple[dict[str, Any], TextRules, Callable[[TextHints], TextHints]]:
    """Return a task's settings, rules and words from settings in which ROLL's keys may stand.

    ``max_steps`` is the number of turns, ``format_penalty`` the penalty of a text that is no command (ROLL adds it to
    a reward, ours is the turn's reward). ``dim_room``, ``num_boxes``, ``p`` and ``is_slippery`` are settings
    of Sokoban and Frozen Lake; ``search_depth`` and ``map_seed`` change nothing, as our episodes are drawn otherwise.

    Args:
        name: the task's name.
        options: the settings.
        rules: the rules, of which ROLL's keys replace some.

    Returns:
        The settings without ROLL's keys, the rules, and a function that changes the text hints.

    Raises:
        ValueError: a value of one of ROLL's keys is wrong.
    """
    given, rest = dict(options), dict[str, Any]()
    for key, settings in _TASKS.get(name, {}).items():
        if key in given:
            value = given[key] if key in ROLL_KEYS else given.pop(key)
            values = tuple(value) if np.iterable(value) and not isinstance(value, str) else (value,) * len(settings[:1])
            if len(values) != len(settings):
                raise ValueError(f"{key} is {value!r}, expected {len(settings)} values: {', '.join(settings)}")
            rest |= dict(zip(settings, values, strict=True))
    roll = {key: given.pop(key) for key in ROLL_KEYS if given.get(key) is not None}
    if roll.get("render_mode", "text") != "text":
        raise ValueError(f"render_mode is {roll['render_mode']!r}, allowed is 'text'; render('rgb_array') draws images")
    changes = {
        ours: roll[theirs]
        for ours, theirs in (("turns", "max_steps"), ("penalty", "format_penalty"), ("pattern", "action_pattern"))
        if theirs in roll and roll[theirs] != _TAGS
    }
    if "special_token_list" in roll:
        changes["ignored"] = tuple(roll["special_token_list"])
    words = _Words(
        str(roll.get("env_instruction", "")), _in_order(roll, "action_lookup"), _in_order(roll, "grid_lookup"),
        dict(roll.get("grid_vocab", {})),
    )  # fmt: skip
    return {**given, **rest}, replace(rules, **changes), words


def _in_order(roll: Mapping[str, Any], key: str) -> tuple[str, ...]:
    lookup = roll.get(key, {})
    return tuple(str(lookup[number]) for number in sorted(lookup))
