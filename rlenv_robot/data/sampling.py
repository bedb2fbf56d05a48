"""The TD errors that a training has told, and the chances that follow from them."""

from __future__ import annotations

import numpy as np

from recorder.chances import PrioritizedSampler
from recorder.sampling import td_priorities

__all__ = ["TdErrors"]


class TdErrors:
    """One error a transition, in single precision.

    A transition without one counts as the largest error that was told since the start, or 1 before any: so
    each is seen soon (Schaul et al. 2016, algorithm 1).

    Args:
        count: number of transitions, N.
    """

    def __init__(self, count: int) -> None:
        # Made when it is needed: 4 bytes a transition, NaN where none was told.
        self._count = count
        self._error: np.ndarray | None = None
        self._largest = 1.0
        self._unseen = count

    def update(self, where: np.ndarray, errors: np.ndarray) -> bool:
        """Remember errors from 0 at positions, (B,) each; of a position that comes twice, the last counts.

        Returns:
            Whether the chances of transitions without an error changed by that.
        """
        known = self._known()
        if not self._unseen:
            known[where] = errors
            return False
        first = self._unseen == self._count
        self._unseen -= len(np.unique(where[np.isnan(known[where])]))
        known[where] = errors
        before, highest = self._largest, float(errors.max())
        self._largest = highest if first else max(before, highest)
        return self._unseen > 0 and self._largest != before

    def chances(self, part: np.ndarray | range, alpha: float) -> PrioritizedSampler:
        """The chances of positions, in order, or of all."""

        def some(begin: int, end: int) -> np.ndarray:
            if self._error is None:
                return self.priorities(np.full(end - begin, np.nan), alpha)
            known = self._error[begin:end] if isinstance(part, range) else self._error[part[begin:end]]
            return self.priorities(known, alpha)

        return PrioritizedSampler(len(part), some)

    def priorities(self, errors: np.ndarray, alpha: float) -> np.ndarray:
        """Chances of errors from 0, (B,); NaN where there is none yet."""
        if not self._unseen:
            return td_priorities(np.asarray(errors, float), alpha)
        known = errors.astype(float)
        known[np.isnan(known)] = self._largest
        return td_priorities(known, alpha)

    def _known(self) -> np.ndarray:
        if self._error is None:
            self._error = np.full(self._count, np.nan, np.float32)
        return self._error
