"""Lanterns to keep burning: a list of games in pure Python, masks; the step after an end begins anew."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.batch_shell import SEED, Batch, Values
from fault_set_c.registry import fault, original
from rlenv_robot.world import NOTHING

F = rr.Field


class Lantern:
    """One lantern: oil burns by chance, a flame of 0 to 3 takes so much oil."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.oil, self.light = rng, int(rng.integers(4, 12)), 0

    def burn(self, flame: int) -> float:
        self.light = flame
        self.oil = max(self.oil - flame - int(self.rng.integers(0, 2)), 0)
        return flame / 3


@original
class Lanterns(Batch):
    style = "own class, list of games, discrete, masks, next_step"
    autoreset = "next_step"
    steps = 8
    observation = rr.Spec("lanterns_observation", (
        F("oil", (), "int32", 0, 12, "1", "measures of oil"), F("light", (), "int32", 0, 3, "1", "size of the flame"),
    ))  # fmt: skip
    action = rr.Spec("lanterns_action", (F("flame", (), "int32", 0, 3, "1", "oil to burn"),))
    masks = rr.Spec("lanterns_masks", (F("flame", (4,), "uint8", 0, 1, "1", "1 where there is so much oil"),))
    description = rr.EnvDescription(
        "Burn bright. A lantern without oil ends the episode; 8 steps are the limit.",
        F("reward", (), "float64", 0, 1, "1", "a third of the flame"),
        {"seed": SEED, "ids": "ascending numbers of the rows to reset"},
        extra_info={"final": "of the rows that ended", "error": "row -> error", "action_mask": "field -> (N, 4)"},
        error_codes={"no_oil": "there is less oil"},
    )

    def build(self) -> None:
        self.games = [Lantern(rng) for rng in self.rngs]

    def start(self, row: int) -> None:
        self.games[row] = Lantern(self.rngs[row])

    def rule(self, row: int, values: Values) -> rr.Violation | None:
        flame, oil = int(values["flame"][row]), self.games[row].oil
        words = f"action.flame of row {row} is {flame}, there are {oil} measures of oil"
        return rr.Violation("no_oil", "action.flame", (), words) if flame > oil else None

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        rows = zip(self.games, values["flame"].tolist(), moved.tolist(), strict=True)
        return np.array([game.burn(flame) if moves else 0.0 for game, flame, moves in rows])

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array([not game.oil for game in self.games]), self.frame >= self.steps

    def mask(self) -> np.ndarray:
        return np.array([[flame <= game.oil for flame in range(4)] for game in self.games], np.uint8)

    def info(self, values: Values | None = None, moved: np.ndarray | None = None) -> dict[str, Any]:
        return {"action_mask": {"flame": self.mask()}}

    def observe(self) -> Values:
        return {name: np.array([getattr(game, name) for game in self.games], np.int32) for name in ("oil", "light")}


@fault("contract", "ordinary", "the step after an end executes its action in the episode that it begins")
class LanternsActAtOnce(Lanterns):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        self.values, errors = super().read(action, over, waiting)
        return self.values, errors

    def close_rows(self, done: np.ndarray, waiting: np.ndarray) -> dict[str, Any]:
        info = super().close_rows(done, waiting)
        self.advance(self.values, {}, waiting)
        self.frame = self.frame + waiting.astype(np.int32)
        return info


@fault("contract", "subtle", "in the step after an end an illegal action is reported as an error of the row")
class LanternsChecksWaiting(Lanterns):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        self.wrong = super().read(action, over, np.zeros_like(waiting))[1] if waiting.any() else {}
        return super().read(action, over, waiting)

    def reported(self, errors: dict[int, Any]) -> dict[str, Any]:
        late = {row: error for row, error in self.wrong.items() if error["code"] == "range"}
        return super().reported({**late, **errors})


@fault("6.2.3.1-T1.terminated", "ordinary", "the flags are still set in the step that begins the next episode")
class LanternsKeepsFlags(Lanterns):
    def flags(self, ended: np.ndarray, late: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return ended | (self.terminated & ~moved & self.over), late | (self.truncated & ~moved & self.over)


@fault("6.2.3.3-1", "ordinary", "the step that begins the next episode pays the last reward once more")
class LanternsPaysTwice(Lanterns):
    last = 0.0

    def step(self, action, extra_info=NOTHING):
        waiting = self.over.copy()
        seen, paid = super().step(action, extra_info)
        paid["reward"] = self.last = np.where(waiting, self.last, paid["reward"])
        return seen, paid


@fault("6.2.3.1-2", "ordinary", "masks are those of before the step")
class LanternsOldMask(Lanterns):
    before = None

    def info(self, values: Values | None = None, moved: np.ndarray | None = None) -> dict[str, Any]:
        old, self.before = self.before, self.mask()
        return {"action_mask": {"flame": self.mask() if values is None or old is None else old}}


@fault("6.2.3.1-T1.env_id", "ordinary", "rows are called lantern-0, lantern-1 and so on in every batch")
class LanternsSameNames(Lanterns):
    def name_rows(self) -> list[str]:
        return [f"lantern-{row}" for row in range(self.num_envs)]


@fault("6.2.3.1-T1.frame_no", "ordinary", "the frame number of a refused row goes on")
class LanternsCountsRefused(Lanterns):
    def reported(self, errors: dict[int, Any]) -> dict[str, Any]:
        self.frame[list(errors)] += 1
        return super().reported(errors)
