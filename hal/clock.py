"""Keep a loop's rate, notice silence, measure periods, and relate the clocks of two machines."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["EDGES_MS", "MOST_PPM", "ClockOffset", "LoopTiming", "OffsetEstimator", "Rate", "Watchdog"]


class Rate:
    """Wake at ``start + k * period``, so that one late period does not delay all later ones.

    After a delay of more than one period the schedule restarts, so that a robot never races through the periods that
    it missed.

    Args:
        hz: periods a second, above 0.
        now: returns the time, seconds; tests pass their own clock.
        sleep: waits for a number of seconds.

    Raises:
        ValueError: hz is not above 0.
    """

    def __init__(
        self, hz: float, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if not hz > 0:
            raise ValueError(f"a rate of {hz} Hz can't be kept, it must be above 0")
        self.period = 1.0 / hz
        self.overruns = 0
        self._now, self._sleep = now, sleep
        self._next: float | None = None

    def restart(self) -> None:
        """Start a new schedule at the next `wait`."""
        self._next = None

    def wait(self) -> float:
        """Sleep until the next period begins.

        Returns:
            How late the call was, in seconds; 0 if it was in time.
        """
        now = self._now()
        if self._next is None:
            self._next = now + self.period
            return 0.0
        late = now - self._next
        if late <= 0:
            self._sleep(-late)
            self._next += self.period
            return 0.0
        self.overruns += 1
        self._next = now + self.period if late > self.period else self._next + self.period
        return late


# -- A histogram of a loop's periods, which costs the loop a microsecond per period ---------------------------


EDGES_MS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
"""Deviations from the nominal period, milliseconds: bin ``k`` counts from edge ``k - 1`` to below edge ``k``."""

_EDGES_S = tuple(edge / 1e3 for edge in EDGES_MS)


class LoopTiming:
    """Count the deviations of a loop's periods from the nominal period. One thread ticks; any thread may read.

    Args:
        period_s: the nominal period, seconds.
        now: the monotonic clock, seconds.

    Attributes:
        counts: number of periods in each bin of deviation, early or late; the last bin is open.
        periods: number of periods.
        overruns: number of periods longer than one and a half nominal periods.
        longest_s: the longest period, seconds.
    """

    def __init__(self, period_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self.period_s = period_s
        self._now = now
        self._last_tick: float | None = None
        self.counts = [0] * (len(EDGES_MS) + 1)
        self.periods = self.overruns = 0
        self.longest_s = 0.0

    def tick(self) -> None:
        """Record the beginning of a period."""
        now, last = self._now(), self._last_tick
        self._last_tick = now
        if last is None:
            return
        duration_s = now - last
        self.counts[bisect_right(_EDGES_S, abs(duration_s - self.period_s))] += 1
        self.periods += 1
        self.overruns += duration_s > 1.5 * self.period_s
        self.longest_s = max(self.longest_s, duration_s)

    def pause(self) -> None:
        """Leave the time until the next tick out of the statistics."""
        self._last_tick = None

    def to_dict(self) -> dict[str, float | list[float] | list[int]]:
        """Return plain data, for telemetry and the log; times in milliseconds."""
        return {
            "period_ms": self.period_s * 1e3,
            "periods": self.periods,
            "overruns": self.overruns,
            "longest_ms": self.longest_s * 1e3,
            "edges_ms": list(EDGES_MS),
            "counts": list(self.counts),
        }


# -- A watchdog over incoming commands -------------------------------------------------------------------------


class Watchdog:
    """Expire when no valid command has come for longer than the timeout.

    The watchdog has no thread: the loop that moves the robot asks it once a period, so it depends on nothing else.

    Args:
        timeout_s: longest silence, seconds, above 0.
        now: the monotonic clock, seconds.

    Raises:
        ValueError: the timeout is not above 0.
    """

    def __init__(self, timeout_s: float = 0.2, now: Callable[[], float] = time.monotonic) -> None:
        if not timeout_s > 0:
            raise ValueError(f"a watchdog of {timeout_s} s can't work, its timeout must be above 0")
        self.timeout_s = timeout_s
        self._now = now
        self._last_command: float | None = None

    def feed(self, age_s: float = 0.0) -> None:
        """Arm the watchdog and restart its time, after a valid command.

        Args:
            age_s: time from sending the command to receiving it, seconds. Silence begins when a command is sent: a late
                command only shows that its client was alive at that time.
        """
        self._last_command = self._now() - age_s

    def disarm(self) -> None:
        """Stop the watchdog while no commands are expected: before the first step, after an episode."""
        self._last_command = None

    @property
    def silence_s(self) -> float:
        """Seconds since the last valid command; 0 while disarmed."""
        return 0.0 if self._last_command is None else self._now() - self._last_command

    @property
    def expired(self) -> bool:
        """Whether the silence is longer than the timeout."""
        return self.silence_s > self.timeout_s


# -- The offset between two machines' monotonic clocks, with a bound on its error ----------------------------


MOST_PPM = 200.0
"""Largest assumed drift between two clocks, parts per million: 100 for each of the two crystals. Linux can add up to
500 while it slews a monotonic clock; the bounds then contradict each other, and the estimate restarts."""

_BUCKET_NS = 1_000_000_000
_BUCKETS = 60
_LONGEST_NS = 1_000_000_000


class ClockOffset(NamedTuple):
    """The offset between two clocks at one moment.

    Attributes:
        offset_ns: the remote clock minus the local one, nanoseconds; ``remote - offset_ns`` is local time.
        error_ns: largest error of the offset if the clocks drift by no more than `MOST_PPM`.
        drift_ppm: how fast the remote clock gains on the local one, parts per million; 0 during the first two seconds.
        drift_error_ppm: largest error of the drift; `MOST_PPM` during the first two seconds.
        restarts: how often the estimate restarted because a clock had jumped.
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

    A message never takes negative time, so the offset lies between ``t2 - t3`` and ``t1 - t0``, however unequal the two
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
            t0: the local clock when the request left.
            t1: the remote clock when the request arrived.
            t2: the remote clock when the answer left.
            t3: the local clock when the answer arrived.

        An exchange that took more than a second, or whose times run backwards, is ignored.
        """
        if not (0 <= t3 - t0 <= _LONGEST_NS and t2 >= t1):
            return
        drift_ns = int((t3 - t0) * MOST_PPM / 1e6) + 1  # of the two clocks during the exchange, as `_slack_ns`
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
