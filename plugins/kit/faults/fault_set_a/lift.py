"""A lift as a stranger writes it: lists and Python numbers, checks by hand, no description; and faults of it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fault_set_a.registry import base, fault
from rlenv_robot import EpisodeError, Field, IllegalAction, Spec, Violation
from rlenv_robot.tables import StepExtra

NONE: Mapping[str, Any] = MappingProxyType({})


def refuse(code: str, field: str, message: str) -> IllegalAction:
    return IllegalAction(Violation(code, field, (), message))


@base
class Lift:
    """A lift that serves calls in a house of six floors."""

    part = "environment"
    style = "plain class with lists, no description"
    observation = Spec(
        "lift_observation",
        (
            Field("floor", (), "int32", 0, 5, meaning="where the lift is"),
            Field("calls", (6,), "int32", 0, 1, meaning="1 on each floor where somebody waits"),
            Field("load", (), "float64", 0, 4, meaning="people in the lift"),
        ),
    )
    action = Spec("lift_action", (Field("go", (), "int32", -1, 1, meaning="-1 down, 0 open the doors, 1 up"),))

    def __init__(self):
        self.env_id = self._new_id()
        self._random, self._phase, self._frame = random.Random(), "new", 0
        self.display = ""

    @classmethod
    def made(cls):
        return cls()

    def _new_id(self):
        return str(uuid.uuid4())

    def reset(self, options=NONE):
        if self._phase == "closed":
            raise EpisodeError("reset after close: make a new lift")
        if not isinstance(options, Mapping) or set(options) - {"seed"}:
            raise ValueError(f"reset got {options!r}, allowed is a mapping with seed")
        seed = options.get("seed")
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
                raise ValueError(f"seed is {seed!r}, expected a whole number from 0")
            self._random = random.Random(int(seed))
        self._begin()
        return self._table()

    def _begin(self):
        self._phase, self._frame, self._load = "running", 0, 0.0
        self._floor = self._random.randrange(6)
        self._calls = [int(self._random.random() < 0.5) for _ in range(5)] + [1]

    def step(self, action, extra_info=NONE):
        if self._phase != "running":
            raise EpisodeError(f"step, and the lift is {self._phase}: reset it first")
        try:
            self._check_table(action)
            go = self._check_action(action["action"])
            StepExtra().read(extra_info)
        except IllegalAction as refused:
            return self._refuse(refused.violation)
        reward = self._move(go)
        self._frame += 1
        if self._is_over():
            self._phase = "ended"
        return self._table(), self._reward(reward)

    def _check_table(self, table):
        if not isinstance(table, Mapping):
            raise refuse("dtype", "", f"the action is a {type(table).__name__}, expected env_id, frame_no and action")
        for key in table:
            if key not in ("env_id", "frame_no", "action"):
                raise refuse("unknown", str(key), f"{key} is unknown, allowed are env_id, frame_no and action")
        for key in ("env_id", "frame_no", "action"):
            if key not in table:
                raise refuse("missing", key, f"{key} is missing")
        self._check_heading(table["env_id"], table["frame_no"])

    def _check_heading(self, env_id, frame):
        if not isinstance(env_id, str) or env_id != self.env_id:
            raise refuse("env_id", "env_id", f"env_id is {env_id!r}, this is {self.env_id!r}")
        if isinstance(frame, bool) or not isinstance(frame, int | np.integer) or frame != self._frame:
            raise refuse("frame_no", "frame_no", f"frame_no is {frame!r}, the present one is {self._frame}")

    def _check_action(self, action):
        if not isinstance(action, Mapping):
            raise refuse("dtype", "action", f"action is a {type(action).__name__}, expected a mapping with go")
        for key in action:
            if key != "go":
                raise refuse("unknown", f"action.{key}", f"action.{key} is unknown, allowed is go")
        if "go" not in action:
            raise refuse("missing", "action.go", "action.go is missing")
        try:
            value = np.asarray(action["go"])
        except Exception as error:
            raise refuse("dtype", "action.go", f"action.go is no number: {error}") from error
        return self._check_go(value)

    def _check_go(self, value):
        if value.dtype.kind not in "iu":
            raise refuse("dtype", "action.go", f"action.go has type {value.dtype}, expected a whole number")
        if value.shape != ():
            raise refuse("shape", "action.go", f"action.go has shape {value.shape}, expected ()")
        if not -1 <= int(value) <= 1:
            raise refuse("range", "action.go", f"action.go is {value}, allowed are -1 to 1")
        return int(value)

    def _move(self, go):
        served = 0.0
        if go == 0 and self._calls[self._floor]:
            self._calls[self._floor], self._load, served = 0, min(4.0, self._load + 1.0), 1.0
        self._floor = min(5, max(0, self._floor + go))
        if self._floor == 0:
            self._load = 0.0
        if self._random.random() < 0.1:
            self._calls[self._random.randrange(6)] = 1
        return served

    def _is_over(self):
        return not any(self._calls) or self._frame >= 24

    def _see(self):
        return {"floor": self._floor, "calls": list(self._calls), "load": self._load}

    def _table(self, error=None):
        served = not any(self._calls)
        table = {
            "env_id": self.env_id, "frame_no": self._frame, "observation": self._see(),
            "terminated": int(served), "truncated": int(not served and self._frame >= 24),
        }  # fmt: skip
        return table if error is None else {**table, "extra_info": {"error": error}}

    def _reward(self, value):
        return {"env_id": self.env_id, "frame_no": self._frame, "reward": value}

    def _refuse(self, violation):
        return self._table(violation.to_dict()), self._reward(0.0)

    def render(self, options=NONE):
        self.display = f"floor {self._floor if self._phase != 'new' else '-'}"

    def close(self):
        self._phase = "closed"


@fault("contract", "reset")
class FrameFromOne(Lift):
    """The first frame of an episode has frame_no 1."""

    def _begin(self):
        super()._begin()
        self._frame = 1


@fault("contract", "replay")
class FrameCountsOn(Lift):
    """frame_no counts on through later episodes instead of beginning at 0."""

    def _begin(self):
        before = self._frame
        super()._begin()
        self._frame = before


@fault("6.2.3.1-T1.frame_no", "steps")
class FrameIsFloat(Lift):
    """frame_no of Table 1 is a float."""

    def _table(self, error=None):
        return {**super()._table(error), "frame_no": float(self._frame)}


@fault("6.2.3.1-T1.truncated", "steps")
class FlagsAreBools(Lift):
    """terminated and truncated are True and False instead of 1 and 0."""

    def _table(self, error=None):
        table = super()._table(error)
        return {**table, "terminated": bool(table["terminated"]), "truncated": bool(table["truncated"])}


@fault("6.2.3.1-T1.truncated", "reset")
class TruncatedOnlyAtTheEnd(Lift):
    """The key truncated is missing in every frame but a truncated one."""

    def _table(self, error=None):
        return {key: value for key, value in super()._table(error).items() if key != "truncated" or value}


@fault("6.2.3.1-T1.env_id", "reset")
class LongId(Lift):
    """env_id has 41 characters."""

    def _new_id(self):
        return f"lift-{uuid.uuid4()}"


@fault("6.2.3.1-T1.env_id", "instances")
class EveryLiftIsOne(Lift):
    """Every instance has the same env_id."""

    def _new_id(self):
        return "lift-1"


@fault("6.2.3.3-T3.env_id", "steps")
class RewardOfTheClass(Lift):
    """Table 3 names the class instead of the instance in env_id."""

    def _reward(self, value):
        return {**super()._reward(value), "env_id": "lift"}


@fault("6.2.3.3-T3.frame_no", "steps")
class RewardOfTheFrameBefore(Lift):
    """frame_no of Table 3 is that of the frame before the one of Table 1."""

    def _reward(self, value):
        return {**super()._reward(value), "frame_no": max(0, self._frame - 1)}


@fault("6.2.2.2-4", "steps")
class FiveValues(Lift):
    """step returns five values as in Gymnasium instead of two tables."""

    def step(self, action, extra_info=NONE):
        table, reward = super().step(action, extra_info)
        return table["observation"], reward["reward"], table["terminated"], table["truncated"], {}


@fault("6.2.2.1-4", "reset")
class ResetWithInfo(Lift):
    """reset returns Table 1 and a dictionary of information."""

    def reset(self, options=NONE):
        return super().reset(options), {}


@fault("6.2.2.1-2", "calls")
class ResetNeedsOptions(Lift):
    """reset can't be called without options."""

    def reset(self, options):
        return super().reset(options)


