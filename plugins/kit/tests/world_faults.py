"""A correct world of two players, which `rlenv_robot.Environment` runs, and faults that show in its members."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import Field, IllegalAction, Spec, Violation
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import ACTION_MASK, EnvDescription, TimeStep, TurnBasedWorld

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)

HEAPS = Field("heaps", (3,), "int32", 0, 9, "1", "sticks in each heap")


class Sticks(TurnBasedWorld):
    """Take one stick after the other from three heaps; who takes the last one wins."""

    players = ("first", "second")
    zero_sum = True
    observation = Spec("sticks_observation", (HEAPS,))
    action = Spec("sticks_action", (Field("heap", (), "int32", 0, 2, "1", "to take from"),))
    masks = Spec("sticks_masks", (Field("heap", (3,), "uint8", 0, 1, "1", "1 where the heap has sticks"),))
    description = EnvDescription(
        "Take the last stick.", Field("reward", (), "int32", 0, 1, "1", "1 for the winner"),
        {"seed": "whole number from 0"}, {}, {"agent": "whose turn it is", ACTION_MASK: "heaps with sticks"},
        {"empty": "the heap has no sticks"},
    )  # fmt: skip

    def __init__(self) -> None:
        self.heaps, self.turn = np.ones(3, np.int32), 0

    def reset(self, options: Any) -> TimeStep:
        if set(options) - {"seed"}:
            raise ValueError(f"unknown: {sorted(options)}, allowed is seed")
        self.heaps = np.random.default_rng(options.get("seed")).integers(2, 9, 3).astype(np.int32)
        self.turn = 0
        return self.shown(0)

    def step(self, action: Any, extra_info: Any) -> TimeStep:
        heap = int(action["heap"])
        if not self.heaps[heap]:
            raise IllegalAction(Violation("empty", "action.heap", (), f"heap {heap} is empty, take from another one"))
        self.heaps[heap] -= 1
        self.turn = 1 - self.turn
        return self.shown(int(not self.heaps.any()))

    def shown(self, reward: int) -> TimeStep:
        extra = {"agent": self.players[self.turn], ACTION_MASK: self.mask()}
        return TimeStep({"heaps": self.heaps.copy()}, reward, bool(reward), False, extra)

    def mask(self) -> Any:
        return {"heap": (self.heaps > 0).astype(np.uint8)}

    def legal(self) -> Any:
        return {"heap": self.heaps > 0}

    def seen_by(self, player: str) -> Any:
        if player not in self.players:
            raise KeyError(player)
        return {"heaps": self.heaps.copy()}


replaces(Sticks, "seen_by", {
    "SeenIsLive -> players": lambda self, player: {"heaps": self.heaps} if player in self.players else {}[player],
    "NobodySeesAll -> players": lambda self, player: {"heaps": self.heaps.copy()},
})  # fmt: skip


@fault("players", "Each player sees the heaps of the first frame.")
class SeenIsTheFirst(Sticks):
    def reset(self, options: Any) -> TimeStep:
        shown = super().reset(options)
        self.began = self.heaps.copy()
        return shown

    def seen_by(self, player: str) -> Any:
        return super().seen_by(player) and {"heaps": self.began.copy()}


replaces(Sticks, "mask", {
    "MaskHasNoField -> entries": lambda self: (self.heaps > 0).astype(np.uint8),
})  # fmt: skip

replaces(Sticks, "episode_info", {
    "RecordHoldsAnArray -> entries": lambda self: {"task": "sticks", "heaps": self.heaps},
})  # fmt: skip
