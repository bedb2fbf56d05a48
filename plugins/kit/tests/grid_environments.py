"""The perversion grid of environments: each value of Tables 1, 3 and 4, and each behaviour, perverted one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from plugins.kit.tests.grid_behaviours import behaviours
from plugins.kit.tests.grid_perverted import Cell, Perverted
from plugins.kit.tests.grid_ways import FORMS, MISSING, WAYS, WHENS, Place, differs, kept, perverted, value_at
from plugins.kit.tests.grid_worlds import Board, Cook, Dice, Herd
from plugins.kit.tests.lander import Lander
from plugins.kit.tests.plain import Pair

__all__ = ["SUBJECTS", "Cell", "Perverted", "cells"]

SUBJECTS: Mapping[str, Callable[[], Any]] = {
    "lander": Lander, "pair": Pair, "cook": Cook, "board": Board, "herd": Herd, "dice": Dice,
}  # fmt: skip

_STATES = ("off by one", "doubled", "reversed")
"""Ways that only an undisturbed episode, or the frame before, shows."""

_COMPARED = ("second", "even", "refusal", "after refusal", "after end")
"""Times at which an equal episode, or the frame before, shows any difference."""


class _Value(Perverted):
    """Perverts one value of one table."""

    def __init__(self, made: Any, where: str, place: Place, way: Any, when: Any) -> None:
        super().__init__(made)
        self.where, self.place, self.way, self.when, self.store = where, place, way, when, {}

    def changed(self, where: str, table: Any) -> Any:
        if where != self.where or not self.when(self.at):
            return table
        value = value_at(table, self.place)
        if value is MISSING:
            return table
        self.store["at"], self.store["place"] = self.at, self.place
        new = self.way(value, self.store)
        if not differs(value, new) and self.way is not WAYS["live"]:
            return table
        if self.way is WAYS["live"]:  # it shows once its values change
            if "was" in self.store and not differs(self.store["was"], new):
                return perverted(table, self.place, new)
            self.store["was"] = kept(new)
        self.hit()
        return perverted(table, self.place, new)

    def table(self, table: Any) -> Any:
        return self.changed("table", table)

    def reward_table(self, table: Any) -> Any:
        return self.changed("reward", table)

    def shown(self, table: Any) -> Any:
        return self.changed("shown", table)


def _before(value: Any, store: Any) -> Any:
    old = value_at(store["at"].before, store["place"])
    return value if old is MISSING else old


def _first(value: Any, store: Any) -> Any:
    return store.setdefault("first", kept(value))


def _of_last_episode(value: Any, store: Any) -> Any:
    old = value_at(store["at"].last_episode, store["place"])
    return value if old is MISSING else old


def _swapped(value: Any, store: Any) -> Any:
    names = list(value)
    return dict(zip(names, [value[name] for name in [*names[1:], *names[:1]]], strict=True))


def _renamed(value: Any, store: Any) -> Any:
    return {f"{key}x": item for key, item in value.items()} if isinstance(value, dict) else value


def _one_out(value: Any, store: Any) -> Any:
    return dict(list(value.items())[1:]) if isinstance(value, dict) else value


EXTRA: Mapping[str, Callable[[Any, Any], Any]] = {
    "stale": _before, "of the last episode": _of_last_episode, "swapped": _swapped, "renamed": _renamed,
    "one out": _one_out, "the first": _first, "other": lambda value, store: f"{value}x",
    "half more": lambda value, store: value + 0.5, "ones": lambda value, store: np.ones_like(value),
    "zeros": lambda value, store: np.zeros_like(value), "two": lambda value, store: np.asarray(value) * 2,
    "player": lambda value, store: {"north": "south", "south": "north"}[value],
    "true": lambda value, store: bool(value), "accumulates": lambda value, store: _accumulated(value, store),
}  # fmt: skip


def _accumulated(value: Any, store: Any) -> Any:
    store["n"] = store.get("n", 0) + 1
    return value + type(value)(store["n"] // 3)


_ALL = tuple(WHENS)
_LIVE = tuple(when for when in WHENS if when != "once")
_NOT_LAST = tuple(when for when in WHENS if when != "last")
_NOT_REFUSED = tuple(when for when in WHENS if when != "refusal")


def _rows(subject: str, sample: Any, reward: Any) -> Iterator[tuple[str, Place, str, tuple[str, ...]]]:
    """Yield table, place, way and times of the values that a subject's first frame has."""
    for way in ("missing", "none", "text", "object", "empty", "other"):
        yield "table", ("env_id",), way, _ALL
        yield "reward", ("env_id",), way, _NOT_REFUSED if way == "x" else _ALL
    for way in ("missing", "none", "text", "object", "axis", "dtype", "off by one", "huge"):
        yield "table", ("frame_no",), way, _ALL
        yield "reward", ("frame_no",), way, _ALL
    for flag in ("terminated", "truncated"):
        for way in ("missing", "none", "text", "object", "dtype", "axis", "huge", "true"):
            yield "table", (flag,), way, _ALL
        yield "table", (flag,), "off by one", ("refusal", "late", "once")
    for way in ("missing", "none", "text", "object", "empty", "renamed", "one out"):
        yield "table", ("observation",), way, _ALL
    yield "table", ("observation",), "live", _LIVE
    yield "table", ("observation",), "stale", ("always", "last", *_COMPARED)
    yield "table", ("observation",), "of the last episode", ("reset", "refusal")
    for name, value in sample["observation"].items():
        place = "observation", name
        fills = value.dtype == np.uint8  # each number is in range
        for way in (*(way for way in FORMS if not (fills and way == "huge")), "live"):
            yield "table", place, way, _ALL if way != "live" else _LIVE
        yield "table", place, "random", ("always", "reset", "late", "last", *_COMPARED)
        for way in (*_STATES, "the first"):
            yield "table", place, way, _COMPARED
    for way in ("none", "text", "object"):
        yield "table", ("extra_info",), way, _ALL
    yield "table", ("extra_info",), "live", _LIVE
    yield from _extra_rows(sample["extra_info"])
    for way in ("missing", "none", "text", "object", "nan", "infinite", "axis"):
        yield "reward", ("reward",), way, _NOT_REFUSED if way in ("nan", "infinite") else _ALL
    given = reward["reward"]
    if isinstance(given, dict):
        for way in ("swapped", "accumulates") if subject == "x" else ("swapped",):
            yield "reward", ("reward",), way, ("second", "even", "after refusal", "after end")
        for way in ("renamed", "one out", "empty"):
            yield "reward", ("reward",), way, _ALL
        yield "reward", ("reward",), "live", _NOT_REFUSED
        for agent in given:
            for way in ("missing", "none", "text", "object", "nan", "infinite"):
                yield "reward", ("reward", agent), way, _ALL
            yield "reward", ("reward", agent), "accumulates", ("refusal", "after end")
    else:
        yield "reward", ("reward",), "accumulates", ("refusal", "after refusal", "after end")
        if subject == "cook":
            yield "reward", ("reward",), "half more", _ALL
    for way in ("missing", "none", "empty"):
        yield "table", ("extra_info", "error"), way, ("refusal", "after refusal", "second", "even")
    for way in ("empty", "none", "text"):
        yield "table", ("extra_info", "error", "message"), way, ("refusal", "second", "even")
    if subject in ("cook", "board"):  # those that list their codes
        yield "table", ("extra_info", "error", "code"), "other", ("refusal", "second", "even")
    if subject in ("cook", "board", "herd", "dice"):
        for way in ("missing", "none", "text", "object", "off by one", "the first"):
            yield "shown", ("frame_no",), way, ("always", "late", "last", "second", "after refusal")
        for way in ("missing", "none", "text", "other", "empty"):
            yield "shown", ("env_id",), way, ("always", "late", "last", "second")
        for way in ("missing", "none", "live"):
            yield "shown", ("frame_data",), way, ("always", "late", "last", "second")
        yield "shown", ("frame_data",), "the first", ("always", "second")


