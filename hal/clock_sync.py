"""The offset between the monotonic clocks of two machines, with a bound on its error."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["MOST_PPM", "ClockOffset", "OffsetEstimator"]

MOST_PPM = 200.0
"""Largest assumed drift between two clocks, parts in a million: a crystal is good to 100, and there are two. While
Linux slews a monotonic clock, that can add up to 500; the bounds then contradict each other and start anew."""

_BUCKET_NS = 1_000_000_000
_BUCKETS = 60
_LONGEST_NS = 1_000_000_000


class ClockOffset(NamedTuple):
    """The offset between two clocks at one moment.

    Attributes:
        offset_ns: the remote clock minus the local one, nanoseconds; ``remote - offset_ns`` is local time.
        error_ns: largest error of the offset if the clocks drift by no more than `MOST_PPM`.
        drift_ppm: how fast the remote clock gains on the local one, parts in a million; 0 during the first two seconds.
        drift_error_ppm: largest error of the drift; `MOST_PPM` during the first two seconds.
        restarts: how often the estimate started anew because a clock had jumped.
    """

    offset_ns: int
    error_ns: int
    drift_ppm: float
    drift_error_ppm: float
    restarts: int


class _Bounds(NamedTuple):
    """The bounds of the offset from one exchange, at a time of the local clock."""

    at_ns: int
    low_ns: int
    high_ns: int


class OffsetEstimator:
    """Estimate the offset from exchanges of messages with four time stamps, as NTP does (RFC 5905, section 8).

    A message takes no negative time, so the offset lies between ``t2 - t3`` and ``t1 - t0``, however unequal the two
    directions are. The narrowest bounds of each second are kept for a minute. They widen with their age by `MOST_PPM`,
    and the offset lies in all of them.
    """

    def __init__(self) -> None:
        self._best: deque[_Bounds] = deque(maxlen=_BUCKETS)
        self._bucket = -1
        self._restarts = 0

    def add(self, t0: int, t1: int, t2: int, t3: int) -> None:
        """Add one exchange; times in nanoseconds.

        Args:
            t0, t3: the local clock when the request left and when the answer arrived.
            t1, t2: the remote clock when the request arrived and when the answer left.

        An exchange that took more than a second, or whose times run backwards, is ignored.
        """
        if not (0 <= t3 - t0 <= _LONGEST_NS and t2 >= t1):
            return
        drift_ns = _slack_ns(t3 - t0)  # of the two clocks during the exchange
        bounds = _Bounds(t3, t2 - t3 - drift_ns, t1 - t0 + drift_ns)
        if bounds.low_ns > bounds.high_ns:  # the remote part took longer than the whole exchange
            return
        bucket = t3 // _BUCKET_NS
        if bucket != self._bucket:
            self._bucket = bucket
            self._best.append(bounds)
        elif bounds.high_ns - bounds.low_ns < self._best[-1].high_ns - self._best[-1].low_ns:
            self._best[-1] = bounds
        elif bounds.low_ns > self._best[-1].high_ns or bounds.high_ns < self._best[-1].low_ns:
            self._append_unless_drifted(bounds)

    def _append_unless_drifted(self, bounds: _Bounds) -> None:
        """Add bounds that contradict the best ones by more than the clocks may have drifted since."""
        best = self._best[-1]
        slack = _slack_ns(bounds.at_ns - best.at_ns)
        if bounds.low_ns > best.high_ns + slack or bounds.high_ns < best.low_ns - slack:
            self._best.append(bounds)

    def at(self, now_ns: int) -> ClockOffset | None:
        """Return the offset at a time of the local clock, or None before the first exchange."""
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
        span_ns = last.at_ns - first.at_ns
        if span_ns < 2 * _BUCKET_NS:
            return 0.0, MOST_PPM
        slowest = max((last.low_ns - first.high_ns) / span_ns * 1e6, -MOST_PPM)
        fastest = min((last.high_ns - first.low_ns) / span_ns * 1e6, MOST_PPM)
        return (slowest + fastest) / 2, abs(fastest - slowest) / 2


def _slack_ns(age_ns: int) -> int:
    """Return the largest drift between the clocks within a time, rounded up."""
    return int(abs(age_ns) * MOST_PPM / 1e6) + 1
