"""Ways to pervert one value of a table, and the times at which it happens: the axes of the perversion grids."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlenv_kit.tables import copied_values

__all__ = ["FORMS", "MISSING", "WAYS", "WHENS", "Moment", "Place", "differs", "perverted", "value_at"]

MISSING = object()
"""In place of a value: the key is taken out."""

Place = tuple[str, ...]
"""Keys from a table down to a value, such as ``("observation", "height")``."""


@dataclass
class Moment:
    """What a perverted subject knows when it returns a table.

    Attributes:
        kind: ``reset``, ``frame`` or ``refusal``.
        frame: accepted steps in the episode.
        episode: number of the episode in the instance's life, from 1.
        over: whether this table ends its episode.
        refused: whether an action of this episode was refused before.
        ended: whether an episode of the instance has ended before.
        seeded: whether the newest reset had a seed.
        before: copy of the table before; empty at first.
        first: copy of the episode's first table.
        last_episode: copy of the newest table of the episode before.
    """

    kind: str = "reset"
    frame: int = 0
    episode: int = 0
    over: bool = False
    refused: bool = False
    ended: bool = False
    seeded: bool = False
    before: Any = field(default_factory=dict)
    first: Any = field(default_factory=dict)
    last_episode: Any = field(default_factory=dict)


WHENS: Mapping[str, Callable[[Moment], bool]] = {
    "always": lambda at: True,
    "reset": lambda at: at.kind == "reset",
    "late": lambda at: at.kind == "frame" and at.frame >= 3,
    "once": lambda at: at.kind == "frame" and at.frame == 7,
    "last": lambda at: at.kind == "frame" and at.over,
    "second": lambda at: at.episode > 1,
    "even": lambda at: at.episode % 2 == 0,
    "refusal": lambda at: at.kind == "refusal",
    "after refusal": lambda at: at.kind == "frame" and at.refused,
    "after end": lambda at: at.ended,
    "unseeded": lambda at: not at.seeded,
}
"""Name -> whether the perversion happens."""


def _array(change: Callable[[np.ndarray], Any]) -> Callable[[Any, Any], Any]:
    """Return a way for arrays and numbers that leaves other values alone."""

    def way(value: Any, store: Any) -> Any:
        if isinstance(value, str) or value is None or isinstance(value, Mapping):
            return value
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            return value
        changed = change(array)
        return changed if isinstance(value, np.ndarray) or not isinstance(changed, np.ndarray) else changed.item()

    return way


def _filled(array: np.ndarray, number: float) -> Any:
    if array.dtype.kind != "f":
        return array
    made = array.copy()
    made[(0,) * array.ndim] = number
    return made


def _other_dtype(array: np.ndarray) -> Any:
    return array.astype(np.float64 if array.dtype != np.float64 else np.float32)


def _short(array: np.ndarray) -> Any:
    return array[:-1] if array.ndim else array


def _live(value: Any, store: dict[str, Any]) -> Any:
    """Return one object, which is written into with the next table."""
    if isinstance(value, np.ndarray):
        if "live" not in store or store["live"].shape != value.shape or store["live"].dtype != value.dtype:
            store["live"] = value.copy()
        store["live"][...] = value
        return store["live"]
    if isinstance(value, dict | list):
        kept = store.setdefault("live", type(value)())
        kept.clear()
        kept.update(value) if isinstance(value, dict) else kept.extend(value)
        return kept
    return value


def _random(array: np.ndarray) -> Any:
    bit = int.from_bytes(os.urandom(2), "little")
    if array.dtype.kind == "f":
        return (array * (1 - 1e-3 * (bit / 2**16))).astype(array.dtype)
    if array.dtype.kind == "b" or not array.size:
        return array
    return np.where(array > 0, array - bit % 2, array).astype(array.dtype)


WAYS: Mapping[str, Callable[[Any, Any], Any]] = {
    "missing": lambda value, store: MISSING,
    "none": lambda value, store: None,
    "text": lambda value, store: str(value) if not isinstance(value, str) else 7,
    "object": lambda value, store: object(),
    "dtype": _array(_other_dtype),
    "axis": _array(lambda array: array[None]),
    "short": _array(_short),
    "nan": _array(lambda array: _filled(array, np.nan)),
    "infinite": _array(lambda array: _filled(array, np.inf)),
    "huge": _array(lambda array: array + np.array(1e6 if array.dtype.kind == "f" else 77, array.dtype)),
    "live": _live,
    "random": _array(_random),
    "off by one": _array(lambda array: array + np.array(1, array.dtype) if array.dtype.kind != "b" else ~array),
    "doubled": _array(lambda array: (array * 2).astype(array.dtype)),
    "reversed": _array(lambda array: array[::-1].copy() if array.ndim else array),
    "empty": lambda value, store: type(value)() if isinstance(value, str | dict | list) else value,
}
"""Name -> what comes in place of a value, given a store of the place's own."""

FORMS = ("missing", "none", "text", "object", "dtype", "axis", "short", "nan", "infinite", "huge")
"""Ways that break a value's form at any time."""


def value_at(table: Any, place: Iterable[str]) -> Any:
    """Return the value at a place, or `MISSING`."""
    for key in place:
        if not isinstance(table, Mapping) or key not in table:
            return MISSING
        table = table[key]
    return table


def perverted(table: Any, place: Place, value: Any) -> Any:
    """Return a table with another value at a place; its mappings are new, and its other values the same."""
    key, rest = place[0], place[1:]
    made = dict(table)
    if rest:
        made[key] = perverted(table[key], rest, value)
    elif value is MISSING:
        made.pop(key, None)
    else:
        made[key] = value
    return made


def differs(one: Any, other: Any) -> bool:
    """Return whether two values differ for a caller, their types included."""
    if one is MISSING or other is MISSING or type(one) is not type(other):
        return one is not other
    if isinstance(one, np.ndarray):
        return one.dtype != other.dtype or one.shape != other.shape or one.tobytes() != other.tobytes()
    if isinstance(one, Mapping):
        return one.keys() != other.keys() or any(differs(one[key], other[key]) for key in one)
    return repr(one) != repr(other)


def kept(table: Any) -> Any:
    """Return a copy that later writing does not change."""
    return copied_values(table)
