"""Hold a set of positions as runs of neighbours, so that its memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

__all__ = ["Selection", "within"]


def within(numbers: np.ndarray, count: int) -> bool:
    """Return whether all numbers, (B,) int64, are from 0 to ``count - 1``; true for none."""
    if not len(numbers):
        return True
    # The extremes by their places take a tenth of the time of the methods `min` and `max`.
    return bool(numbers.item(numbers.argmin()) >= 0 and numbers.item(numbers.argmax()) < count)


class Selection:
    """Positions in ascending order, at 16 bytes for each run of neighbours.

    Args:
        first: (R,) int64, the first position of each run. Runs ascend and don't overlap; empty runs are left out, and
            adjacent runs are joined.
        stop: (R,) int64, the position behind the last one of each run.
    """

    def __init__(self, first: np.ndarray, stop: np.ndarray) -> None:
        filled = first < stop
        first, stop = first[filled], stop[filled]
        apart = first[1:] > stop[:-1]
        self.first: np.ndarray = first[np.append(True, apart)[: len(first)]].astype(np.int64)
        self.stop: np.ndarray = stop[np.append(apart, True)[: len(stop)]].astype(np.int64)
        self._begin = int(self.first[0]) if len(self.first) else 0
        self._before = np.concatenate([[0], np.cumsum(self.stop - self.first)]).astype(np.int64)

    @staticmethod
    def everything(count: int) -> Selection:
        """Return the selection of the positions from 0 to ``count - 1``."""
        return Selection(np.zeros(1, np.int64), np.full(1, count, np.int64))

    @staticmethod
    def of(positions: np.ndarray) -> Selection:
        """Return the selection of the given positions, (M,), which must ascend."""
        return Selection(positions, positions + 1)

    def __len__(self) -> int:
        return int(self._before[-1])

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the positions at places (indices from 0 to M - 1), int64, of the same shape."""
        if len(self.first) == 1:
            return places + self._begin if self._begin else places
        run = np.searchsorted(self._before, places, side="right") - 1
        return np.asarray((self.first - self._before[:-1]).take(run) + places)

    def block(self, begin: int, end: int) -> np.ndarray:
        """Return the positions at the places from ``begin`` to below ``end``."""
        return self.take(np.arange(begin, min(end, len(self))))

    def blocks(self, size: int) -> Iterator[np.ndarray]:
        """Yield all positions, ``size`` at a time."""
        for begin in range(0, len(self), size):
            yield self.block(begin, begin + size)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        """Return all positions, (M,) int64."""
        return self.take(np.arange(len(self))).astype(dtype or np.int64, copy=False)

    def places(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the places of positions, (B,) int64, and a mask of those in the set, (B,) bool; None if all are.

        The place of a position that is not in the set has no meaning.
        """
        if len(self.first) == 1:
            places, count = positions - self._begin if self._begin else positions, len(self)
            if within(places, count):
                return places, None
            return places, (places >= 0) & (places < count)
        run = np.maximum(np.searchsorted(self.first, positions, side="right") - 1, 0)
        places = self._before[run] + positions - self.first[run]
        inside = (positions >= self.first[run]) & (positions < self.stop[run])
        return places, None if inside.all() else inside

    def __and__(self, other: Selection) -> Selection:
        """Return the positions that are in both."""
        low = np.searchsorted(other.stop, self.first, side="right")
        counts = np.searchsorted(other.first, self.stop, side="left") - low
        mine = np.repeat(np.arange(len(counts)), counts)
        theirs = np.arange(len(mine)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
        return Selection(
            np.maximum(self.first[mine], other.first[theirs]), np.minimum(self.stop[mine], other.stop[theirs])
        )

    def touched(self, first: np.ndarray, stop: np.ndarray) -> np.ndarray:
        """Return a mask of those other runs that contain a position of the set, (E,) bool.

        Args:
            first: (E,), the first position of each other run; runs may be empty, and lie in any order.
            stop: (E,), the position behind the last one of each run.
        """
        before = np.searchsorted(self.stop, first, side="right")  # runs that end at the latest where the other begins
        return np.asarray((before < np.searchsorted(self.first, stop, side="left")) & (first < stop))
