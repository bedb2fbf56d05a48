"""Perverted behaviours of environments: what is accepted, kept, drawn, written into, or outlives a reset."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from hal import EpisodeError
from plugins.kit.tests.grid_perverted import Perverted
from plugins.kit.tests.grid_ways import WHENS, Moment, differs
from rlenv_robot.world import NOTHING

__all__ = ["behaviours"]


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

    def render(self, options: Any = NOTHING) -> Any:
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


MENDED = ("frame_no", "no frame_no", "env_id", "no env_id", "unknown key", "no field", "nan", "range", "shape",
          "fraction", "bool", "unknown field")  # fmt: skip


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
    def render(self, options: Any = NOTHING) -> Any:
        if self.due():
            self.hit()
            self.inner.rng.random()
        return super().render(options)


@_behaviour("render returns a picture")
class _RenderReturns(_When):
    def render(self, options: Any = NOTHING) -> Any:
        super().render(options)
        if self.due():
            self.hit()
            return np.zeros((2, 2, 3), np.uint8)
        return None


@_behaviour("render writes into its options")
class _RenderMarks(_When):
    def render(self, options: Any = NOTHING) -> Any:
        super().render(options)
        if self.due() and isinstance(options, dict) and options:
            self.hit()
            options["seen"] = 1


@_behaviour("three values come from a step")
class _Three(_When):
    def step(self, action: Any, extra_info: Any = NOTHING) -> Any:
        answer = super().step(action, extra_info)
        if self.due():
            self.hit()
            return (*answer, {})
        return answer


@_behaviour("the env_id changes")
class _OtherId(_When):
    def reset(self, options: Any = NOTHING) -> Any:
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


def behaviours(subject: str, made: Any) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield words, time and maker of each perverted behaviour of a subject."""
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
