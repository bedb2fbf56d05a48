"""Check tables against the standard: keys, types, ranges (R2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard

import numpy as np

from hal import IllegalAction, Spec
from rlenv_robot.conformance.report import Failed

__all__ = ["check_observation", "check_reward", "check_structure", "difference"]

_TABLE_1 = frozenset({"env_id", "frame_no", "observation", "terminated", "truncated"})
_TABLE_3 = frozenset({"env_id", "frame_no", "reward"})
_LARGEST = 2**31 - 1


def check_observation(table: object, spec: Spec) -> None:
    """Check Table 1.

    Raises:
        Failed: the table is wrong.
    """
    entries = _check_keys(table, _TABLE_1, {"extra_info"}, "Table 1")
    _check_head(entries, "Table 1")
    for flag in ("terminated", "truncated"):
        if not _is_whole(entries[flag]) or entries[flag] not in (0, 1):
            raise Failed(f"{flag} is {entries[flag]!r}, Table 1 requires the int32 0 or 1")
    if not isinstance(entries.get("extra_info", {}), Mapping):
        raise Failed(f"extra_info is a {type(entries['extra_info']).__name__}, Table 1 requires a structure")
    check_structure(entries["observation"], spec, "observation")


def check_reward(table: object) -> None:
    """Check Table 3: its reward is a finite number, or one for each agent.

    Raises:
        Failed: the table is wrong.
    """
    entries = _check_keys(table, _TABLE_3, set(), "Table 3")
    _check_head(entries, "Table 3")
    reward = entries["reward"]
    if isinstance(reward, Mapping) and not reward:
        raise Failed("reward maps no agent to a number")
    for number in reward.values() if isinstance(reward, Mapping) else (reward,):
        if isinstance(number, bool) or not isinstance(number, int | float | np.integer | np.floating):
            raise Failed(f"reward is {number!r}, it must be a finite number")
        if not math.isfinite(number):
            raise Failed(f"reward is {number!r}, it must be a finite number")


def check_structure(values: object, spec: Spec, where: str) -> None:
    """Check that a structure has exactly the names, shapes, dtypes and ranges of its spec.

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
        if array is not value:
            got = value.dtype if isinstance(value, np.ndarray | np.generic) else type(value).__name__
            raise Failed(f"{where}.{name} is of {got}, it must be an array of {spec[name].dtype}")


def difference(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    """Return the name of the first field in which two structures differ, bit for bit; empty if they are equal."""
    if one.keys() != other.keys():
        return ", ".join(sorted(map(str, one.keys() ^ other.keys())))
    for name, value in one.items():
        if np.asarray(value).tobytes() != np.asarray(other[name]).tobytes():
            return name
    return ""


def _check_keys(table: object, required: frozenset[str], optional: set[str], what: str) -> Mapping[str, object]:
    if not isinstance(table, Mapping):
        raise Failed(f"{what} is a {type(table).__name__}, it must be a mapping")
    missing, unknown = required - table.keys(), table.keys() - required - optional
    if missing or unknown:
        raise Failed(f"{what} lacks {sorted(missing)} and has the unknown keys {sorted(map(str, unknown))}")
    return table


def _check_head(table: Mapping[str, object], what: str) -> None:
    env_id, frame_no = table["env_id"], table["frame_no"]
    if not isinstance(env_id, str) or not 1 <= len(env_id) <= 36:
        raise Failed(f"env_id is {env_id!r}, {what} requires a string of 1 to 36 characters")
    if not _is_whole(frame_no) or not -_LARGEST - 1 <= frame_no <= _LARGEST:
        raise Failed(f"frame_no is {frame_no!r}, {what} requires an int32")


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
