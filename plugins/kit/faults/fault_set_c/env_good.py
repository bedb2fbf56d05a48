"""Correct environments that are unusual, and allowed by the standard and the contract."""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.env_bets import Bets
from fault_set_c.env_cart import CartWorld
from fault_set_c.env_lamp import Lamp
from fault_set_c.env_maze import Maze
from fault_set_c.env_orbit import Orbit
from fault_set_c.env_quiz import Quiz
from fault_set_c.env_tank import Tank
from fault_set_c.registry import good
from fault_set_c.shell import SEED, Shell, WorldSubject
from rlenv_robot.world import NOTHING

F = rr.Field


@good("6.2.3.1-T1.observation", "there is nothing to observe: the observation has no field")
class GoodBlind(WorldSubject):
    style = "world without a field of observation"
    observation = rr.Spec("blind_observation")
    action = rr.Spec("blind_action", (F("guess", (), "int32", 0, 1, "1", "of a coin"),))
    description = rr.EnvDescription(
        "Guess five coins.", F("reward", (), "int32", 0, 1, "1", "1 if right"), {"seed": SEED}
    )

    def begin(self, options: Mapping[str, Any]) -> None:
        self.coins = self.rng.integers(0, 2, 5).tolist()

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        right, self.frame = self.coins[self.frame] == int(action["guess"]), self.frame + 1
        return self.seen(int(right))

    def seen(self, reward) -> rr.TimeStep:
        return rr.TimeStep({}, reward, self.frame == 5, False, {})


@good("6.2.2.1-2", "there is no option at all, not even a seed, and every episode is the same and one step long")
class GoodNoOptions(Bets):
    style = "own class without options"
    names = ()
    description = replace(Bets.description, reset_options={})

    def begin(self, options: Mapping[str, Any]) -> None:
        self.offers = [1.0, 5.0, 2.5]


@good("6.2.2.2-2", "there is one legal action")
class GoodOneAction(Lamp):
    style = "world with one action"
    limit = 5
    action = rr.Spec("only_action", (F("move", (), "int32", 1, 1, "1", "columns to the right"),))


@good("6.2.3.3-1", "rewards are huge and negative")
class GoodHuge(CartWorld):
    style = "world with rewards of 1e300"
    description = replace(CartWorld.description, reward=F("reward", (), "float64", -1e301, 0, "1", "x 1e300"))

    def seen(self, reward) -> rr.TimeStep:
        return super().seen(reward * 1e300)


@good("6.2.2.1-1", "the factory takes two seconds")
class GoodSlowToMake(Quiz):
    style = "slow factory"

    @classmethod
    def make(cls):
        time.sleep(2)
        return super().make()


@good("6.2.3.1-T1.observation", "arrays of observations are read-only")
class GoodReadOnly(Orbit):
    style = "own class, read-only arrays"

    def observe(self) -> dict[str, np.ndarray]:
        seen = super().observe()
        for value in seen.values():
            value.setflags(write=False)
        return seen


class _Record(OrderedDict[str, Any]):
    """A dictionary of its own class."""


@good("6.2.2.2-4", "tables, observations and extra_info are of a subclass of dict")
class GoodOwnDicts(Tank):
    style = "own class, subclasses of dict"

    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        table = super().table(info)
        return _Record({**table, "observation": _Record(table["observation"]), "extra_info": _Record(info)})

    def paid(self, reward) -> dict[str, Any]:
        return _Record(super().paid(reward))


@good("6.2.2.1-1", "specs and state are made when they are first asked for, and texts are of many scripts")
class GoodLazy(WorldSubject):
    style = "world, lazily created, texts of many scripts"

    @cached_property
    def observation(self) -> rr.Spec:
        return rr.Spec("lazy_observation", (F("sign", (2,), "text", meaning="two signs", characters=8),))

    @cached_property
    def action(self) -> rr.Spec:
        return rr.Spec("lazy_action", (F("which", (), "uint8", 0, 1, "1", "index of the sign that comes first"),))

    @property
    def description(self) -> rr.EnvDescription:
        return rr.EnvDescription(
            "Order two signs.", F("reward", (), "float64", 0, 1, "1", "1 if right"), {"seed": SEED}
        )

    def begin(self, options: Mapping[str, Any]) -> None:
        self.signs = self.rng.permutation(np.array(["机器人", "Ж", "ä", "🤖🤖", ""]))[:2]

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        right = self.signs[int(action["which"])] == min(self.signs)
        self.frame += 1
        self.begin({})
        return self.seen(float(right))

    def seen(self, reward) -> rr.TimeStep:
        return rr.TimeStep({"sign": np.array(self.signs, "<U8")}, reward, self.frame == 3, False, {})


