"""Check the options of the source-data functions, so that a misspelt option can't silently change what is sampled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias, TypedDict, cast

import numpy as np

from hal import SourceError
from rlenv_robot.tables import FieldValues, Options

__all__ = [
    "ACTIONS",
    "FILTERS",
    "IMAGES",
    "INIT",
    "PAIRS",
    "STEPS",
    "TRAJECTORIES",
    "Arrays",
    "Check",
    "CheckedOptions",
    "NearOption",
    "Tolerance",
    "call",
    "check_size",
    "choice",
    "number",
    "read",
    "whole",
]

Check = Callable[[object], str | None]
"""Return None for an allowed value, else a description of the allowed values."""

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Fields by name, each with a leading axis (B,)."""

Tolerance: TypeAlias = float | Mapping[str, float]
"""The largest allowed difference of a value: for all fields, or by field."""


class NearOption(TypedDict, total=False):
    """The option ``near``: values of an observation, an action or both, and the tolerance for a match."""

    observation: FieldValues
    action: FieldValues
    tolerance: Tolerance


class CheckedOptions(TypedDict, total=False):
    """Options of the source-data functions after `read`; each function accepts some of them.

    For their meaning see `rlenv_robot.source.SourceData` and `rlenv_robot.data.filters`.
    """

    # filters
    episodes: slice | Sequence[int]
    source: str | Sequence[str]
    policy: str | Sequence[str]
    verdict: str | Sequence[str]
    task_text: str | Sequence[str]
    tag: str | Sequence[str]
    robot: str | Sequence[str]
    min_steps: int
    max_steps: int
    began_from: str
    began_until: str
    where: str
    expert: bool
    success: bool
    min_return: float
    top_fraction: float
    intervention: bool
    near: NearOption
    # the current state, and how a sample is drawn
    seed: int
    episode: int
    frame: int
    priority: Literal["return", "reward", "advantage", "td_error", "controversy"]
    alpha: float
    beta: float
    replace: bool
    privileged: bool
    length: int
    # what a step is widened by
    n_step: int
    stack: int
    chunk: int
    future: int
    goals: Literal["future", "final"]
    goal_share: float
    images: Literal[True] | str | Sequence[str] | Options
    # pairs and actions
    by: Literal["return", "success", "person"]
    min_margin: float
    state: FieldValues
    tolerance: Tolerance
    # statistics
    kind: str
    bins: int
    field: str


def read(options: object, allowed: Mapping[str, Check], function: str) -> CheckedOptions:
    """Check options, and return those that are not None.

    Raises:
        SourceError: an option is unknown, or its value is not allowed.
    """
    if not isinstance(options, Mapping):
        raise SourceError(
            f"{function}: options are {_short(options)} ({type(options).__name__}), allowed is a mapping from option "
            f"to value with {', '.join(allowed)}"
        )
    present = {name: value for name, value in options.items() if value is not None}
    for name, value in present.items():
        if name not in allowed:
            raise SourceError(f"{function}: option {name!r} is unknown, allowed are {', '.join(allowed)}")
        problem = allowed[name](value)
        if problem:
            raise SourceError(f"{function}: option {name!r} is {_short(value)}, allowed is {problem}")
    return cast("CheckedOptions", present)  # the checks of `allowed` made it one


