"""Check tables against the standard: keys, types, ranges (R2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from hal import Field, IllegalAction, Spec
from rlenv_kit.report import Failed

__all__ = [
    "ALWAYS", "STANDARD_CODES", "Noter", "Unchecked", "check_head", "check_keys", "check_observation", "check_reward",
    "check_structure", "copied_values", "deep_difference", "difference", "digest_of", "elements_of", "error_of",
    "field_names",
    "holds", "is_int32", "is_over", "objects_in", "silent",
]  # fmt: skip

_TABLE_1 = frozenset({"env_id", "frame_no", "observation", "terminated", "truncated"})
_TABLE_3 = frozenset({"env_id", "frame_no", "reward"})
_LARGEST = 2**31 - 1

STANDARD_CODES = frozenset({"missing", "unknown", "dtype", "shape", "not_finite", "range", "env_id", "frame_no"})
"""Codes of `hal.Violation` for an action that contradicts its description, rather than a rule of the world."""

ALWAYS = ("agents", "agent", "state")
"""Keys of ``extra_info`` that are in every table if they are in one."""

Unchecked: TypeAlias = Any
"""A value that a subject under test returned, before a check has examined it."""

Noter = Callable[[str, str], None]
"""Take the clause and the text of a note on something that the standard leaves open."""


def silent(clause: str, text: str) -> None:
    """Drop a remark. This is a `Noter` for callers that need no notes."""


def check_observation(table: object, spec: Spec, note: Noter = silent) -> None:
    """Check the keys, types and ranges of Table 1.

    Args:
        table: as the environment returned it.
        spec: the spec of the observation.
        note: takes remarks.

    Raises:
        Failed: the table is wrong.
    """
    entries = check_keys(table, _TABLE_1, {"extra_info"}, "Table 1")
    check_head(entries, "Table 1")
    for flag in ("terminated", "truncated"):
        if not _is_whole(entries[flag]) or entries[flag] not in (0, 1):
            raise Failed(f"{flag} is {entries[flag]!r}", "Table 1 requires the int32 0 or 1")
    if entries["terminated"] and entries["truncated"]:
        note("6.2.3.1-T1.truncated", "terminated and truncated are both 1 in one table; here an episode has one end")
    if not isinstance(entries.get("extra_info", {}), Mapping):
        raise Failed(f"extra_info is a {type(entries['extra_info']).__name__}", "Table 1 requires a structure")
    check_structure(entries["observation"], spec, "observation", note)


def check_reward(table: object, declared: Field | None = None, note: Noter = silent) -> None:
    """Check Table 3: its reward is a finite number, or one for each agent.

    Args:
        table: as the environment returned it.
        declared: the reward's description; each number must be in its range.
        note: takes remarks.

    Raises:
        Failed: the table is wrong.
    """
    entries = check_keys(table, _TABLE_3, set(), "Table 3")
    check_head(entries, "Table 3")
    reward = entries["reward"]
    if isinstance(reward, Mapping) and not reward:
        raise Failed("reward maps no agent to a number")
    for number in reward.values() if isinstance(reward, Mapping) else (reward,):
        if isinstance(number, np.ndarray) and number.shape == () and number.dtype.kind in "fiu":
            note("6.2.3.3-1", "reward is an array without axes; most trainers want a plain number")
            number = number[()]
        if isinstance(number, bool) or not isinstance(number, int | float | np.integer | np.floating):
            raise Failed(f"reward is {number!r}", "it must be a finite number")
        if not math.isfinite(number):
            raise Failed(f"reward is {number!r}", "it must be a finite number")
        if declared is not None:
            if declared.numpy_dtype.kind != "f" and number != int(number):
                raise Failed(f"reward is {number!r}", f"the description says {declared.dtype}: a whole number")
            low, high = (float(bound) for bound in declared.bounds)
            slack = 1e-6 * max(1.0, abs(low) if math.isfinite(low) else 1.0, abs(high) if math.isfinite(high) else 1.0)
            if not low - min(slack, 1e-3) <= number <= high + min(slack, 1e-3):
                raise Failed(f"reward is {number!r}", f"the description allows {low:g} to {high:g}")


def check_structure(values: object, spec: Spec, where: str, note: Noter = silent) -> None:
    """Check that a structure has exactly the names, shapes, dtypes and ranges of its spec.

    Lists and plain numbers in place of arrays are allowed, with a note; an array of another dtype is not.

    Raises:
        Failed: the structure is wrong.
    """
    try:
        converted = spec.validate(values, where)
    except IllegalAction as wrong:
        raise Failed(str(wrong)) from wrong
    assert isinstance(values, Mapping)  # or the spec would have refused them
    for name, array in converted.items():
        value = values[name]
        if array is value:
            continue
        if spec[name].is_text and np.asarray(value).dtype.kind == "U":  # a text as wide as it is
            note("6.4-b", f"{where}.{name} is a {np.asarray(value).dtype} text, not one of {spec[name].numpy_dtype}")
            continue
        if isinstance(value, np.ndarray | np.generic):
            if value.dtype != spec[name].numpy_dtype:
                raise Failed(f"{where}.{name} is of {value.dtype}", f"it must be an array of {spec[name].dtype}")
            if isinstance(value, np.generic):
                note("contract", f"{where}.{name} is a NumPy scalar, not an array without axes")
        elif isinstance(value, list | tuple | int | float):
            note("6.4-b", f"{where}.{name} is a {type(value).__name__}, not an array; its dtype can't be checked")
        else:
            raise Failed(f"{where}.{name} is of {type(value).__name__}", f"it must be an array of {spec[name].dtype}")


def difference(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    """Return the name of the first field whose values differ, bit for bit; empty if the structures are equal."""
    if one.keys() != other.keys():
        return ", ".join(sorted(map(str, one.keys() ^ other.keys())))
    for name, value in one.items():
        if np.asarray(value).tobytes() != np.asarray(other[name]).tobytes():
            return name
    return ""


def elements_of(field: Field, most: int) -> list[tuple[int, ...]]:
    """Return the indices of all elements of a field, or of at most ``most`` spread from its first to its last."""
    if not field.shape:
        return [()]
    places = np.unique(np.linspace(0, field.size - 1, min(field.size, most)).round().astype(int))
    return [tuple(int(i) for i in np.unravel_index(place, field.shape)) for place in places]


def copied_values(value: Any) -> Any:
    """Return a copy of a table, down to its arrays; mappings become dictionaries."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    if isinstance(value, Mapping):
        return {key: copied_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied_values(item) for item in value]
    return value


