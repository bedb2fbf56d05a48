"""How regular a loop really was: a histogram of its periods, which costs a loop a microsecond."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

__all__ = ["EDGES_MS", "LoopTiming"]

EDGES_MS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Deviations from the nominal period, milliseconds: bin ``k`` counts from edge ``k - 1`` to below edge ``k``."""

_EDGES_S = tuple(edge / 1e3 for edge in EDGES_MS)


class LoopTiming:
    """Counts how far the time between two ticks was from the nominal period. For one thread; any may read.

    Args:
        period_s: nominal, seconds.
        now: monotonic clock in seconds.

    Attributes:
        counts: periods by deviation, early or late; the last bin is open.
        periods: how many there were.
        overruns: how many were longer than one and a half nominal ones: a loop that has missed its time.
        longest_s: the longest, seconds.
    """

    def __init__(self, period_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.period_s = period_s
        self._now = now
        self._before: float | None = None
        self.counts = [0] * (len(EDGES_MS) + 1)
        self.periods = self.overruns = 0
        self.longest_s = 0.0

    def tick(self) -> None:
        """A period begins."""
        now, before = self._now(), self._before
        self._before = now
        if before is None:
            return
        took = now - before
        self.counts[bisect_right(_EDGES_S, abs(took - self.period_s))] += 1
        self.periods += 1
        self.overruns += took > 1.5 * self.period_s
        self.longest_s = max(self.longest_s, took)

    def pause(self) -> None:
        """What lies between here and the next tick is no period."""
        self._before = None

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for telemetry and the log; times in milliseconds."""
        return {
            "period_ms": self.period_s * 1e3,
            "periods": self.periods,
            "overruns": self.overruns,
            "longest_ms": self.longest_s * 1e3,
            "edges_ms": list(EDGES_MS),
            "counts": list(self.counts),
        }
