"""Buoys in the sea: arrays over all rows, continuous, with an input beside the action; rows begin anew at once."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.batch_shell import SEED, Batch, Values
from fault_set_c.registry import fault, original
from rlenv_robot.tables import StepExtra

F = rr.Field


@original
class Buoys(Batch):
    style = "own class, arrays over rows, continuous, same_step"
    observation = rr.Spec("buoys_observation", (
        F("place", (2,), "float32", -6, 6, "m", "of the buoy", ("x", "y")),
        F("wave", (), "float32", -1, 1, "m", "height"),
    ))  # fmt: skip
    action = rr.Spec("buoys_action", (F("thrust", (2,), "float32", -1, 1, "m", "moved in this step", ("x", "y")),))
    step_extra = StepExtra(rr.Spec("buoys_extra", (F("current", (), "float32", -1, 1, "m", "drift along x"),)),
                           {"current": 0.0})  # fmt: skip
    description = rr.EnvDescription(
        "Stay at the origin. A buoy that is 5 m away is lost, which ends the episode; 10 steps are the limit.",
        F("reward", (), "float64", -9, 0, "m", "minus the distance from the origin"),
        {"seed": SEED, "ids": "ascending numbers of the rows to reset"},
        extra_info={"final": "of the rows that ended: index, frame_no, observation", "error": "row -> error"},
    )

    def build(self) -> None:
        self.place, self.wave = np.zeros((self.num_envs, 2)), np.zeros(self.num_envs)

    def start(self, row: int) -> None:
        self.place[row], self.wave[row] = self.rngs[row].uniform(-4.0, 4.0, 2), 0.0

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        for row in np.flatnonzero(moved).tolist():
            self.wave[row] = self.rngs[row].uniform(-1, 1)
        shift = values["thrust"] + extra["current"][:, None] * (1, 0) + 0.1 * self.wave[:, None]
        self.place = np.clip(self.place + np.where(moved[:, None], shift, 0), -6, 6)
        return -np.hypot(*self.place.T)

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return np.hypot(*self.place.T) >= 5, self.frame >= self.steps

    def observe(self) -> Values:
        return {"place": self.place.astype(np.float32), "wave": self.wave.astype(np.float32)}


@fault("contract", "ordinary", "the last observation in final is the first one of the next episode")
class BuoysFinalIsFirst(Buoys):
    def close_rows(self, done: np.ndarray, waiting: np.ndarray) -> dict[str, Any]:
        info = super().close_rows(done, waiting)
        if info:
            info["final"]["observation"] = self.final(info["final"]["index"])["observation"]
        return info


@fault("6.2.2.1-3", "ordinary", "all rows draw from one generator: a row's episodes depend on when the others end")
class BuoysOneGenerator(Buoys):
    one = None

    def take_seed(self, seed: int) -> None:
        super().take_seed(seed)
        self.one = np.random.default_rng(seed)

    def generator(self, row: int) -> np.random.Generator:
        self.one = self.one or np.random.default_rng()
        return self.one


@fault("6.2.1-6", "obvious", "a thrust out of range is cut and executed")
class BuoysCut(Buoys):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        values, errors = super().read(action, over, waiting)
        left = {row: error for row, error in errors.items() if error["code"] != "range"}
        return {"thrust": np.clip(values["thrust"], -1, 1)}, left


@fault("6.2.2.2-1", "ordinary", "where one row is refused, no row moves")
class BuoysAllStop(Buoys):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        values, errors = super().read(action, over, waiting)
        first = next(iter(errors.values()), None)
        return values, errors if first is None else {row: errors.get(row, first) for row in range(self.num_envs)}


@fault("6.2.1-7", "subtle", "errors are numbered among the refused rows, so that the wrong rows have them")
class BuoysCountsErrors(Buoys):
    def reported(self, errors: dict[int, Any]) -> dict[str, Any]:
        return super().reported(dict(enumerate(errors.values())))


@fault("6.2.3.1-T1.terminated", "obvious", "the flags are arrays of bool")
class BuoysBools(Buoys):
    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**super().table(info), "terminated": self.terminated.copy(), "truncated": self.truncated.copy()}


@fault("6.2.3.3-T3.reward", "obvious", "the reward has the shape (N, 1)")
class BuoysColumn(Buoys):
    def paid(self, reward) -> dict[str, Any]:
        return {**super().paid(reward), "reward": reward[:, None]}


@fault("contract", "ordinary", "waves are one array, so that those of earlier tables change with each step")
class BuoysOneBuffer(Buoys):
    def build(self) -> None:
        super().build()
        self.buffer = np.zeros(self.num_envs, np.float32)

    def observe(self) -> Values:
        self.buffer[:] = self.wave
        return {**super().observe(), "wave": self.buffer}


@fault(
    "6.2.3.1-T1.truncated",
    "subtle",
    "the limit counts the batch's steps: rows that began later end with the others",
)
class BuoysOneClock(Buoys):
    clock = 0

    def take_seed(self, seed: int) -> None:
        super().take_seed(seed)
        self.clock = 0

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        self.clock += 1
        return super().ends()[0], np.full(self.num_envs, self.clock % self.steps == 0)


@fault("6.2.2.2-3", "subtle", "the current of the first row is used for all")
class BuoysFirstCurrent(Buoys):
    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        return super().advance(values, {"current": np.full_like(extra["current"], extra["current"][0])}, moved)