@fault("6.2.2.2-3", "calls")
class StepNeedsExtra(Lift):
    """step can't be called without extra_info."""

    def step(self, action, extra_info):
        return super().step(action, extra_info)


@fault("6.2.2.3-4", "render")
class RenderReturnsText(Lift):
    """render returns the picture instead of showing it."""

    def render(self, options=NONE):
        super().render(options)
        return self.display


@fault("6.2.2.3-5", "render")
class RenderRunsTheClock(Lift):
    """render draws the next call, so that showing the lift changes its episode."""

    def render(self, options=NONE):
        super().render(options)
        if self._phase == "running" and self._random.random() < 0.5:
            self._calls[self._floor] = 1


@fault("6.2.3.1-T1.observation", "steps")
class NoLoadWhenEmpty(Lift):
    """The observation has no load while nobody is in the lift."""

    def _see(self):
        seen = super()._see()
        return seen if seen["load"] else {key: value for key, value in seen.items() if key != "load"}


@fault("6.4-b", "steps")
class CallsAreFloors(Lift):
    """calls lists the floors that wait, so its length varies and is not the described one."""

    def _see(self):
        return {**super()._see(), "calls": [floor for floor, waits in enumerate(self._calls) if waits]}


@fault("6.2.3.1-T1.observation", "keeping")
class CallsAreLive(Lift):
    """calls is the lift's own list, so a table that was returned earlier changes with later steps."""

    def _see(self):
        return {**super()._see(), "calls": self._calls}


@fault("6.2.1-6", "refusals")
class ClipsTheAction(Lift):
    """An action out of range is clipped and executed."""

    def _check_go(self, value):
        return super()._check_go(np.clip(value, -1, 1) if value.dtype.kind in "iu" else value)


@fault("6.2.1-6", "refusals")
class StaleIsFine(Lift):
    """An action for an older frame is executed."""

    def _check_heading(self, env_id, frame):
        super()._check_heading(env_id, self._frame if type(frame) is int and frame < self._frame else frame)


@fault("6.2.1-6", "refusals")
class AnyId(Lift):
    """An action for another environment is executed."""

    def _check_heading(self, env_id, frame):
        super()._check_heading(self.env_id, frame)


@fault("6.2.1-6", "refusals")
class RefusalsCount(Lift):
    """A refused action advances frame_no."""

    def _refuse(self, violation):
        self._frame += 1
        return super()._refuse(violation)


@fault("contract", "refusals")
class RefusalsArePunished(Lift):
    """The reward of a refused action is -1 instead of 0."""

    def _refuse(self, violation):
        return super()._refuse(violation)[0], self._reward(-1.0)


@fault("contract", "order")
class NeverTired(Lift):
    """After the end of an episode step goes on moving the lift."""

    def step(self, action, extra_info=NONE):
        if self._phase == "ended":
            self._phase = "running"
        return super().step(action, extra_info)
