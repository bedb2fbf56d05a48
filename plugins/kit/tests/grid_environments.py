"""The perversion grid of environments: each value of Tables 1, 3 and 4, and each behaviour, perverted one at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from hal import EpisodeError
from plugins.kit.tests.grid_ways import FORMS, MISSING, WAYS, WHENS, Moment, Place, differs, kept, perverted, value_at
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


@dataclass(frozen=True)
class Cell:
    """One perversion of one subject.

    Attributes:
        subject: key of `SUBJECTS`.
        what: place and way, or the behaviour.
        when: when it happens.
        made: makes the perverted subject.
    """

    subject: str
    what: str
    when: str
    made: Callable[[], Any]

    @property
    def name(self) -> str:
        return f"{self.subject}: {self.what}, {self.when}"


class Perverted:
    """An environment of which one thing is perverted; it passes on everything else."""

    hits = 0

    def __init__(self, made: Callable[[], Any]) -> None:
        self.inner = made()
        self.at = Moment()
        self.last_seen: Any = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def hit(self) -> None:
        type(self).hits += 1

    # -- the interface ---------------------------------------------------------------------------------------

    def reset(self, options: Any = {}) -> Any:
        table = self.answer_reset(options)
        self.at = Moment(
            "reset", 0, self.at.episode + 1, False, False, self.at.ended,
            isinstance(options, Mapping) and options.get("seed") is not None, {}, kept(table), self.last_seen,
        )  # fmt: skip
        self.last_seen = kept(table)
        return self.table(table)

    def step(self, action: Any, extra_info: Any = {}) -> Any:
        answer = self.answer_step(action, extra_info)
        table, reward = answer
        refused = "error" in table.get("extra_info", {})
        self.at.kind, self.at.before = "refusal" if refused else "frame", self.last_seen
        self.at.frame += not refused
        self.at.over = bool(table["terminated"] or table["truncated"])
        self.last_seen = kept(table)
        answer = self.table(table), self.reward_table(reward)
        self.at.refused |= refused
        self.at.ended |= self.at.over
        return answer

    def render(self, options: Any = {}) -> Any:
        if isinstance(options, Mapping) and callable(options.get("to")):
            to = options["to"]
            options = {**options, "to": lambda table: to(self.shown(table))}
        return self.inner.render(options) if options else self.inner.render()

    # -- what perversions replace ----------------------------------------------------------------------------

    def answer_reset(self, options: Any) -> Any:
        return self.inner.reset(options)

    def answer_step(self, action: Any, extra_info: Any) -> Any:
        return self.inner.step(action, extra_info)

    def table(self, table: Any) -> Any:
        return table

    def reward_table(self, table: Any) -> Any:
        return table

    def shown(self, table: Any) -> Any:
        return table


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


# -- behaviours ----------------------------------------------------------------------------------------------------


class _Leak(Perverted):
    """After a trigger, later episodes differ from those of the same seed."""

    def __init__(self, made: Any, trigger: str, effect: str) -> None:
        super().__init__(made)
        self.trigger, self.effect, self.pulled, self.leaking, self.resets = trigger, effect, False, False, 0

    def answer_reset(self, options: Any) -> Any:
        if self.trigger == "abandoned" and self.at.frame > 2 and not self.at.over:
            self.pulled = True
        try:
            table = self.inner.reset(options)
        except Exception:
            self.pulled |= self.trigger == "refused reset"
            raise
        self.resets += 1
        self.pulled |= self.trigger == "many resets" and self.resets > 12
        self.leaking = self.pulled
        if isinstance(options, Mapping):
            self.pulled |= self.trigger == "option" and bool(set(options) - {"seed"})
            self.pulled |= self.trigger == "unseeded" and "seed" not in options
        if self.leaking and self.effect == "draws" and hasattr(self.inner, "rng"):
            self.hit()
            self.inner.rng = np.random.default_rng(12345)
        return table

    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if self.leaking and self.effect == "refuses" and self.at.frame == 4:
            self.hit()
            action = {**action, "frame_no": -5} if isinstance(action, Mapping) else action
        table, reward = self.inner.step(action, extra_info)
        if "error" in table.get("extra_info", {}):
            self.pulled |= self.trigger == "refusal"
        self.pulled |= self.trigger == "terminated" and bool(table["terminated"])
        self.pulled |= self.trigger == "ended" and bool(table["terminated"] or table["truncated"])
        if self.leaking and self.effect == "length" and self.at.frame == 5:
            self.hit()
            self.inner.phase = "ended"
            table = {**table, "truncated": 1}
        if self.leaking and self.effect == "reward" and self.at.frame >= 4 and "error" not in table["extra_info"]:
            self.hit()
            value = reward["reward"]
            reward = {**reward, "reward": {name: n * 0.5 - 0.1 * bool(n) for name, n in value.items()}
                      if isinstance(value, dict) else value - 1 if isinstance(value, int) else value * 0.5}  # fmt: skip
        return table, reward

    def render(self, options: Any = {}) -> Any:
        self.pulled |= self.trigger == "render"
        return super().render(options)


def _behaviour(name: str) -> Callable[[type], type]:
    def enter(made: type) -> type:
        BEHAVIOURS[name] = made
        return made

    return enter


BEHAVIOURS: dict[str, type[Any]] = {}
"""Words -> a class, made with the inner's maker and a time."""


