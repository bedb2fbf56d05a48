"""What the answer to an illegal action must be (R1.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlenv_robot.conformance.illegal import IllegalCase
from rlenv_robot.conformance.probe import Frame, Table
from rlenv_robot.conformance.report import Failed
from rlenv_robot.conformance.tables import same_values

__all__ = ["check_refusal"]

_ERROR_KEYS = {"code", "field", "index", "message"}


def check_refusal(case: IllegalCase, answer: Any, before: Frame) -> None:
    """The same frame again, reward 0, and an error that names code, field and index.

    Args:
        case: what was sent.
        answer: what `step` returned.
        before: the frame that the case answered.

    Raises:
        Failed: saying what is wrong.
    """
    table, reward = answer
    error = table.get("extra_info", {}).get("error")
    if not isinstance(error, Mapping) or error.keys() != _ERROR_KEYS:
        raise Failed(f"extra_info['error'] is {error!r}, wanted a mapping with {', '.join(sorted(_ERROR_KEYS))}")
    _check_same_frame(table, before)
    if any(number != 0 for number in _numbers(reward["reward"])):
        raise Failed(f"reward is {reward['reward']}, wanted 0")
    _check_error(case, error)


def _check_same_frame(table: Table, before: Frame) -> None:
    for key in ("env_id", "frame_no", "terminated", "truncated"):
        if table[key] != before.table[key]:
            raise Failed(f"{key} is {table[key]!r}, it was {before.table[key]!r}: was the action executed?")
    name = same_values(before.kept, table["observation"])
    if name:
        raise Failed(f"observation {name} changed: was the action executed?")


def _check_error(case: IllegalCase, error: Mapping[str, Any]) -> None:
    for key, wanted in (("code", case.code), ("field", case.field), ("index", list(case.index))):
        if error[key] != wanted:
            raise Failed(f"error {key} is {error[key]!r}, wanted {wanted!r}")
    if not isinstance(error["message"], str) or not error["message"].strip():
        raise Failed("the error has no message")


def _numbers(reward: Any) -> list[Any]:
    return list(reward.values()) if isinstance(reward, Mapping) else [reward]