def _extra_rows(extra: Any) -> Iterator[tuple[str, Place, str, tuple[str, ...]]]:
    for key in extra.keys() & {"agents", "agent", "state", "action_mask"}:
        times = _NOT_LAST if key == "action_mask" else _ALL
        times = tuple(one for one in times if one != "always")
        for way in ("missing", "none", "object"):
            yield "table", ("extra_info", key), way, times
    for key in extra.keys() & {"agents", "state", "action_mask"}:
        for way in ("text", "empty", "one out", "renamed"):
            yield "table", ("extra_info", key), way, tuple(one for one in _NOT_LAST if one != "always")
        yield "table", ("extra_info", key), "live", _LIVE
        for name, value in extra[key].items():
            place = "extra_info", key, name
            if isinstance(value, np.ndarray | np.generic | float):
                for way in ("dtype", "axis", "short", "text", "none"):
                    yield "table", place, way, ("reset", "late", "once", "second", "even", "refusal")
                for way in ("random", *_STATES):
                    yield "table", place, way, _COMPARED
            if key == "action_mask":
                for way in ("ones", "zeros", "two", "off by one", "reversed", "stale", "the first"):
                    yield "table", place, way, ("always", "reset", "late", "once", "second", "refusal")
            if isinstance(value, dict):
                for part in value:
                    for way in ("missing", "none", "text", "axis", "dtype", "nan", "infinite"):
                        yield "table", (*place, part), way, ("late", "once", "last", "second", "refusal", "after end")
                    for way in ("off by one", "stale", "reversed"):
                        yield "table", (*place, part), way, ("late", "once", "last", *_COMPARED)
    if "agent" in extra:
        for way in ("other", "text", "empty"):
            yield "table", ("extra_info", "agent"), way, _NOT_LAST
        yield "table", ("extra_info", "agent"), "player", ("late", "once", "reset", *_COMPARED)
    if "agents" in extra:
        yield "table", ("extra_info", "agents"), "swapped", ("late", "once", "reset", "last", *_COMPARED)
    if "messages" in extra:
        for way in ("swapped", "none", "text", "object", "renamed", "one out"):
            yield "table", ("extra_info", "messages"), way, ("late", "once", "second", "after refusal", "after end")
        for receiver, inbox in extra["messages"].items():
            for way in ("swapped", "one out", "stale"):
                yield "table", ("extra_info", "messages", receiver), way, ("late", "once", "second", "last")
            del inbox
    if "applied" in extra:
        yield "table", ("extra_info", "applied"), "live", _LIVE
        for name in extra["applied"]:
            for way in ("random", *_STATES):
                yield "table", ("extra_info", "applied", name), way, _COMPARED


def cells() -> list[Cell]:
    """Return all cells of the grid."""
    found = []
    for subject, made in SUBJECTS.items():
        env = made()
        env.reset({"seed": 0})
        frame = env.step({"env_id": env.env_id, "frame_no": 0, "action": _legal(env)})
        for where, place, way, times in _rows(subject, *frame):
            function = WAYS.get(way) or EXTRA[way]
            for when in times:
                found.append(Cell(subject, f"{where} {'.'.join(place)} {way}", when,
                                  partial(_Value, made, where, place, function, WHENS[when])))  # fmt: skip
        found += [Cell(subject, *one) for one in behaviours(subject, made)]
    return found


def _legal(env: Any) -> Any:
    for draw in range(100):
        action = env.action.sample(np.random.default_rng(draw))
        wrong = getattr(env, "broken_rule", lambda values: None)(action)
        if wrong is None:
            return action
    raise AssertionError("no legal action was drawn")
