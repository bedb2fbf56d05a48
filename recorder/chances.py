"""Draws in proportion to chances that change with every batch of a training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from recorder.sum_tree import WIDTH, SumTree

__all__ = ["PrioritizedSampler"]

_CHUNK = 1 << 20
_PIECE = 1 << 15
"""Candidates that are looked at in one go."""

_POOR, _FAIR = 1 / 16, 1 / 10
"""Below this share of accepted candidates a tree of sums is faster; above that one it is left again."""

_lowest, _highest = np.minimum.reduce, np.maximum.reduce  # what methods call, at two thirds of their time

_FRESH = 1024
"""Changes after which lowest and highest chance are looked up anew; more often the larger N is, less often."""


class PrioritizedSampler:
    """Chances of N things: drawn in O(1) by rejection, or in O(log N) where few of them outweigh all others.

    A candidate is any of the N alike, and is taken with its chance over the highest one: exactly in proportion
    (von Neumann 1951), whatever changed a moment ago, and a change is one store. Where that takes too many
    candidates, a tree of sums is built once and then kept up to date in O(log N) a change.
    Chances are kept in single precision (a relative rounding of 6e-8).

    Args:
        count: N, from 1.
        values: called with begin and end, gives the chances of these, each above 0; so that no array of all in
            double precision is needed.
    """

    def __init__(self, count: int, values: Callable[[int, int], np.ndarray]) -> None:
        self._rows = np.zeros((-(-count // WIDTH), WIDTH), np.float32)
        self._leaves = self._rows.reshape(-1)[:count]
        for begin in range(0, count, _CHUNK):
            end = min(begin + _CHUNK, count)
            self._leaves[begin:end] = values(begin, end)
        self._tree: SumTree | None = None
        self._rng: np.random.Generator | None = None
        self._candidate, self._level, self._at = np.empty(0, np.int64), np.empty(0), 0
        self._look_up()

    def _look_up(self) -> None:
        self._lowest, self._highest = float(self._leaves.min()), float(self._leaves.max())
        self._share = float(self._leaves.mean(dtype=float)) / self._highest
        self._changes = 0
        if self._tree is not None and self._share > _FAIR:
            self._tree = None

    def __len__(self) -> int:
        return len(self._leaves)

    @property
    def lowest(self) -> float:
        """The lowest chance; for a while after a rise of the lowest, what it was."""
        return self._lowest

    def __getitem__(self, index: np.ndarray) -> np.ndarray:
        """The chances at an index, single precision."""
        return self._leaves.take(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._leaves.astype(dtype or float)

    def update(self, index: np.ndarray, values: np.ndarray) -> None:
        """Set chances, each above 0; of an index that comes twice, the last counts."""
        stored = values.astype(np.float32)
        self._leaves[index] = stored
        self._lowest = min(self._lowest, float(_lowest(stored)))
        highest = float(_highest(stored))
        if highest > self._highest:
            self._share *= self._highest / highest
            self._highest = highest
        if self._tree is not None:
            self._tree.refresh(index)
        self._changes += 1
        if self._changes >= _FRESH * max(1, len(self) // _CHUNK):
            self._look_up()

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """``size`` of them with replacement, (size,) int64."""
        found = self._some(rng, size)
        while len(found) < size:
            found = np.concatenate([found, self._some(rng, size - len(found))])
        return found[:size]

    def _some(self, rng: np.random.Generator, wanted: int) -> np.ndarray:
        if self._tree is not None or self._share < _POOR:
            return self._walk(rng, wanted)
        return self._try(rng, wanted)

    def _try(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Accepted candidates, about as many as are wanted, and a note of how large their share was."""
        wanted = int(size / self._share * 1.1) + 32
        if self._at >= len(self._candidate) or rng is not self._rng:
            self._refill(rng, wanted)
        begin, end = self._at, min(self._at + wanted, len(self._candidate))
        self._at = end
        candidate = self._candidate[begin:end]
        level = self._level[begin:end] * self._highest
        accepted = candidate.compress(level < self._leaves.take(candidate))
        self._share += (len(accepted) / (end - begin) - self._share) * 0.1 * (end - begin) / _PIECE
        return accepted

    def _refill(self, rng: np.random.Generator, wanted: int) -> None:
        """More candidates, each block twice as large: who they are does not depend on the chances."""
        count = min(max(wanted, 2 * len(self._candidate) if rng is self._rng else 0), _PIECE)
        # In pairs, so that the draws of one stream are the same however many are wanted at a time.
        numbers = rng.random((count, 2))
        self._candidate = (numbers[:, 0] * len(self)).astype(np.int64)  # the bias is below N / 2**53
        self._level = numbers[:, 1].copy()
        self._rng, self._at = rng, 0

    def _walk(self, rng: np.random.Generator, size: int) -> np.ndarray:
        if self._tree is None:
            self._tree = SumTree(self._rows)
        found = self._tree.draw(rng.random(size))
        return np.asarray(np.minimum(found, len(self) - 1))  # a sum may round up into the padding
