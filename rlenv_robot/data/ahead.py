"""Draws made many at a time and handed out batch by batch, since a draw's fixed cost is most of its cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from recorder.sampling import Draw

__all__ = ["Ahead", "Picked"]

_LARGEST = 1 << 14


class Picked(NamedTuple):
    """What was drawn; each with a leading axis (B,).

    Attributes:
        positions: of transitions, or numbers of episodes.
        weights: importance weights.
        extra: what the function given to `Ahead` made of the positions, or None.
    """

    positions: np.ndarray
    weights: np.ndarray
    extra: np.ndarray | None


class Ahead:
    """Hands out draws with replacement.

    A block of draws is made at a time, twice as large each time, so that a request that comes once costs no more
    than it must.

    Args:
        draw: what is drawn from.
        rng: where chance comes from.
        beta: see `recorder.sampling.Draw.take`.
        prepare: made of the positions of a block at once, (B,) to (B, ...); None for nothing.
    """

    def __init__(
        self,
        draw: Draw,
        rng: np.random.Generator,
        beta: float,
        prepare: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self._draw, self._rng, self._beta, self._prepare = draw, rng, beta, prepare
        self._at, self._block = 0, 0
        self._made = Picked(np.empty(0, np.int64), np.empty(0), None)

    def take(self, size: int) -> Picked:
        """The next ``size`` draws."""
        begin = self._at
        end = self._at = begin + size
        if end > self._block:
            self._refill(size)
            begin, end = 0, size
        index, weights, extra = self._made
        return Picked(index[begin:end], weights[begin:end], None if extra is None else extra[begin:end])

    def forget(self) -> None:
        """Hand out nothing more of what was drawn before the chances changed."""
        self._at = self._block = 0

    def _refill(self, size: int) -> None:
        block = max(size, min(2 * self._block, _LARGEST))
        index, weights = self._draw.take(self._rng, block, self._beta)
        extra = None if self._prepare is None else self._prepare(index)
        self._made, self._block, self._at = Picked(index, weights, extra), block, size