def deep_difference(one: object, other: object, where: str = "") -> str:
    """Return the dotted path of the first difference of two tables, bit for bit; empty if they are equal.

    Only numbers, text, arrays, and mappings and sequences of them are compared.
    """
    return next(_differences(one, other, where), "")


def _differences(one: object, other: object, where: str) -> Iterator[str]:
    if isinstance(one, np.ndarray | np.generic) or isinstance(other, np.ndarray | np.generic):
        first, second = np.asarray(one), np.asarray(other)
        if first.dtype == object or second.dtype == object:
            return
        if first.shape != second.shape or first.tobytes() != second.astype(first.dtype, copy=False).tobytes():
            yield where
    elif isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted(map(str, one.keys() ^ other.keys())):
            yield f"{where}.{key}" if where else key
        for key in one.keys() & other.keys():
            yield from _differences(one[key], other[key], f"{where}.{key}" if where else str(key))
    elif isinstance(one, str | bytes) or isinstance(other, str | bytes):
        if one != other:
            yield where
    elif isinstance(one, Sequence) and isinstance(other, Sequence):
        if len(one) != len(other):
            yield where
        for index, pair in enumerate(zip(one, other, strict=False)):
            yield from _differences(*pair, f"{where}[{index}]")
    elif _is_plain(one) and _is_plain(other) and one != other and not (one != one and other != other):  # NaN is NaN
        yield where


def holds(value: object, name: str) -> bool:
    """Return whether a mapping, or one in it, has a key."""
    return isinstance(value, Mapping) and (name in value or any(holds(item, name) for item in value.values()))


def objects_in(value: object, where: str) -> Iterator[str]:
    """Yield the places in a structure that hold neither numbers, texts, arrays nor lists and mappings of them."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from objects_in(item, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from objects_in(item, f"an entry of {where}")
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from objects_in(value.ravel().tolist(), where)
    elif not isinstance(value, str | bytes | bool | int | float | np.ndarray | np.generic | None):
        yield f"{where} is a {type(value).__name__}"


def digest_of(value: object) -> str:
    """Return a digest of nested values: arrays bit for bit, mappings in any order."""
    if isinstance(value, Mapping):
        parts = sorted(f"{key}: {digest_of(item)}" for key, item in value.items())
    elif isinstance(value, list | tuple):
        parts = [digest_of(item) for item in value]
    else:
        array = np.asarray(value)
        parts = ["" if array.dtype == object else f"{array.shape} {array.tobytes().hex()}"]
    return sha256("\n".join(parts).encode()).hexdigest()


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | None)


def check_keys(table: object, required: frozenset[str], optional: Collection[str], what: str) -> Mapping[str, object]:
    """Return a table if it is a mapping with all required keys, and no others but the optional ones.

    Args:
        table: the value to check.
        required: keys that the table must have.
        optional: further keys that the table may have.
        what: the table's name, for the message.

    Raises:
        Failed: the table is not such a mapping.
    """
    if not isinstance(table, Mapping):
        raise Failed(f"{what} is a {type(table).__name__}", "it must be a mapping")
    missing, unknown = required - table.keys(), table.keys() - required - set(optional)
    if missing or unknown:
        raise Failed(
            f"{what} lacks {sorted(missing)} and has the unknown keys {sorted(map(str, unknown))}",
            f"its keys are {', '.join(sorted(required.union(optional)))}",
        )
    return table


def check_head(table: Mapping[str, object], what: str) -> None:
    """Check ``env_id`` and ``frame_no`` of a table.

    Raises:
        Failed: they are not a text of 1 to 36 characters and an int32.
    """
    env_id, frame_no = table["env_id"], table["frame_no"]
    if not isinstance(env_id, str) or not 1 <= len(env_id) <= 36:
        raise Failed(f"env_id is {env_id!r}", f"{what} requires a string of 1 to 36 characters")
    if not is_int32(frame_no):
        raise Failed(f"frame_no is {frame_no!r}", f"{what} requires an int32")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_int32(value: object) -> TypeGuard[int]:
    """Return whether a value is a 32-bit integer; booleans are not."""
    return _is_whole(value) and -_LARGEST - 1 <= value <= _LARGEST


def error_of(table: Mapping[str, Unchecked]) -> Unchecked:
    """Return the error that a Table 1 contains, or None."""
    extra = table.get("extra_info", {})
    return extra.get("error") if isinstance(extra, Mapping) else None


def is_over(table: Mapping[str, Unchecked]) -> bool:
    """Return whether the episode ended with this frame."""
    return bool(table["terminated"] or table["truncated"])


def field_names(seen: object) -> list[str]:
    """Return the names of observation fields in an agent's part of the mapping; none if it holds something else."""
    if isinstance(seen, str):
        return [seen]
    values = seen.values() if isinstance(seen, Mapping) else seen if isinstance(seen, list | tuple | set) else ()
    return [value for value in values if isinstance(value, str)]
