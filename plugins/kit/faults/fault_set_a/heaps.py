"""Nim as a turn-based `World` with masks of the legal moves, and faults of it."""

from __future__ import annotations

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import ACTION_MASK, TurnBasedWorld


@base
class Heaps(TurnBasedWorld):
    """Nim with three heaps, for two players."""

    part = "environment"
    style = "turn-based World with masks through rr.make"
    players, zero_sum = ("north", "south"), True
    observation = rr.Spec(
        "heaps_observation",
        (
            rr.Field("heaps", (3,), "int32", 0, 5, meaning="stones on each heap"),
            rr.Field("turn", (), "int32", 0, 1, meaning="index of the player to move"),
        ),
    )
    action = rr.Spec("heaps_action", (rr.Field("move", (), "int32", 0, 8, meaning="3 * heap + stones to take - 1"),))
    masks = rr.Spec("heaps_masks", (rr.Field("move", (9,), "uint8", 0, 1, meaning="1 where the heap has the stones"),))
    description = rr.EnvDescription(
        "Take 1 to 3 stones from one heap. Whoever takes the last stone wins.",
        rr.Field("reward", (), "int32", 0, 1, meaning="of the player who moved: 1 for the last stone"),
        {"seed": "whole number from 0: determines the heaps from here on"},
        extra_info={"agent": "whose turn it is: north or south", ACTION_MASK: "move -> 1 for each legal value"},
        error_codes={"empty": "the heap has not as many stones"},
    )

    def __init__(self):
        self.rng = np.random.default_rng()
        self.heaps, self.turn = np.zeros(3, np.int32), 0

    @classmethod
    def made(cls):
        return rr.make(cls())

    def reset(self, options):
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(check_seed(options["seed"]))
        self.set_up()
        return self.seen(0)

    def set_up(self):
        self.heaps, self.turn = self.rng.integers(2, 6, 3).astype(np.int32), 0

    def step(self, action, extra_info):
        heap, stones = divmod(int(action["move"]), 3)
        if self.heaps[heap] < stones + 1:
            raise self.illegal(heap, stones + 1)
        self.heaps[heap] -= stones + 1
        self.turn = 1 - self.turn
        return self.seen(int(not self.heaps.any()))

    def illegal(self, heap, stones):
        message = f"action.move takes {stones} from heap {heap}, which has {self.heaps[heap]}"
        return rr.IllegalAction(rr.Violation("empty", "action.move", (), message))

    def legal(self):
        return {"move": np.array([self.heaps[move // 3] > move % 3 for move in range(9)])}

    def mask(self):
        return self.legal()["move"].astype(np.uint8)

    def extra(self):
        return {"agent": self.players[self.turn], ACTION_MASK: {"move": self.mask()}}

    def board(self):
        return {"heaps": self.heaps.copy(), "turn": np.array(self.turn, np.int32)}

    def seen(self, reward):
        return rr.TimeStep(self.board(), reward, not self.heaps.any(), False, self.extra())


@fault("contract", "steps")
class MaskAllowsTooMuch(Heaps):
    """The mask allows every number of stones from a heap that is not empty, and step then refuses it."""

    def mask(self):
        return np.array([self.heaps[move // 3] > 0 for move in range(9)], np.uint8)


@fault("contract", "steps")
class MaskAllowsTooLittle(Heaps):
    """The mask forbids to take three stones, which step executes."""

    def mask(self):
        return super().mask() * np.tile([1, 1, 0], 3).astype(np.uint8)


@fault("contract", "steps")
class MaskOfTheBoardBefore(Heaps):
    """The mask is that of the board before the move."""

    def set_up(self):
        super().set_up()
        self.kept = super().mask()

    def mask(self):
        late, self.kept = self.kept, super().mask()
        return late


@fault("contract", "steps")
class NoMaskAfterAMove(Heaps):
    """The mask is in the table of reset alone, and described for every time step."""

    def extra(self):
        return super().extra() if self.turn == 0 else {"agent": self.players[self.turn]}


@fault("contract", "steps")
class MaskOfTen(Heaps):
    """The mask has an element more than its description."""

    def mask(self):
        return np.append(super().mask(), np.uint8(0))


@fault("contract", "steps")
class MaskOfBools(Heaps):
    """The mask is of bool and described as uint8."""

    def mask(self):
        return super().mask().astype(bool)


@fault("6.2.1-6", "refusals")
class RefusedAndPassed(Heaps):
    """A refused move passes the turn to the other player."""

    def illegal(self, heap, stones):
        self.turn = 1 - self.turn
        return super().illegal(heap, stones)


@fault("contract", "steps")
class NobodysTurn(Heaps):
    """The table does not say whose turn it is."""

    def extra(self):
        return {ACTION_MASK: {"move": self.mask()}}


@fault("contract", "steps")
class PlayersByNumber(Heaps):
    """extra_info names the player by a number, and the players are north and south."""

    def extra(self):
        return {**super().extra(), "agent": self.turn}


@fault("contract", "steps")
class TurnOfTheMover(Heaps):
    """extra_info names the player who has moved, so that north seems to move twice at the beginning."""

    def extra(self):
        moved = self.heaps.sum() < self.at_first
        return {**super().extra(), "agent": self.players[self.turn ^ int(moved)]}

    def set_up(self):
        super().set_up()
        self.at_first = self.heaps.sum()


@fault("6.4-b", "steps")
class HalfARewardForEachStone(Heaps):
    """The reward is 0.5 in the course of the game, and described as a whole number."""

    def seen(self, reward):
        return super().seen(reward or 0.5)


@fault("6.2.3.1-7", "refusals")
class ErrorWithoutAWord(Heaps):
    """The message of the error of an illegal move is empty."""

    def illegal(self, heap, stones):
        return rr.IllegalAction(rr.Violation("empty", "action.move", (), ""))


@fault("6.2.3.1-T1.terminated", "steps")
class GameWithoutEnd(Heaps):
    """The end of the game is not told, and every further move is refused."""

    def seen(self, reward):
        return super().seen(reward)._replace(terminated=False)


@fault("6.2.2.1-1", "replay")
class StonesAreLeft(Heaps):
    """Stones that an abandoned game left on the third heap stay there in the next game."""

    def set_up(self):
        left = self.heaps[2]
        super().set_up()
        self.heaps[2] = left or self.heaps[2]
