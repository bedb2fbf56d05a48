"""Clocks of a control loop: a rate without drift, a histogram of the periods, and a watchdog."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable

__all__ = ["EDGES_MS", "LoopTiming", "Rate", "Watchdog"]


class Rate:
    """Wake at ``start + k * period``, so that one late period does not delay all later ones.

    After a delay of more than one period the schedule starts anew, so that a robot never races through the periods
    that it missed.

    Args:
        hz: periods a second, above 0.
        now, sleep: the clock, seconds; tests hand in their own.

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
            How late the call was, seconds; 0 if it was in time.
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
    """Count how far each period of a loop was from the nominal one. One thread ticks; any thread may read.

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

    def feed(self) -> None:
        """Arm the watchdog and restart its time: a valid command came."""
        self._last_command = self._now()

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
