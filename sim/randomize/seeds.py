"""Manage the seeds from which a simulation's episodes draw their model, timing and pushes, but not their start."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np

__all__ = ["Purpose", "SeedStreams", "uniform"]


class Purpose(IntEnum):
    """The purpose of a random generator. Each purpose has its own generator, so that a new draw changes no other."""

    MODEL = 1
    TIMING = 2
    PUSHES = 3
    ROWS = 4


class SeedStreams:
    """Keep the seed of each simulation, and the number of its episodes since the seed was set.

    Args:
        num: number of simulations.
    """

    def __init__(self, num: int) -> None:
        self.state = np.zeros((num, 2), np.uint64)
        """Seed and episode, shape (num, 2)."""
        self._seeded = np.zeros(num, bool)

    def begin(self, rows: np.ndarray, seeds: Sequence[int] | np.ndarray | None) -> None:
        """Begin an episode in these simulations, with new seeds or as the next episode of the last seed."""
        self.state[rows, 1] += np.uint64(1)
        if seeds is not None:
            self.state[rows, 0], self.state[rows, 1] = np.asarray(seeds, np.uint64), 0
        else:
            for row in rows[~self._seeded[rows]].tolist():
                self.state[row] = np.random.SeedSequence().generate_state(1, np.uint64)[0], 0
        self._seeded[rows] = True

    def restore(self, rows: np.ndarray, state: np.ndarray) -> None:
        """Restore ``state[rows]`` of an earlier moment."""
        self.state[rows], self._seeded[rows] = state, True

    def generator(self, row: int, purpose: Purpose) -> np.random.Generator:
        """Return the generator of one simulation's present episode for one purpose."""
        seed, episode = self.state[row].tolist()
        return np.random.default_rng([seed, episode, int(purpose)])

    def shares(self, rows: np.ndarray, groups: Iterable[str]) -> dict[str, np.ndarray]:
        """Return numbers in [0, 1) that all `sim.randomize.distribution.Rows` of an episode share.

        Args:
            rows: indices of the simulations, (n,).
            groups: names of the groups of rows. The numbers of one group do not depend on the others.

        Returns:
            Group -> the share of each simulation, (n,).
        """
        names = list(groups)
        if not names:
            return {}
        keys = [self.generator(row, Purpose.ROWS).integers(2**64, dtype=np.uint64) for row in rows.tolist()]
        key = np.array(keys, np.uint64)
        counters = {name: np.full(len(key), zlib.crc32(name.encode()), np.uint64) for name in names}
        return {name: uniform(key, counter, 0) for name, counter in counters.items()}


_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))


def uniform(keys: np.ndarray, counter: np.ndarray, channel: int) -> np.ndarray:
    """Return numbers in [0, 1) that depend only on key, counter and channel, and not on the order of draws.

    They are the finaliser of SplitMix64 (Steele, Lea and Flood, 2014, "Fast splittable pseudorandom number generators")
    over a separate Weyl sequence for each channel.

    Args:
        keys: uint64, any shape.
        counter: number of the draw, whole numbers from 0, of the same shape.
        channel: number of the independent sequence, 0 to 255.
    """
    value = keys + _GAMMA * (np.asarray(counter, np.uint64) * np.uint64(256) + np.uint64(channel + 1))
    for shift, factor in _MIX:
        value = (value ^ (value >> np.uint64(shift))) * factor
    value = value ^ (value >> np.uint64(31))
    return np.asarray((value >> np.uint64(11)).astype(np.float64) * 2.0**-53)
