"""Notices that valid commands stopped coming."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Watchdog"]


class Watchdog:
    """Expired when it was armed and not fed for longer than its timeout.

    It has no thread: the loop that moves the robot asks it once a period, so that it depends on nothing else.

    Args:
        timeout_s: longest silence, seconds, above 0.
        now: monotonic clock in seconds.

    Raises:
        ValueError: the timeout is not above 0.
    """

    def __init__(self, timeout_s: float = 0.2, now: Callable[[], float] = time.monotonic) -> None:
        if not timeout_s > 0:
            raise ValueError(f"a watchdog of {timeout_s} s can't work, its timeout must be above 0")
        self.timeout_s = timeout_s
        self._now = now
        self._fed: float | None = None

    def feed(self) -> None:
        """A valid command came: arm, and start the time anew."""
        self._fed = self._now()

    def disarm(self) -> None:
        """Nobody is expected to command (before the first step, after an episode)."""
        self._fed = None

    @property
    def silence_s(self) -> float:
        """Seconds since it was fed; 0 while disarmed."""
        return 0.0 if self._fed is None else self._now() - self._fed

    @property
    def expired(self) -> bool:
        """Whether the silence is longer than the timeout."""
        return self.silence_s > self.timeout_s