class _When(Perverted):
    def __init__(self, made: Any, when: Any) -> None:
        super().__init__(made)
        self.when = when

    def due(self) -> bool:
        return bool(self.when(self.at))


@_behaviour("the caller's extra_info gets an entry")
class _Marks(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if self.due() and isinstance(extra_info, dict) and extra_info:
            self.hit()
            extra_info["seen"] = 1
        return super().answer_step(action, extra_info if isinstance(extra_info, Mapping) else {})


@_behaviour("the caller's extra_info is emptied")
class _Empties(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if self.due() and isinstance(extra_info, dict) and extra_info:
            self.hit()
            extra_info.clear()
        return super().answer_step(action, {})


@_behaviour("Table 2 gets an entry")
class _MarksRequest(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        answer = super().answer_step(action, extra_info)
        if self.due() and isinstance(action, dict):
            self.hit()
            action["seen"] = True
        return answer


@_behaviour("an action's array is written into")
class _WritesAction(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        answer = super().answer_step(action, extra_info)
        fields = action.get("action") if isinstance(action, dict) else None
        for value in fields.values() if self.due() and isinstance(fields, dict) else ():
            if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype.kind in "fiu" and value.size:
                self.hit()
                value[...] = 0
        return answer


@_behaviour("the caller's options get an entry")
class _MarksOptions(_When):
    def answer_reset(self, options: Any) -> Any:
        table = super().answer_reset(options)
        if self.due() and isinstance(options, dict):
            self.hit()
            options["seen"] = 1
        return table


@_behaviour("the caller's options lose the seed")
class _PopsSeed(_When):
    def answer_reset(self, options: Any) -> Any:
        table = super().answer_reset(options)
        if self.due() and isinstance(options, dict) and "seed" in options:
            self.hit()
            options.pop("seed")
        return table


def _mended(env: Any, action: Any, what: str) -> Any:
    """Return Table 2 with one kind of mistake mended."""
    if what == "frame_no" and isinstance(action, Mapping) and "frame_no" in action:
        return {**action, "frame_no": env.frame_no}
    if what == "no frame_no" and isinstance(action, Mapping):
        return {"frame_no": env.frame_no, **action}
    if what == "env_id" and isinstance(action, Mapping) and "env_id" in action:
        return {**action, "env_id": env.env_id}
    if what == "no env_id" and isinstance(action, Mapping):
        return {"env_id": env.env_id, **action}
    if what == "unknown key" and isinstance(action, Mapping):
        return {key: value for key, value in action.items() if key in ("env_id", "frame_no", "action")}
    fields = action.get("action") if isinstance(action, Mapping) else None
    if not isinstance(fields, Mapping):
        return action
    fields = dict(fields)
    for field in env.action:
        if what == "no field":
            fields.setdefault(field.name, np.zeros(field.shape, field.numpy_dtype) + field.bounds[0])
        value = fields.get(field.name)
        if not isinstance(value, np.ndarray | np.generic):
            continue
        array = np.asarray(value)
        if what == "nan" and array.dtype.kind == "f":
            fields[field.name] = np.nan_to_num(array, nan=0.0)
        if what in ("range", "above") and array.dtype.kind in "fiu" and array.shape == field.shape:
            low, high = field.bounds
            array = np.where(np.isnan(array), np.nan, np.clip(array, low, high)) if array.dtype.kind == "f" else (
                np.clip(array, low, high))  # fmt: skip
            fields[field.name] = array.astype(array.dtype if array.dtype.kind == "f" else field.numpy_dtype)
        if what == "shape" and array.size == max(field.size, 1):
            fields[field.name] = array.reshape(field.shape)
        if what == "fraction" and array.dtype.kind == "f" and field.numpy_dtype.kind != "f":
            fields[field.name] = array.astype(field.numpy_dtype)
        if what == "bool" and array.dtype.kind == "b":
            fields[field.name] = array.astype(field.numpy_dtype)
    if what == "unknown field":
        fields = {name: value for name, value in fields.items() if name in env.action.names}
    return {**action, "action": fields}


MENDED = ("frame_no", "no frame_no", "env_id", "no env_id", "unknown key", "no field", "nan", "range", "shape", "fraction",
          "bool", "unknown field")  # fmt: skip


class _Accepts(_When):
    """Mends one kind of mistake in silence."""

    def __init__(self, made: Any, when: Any, what: str) -> None:
        super().__init__(made, when)
        self.what = what

    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if self.due() and getattr(self.inner, "phase", "running") == "running":
            mended = _mended(self.inner, action, self.what)
            if differs(action, mended):
                self.hit()
                action = mended
        return super().answer_step(action, extra_info)


@_behaviour("a refusal raises")
class _Raises(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        answer = super().answer_step(action, extra_info)
        if "error" in answer[0].get("extra_info", {}) and self.due():
            self.hit()
            raise ValueError("illegal")
        return answer


@_behaviour("a step raises")
class _StepRaises(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        answer = super().answer_step(action, extra_info)
        at, extra = self.at, answer[0].get("extra_info", {})
        over = bool(answer[0]["terminated"] or answer[0]["truncated"])
        ahead = Moment("frame", at.frame + 1, at.episode, over, at.refused, at.ended, at.seeded)
        if "error" not in extra and self.when(ahead):
            self.hit()
            raise KeyError("lost")
        return answer


@_behaviour("a step after the end is carried out")
class _GoesOn(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if getattr(self.inner, "phase", "") == "ended" and self.due():
            self.hit()
            self.inner.phase = "running"
        return super().answer_step(action, extra_info)


@_behaviour("a step after the end begins an episode")
class _BeginsAgain(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if getattr(self.inner, "phase", "") == "ended" and self.due():
            self.hit()
            return self.inner.reset(), {"env_id": self.inner.env_id, "frame_no": 0, "reward": 0.0}
        return super().answer_step(action, extra_info)


@_behaviour("the process's generators are used")
class _Globals(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        if self.due():
            self.hit()
            random.random()
            np.random.random()
        return super().answer_step(action, extra_info)


@_behaviour("a refused action draws")
class _RefusalDraws(_When):
    def answer_step(self, action: Any, extra_info: Any) -> Any:
        answer = super().answer_step(action, extra_info)
        if "error" in answer[0].get("extra_info", {}) and self.due():
            self.hit()
            self.inner.rng.random()
        return answer


@_behaviour("a refused action counts")
class _RefusalCounts(_When):
    count = 0

    def answer_step(self, action: Any, extra_info: Any) -> Any:
        answer = super().answer_step(action, extra_info)
        if "error" in answer[0].get("extra_info", {}):
            self.count = self.count + 1 if self.at.kind == "refusal" else 1
            if self.due():
                self.hit()
        elif self.count >= 2 and self.due() and not answer[0]["terminated"]:
            self.inner.phase = "ended"
            return {**answer[0], "truncated": 1}, answer[1]
        return answer


@_behaviour("render draws")
class _RenderDraws(_When):
    def render(self, options: Any = {}) -> Any:
        if self.due():
            self.hit()
            self.inner.rng.random()
        return super().render(options)


@_behaviour("render returns a picture")
class _RenderReturns(_When):
    def render(self, options: Any = {}) -> Any:
        super().render(options)
        if self.due():
            self.hit()
            return np.zeros((2, 2, 3), np.uint8)
        return None


@_behaviour("render writes into its options")
class _RenderMarks(_When):
    def render(self, options: Any = {}) -> Any:
        super().render(options)
        if self.due() and isinstance(options, dict) and options:
            self.hit()
            options["seen"] = 1


@_behaviour("three values come from a step")
class _Three(_When):
    def step(self, action: Any, extra_info: Any = {}) -> Any:
        answer = super().step(action, extra_info)
        if self.due():
            self.hit()
            return (*answer, {})
        return answer


@_behaviour("the env_id changes")
class _OtherId(_When):
    def reset(self, options: Any = {}) -> Any:
        table = super().reset(options)
        if self.due():
            self.hit()
            self.inner.env_id = f"{self.inner.env_id[:20]}-{self.at.episode}"
            return {**table, "env_id": self.inner.env_id}
        return table


@_behaviour("the observation's description changes")
class _OtherSpec(_When):
    @property
    def observation(self) -> Any:
        spec = self.inner.observation
        if not self.due():
            return spec
        self.hit()
        return type(spec)(spec.name + "_b", spec.fields)


class _Option(_When):
    """Takes the option ``heat`` of the cook in a wrong way."""

    def __init__(self, made: Any, when: Any, how: str) -> None:
        super().__init__(made, when)
        self.how, self.kept = how, {}

    def answer_reset(self, options: Any) -> Any:
        if isinstance(options, dict) and self.due():
            if self.how == "clipped" and isinstance(options.get("heat"), int | float):
                self.hit()
                options = {**options, "heat": min(max(options["heat"], 0), 10)}
            if self.how == "ignored" and "heat" in options:
                self.hit()
                options = {key: value for key, value in options.items() if key != "heat"}
            if self.how == "kept":
                self.hit()
                self.kept = {"heat": options["heat"]} if "heat" in options else self.kept
                try:
                    return super().answer_reset({**self.kept, **options})
                except ValueError:
                    self.kept = {}
                    raise
            if self.how == "as text" and isinstance(options.get("heat"), str):
                try:
                    options = {**options, "heat": float(options["heat"])}
                    self.hit()
                except ValueError:
                    pass
            if self.how == "wrong is default" and "heat" in options:
                try:
                    return super().answer_reset(options)
                except ValueError:
                    self.hit()
                    options = {key: value for key, value in options.items() if key != "heat"}
            if self.how == "scaled" and isinstance(options.get("heat"), int | float) and 0 <= options["heat"] <= 10:
                self.hit()
                options = {**options, "heat": options["heat"] * 0.5}
        return super().answer_reset(options)


class _Seed(_When):
    """Takes a seed in a wrong way."""

    def __init__(self, made: Any, when: Any, how: str) -> None:
        super().__init__(made, when)
        self.how = how

    def answer_reset(self, options: Any) -> Any:
        seed = options.get("seed") if isinstance(options, Mapping) else None
        if seed is not None and self.due():
            made: Any = seed
            if self.how == "negative" and isinstance(seed, int) and seed < 0:
                made = -seed
            if self.how == "text" and isinstance(seed, str):
                made = len(seed)
            if self.how == "fraction" and isinstance(seed, float):
                made = int(seed)
            if self.how == "parity" and isinstance(seed, int) and seed > 0:
                made = seed % 2
            if self.how == "constant" and isinstance(seed, int) and seed >= 0:
                made = 3
            if self.how == "random" and isinstance(seed, int) and seed >= 0:
                made = random.SystemRandom().randrange(2**20)
            if self.how == "added" and isinstance(seed, int) and seed >= 0:
                made = seed + self.at.episode
            if made is not seed:
                self.hit()
                options = {**options, "seed": made}
        return super().answer_reset(options)


class _Closed(Perverted):
    """Is wrong about what comes before a reset or after close."""

    def __init__(self, made: Any, how: str) -> None:
        super().__init__(made)
        self.how, self.closes = how, 0

    def answer_step(self, action: Any, extra_info: Any) -> Any:
        phase = getattr(self.inner, "phase", "")
        if (phase, self.how) in (("new", "step before reset"), ("closed", "step after close")):
            self.hit()
            seed = self.inner.phase
            if seed == "closed":
                self.inner.phase = "running"
            else:
                self.inner.reset({"seed": 0})
                action = {**action, "frame_no": 0, "env_id": self.inner.env_id}
        return super().answer_step(action, extra_info)

    def answer_reset(self, options: Any) -> Any:
        if self.how == "reset after close" and self.inner.phase == "closed":
            self.hit()
            self.inner.phase = "new"
        return super().answer_reset(options)

    def close(self) -> None:
        self.closes += 1
        if self.how == "second close raises" and self.closes > 1:
            self.hit()
            raise EpisodeError("it is closed")
        self.inner.close()


_BEHAVIOUR_TIMES: Mapping[str, tuple[str, ...]] = {
    "the process's generators are used": ("always", "late", "last", "refusal", "after refusal", "after end"),
    "the env_id changes": ("always", "second", "even", "after end"),
    "the observation's description changes": ("second", "after end", "after refusal"),
    "the caller's options get an entry": ("always", "second", "even"),
    "the caller's options lose the seed": ("always", "second", "even"),
    "a step raises": ("always", "late", "once", "last", "second", "even", "after refusal", "after end", "unseeded"),
    "a step after the end is carried out": ("always", "second", "even", "after end"),
    "a step after the end begins an episode": ("always", "second", "even", "after end"),
    "render draws": ("always", "late", "second", "after refusal", "reset"),
    "render returns a picture": ("always", "late", "second", "reset", "last"),
    "render writes into its options": ("always", "late", "second", "reset"),
    "a refusal raises": ("always", "late", "once", "second", "even", "after refusal", "after end", "unseeded"),
    "a refused action draws": ("always", "late", "second", "even", "after end"),
    "a refused action counts": ("always", "late", "second", "even", "after end"),
}


def _behaviours(subject: str, made: Any) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    for name, kind in BEHAVIOURS.items():
        for when in _BEHAVIOUR_TIMES.get(name, ("always", "late", "second", "even", "after refusal", "after end")):
            yield name, when, partial(kind, made, WHENS[when])
    for what in MENDED:
        for when in ("always", "late", "second", "even", "after refusal", "after end", "reset"):
            yield f"accepts: {what}", when, partial(_Accepts, made, WHENS[when], what=what)
    for how in ("step before reset", "step after close", "reset after close", "second close raises"):
        yield how, "always", partial(_Closed, made, how)
    for trigger in ("refusal", "refused reset", "terminated", "ended", "abandoned", "render", "option", "many resets",
                    "unseeded"):  # fmt: skip
        for effect in ("draws", "length", "reward", "refuses"):
            yield f"outlives a reset: {effect}", f"after {trigger}", partial(_Leak, made, trigger, effect)
    for how in ("negative", "text", "parity", "constant", "random", "added"):
        times = ("always",) if how in ("negative", "text", "parity", "constant") else ("always", "second", "after end")
        for when in times:
            yield f"seed {how}", when, partial(_Seed, made, WHENS[when], how)
    if subject == "cook":
        for how in ("clipped", "ignored", "kept", "as text", "wrong is default", "scaled"):
            for when in ("always", "second", "after end"):
                yield f"option {how}", when, partial(_Option, made, WHENS[when], how)


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
        found += [Cell(subject, *one) for one in _behaviours(subject, made)]
    return found


def _legal(env: Any) -> Any:
    for draw in range(100):
        action = env.action.sample(np.random.default_rng(draw))
        wrong = getattr(env, "broken_rule", lambda values: None)(action)
        if wrong is None:
            return action
    raise AssertionError("no legal action was drawn")
