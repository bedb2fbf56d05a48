"""How many messages a server reads: enough for everybody, and not so many that a flood takes the loop's time."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["BURST", "PER_S", "RateLimiter"]

PER_S = 2000.0
"""Messages a second; a client of 500 Hz sends 500. At 60 microseconds each they take an eighth of Python's lock."""

BURST = 20
"""Messages that are read at once after a pause."""


class RateLimiter:
    """A token bucket. For one thread.

    What is not read waits in ZeroMQ, which reads from all its connections in turn: whoever floods waits, the others'
    next message is at most the second to be read.

    Args:
        per_s: tokens that come in a second, above 0.
        burst: most that are kept.
        now: monotonic clock, seconds.
    """

    def __init__(self, per_s: float = PER_S, burst: int = BURST, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._now = per_s, burst, now
        self._tokens, self._at = float(burst), now()

    @property
    def spent(self) -> bool:
        """Whether the next message has to wait, for at most the time of one token."""
        if self._tokens < 1.0:
            now = self._now()
            self._tokens = min(self._tokens + (now - self._at) * self._per_s, float(self._burst))
            self._at = now
        return self._tokens < 1.0

    def take(self) -> None:
        """One message was read."""
        self._tokens -= 1.0
