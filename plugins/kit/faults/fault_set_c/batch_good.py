"""Correct batches that are unusual, and allowed by the standard and the contract."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.batch_buoys import Buoys
from fault_set_c.batch_lanterns import Lanterns
from fault_set_c.batch_shell import SEED, Batch, Values
from fault_set_c.batch_slides import Slides, parts
from fault_set_c.batch_words import Words
from fault_set_c.env_orbit import Orbit
from fault_set_c.registry import good

F = rr.Field


@good("6.2.3.1-T1.truncated", "the limit of steps differs between rows: 3, 4, 5 and so on")
class GoodLengths(Lanterns):
    style = "own class, rows of different lengths"

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return super().ends()[0], self.frame >= 3 + np.arange(self.num_envs) % 6


@good("6.2.3.1-T1.terminated", "every step ends the episodes of all rows, which begin anew at once")
class GoodEachStepEnds(Buoys):
    style = "own class, every step ends"

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return np.ones(self.num_envs, bool), np.zeros(self.num_envs, bool)


@good("6.2.3.1-T1.env_id", "ids have 36 characters, of which three are Chinese, and the factory takes a second")
class GoodLongNames(Words):
    style = "own class, long names, slow factory"

    def name_rows(self) -> list[str]:
        time.sleep(1)
        return [f"机器人-{uuid.uuid4().hex}" for _ in range(self.num_envs)]


@good("6.2.2.2-4", "tables are of a subclass of dict, and their arrays are read-only")
class GoodReadOnlyRows(Buoys):
    style = "own class, subclass of dict, read-only arrays"

    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        table = OrderedDict(super().table(info))
        for value in (*table["observation"].values(), table["frame_no"], table["terminated"], table["truncated"]):
            value.setflags(write=False)
        return table


@good("6.1-1", "each row is a whole environment of its own, in pure Python")
class GoodOfSingles(Batch):
    style = "own class, single environments, disabled"
    autoreset = "disabled"
    steps = 6
    observation, action = Orbit.observation, Orbit.action
    description = rr.EnvDescription(
        "Stay in a circle around the origin for 6 steps.", Orbit.description.reward,
        {"seed": SEED, "ids": "ascending numbers of the rows to reset"},
        extra_info={"final": "of the rows that ended", "error": "row -> error"},
    )  # fmt: skip

    def build(self) -> None:
        self.singles = [Orbit() for _ in range(self.num_envs)]

    def start(self, row: int) -> None:
        self.singles[row].reset({"seed": int(self.rngs[row].integers(2**31))})

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        reward = np.zeros(self.num_envs)
        for row in np.flatnonzero(moved).tolist():
            single = self.singles[row]
            action = {"env_id": single.env_id, "frame_no": single.frame, "action": {"thrust": values["thrust"][row]}}
            reward[row] = single.step(action)[1]["reward"]
        return reward

    def observe(self) -> Values:
        seen = [single.observe() for single in self.singles]
        return {name: np.stack([one[name] for one in seen]) for name in self.observation.names}


@good("6.2.3.1-T1.observation", "rows have nothing to observe, and all rewards are 0")
class GoodBlindRows(Batch):
    style = "own class without a field of observation, next_step"
    autoreset = "next_step"
    steps = 3
    observation = rr.Spec("blind_rows")
    action = rr.Spec("blind_rows_action", (F("push", (2, 2), "float64", -1, 1, "1", "has no effect"),))
    description = rr.EnvDescription(
        "Wait for three steps.", F("reward", (), "float64", 0, 0),
        {"seed": "accepted, without effect", "ids": "ascending numbers of the rows to reset"},
        extra_info={"final": "of the rows that ended", "error": "row -> error"},
    )  # fmt: skip

    def build(self) -> None:
        pass

    def start(self, row: int) -> None:
        pass

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        return np.zeros(self.num_envs)

    def observe(self) -> Values:
        return {}


@good("6.2.2.1-3", "all rows draw the same episodes (common random numbers), and wait for their reset at the end")
class GoodCommonDraws(Slides):
    style = "the project's batch, common random numbers, disabled"

    @classmethod
    def make(cls, num_envs: int):
        return rr.VectorEnvironment(*parts(num_envs), streams=np.zeros(num_envs, int), autoreset="disabled")


@good("6.2.1-7", "refusals count towards the limit of steps, so that an episode of illegal actions ends")
class GoodCountsRefusals(Slides):
    style = "the project's batch, refusals count, next_step"

    @classmethod
    def make(cls, num_envs: int):
        return rr.VectorEnvironment(*parts(num_envs), autoreset="next_step", count_refusals=True)
