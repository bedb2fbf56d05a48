"""Make illegal actions of every kind from an action's spec, and check how they are refused (R4.3, R1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hal import Field, Spec
from rlenv_robot.conformance.probe import Frame, Table
from rlenv_robot.conformance.report import Failed
from rlenv_robot.conformance.tables import difference

__all__ = ["IllegalCase", "check_refusal", "illegal_tables", "illegal_values"]

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class IllegalCase:
    """A value that must be refused, and what the refusal must name.

    Attributes:
        name: a few words for the report.
        value: to send.
        code, field, index: of the refusal, as in `hal.Violation`.
    """

    name: str
    value: Any
    code: str
    field: str
    index: tuple[int, ...] = ()


def illegal_tables(spec: Spec, legal: Values, env_id: str, frame_no: int) -> Iterator[IllegalCase]:
    """Yield illegal forms of Table 2.

    Args:
        spec: of the action.
        legal: an action that would be legal now.
        env_id, frame_no: of a legal table.
    """
    table = {"env_id": env_id, "frame_no": frame_no, "action": legal}
    yield IllegalCase("None instead of a mapping", None, "dtype", "")
    yield IllegalCase("a list instead of a mapping", [env_id, frame_no, legal], "dtype", "")
    for key in table:
        rest = {name: value for name, value in table.items() if name != key}
        yield IllegalCase(f"without {key}", rest, "missing", key)
    yield IllegalCase("with an unknown key", {**table, "colour": 1}, "unknown", "colour")
    for other_id in ("", env_id + "x", 7, None):
        yield IllegalCase(f"env_id {other_id!r}", {**table, "env_id": other_id}, "env_id", "env_id")
    stale: tuple[object, ...] = (frame_no - 1, frame_no + 1, str(frame_no), frame_no + 0.5, True, None, [frame_no] * 2)
    for wrong in (*stale, np.full(2, frame_no)):
        yield IllegalCase(f"frame_no {wrong!r}", {**table, "frame_no": wrong}, "frame_no", "frame_no")
    for case in illegal_values(spec, legal, "action"):
        yield IllegalCase(case.name, {**table, "action": case.value}, case.code, case.field, case.index)


def illegal_values(spec: Spec, legal: Values, where: str) -> Iterator[IllegalCase]:
    """Yield illegal forms of a structure.

    Args:
        spec: of the structure.
        legal: a legal structure.
        where: the name of the structure in messages (``action``, ``command``).
    """
    yield IllegalCase(f"{where} None", None, "dtype", where)
    yield IllegalCase(f"{where} a list", list(legal.values()), "dtype", where)
    yield IllegalCase("an unknown field", {**legal, "no_such_field": 0.0}, "unknown", f"{where}.no_such_field")
    for field in spec:
        rest = {name: value for name, value in legal.items() if name != field.name}
        dotted = f"{where}.{field.name}"
        yield IllegalCase(f"{field.name} missing", rest, "missing", dotted)
        for problem, value, code, index in _illegal_arrays(field, np.asarray(legal[field.name])):
            yield IllegalCase(f"{field.name} {problem}", {**legal, field.name: value}, code, dotted, index)


def _illegal_arrays(field: Field, legal: np.ndarray) -> Iterator[tuple[str, object, str, tuple[int, ...]]]:
    yield "with an extra axis", legal[None], "shape", ()
    if field.shape:
        yield "as one number", legal.ravel()[0], "shape", ()
        yield "one element short", legal[..., :-1], "shape", ()
        yield "ragged", [[0.0], [0.0, 0.0]], "shape", ()
    yield "None", None, "dtype", ()
    yield "a word", "far", "dtype", ()
    yield "complex", legal.astype(complex), "dtype", ()
    yield "true or false", np.ones(field.shape, bool), "dtype", ()
    if field.numpy_dtype.kind != "f":
        yield "with a fraction", legal + 0.5, "dtype", ()
    yield from _illegal_numbers(field, legal)


def _illegal_numbers(field: Field, legal: np.ndarray) -> Iterator[tuple[str, object, str, tuple[int, ...]]]:
    for index in _first_and_last(field):
        for problem, number, code in _numbers_outside(field, index):
            value = np.array(legal, legal.dtype if field.numpy_dtype.kind == "f" else object)
            value[index] = number
            if field.numpy_dtype.kind != "f":
                value = np.array(value.tolist())  # as Python's integers arrive: int64, or wider
            yield f"{problem} at {list(index)}" if index else problem, value, code, index


def _first_and_last(field: Field) -> list[tuple[int, ...]]:
    """Return the indices of the first and the last element, so that a validation that stops halfway is noticed."""
    first, last = tuple(0 for _ in field.shape), tuple(size - 1 for size in field.shape)
    return [first] if first == last else [first, last]


def _numbers_outside(field: Field, index: tuple[int, ...]) -> Iterator[tuple[str, ArrayLike, str]]:
    low, high = (bound[index] for bound in field.bounds)
    if field.numpy_dtype.kind != "f":
        # At the limits of int64 there is no number beyond to send.
        if int(low) > np.iinfo(np.int64).min:
            yield "one below the range", int(low) - 1, "range"
        if int(high) < np.iinfo(np.int64).max:
            yield "one above the range", int(high) + 1, "range"
        return
    yield "not a number", np.nan, "not_finite"
    yield "infinite", np.inf, "not_finite"
    yield "minus infinite", -np.inf, "not_finite"
    limits = np.finfo(field.dtype)
    if low > limits.min:
        yield "just below the range", np.nextafter(low, low.dtype.type(-np.inf)), "range"
    if high < limits.max:
        yield "just above the range", np.nextafter(high, high.dtype.type(np.inf)), "range"


# -- The answer to an illegal action (R1.2) --------------------------------------------------------------------

_ERROR_KEYS = {"code", "field", "index", "message"}


def check_refusal(case: IllegalCase, answer: tuple[Table, Table], before: Frame) -> None:
    """Check that the answer is the same frame with reward 0 and an error that names code, field and index.

    Args:
        case: that was sent.
        answer: Tables 1 and 3, as `step` returned them.
        before: the frame before the case was sent.

    Raises:
        Failed: the answer is wrong.
    """
    table, reward = answer
    error = table.get("extra_info", {}).get("error")
    if not isinstance(error, Mapping) or error.keys() != _ERROR_KEYS:
        raise Failed(f"extra_info['error'] is {error!r}, it must be a mapping with {', '.join(sorted(_ERROR_KEYS))}")
    _check_same_frame(table, before)
    rewards = reward["reward"].values() if isinstance(reward["reward"], Mapping) else [reward["reward"]]
    if any(number != 0 for number in rewards):
        raise Failed(f"reward is {reward['reward']}, it must be 0")
    _check_error(case, error)


def _check_same_frame(table: Table, before: Frame) -> None:
    for key in ("env_id", "frame_no", "terminated", "truncated"):
        if table[key] != before.table[key]:
            raise Failed(f"{key} is {table[key]!r}, it was {before.table[key]!r}: was the action executed?")
    name = difference(before.observation, table["observation"])
    if name:
        raise Failed(f"observation {name} changed: was the action executed?")


def _check_error(case: IllegalCase, error: Table) -> None:
    for key, expected in (("code", case.code), ("field", case.field), ("index", list(case.index))):
        if error[key] != expected:
            raise Failed(f"the {key} of the error is {error[key]!r}, it must be {expected!r}")
    if not isinstance(error["message"], str) or not error["message"].strip():
        raise Failed("the error has no message")
