"""How far two machines' monotonic clocks are apart, with a bound on the error of saying so."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["MOST_PPM", "ClockOffset", "OffsetEstimator"]

MOST_PPM = 200.0
"""Fastest that two clocks are taken to part, parts in a million: a crystal is good to 100, and there are two. Linux's
own correction of a monotonic clock can add up to 500 for as long as it slews; empty bounds tell."""

_BUCKET_NS = 1_000_000_000
_BUCKETS = 60
_LONGEST_NS = 1_000_000_000


class ClockOffset(NamedTuple):
    """What is known now.

    Attributes:
        offset_ns: their clock minus ours, nanoseconds. ``theirs - offset_ns`` is on our timeline.
        error_ns: the true offset lies at most so far from it, if the clocks part by no more than `MOST_PPM`.
        drift_ppm: how fast their clock gains on ours, parts in a million; 0 until two seconds are known.
        drift_error_ppm: the true drift lies at most so far from it; `MOST_PPM` until then.
        restarts: how often the bounds contradicted each other, since a clock had jumped, and all began anew.
    """

    offset_ns: int
    error_ns: int
    drift_ppm: float
    drift_error_ppm: float
    restarts: int


class _Bounds(NamedTuple):
    """One exchange: when (our clock), and between what the offset was then."""

    at_ns: int
    low_ns: int
    high_ns: int


class OffsetEstimator:
    """Takes exchanges of messages with four time stamps, as NTP does (RFC 5905, section 8).

    No way takes less than no time, so the offset lies between ``t2 - t3`` and ``t1 - t0``: that holds however unequal
    the two ways are. The narrowest such bounds of every second are kept for a minute; each widens with its age by
    `MOST_PPM`, and the offset lies in all of them.
    """

    def __init__(self) -> None:
        self._best: deque[_Bounds] = deque(maxlen=_BUCKETS)
        self._bucket = -1
        self._restarts = 0

    def add(self, t0: int, t1: int, t2: int, t3: int) -> None:
        """One exchange, nanoseconds.

        Args:
            t0, t3: our clock, when the request left and the answer came.
            t1, t2: their clock, when the request came and the answer left.

        An exchange of more than a second, or one whose times run backwards, says nothing and is left out.
        """
        if not (0 <= t3 - t0 <= _LONGEST_NS and t2 >= t1):
            return
        parted = _slack_ns(t3 - t0)  # the two clocks, during the exchange
        bounds = _Bounds(t3, t2 - t3 - parted, t1 - t0 + parted)
        if bounds.low_ns > bounds.high_ns:  # they took longer than all of it
            return
        bucket = t3 // _BUCKET_NS
        if bucket != self._bucket:
            self._bucket = bucket
            self._best.append(bounds)
        elif bounds.high_ns - bounds.low_ns < self._best[-1].high_ns - self._best[-1].low_ns:
            self._best[-1] = bounds
        elif self._contradicts(bounds):
            self._best.append(bounds)

    def _contradicts(self, bounds: _Bounds) -> bool:
        best = self._best[-1]
        slack = _slack_ns(bounds.at_ns - best.at_ns)
        return bounds.low_ns > best.high_ns + slack or bounds.high_ns < best.low_ns - slack

    def at(self, now_ns: int) -> ClockOffset | None:
        """The offset at a time of our clock, or None before the first exchange."""
        if not self._best:
            return None
        low, high = self._limits(now_ns)
        if low > high:
            newest = self._best[-1]
            self._best.clear()
            self._best.append(newest)
            self._restarts += 1
            low, high = self._limits(now_ns)
        drift, error = self._drift()
        return ClockOffset((low + high) // 2, (high - low + 1) // 2, drift, error, self._restarts)

    def _limits(self, now_ns: int) -> tuple[int, int]:
        low = max(bounds.low_ns - _slack_ns(now_ns - bounds.at_ns) for bounds in self._best)
        return low, min(bounds.high_ns + _slack_ns(now_ns - bounds.at_ns) for bounds in self._best)

    def _drift(self) -> tuple[float, float]:
        first, last = self._best[0], self._best[-1]
        apart = last.at_ns - first.at_ns
        if apart < 2 * _BUCKET_NS:
            return 0.0, MOST_PPM
        slowest = max((last.low_ns - first.high_ns) / apart * 1e6, -MOST_PPM)
        fastest = min((last.high_ns - first.low_ns) / apart * 1e6, MOST_PPM)
        return (slowest + fastest) / 2, abs(fastest - slowest) / 2


def _slack_ns(age_ns: int) -> int:
    """How far the clocks may have parted in a time, rounded up."""
    return int(abs(age_ns) * MOST_PPM / 1e6) + 1
