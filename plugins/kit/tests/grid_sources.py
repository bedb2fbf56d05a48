"""The perversion grid of source data: five functions, options and shapes of data, perverted one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from plugins.kit.tests import plain_source
from plugins.kit.tests.diary import Diary
from plugins.kit.tests.grid_perverted import Cell
from plugins.kit.tests.grid_ways import MISSING, WAYS, Place, differs, perverted, value_at
from plugins.kit.tests.plain_source import Records
from rlenv_robot.world import NOTHING

__all__ = ["SUBJECTS", "PervertedSource", "cells"]


class OneStepEpisodes(Records):
    """Some walks have one step alone."""

    lengths = (1, 6, 1, 5)

    def __init__(self) -> None:
        kept, plain_source.LENGTHS = plain_source.LENGTHS, self.lengths
        try:
            super().__init__()
        finally:
            plain_source.LENGTHS = kept

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if name.startswith("__") or not callable(value) or isinstance(value, type | np.random.Generator):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            kept, plain_source.LENGTHS = plain_source.LENGTHS, type(self).lengths
            try:
                return value(*arguments, **named)
            finally:
                plain_source.LENGTHS = kept

        return call


SUBJECTS: Mapping[str, Callable[[], Any]] = {"records": Records, "diary": Diary, "one-step": OneStepEpisodes}

_CALLS = ("init", "sample_steps", "sample_trajectories", "get_all_actions", "statistics")


class PervertedSource:
    """Source data of which one thing is perverted."""

    hits = 0

    def __init__(self, made: Any, name: str, change: Any, when: Any) -> None:
        self.inner, self.name, self.change, self.when = made(), name, change, when
        self.counts = dict.fromkeys(_CALLS, 0)
        self.store: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        self.counts[name] += 1
        options = arguments[-1] if arguments and isinstance(arguments[-1], Mapping) else {}
        is_due = self.name == name and self.when(self, options, arguments)
        if is_due and getattr(self.change, "asks", False):
            return self.change(self, name, arguments)
        answer = getattr(self.inner, name)(*arguments)
        if not is_due:
            return answer
        changed = self.change(answer, self.store)
        if differs(answer, changed):
            type(self).hits += 1
        return changed

    def init(self, options: Any = NOTHING) -> Any:
        return self._call("init", options)

    def sample_steps(self, batch_size: Any, extra_info: Any = NOTHING) -> Any:
        return self._call("sample_steps", batch_size, extra_info)

    def sample_trajectories(self, trajectory_size: Any, extra_info: Any = NOTHING) -> Any:
        return self._call("sample_trajectories", trajectory_size, extra_info)

    def get_all_actions(self, extra_info: Any = NOTHING) -> Any:
        return self._call("get_all_actions", extra_info)

    def statistics(self, extra_info: Any = NOTHING) -> Any:
        return self._call("statistics", extra_info)


WHENS: Mapping[str, Callable[[Any, Any, Any], bool]] = {
    "always": lambda source, options, arguments: True,
    "second call": lambda source, options, arguments: source.counts[source.name] > 1,
    "with an option": lambda source, options, arguments: bool(set(options) - {"seed"}),
    "of one": lambda source, options, arguments: bool(arguments) and arguments[0] == 1,
    "of many": lambda source, options, arguments: arguments[:1] != () and arguments[0] in range(21, 10**6),
}  # fmt: skip


def _at(place: Place, way: Any) -> Callable[[Any, Any], Any]:
    def change(table: Any, store: Any) -> Any:
        value = value_at(table, place)
        return table if value is MISSING else perverted(table, place, way(value, store))

    return change


def _each(change: Any, which: str = "all") -> Callable[[Any, Any], Any]:
    def of_tables(tables: Any, store: Any) -> Any:
        if not isinstance(tables, list):
            return tables
        return [change(table, store) if which == "all" or place == len(tables) - 1 else table
                for place, table in enumerate(tables)]  # fmt: skip

    return of_tables


def _last(change: Callable[[np.ndarray], Any]) -> Callable[[Any, Any], Any]:
    def way(value: Any, store: Any) -> Any:
        array = np.array(value)
        if array.ndim and len(array):
            array[-1] = change(array[-1])
        return array

    return way


_MORE: Mapping[str, Callable[[Any, Any], Any]] = {
    "int64": lambda value, store: np.asarray(value).astype(np.int64),
    "uint8": lambda value, store: np.asarray(value).astype(np.uint8),
    "float64": lambda value, store: np.asarray(value).astype(np.float64),
    "last off by one": _last(lambda one: one + np.array(1, np.asarray(one).dtype)),
    "a row more": lambda value, store: np.concatenate([np.asarray(value), np.asarray(value)[-1:]]),
    "last as first": lambda value, store: np.concatenate([np.asarray(value)[:-1], np.asarray(value)[:1]]),
    "flipped": lambda value, store: 1 - np.asarray(value),
    "zeros": lambda value, store: np.zeros_like(value),
    "other": lambda value, store: f"{value}x",
    "shuffled": lambda value, store: np.roll(np.asarray(value), 1, 0),
}  # fmt: skip

_FORM = ("missing", "none", "text", "dtype", "axis", "short", "a row more", "nan", "infinite")


def _steps_cells(table: Any) -> Iterator[tuple[Place, str]]:
    for key in ("env_id", "frame_no", "reward", "done"):
        for way in _FORM:
            if not (key == "done" and way == "missing") and not (key == "reward" and way == "dtype"):
                yield (key,), way
    for way in ("int64", "last off by one", "shuffled", "uint8"):
        yield ("frame_no",), way
    for way in ("int64", "flipped", "zeros", "last off by one"):
        yield ("done",), way
    for way in ("last off by one", "shuffled", "doubled", "random"):
        yield ("reward",), way
    for group in ("observation", "action", "next_observation"):
        for way in ("none", "text", "empty", *(("missing",) if group != "next_observation" else ())):
            yield (group,), way
        for name in table.get(group, {}):
            for way in (*_FORM, "int64", "float64", "last off by one", "shuffled", "random", "live"):
                yield (group, name), way


# -- behaviours: each takes the source, the call's name and its arguments -------------------------------------------


def _asks(function: Any) -> Any:
    function.asks = True
    return function


def _mended(what: str) -> Any:
    @_asks
    def call(source: Any, name: str, arguments: Any) -> Any:
        *sizes, options = arguments
        before = (*sizes, options)
        if what == "size 0 is empty" and sizes and sizes[0] == 0 and not isinstance(sizes[0], bool):
            answer = getattr(source.inner, name)(1, options)
            type(source).hits += 1
            return _nothing(answer)
        if what == "a negative size is 1" and sizes and isinstance(sizes[0], int) and sizes[0] < 0:
            sizes = [1]
        if what == "a text is a size" and sizes and isinstance(sizes[0], str):
            sizes = [int(sizes[0])]
        if what == "a fraction is cut" and sizes and isinstance(sizes[0], float):
            sizes = [int(sizes[0])]
        if what == "unknown options pass" and isinstance(options, Mapping):
            options = {key: value for key, value in options.items() if "no_such" not in key}
        if what == "options are lost" and isinstance(options, Mapping):
            options = {key: value for key, value in options.items() if key == "seed"}
        if what == "an option is changed" and isinstance(options, dict) and options:
            answer = getattr(source.inner, name)(*before)
            options["seen"] = 1
            type(source).hits += 1
            return answer
        if what == "nothing left is empty":
            try:
                return getattr(source.inner, name)(*sizes, options)
            except ValueError as error:
                if "nothing" not in str(error) and "no " not in str(error):
                    raise
                type(source).hits += 1
                return _nothing(getattr(source.inner, name)(*sizes))
        if what == "the seed is lost" and isinstance(options, Mapping) and "seed" in options:
            options = {key: value for key, value in options.items() if key != "seed"} | {"seed": 4}
        if what == "returns something":
            getattr(source.inner, name)(*sizes, options)
            type(source).hits += 1
            return {"seed": 1}
        if (*sizes, options) != before:
            type(source).hits += 1
        return getattr(source.inner, name)(*sizes, options)

    return call


def _nothing(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _nothing(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value[:0]
    return [] if isinstance(value, list) else value


@_asks
def _one_less(source: Any, name: str, arguments: Any) -> Any:
    size = arguments[0]
    if isinstance(size, int) and size > 1:
        type(source).hits += 1
        return getattr(source.inner, name)(size - 1, *arguments[1:])
    return getattr(source.inner, name)(*arguments)


@_asks
def _long_ones_alone(source: Any, name: str, arguments: Any) -> Any:
    """Lose the trajectories of one step."""
    tables = getattr(source.inner, name)(*arguments)
    long = [table for table in tables if len(table["steps_set"]["reward"]) > 1]
    if len(long) < len(tables):
        type(source).hits += 1
    return [long[place % len(long)] for place in range(len(tables))] if long else tables


@_asks
def _last_lost(source: Any, name: str, arguments: Any) -> Any:
    """Lose the last step of each trajectory of more than one."""

    def cut(value: Any) -> Any:
        return {key: cut(item) for key, item in value.items()} if isinstance(value, Mapping) else value[:-1]

    tables = getattr(source.inner, name)(*arguments)
    type(source).hits += 1
    return [{**table, "steps_set": cut(table["steps_set"])} if len(table["steps_set"]["reward"]) > 1 else table
            for table in tables]  # fmt: skip


_BEHAVIOURS: Mapping[str, tuple[str, ...]] = {
    "size 0 is empty": (),  # a note
    "a negative size is 1": ("sample_steps", "sample_trajectories"),
    "a text is a size": ("sample_steps", "sample_trajectories"),
    "a fraction is cut": ("sample_steps", "sample_trajectories"),
    "options are lost": ("sample_steps", "sample_trajectories"),
    "an option is changed": _CALLS,
    "nothing left is empty": ("sample_steps", "sample_trajectories"),
    "the seed is lost": ("init",),
    "returns something": ("init",),
}


def cells() -> list[Cell]:
    """Return all cells of the grid."""
    found = []
    for subject, made in SUBJECTS.items():
        source = made()
        source.init({"seed": 0})
        steps = source.sample_steps(3)

        def add(what: str, when: str, name: str, change: Any, subject: str = subject, made: Any = made) -> None:
            found.append(Cell(subject, f"{name} {what}", when, partial(
                PervertedSource, made, name, change, WHENS[when])))  # fmt: skip

        for place, way in _steps_cells(steps):
            function = WAYS.get(way) or _MORE[way]
            for when in ("always", "second call", "with an option", "of one", "of many"):
                if (way == "live" and when != "always") or (
                    way in ("last off by one", "shuffled") and when == "of one"
                ):
                    continue
                add(f"{'.'.join(place)} {way}", when, "sample_steps", _at(place, function))
            inner = _at(("steps_set", *place), function)
            for when in ("always", "second call", "of many"):
                for which in ("all", "last"):
                    if way != "live":
                        add(f"{'.'.join(place)} {way} of {which}", when, "sample_trajectories", _each(inner, which))
        for key in ("env_id", "trajectory_id"):
            for way in ("missing", "none", "text", "object", "empty", "other", "off by one"):
                if (key, way) not in (("trajectory_id", "empty"), ("env_id", "off by one")):
                    for when in ("always", "second call"):
                        add(
                            f"{key} {way}", when, "sample_trajectories", _each(_at((key,), WAYS.get(way) or _MORE[way]))
                        )
        actions = source.get_all_actions()
        for key in ("env_id", "frame_no", "action"):
            for way in ("missing", "none", "text", "object", "empty"):
                add(f"{key} {way}", "always", "get_all_actions", _at((key,), WAYS[way]))
        for name in actions["action"]:
            for way in ("short", "axis", "dtype", "text", "a row more", "last off by one", "nan"):
                change = _at(("action", name), WAYS.get(way) or _MORE[way])
                for when in ("always", "second call"):
                    add(f"{name} {way}", when, "get_all_actions", change)
        for what, names in _BEHAVIOURS.items():
            for name in names:
                add(what, "always", name, _mended(what))
        add("one less comes", "always", "sample_steps", _one_less)
        add("one less comes", "always", "sample_trajectories", _one_less)
        add("one step is lost", "always", "sample_trajectories", _long_ones_alone)
        add("the last step is lost", "always", "sample_trajectories", _last_lost)
    return found
