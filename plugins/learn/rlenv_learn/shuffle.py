"""Random orders of many things without a list of them."""

from __future__ import annotations

import numpy as np

__all__ = ["Shuffle"]

_ROUNDS = 6
_LISTED = 1 << 22
"""Number of things up to which their order is listed."""


class Shuffle:
    """A random order of 0 to N - 1.

    Up to four million things are listed in an order drawn uniformly from all. Beyond that a Feistel network over the
    next power of four is walked until it is inside of the range (Black and Rogaway 2002, "Ciphers with Arbitrary Finite
    Domains", method 3), which needs no memory.

    Args:
        count: N, from 1.
        seed: one number, or several.
        listed: N up to which the order is listed.
    """

    def __init__(self, count: int, seed: int | tuple[int, ...], listed: int = _LISTED) -> None:
        rng = np.random.default_rng(seed)
        self._count = count
        self._order = rng.permutation(count) if count <= listed else None
        self._half = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
        self._mask = np.uint64((1 << int(self._half)) - 1)
        self._keys = rng.integers(0, 2**64, (_ROUNDS, 2), np.uint64) | np.uint64(1)

    def __len__(self) -> int:
        return self._count

    def at(self, begin: int, end: int) -> np.ndarray:
        """Return what comes at the places from ``begin`` to below ``end``, int64."""
        if self._order is not None:
            return self._order[begin:end]
        values = self._mixed(np.arange(begin, end, dtype=np.uint64))
        while (outside := np.flatnonzero(values >= self._count)).size:
            values[outside] = self._mixed(values[outside])
        return values.astype(np.int64)

    def _mixed(self, values: np.ndarray) -> np.ndarray:
        left, right = values >> self._half, values & self._mask
        for key, factor in self._keys:
            mixed = (right + key) * factor
            mixed ^= mixed >> np.uint64(32)
            mixed *= key
            left, right = right, left ^ ((mixed >> np.uint64(32)) & self._mask)
        return np.asarray(left << self._half | right)
