"""Correct batches that are unusual."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fault_set_a.duels import Duel, Duels
from fault_set_a.pumps import Pumps, PumpsAtOnce, PumpsThen
from fault_set_a.registry import good


@good
class ReadOnlyArrays(Pumps):
    """All arrays of a table are read-only."""

    style = "unusual batch"

    def table(self, extra, terminated=False, truncated=False):
        table = super().table(extra, terminated, truncated)
        for value in (*table["observation"].values(), table["frame_no"], table["terminated"], table["truncated"]):
            value.setflags(write=False)
        return table


@good
class UnicodeRows(PumpsThen):
    """The rows have names of 36 characters of several scripts."""

    style = "unusual batch"

    def new_id(self):
        return f"泵-№-Ω-\U0001f916-{super().new_id()}"[:36]


@good
class ShortEpisodes(PumpsAtOnce):
    """Each step ends the episodes of all rows, and frame_no is 0 in every table."""

    style = "unusual batch"

    def ended(self, terminated, truncated):
        truncated |= (self.frame > 0) & ~terminated
        return super().ended(terminated, truncated)


@good
class RowsInThreads(Pumps):
    """Each row is computed by a thread of its own, which is made with the first step."""

    style = "unusual batch"
    pool = None

    def move(self, values, moved):
        self.pool = self.pool or ThreadPoolExecutor(self.num_envs)
        alone = [moved & (np.arange(self.num_envs) == row) for row in np.flatnonzero(moved)]
        before = self.pressure.copy()
        list(self.pool.map(lambda one: self.row(values, one), alone))
        self.pressure[~moved] = before[~moved]

    def row(self, values, one):
        index = int(np.flatnonzero(one)[0])
        noise = self.rngs[index].normal(0, 0.02, 2)
        drive = values["drive"][index].astype(float)
        self.speed[index] = np.clip(0.5 * self.speed[index] + 0.5 * drive + noise, -1, 1)
        push = self.speed[index].sum() * (0.5 + 0.5 * values["gear"][index]) - self.wear[index]
        self.pressure[index] = np.clip(self.pressure[index] + push, 0, 10)

    def close(self):
        super().close()
        if self.pool is not None:
            self.pool.shutdown()
            self.pool = None


class StillDuel(Duel):
    """Draw nothing: all rows and all episodes begin alike."""

    def __init__(self, seed, row, episode):
        super().__init__(0, 0, 0)
        self.left, self.right = 0, 4

    def move(self, left, right):
        self.left, self.right, self.steps = (self.left + left) % 9, (self.right + right) % 9, self.steps + 1


@good
class WithoutChance(Duels):
    """Nothing is drawn: all rows begin all episodes alike, whatever the seed."""

    style, simulator = "unusual batch of two agents", StillDuel


@good
class MessagesInInference(Duels):
    """In inference messages and mapping are still there, as they are no hidden state."""

    style, mode = "unusual batch of two agents", "inference"
