"""A tree of sums over chances, walked for a whole batch at once."""

from __future__ import annotations

import numpy as np

__all__ = ["WIDTH", "SumTree"]

WIDTH = 16
"""Children of a node: they fill one or two cache lines, and a walk over a million leaves has two levels."""

_TOP = 4096
"""Nodes that are searched as one list, which fits into the first-level cache."""

_PIECE = 1024
"""Points that walk together; the numbers of more of them would not stay in the cache."""

_BEFORE = np.triu(np.ones((WIDTH, WIDTH)), 1)
"""Children's numbers @ this: for each the sum of those before it."""

_FIRST = np.arange(_PIECE) * WIDTH
"""Where the b-th row of children begins in the flat array of all rows."""


class SumTree:
    """Draws in O(log N); sums are made anew from their parts, in double precision, so nothing drifts.

    Args:
        leaves: (n, `WIDTH`), the chances, each from 0; shared: who changes them calls `refresh`.
    """

    def __init__(self, leaves: np.ndarray) -> None:
        self._levels = [leaves]
        sums = leaves.sum(axis=1, dtype=float)
        while len(sums) > _TOP:
            level = np.zeros((-(-len(sums) // WIDTH), WIDTH))
            level.reshape(-1)[: len(sums)] = sums
            self._levels.append(level)
            sums = level.sum(axis=1)
        self._top = sums
        self._bounds: np.ndarray | None = None

    def refresh(self, index: np.ndarray) -> None:
        """Make the sums above changed leaves anew, in O(B log N)."""
        node = index
        for level, above in zip(self._levels, [*self._levels[1:], self._top], strict=True):
            node = node // WIDTH
            above.reshape(-1)[node] = level.take(node, axis=0).sum(axis=1, dtype=float)
        self._bounds = None

    def draw(self, points: np.ndarray) -> np.ndarray:
        """What lies at the points, (B,) from 0 to below 1 along the line of all chances; (B,) int64."""
        if self._bounds is None:
            self._bounds = np.concatenate([[0.0], np.cumsum(self._top)])
        pieces = [self._walk(points[k : k + _PIECE], self._bounds) for k in range(0, len(points), _PIECE)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _walk(self, points: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        rest = points * bounds[-1]
        # The product may round up to the very end, behind the last one.
        node = np.minimum(bounds.searchsorted(rest, side="right") - 1, len(self._top) - 1)
        rest -= bounds.take(node)
        for level in reversed(self._levels):
            node = _descend(level, node, rest)
        return np.asarray(node)


def _descend(level: np.ndarray, node: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """The children at which the rests lie; takes what is before them off the rests."""
    before = np.dot(level.take(node, axis=0).astype(float, copy=False), _BEFORE)
    # Eight truths are one word, whose bits are counted: several times as fast as a sum of truths.
    words = np.bitwise_count((before <= rest[:, None]).view(np.uint64))
    child = words[:, 0].astype(np.int64)
    child += words[:, 1]
    child -= 1
    rest -= before.reshape(-1).take(_FIRST[: len(node)] + child)
    child += node * WIDTH
    return np.asarray(child)