def check_size(size: object, name: str, function: str) -> None:
    """Refuse anything but an integer of 1 or more.

    Raises:
        SourceError: the size is something else.
    """
    if not isinstance(size, int) or size.__class__ is not int or size < 1:
        problem = whole(1)(size)
        if problem:
            raise SourceError(f"{function}: {name} is {_short(size)}, allowed is {problem}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def whole(low: int) -> Check:
    """Return a check for an integer of at least ``low``."""

    def check(value: object) -> str | None:
        fits = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= low
        return None if fits else f"a whole number from {low}"

    return check


def number(low: float, high: float = math.inf) -> Check:
    """Return a check for a finite number from ``low`` to ``high``, both included."""

    def check(value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            return _range(low, high)
        return None if low <= value <= high and math.isfinite(value) else _range(low, high)

    return check


def _range(low: float, high: float) -> str:
    if high < math.inf:
        return f"a number from {low:g} to {high:g}"
    return "a finite number" if low == -math.inf else f"a finite number from {low:g}"


def choice(*words: str) -> Check:
    """Return a check that a value is one of these words."""
    return lambda value: None if isinstance(value, str) and value in words else "one of " + ", ".join(words)


def call(arguments: str) -> Check:
    """Return a check that a value is callable; its message names ``arguments``, which are not checked."""
    return lambda value: None if callable(value) else f"a function of {arguments}"


def _truth(value: object) -> str | None:
    return None if isinstance(value, bool | np.bool_) else "True or False"


def _labels(value: object) -> str | None:
    many = isinstance(value, Sequence) and all(isinstance(word, str) for word in value)
    return None if isinstance(value, str) or many else "a word or a list of words"


def _episodes(value: object) -> str | None:
    if isinstance(value, slice):
        return None
    try:
        numbers = np.asarray(value)
    except ValueError:  # a ragged list
        numbers = np.zeros(())
    whole_numbers = numbers.dtype.kind in "iu" or not numbers.size
    return None if numbers.ndim == 1 and whole_numbers else "a slice or a list of episode numbers"


def _moment(value: object) -> str | None:
    allowed = "a date such as 2026-11-21 or a time such as 2026-11-21T03:24:37Z"
    try:
        return None if isinstance(value, str) and datetime.fromisoformat(value) else allowed
    except ValueError:
        return allowed


def _condition(value: object) -> str | None:
    return None if isinstance(value, str) else "a condition on the columns of episodes, such as 'steps > 100'"


def _fraction(value: object) -> str | None:
    return "a number above 0, at most 1" if value == 0 else number(0.0, 1.0)(value)


def _tolerance(value: object) -> str | None:
    numbers = list(value.values()) if isinstance(value, Mapping) else [value]
    return "a number from 0, or one for each field" if any(number(0.0)(one) for one in numbers) else None


def _near(value: object) -> str | None:
    allowed = 'a mapping with "observation", "action" or both (field -> value), and "tolerance" (a number from 0)'
    if not isinstance(value, Mapping) or not value.keys() <= {"observation", "action", "tolerance"}:
        return allowed
    groups = [value[key] for key in ("observation", "action") if key in value]
    fits = groups and all(isinstance(group, Mapping) and group for group in groups)
    return None if fits and not _tolerance(value.get("tolerance", 0.0)) else allowed


def _state(value: object) -> str | None:
    return None if isinstance(value, Mapping) and value else "an observation: a mapping from field to value"


def _pixels(count: int, *names: str) -> Check:
    def check(value: object) -> str | None:
        fits = isinstance(value, Sequence) and len(value) == count and not any(whole(0)(one) for one in value)
        return None if fits else f"({', '.join(names)}) in pixels"

    return check


IMAGES: Mapping[str, Check] = {
    "cameras": _labels,
    "crop": _pixels(4, "top", "left", "height", "width"),
    "size": _pixels(2, "height", "width"),
    "order": choice("rgb", "bgr"),
    "layout": choice("hwc", "chw"),
    "stack": whole(1),
    "how": choice("latest", "nearest"),
    "max_age_s": number(0.0),
    "missing": choice("mask", "error"),
    "next": _truth,
    "cache_bytes": whole(0),
}
"""Entries of the option ``images``; `rlenv_robot.data.images.ImageChoice` explains each."""


def _images(value: object) -> str | None:
    if not isinstance(value, Mapping):
        return None if value is True or not _labels(value) else "True, names of cameras, or a mapping"
    for name, one in value.items():
        if name not in IMAGES:
            return f"a mapping with {', '.join(IMAGES)}; not {name!r}"
        problem = None if one is None else IMAGES[name](one)
        if problem:
            return f"{problem} as {name!r}"
    return None


FILTERS: Mapping[str, Check] = {
    "episodes": _episodes,
    "source": _labels,
    "policy": _labels,
    "expert": _truth,
    "success": _truth,
    "verdict": _labels,
    "task_text": _labels,
    "tag": _labels,
    "robot": _labels,
    "min_steps": whole(0),
    "max_steps": whole(0),
    "began_from": _moment,
    "began_until": _moment,
    "where": _condition,
    "min_return": number(-math.inf),
    "top_fraction": _fraction,
    "intervention": _truth,
    "near": _near,
}
"""Options that select a part of the data, for every function but `init`; see `rlenv_robot.data.filters`."""

_DRAW: Mapping[str, Check] = {
    "alpha": number(0.0),
    "beta": number(0.0, 1.0),
    "replace": _truth,
    "privileged": _truth,
}

INIT: Mapping[str, Check] = {"seed": whole(0), "episode": whole(0), "frame": whole(0)}
STEPS: Mapping[str, Check] = {
    "priority": choice("return", "reward", "advantage", "td_error"), **_DRAW, "n_step": whole(1),
    "stack": whole(1), "chunk": whole(1), "future": whole(1),
    "goals": choice("future", "final"), "goal_share": number(0.0, 1.0), "images": _images, **FILTERS,
}  # fmt: skip
TRAJECTORIES: Mapping[str, Check] = {
    "priority": choice("return"), **_DRAW, "length": whole(1), "images": _images, **FILTERS,
}  # fmt: skip
PAIRS: Mapping[str, Check] = {
    "by": choice("return", "success", "person"), "min_margin": number(0.0), "priority": choice("controversy"),
    **FILTERS,
}  # fmt: skip
ACTIONS: Mapping[str, Check] = {"state": _state, "tolerance": _tolerance, **FILTERS}
