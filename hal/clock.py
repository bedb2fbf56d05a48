"""Keeping a rate without drift."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Rate"]


class Rate:
    """Wakes at ``start + k * period``: one late period does not make all later ones late.

    After more than one whole period of delay the schedule starts anew, so that a robot never races
    through the periods it missed.

    Args:
        hz: periods a second, above 0.
        now, sleep: the clock, replaceable in tests; seconds.

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
        """Begin a new schedule at the next `wait`."""
        self._next = None

    def wait(self) -> float:
        """Sleep until the next period begins.

        Returns:
            How late this call came, in seconds; 0 if it was in time.
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
