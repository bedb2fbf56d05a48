"""Nim for two, turn by turn, as a world with masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, WorldSubject
from rlenv_robot.world import TurnBasedWorld

F = rr.Field


@original
class Nim(WorldSubject, TurnBasedWorld):
    style = "world, turn by turn, masks"
    names = ("seed", "first")
    options = ({"first": "ben"}, {"first": "ann"})
    players = ("ann", "ben")
    zero_sum = True
    observation = rr.Spec("nim_observation", (
        F("piles", (3,), "int32", 0, 5, "1", "stones in each pile"),
        F("mover", (), "int32", 0, 1, "1", "index of the player to move"),
    ))  # fmt: skip
    action = rr.Spec("nim_action", (F("take", (), "int32", 0, 8, "1", "3 * pile + stones to take - 1"),))
    masks = rr.Spec("nim_masks", (F("take", (9,), "uint8", 0, 1, "1", "1 where so many stones are there"),))
    description: ClassVar[rr.EnvDescription] = rr.EnvDescription(
        "Take one to three stones of a pile by turns. Who takes the last stone wins.",
        F("reward", (), "float64", 0, 1, "1", "for the player who moved: 1 for taking the last stone"),
        {"seed": SEED, "first": "ann or ben: who moves first; ann if it is left out"},
        extra_info={"agent": "whose turn it is", "action_mask": "field -> 1 for each legal value"},
        error_codes={"too_many": "the pile has fewer stones"},
    )

    def check_reset(self, options: Mapping[str, Any]) -> None:
        super().check_reset(options)
        if options.get("first", "ann") not in self.players:
            raise ValueError(f"first is {options['first']!r}, allowed are ann and ben")

    def begin(self, options: Mapping[str, Any]) -> None:
        self.piles, self.mover = self.rng.integers(1, 6, 3).tolist(), self.players.index(options.get("first", "ann"))

    def allowed(self) -> list[bool]:
        return [self.piles[take // 3] > take % 3 for take in range(9)]

    def legal(self) -> dict[str, np.ndarray]:
        return {"take": np.array(self.allowed())}

    def refuse(self, take: int) -> None:
        words = f"action.take is {take}, pile {take // 3} has {self.piles[take // 3]} stones"
        raise rr.IllegalAction(rr.Violation("too_many", "action.take", (), words))

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        take = int(action["take"])
        if not self.allowed()[take]:
            self.refuse(take)
        self.piles[take // 3] -= take % 3 + 1
        self.mover, self.frame = 1 - self.mover, self.frame + 1
        return self.seen(float(not any(self.piles)))

    def seen(self, reward) -> rr.TimeStep:
        seen = {"piles": np.array(self.piles, np.int32), "mover": np.array(self.mover, np.int32)}
        return rr.TimeStep(seen, reward, not any(self.piles), False, self.info())

    def info(self) -> dict[str, Any]:
        return {"agent": self.players[self.mover], "action_mask": {"take": np.array(self.allowed(), np.uint8)}}


@fault("contract", "ordinary", "agent names the player who has just moved, not the one to move")
class NimNamesLast(Nim):
    def info(self) -> dict[str, Any]:
        return {**super().info(), "agent": self.players[self.mover if self.frame == 0 else 1 - self.mover]}


@fault("6.2.3.1-2", "ordinary", "the mask is that of the position before the move")
class NimOldMask(Nim):
    def begin(self, options: Mapping[str, Any]) -> None:
        super().begin(options)
        self.before = self.allowed()

    def info(self) -> dict[str, Any]:
        mask, self.before = self.before, self.allowed()
        return {**super().info(), "action_mask": {"take": np.array(mask, np.uint8)}}


@fault("6.2.2.1-2", "ordinary", "the option first is checked, and then has no effect")
class NimIgnoresFirst(Nim):
    def begin(self, options: Mapping[str, Any]) -> None:
        super().begin({})


@fault("5-c", "subtle", "the piles are a list of the class: two games in one process play on the same table")
class NimSharedTable(Nim):
    table: ClassVar[list[int]] = [0, 0, 0]

    def begin(self, options: Mapping[str, Any]) -> None:
        super().begin(options)
        self.table[:] = self.piles
        self.piles = self.table


@fault("6.4-b", "obvious", "the description lists no codes of errors but 'blocked', and none is ever 'blocked'")
class NimWrongCodes(Nim):
    description = replace(Nim.description, error_codes={"blocked": "the pile is blocked"})
