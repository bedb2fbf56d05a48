"""The perversion grid of batches: fields, rows, ends, refusals and resets, perverted one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from plugins.kit.tests.grid_perverted import Cell
from plugins.kit.tests.grid_ways import MISSING, WAYS, Moment, Place, differs, kept, perverted, value_at
from plugins.kit.tests.plain_batch import SledRows, SledRowsNextStep, SledRowsThatStay
from plugins.kit.tests.rows_of_landers import Landers
from rlenv_robot.world import NOTHING

__all__ = ["SUBJECTS", "PervertedBatch", "cells"]


class _Told(SledRows):
    """Tells the heat of each row, and the frame numbers of final frames."""

    def extra(self) -> dict[str, Any]:
        return {"state": {"heat": np.stack([np.abs(sled.velocity) for sled in self.sleds])}}


SUBJECTS: Mapping[str, Callable[[int], Any]] = {
    "same step": _Told, "next step": SledRowsNextStep, "stays": SledRowsThatStay, "landers": Landers,
}  # fmt: skip

WHENS: Mapping[str, Callable[[Moment], bool]] = {
    "always": lambda at: True,
    "reset": lambda at: at.kind == "reset",
    "late": lambda at: at.kind == "frame" and at.frame >= 3,
    "end": lambda at: at.over,
    "after end": lambda at: at.ended and not at.over and at.kind != "reset",
    "second": lambda at: at.episode > 1,
    "refusal": lambda at: at.kind == "refusal",
    "after refusal": lambda at: at.refused and at.kind == "frame",
    "reset of some": lambda at: at.kind == "some",
}  # fmt: skip


class PervertedBatch:
    """A batch of which one value is perverted."""

    hits = 0

    def __init__(self, num_envs: int, made: Any, where: str, place: Place, way: Any, when: Any) -> None:
        self.inner = made(num_envs)
        self.where, self.place, self.way, self.when, self.store = where, place, way, when, {}
        self.at = Moment()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def reset(self, options: Any = NOTHING) -> Any:
        table = self.inner.reset(options)
        some = isinstance(options, Mapping) and options.get("ids") is not None
        at = self.at
        self.at = Moment("some" if some else "reset", at.frame if some else 0, at.episode + (not some), False,
                         some and at.refused, some and at.ended, True, at.before)  # fmt: skip
        answer = self.changed("table", table)
        self.at.before = kept(table)
        return answer

    def step(self, request: Any, *extra: Any) -> Any:
        table, reward = self.inner.step(request, *extra)
        refused = bool(table.get("extra_info", {}).get("error"))
        self.at.kind = "refusal" if refused else "frame"
        self.at.frame += 1
        self.at.over = bool(np.any(table["terminated"]) or np.any(table["truncated"]))
        answer = self.changed("table", table), self.changed("reward", reward)
        self.at.refused |= refused
        self.at.ended |= self.at.over
        self.at.before = kept(table)
        return answer

    def changed(self, where: str, table: Any) -> Any:
        if where != self.where or not self.when(self.at):
            return table
        value = value_at(table, self.place)
        if value is MISSING and self.way is not _invented:
            return table
        self.store["at"], self.store["place"], self.store["table"] = self.at, self.place, table
        new = self.way(value, self.store)
        if not differs(value, new) and self.way is not WAYS["live"]:
            return table
        type(self).hits += 1
        return perverted(table, self.place, new)


def _row(change: Callable[[Any], Any], row: int) -> Callable[[Any, Any], Any]:
    def way(value: Any, store: Any) -> Any:
        array = np.array(value)
        if array.ndim == 0 or len(array) <= abs(row) - (row < 0):
            return value
        array[row] = change(array[row])
        return array

    return way


def _rows_swapped(value: Any, store: Any) -> Any:
    array = np.array(value)
    return array[::-1].copy() if array.ndim else value


def _last_row_filled(value: Any, store: Any) -> Any:
    array = np.array(value)
    if array.ndim and len(array) > 1:
        array[-1] = array[0]
    return array


def _one_more(value: Any, store: Any) -> Any:
    array = np.asarray(value)
    return np.concatenate([array, array[-1:]]) if array.ndim and len(array) else value


def _one_row(value: Any, store: Any) -> Any:
    array = np.asarray(value)
    return array[0] if array.ndim and len(array) == 1 else value


def _before(value: Any, store: Any) -> Any:
    old = value_at(store["at"].before, store["place"])
    return value if old is MISSING else old


def _invented(value: Any, store: Any) -> Any:
    """Return a final frame where no row has ended."""
    table = store["table"]
    if value is not MISSING or "final" in table.get("extra_info", {}):
        return value
    return {"index": np.array([0]), "observation": {name: np.asarray(part)[:1].copy()
                                                    for name, part in table["observation"].items()}}  # fmt: skip


_ROW_WAYS: Mapping[str, Callable[[Any, Any], Any]] = {
    "row off by one": _row(lambda one: one + np.array(1, np.asarray(one).dtype), -1),
    "first row off by one": _row(lambda one: one + np.array(1, np.asarray(one).dtype), 0),
    "rows swapped": _rows_swapped, "last row as first": _last_row_filled, "a row more": _one_more,
    "one row without axis": _one_row, "stale": _before, "invented": _invented,
    "row not a number": _row(lambda one: np.asarray(one) * np.nan if np.asarray(one).dtype.kind == "f" else one, -1),
}  # fmt: skip

_FORM = ("missing", "none", "text", "dtype", "axis", "short", "a row more", "one row without axis", "object")
_ANY = tuple(WHENS)
_STATE = ("row off by one", "first row off by one", "rows swapped", "last row as first")
_SEEN = ("second", "refusal", "after refusal", "reset of some")


def _cells(sample: Any, subject: str) -> Iterator[tuple[str, Place, str, tuple[str, ...]]]:
    for key in ("frame_no", "terminated", "truncated"):
        for way in _FORM:
            yield "table", (key,), way, _ANY
        yield "table", (key,), "live", ("always", "late", "second")
    for way in ("row off by one", "first row off by one"):
        yield "table", ("frame_no",), way, ("reset", "late", "end", "after end", "refusal", "reset of some")
        yield "table", ("truncated",), way, ("reset", "late", "refusal", "reset of some", "after end")
        yield "reward", ("frame_no",), way, ("always", "late", "end", "refusal")
    for way in ("missing", "none", "short", "a row more", "reversed"):
        yield "table", ("env_id",), way, _ANY
        yield "reward", ("env_id",), way, ("always", "late", "end", "refusal")
    for way in ("missing", "none", "text", "empty"):
        yield "table", ("observation",), way, _ANY
    for name in sample["observation"]:
        place = "observation", name
        for way in (*_FORM, "nan", "infinite", "row not a number"):
            yield "table", place, way, _ANY
        for way in (*_STATE, "random"):
            yield "table", place, way, _SEEN
        yield "table", place, "live", ("always", "late", "second")
        yield "table", place, "random", ("always", "late", "reset")
    for way in (*_FORM, "nan", "row not a number"):
        yield "reward", ("reward",), way, ("always", "late", "end", "after end", "refusal", "second")
    for way in (*_STATE, "live", "random"):
        yield "reward", ("reward",), way, ("second", "after refusal") if way != "live" else ("always", "late")
    yield "reward", ("reward",), "row off by one", ("refusal",)
    for way in ("missing", "none", "text", "empty"):
        yield "table", ("extra_info", "error"), way, ("refusal", "second")
    yield "table", ("extra_info", "final"), "invented", ("late", "always", "reset", "refusal", "reset of some")
    if subject == "same step":
        for way in ("missing", "none", "empty"):
            yield "table", ("extra_info", "final"), way, ("end", "second")
        for way in ("short", "a row more", "row off by one", "none", "missing", "axis"):
            yield "table", ("extra_info", "final", "index"), way, ("end",)
        for name in sample["observation"]:
            for way in (*_FORM, "row not a number", "infinite"):
                yield "table", ("extra_info", "final", "observation", name), way, ("end",)
            for way in (*_STATE, "random"):
                yield "table", ("extra_info", "final", "observation", name), way, ("second",)
        for way in _FORM:
            yield "table", ("extra_info", "state", "heat"), way, tuple(one for one in _ANY if one != "always")
        for way in (*_STATE, "random"):
            yield "table", ("extra_info", "state", "heat"), way, ("second", "refusal", "after refusal")


# -- behaviours ----------------------------------------------------------------------------------------------------


class _Same:
    """Every row's first episode is always the same."""

    def __init__(self, num_envs: int, made: Any, how: str) -> None:
        self.inner, self.how, self.resets = made(num_envs), how, 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def reset(self, options: Any = NOTHING) -> Any:
        given = dict(options) if isinstance(options, Mapping) else options
        if isinstance(given, dict):
            self.resets += 1
            if self.how == "seed is ignored" and "seed" in given:
                given["seed"] = 5
            if self.how == "an unseeded reset repeats" and "seed" not in given and "ids" not in given:
                given["seed"] = 5
            if self.how == "a reset of some reseeds" and "ids" in given:
                given["seed"] = 5
            if self.how == "unknown options pass":
                given = {key: value for key, value in given.items() if key in ("seed", "ids")}
            if self.how == "no ids is all" and given.get("ids") == []:
                given.pop("ids")
            if self.how == "ids beyond are left out" and given.get("ids") is not None:
                given["ids"] = [one for one in given["ids"] if isinstance(one, int) and 0 <= one < self.inner.num_envs]
            if self.how == "options get an entry" and isinstance(options, dict):
                options["seen"] = 1
        return self.inner.reset(given)

    def step(self, request: Any) -> Any:
        mended = dict(request) if isinstance(request, Mapping) else request
        num = self.inner.num_envs
        if isinstance(mended, dict) and isinstance(mended.get("action"), Mapping):
            actions = dict(mended["action"])
            for name, value in actions.items():
                value = np.asarray(value)
                low, high = self.inner.action[name].bounds if name in self.inner.action.names else (None, None)
                if self.how == "missing rows are filled" and value.shape[:1] == (num - 1,):
                    value = np.concatenate([value, value[-1:]])
                if self.how == "one row is for all" and value.shape[:1] == (1,):
                    value = np.repeat(value, num, 0)
                if (
                    self.how == "actions are clipped"
                    and value.dtype.kind in "fi"
                    and low is not None
                    and (value.shape[:1] == (num,))
                ):
                    value = np.clip(value, low, high).astype(self.inner.action[name].numpy_dtype)
                if self.how == "not a number is zero" and value.dtype.kind == "f":
                    value = np.nan_to_num(value)
                actions[name] = value
            if self.how == "unknown fields pass":
                actions = {name: value for name, value in actions.items() if name in self.inner.action.names}
            if self.how == "missing fields are zero":
                for field in self.inner.action:
                    actions.setdefault(field.name, np.zeros((num, *field.shape), field.numpy_dtype))
            mended["action"] = actions
            if self.how == "env_ids in any order" and sorted(map(str, mended.get("env_id", ()))) == sorted(
                self.env_ids
            ):
                mended["env_id"] = list(self.inner.env_ids)
            if self.how == "frame_no is not read":
                mended["frame_no"] = getattr(self, "last", mended.get("frame_no"))
            if self.how == "unknown keys pass":
                mended = {key: value for key, value in mended.items() if key in ("env_id", "frame_no", "action")}
            if self.how == "no env_id is its own":
                mended.setdefault("env_id", list(self.inner.env_ids))
        answer = self.inner.step(mended)
        self.last = np.array(answer[0]["frame_no"])
        return answer


_BEHAVIOURS = (
    "seed is ignored", "an unseeded reset repeats", "a reset of some reseeds", "ids beyond are left out",
    "options get an entry", "missing rows are filled", "one row is for all", "actions are clipped",
    "not a number is zero", "unknown fields pass", "missing fields are zero", "env_ids in any order",
    "frame_no is not read", "unknown keys pass",
    "no env_id is its own",
)  # fmt: skip


def cells() -> list[Cell]:
    """Return all cells of the grid; their subjects are functions of the number of rows."""
    found = []
    for subject, made in SUBJECTS.items():
        sample = made(2).reset({"seed": 0})
        for where, place, way, times in _cells(sample, subject):
            function = WAYS.get(way) or _ROW_WAYS[way]
            for when in times:
                found.append(Cell(subject, f"{where} {'.'.join(place)} {way}", when, partial(
                    PervertedBatch, made=made, where=where, place=place, way=function, when=WHENS[when])))  # fmt: skip
        found += [Cell(subject, how, "always", partial(_Same, made=made, how=how)) for how in _BEHAVIOURS]
    return found
