"""Offers to choose from: an adapter of its own with episodes of one step, and a list with a counter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, Shell
from rlenv_robot.world import NOTHING

F = rr.Field


@original
class Bets(Shell):
    style = "own class, episodes of one step, counted list"
    observation = rr.Spec("bets_observation", (
        F("offers", (5,), "float32", 0, 10, "1", "what each offer pays", counted_by="count"),
        F("count", (), "int32", 0, 5, "1", "number of offers"),
    ))  # fmt: skip
    action = rr.Spec("bets_action", (F("choice", (), "int32", 0, 4, "1", "index of the offer to take"),))
    description = rr.EnvDescription(
        "Take one of up to five offers. Each episode is one step.",
        F("reward", (), "float64", 0, 1, "1", "a tenth of what the taken offer pays"),
        {"seed": SEED},
        extra_info={"best": "number: index of the best offer, after the choice"},
        error_codes={"no_offer": "there is no offer of this index"},
    )

    def begin(self, options: Mapping[str, Any]) -> None:
        self.offers = [round(float(one), 2) for one in self.rng.uniform(0, 10, int(self.rng.integers(1, 5)))]

    def rules(self, values: Mapping[str, np.ndarray]) -> None:
        choice = int(values["choice"])
        if choice >= len(self.offers):
            words = f"action.choice is {choice}, there are {len(self.offers)} offers"
            raise rr.IllegalAction(rr.Violation("no_offer", "action.choice", (), words))

    def advance(self, values: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> float:
        return self.offers[int(values["choice"])] / 10

    def ends(self) -> tuple[bool, bool]:
        return True, False

    def info(self) -> dict[str, Any]:
        return {"best": self.offers.index(max(self.offers))} if self.terminated else {}

    def observe(self) -> dict[str, np.ndarray]:
        padded = self.offers + [0.0] * (5 - len(self.offers))
        return {"offers": np.array(padded, np.float32), "count": np.array(len(self.offers), np.int32)}


@fault("6.2.1-7", "obvious", "a choice of an offer that is not there raises IndexError")
class BetsIndexError(Bets):
    def rules(self, values: Mapping[str, np.ndarray]) -> None:
        self.offers[int(values["choice"])]


@fault("6.2.3.1-7", "obvious", "the error of a refused choice has a code, and no message")
class BetsNoMessage(Bets):
    def refuse(self, violation: rr.Violation):
        seen, paid = super().refuse(violation)
        seen["extra_info"]["error"] = {"code": violation.code}
        return seen, paid


@fault("6.2.3.1-7", "ordinary", "the error of a refused choice stays in the tables after it")
class BetsKeepsError(Bets):
    kept: Mapping[str, Any] = NOTHING

    def refuse(self, violation: rr.Violation):
        seen, paid = super().refuse(violation)
        self.kept = {"error": violation.to_dict()}
        return seen, paid

    def info(self) -> dict[str, Any]:
        return {**self.kept, **super().info()}


@fault("6.2.1-6", "ordinary", "a refused choice draws new offers")
class BetsDrawsAgain(Bets):
    def refuse(self, violation: rr.Violation):
        self.begin(NOTHING)
        return super().refuse(violation)


@fault("6.2.3.3-T3.reward", "obvious", "the reward is an array of one element in a list")
class BetsListReward(Bets):
    def paid(self, reward) -> dict[str, Any]:
        return {**super().paid(reward), "reward": [np.array([reward])]}


@fault("6.2.2.1-3", "subtle", "seed 0 is taken for no seed")
class BetsSeedZero(Bets):
    def seed(self, options: Mapping[str, Any]) -> None:
        if options.get("seed"):
            super().seed(options)


@fault("6.2.3.2-T2.env_id", "ordinary", "an action for another environment is executed")
class BetsTakesOthers(Bets):
    def read(self, action) -> dict[str, np.ndarray]:
        named = isinstance(action, Mapping) and "env_id" in action
        return super().read({**action, "env_id": self.env_id} if named else action)