class _NoWay(rr.IllegalAction):
    """A refusal of its own class."""


@good("6.2.1-7", "a refusal is of a subclass of IllegalAction, and its message is long and in Chinese")
class GoodOwnRefusal(Maze):
    style = "world that refuses by a class of its own"

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        try:
            return super().step(action, extra_info)
        except rr.IllegalAction:
            raise _NoWay(rr.Violation("edge", "action.move", (), "前面没有路。" * 50)) from None


@good("5-2", "the state lives in SQLite, whose connection belongs to one thread")
class GoodSqlite(Lamp):
    style = "world, state in SQLite"
    store: sqlite3.Connection | None = None

    def opened(self) -> sqlite3.Connection:
        if self.store is None:
            self.store = sqlite3.connect(":memory:")
            self.store.execute("create table lamp as select 8 as place")
        return self.store

    @property
    def column(self) -> int:  # type: ignore[override]
        return int(self.opened().execute("select place from lamp").fetchone()[0])

    @column.setter
    def column(self, place: int) -> None:
        self.opened().execute("update lamp set place = ?", (place,))

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None


@good("6.2.3.1-T1.frame_no", "frame numbers are the instance's: they go on over resets, and begin at -3")
class GoodCountsOn(Tank):
    style = "own class, frame numbers of the instance"

    def __init__(self) -> None:
        super().__init__()
        self.past = -3

    def begin(self, options: Mapping[str, Any]) -> None:
        super().begin(options)
        self.frame = self.past

    def ends(self) -> tuple[bool, bool]:
        self.spent, self.past = self.spent + 1, self.frame + 1
        over = self.level >= 2.0
        return over, self.spent >= self.steps and not over

    def reset(self, options: Mapping[str, Any] = NOTHING):
        self.spent = 0
        return super().reset(options)


@good("6.2.3.1-T1.terminated", "the task goes on for ever, all rewards are 0, and seeds are accepted without effect")
class GoodEndless(Shell):
    style = "own class, endless"
    observation = rr.Spec("endless_observation", (F("step", (), "uint64", 0, 2**64 - 1, "1", "since the start"),))
    action = rr.Spec("endless_action", (F("nudge", (3, 2), "float64", meaning="has no effect"),))
    description = rr.EnvDescription("Go on.", F("reward", (), "float64", 0, 0, "1", "always 0"),
                                    {"seed": "accepted, without effect: each episode begins alike"})  # fmt: skip

    def begin(self, options: Mapping[str, Any]) -> None:
        self.count = 2**63

    def advance(self, values: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> float:
        self.count += 1
        return 0.0

    def ends(self) -> tuple[bool, bool]:
        return False, False

    def observe(self) -> dict[str, np.ndarray]:
        return {"step": np.array(self.count, np.uint64)}


@good("6.2.3.1-T1.extra_info", "tables have no extra_info but where an action was refused, and it is read-only there")
class GoodNoExtra(Bets):
    style = "own class, no extra_info"
    description = replace(Bets.description, extra_info={})

    def info(self) -> dict[str, Any]:
        return {}

    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        table = super().table(info)
        if info:
            return {**table, "extra_info": MappingProxyType({"error": MappingProxyType(dict(info["error"]))})}
        del table["extra_info"]
        return table


@lru_cache(maxsize=64)
def _pull(column: int, move: int) -> int:
    return min(max(column + move, 0), 15)


@good("6.2.2.2-1", "transitions come from a cache that all instances share, and episodes end with the first step")
class GoodCached(Lamp):
    style = "world with a cache, episodes of one step"
    limit = 1

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        self.column = _pull(self.column, int(action["move"]))
        self.frame += 1
        return self.seen(float(self.column == 15))


@good("6.2.3.1-T1.terminated", "numbers of tables are NumPy's int32, and rewards NumPy's float32")
class GoodNumpyNumbers(Orbit):
    style = "own class, numbers of NumPy"
    steps = 5

    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        table = super().table(info)
        return {**table, **{name: np.int32(table[name]) for name in ("frame_no", "terminated", "truncated")}}

    def paid(self, reward) -> dict[str, Any]:
        return {**super().paid(reward), "frame_no": np.int32(self.frame), "reward": np.float32(reward)}
