"""Commands that come too late are not executed, and counted."""

from __future__ import annotations

import time
from collections.abc import Callable

from hal.errors import CommandTooOld

__all__ = ["BURST", "PER_S", "MaxAge", "RateLimiter"]


class MaxAge:
    """Compares when a command was sent with when its turn has come. For one thread; any may read.

    The stamp is the client's, on this machine's clock as far as it knows it (`hal.clock_sync`): with an error of at
    most
    half the shortest round trip of the last minute. A stamp as far in the future is refused as well: a clock jumped.

    Args:
        max_age_s: oldest that is executed, seconds; None lets every age through.
        turn_s: what a command may have to wait for its turn besides, seconds: a period of the loop.
        now_ns: monotonic clock, nanoseconds.

    Attributes:
        max_age_s: as given.
        refused: how many commands were too old.

    Raises:
        ValueError: ``max_age_s`` is not above 0.
    """

    def __init__(
        self, max_age_s: float | None, turn_s: float = 0.0, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        if max_age_s is not None and not max_age_s > 0:
            raise ValueError(f"max_command_age_s is {max_age_s}, it must be above 0")
        self.max_age_s, self._turn_s = max_age_s, turn_s
        self.refused = 0
        self._now_ns = now_ns

    def refusal(self, sent_ns: int | None) -> CommandTooOld | None:
        """Why a command that was sent then is not to be executed, or None."""
        if self.max_age_s is None or sent_ns is None:
            return None
        age_s = (self._now_ns() - sent_ns) / 1e9
        allowed_s = self.max_age_s + self._turn_s
        if abs(age_s) <= allowed_s:
            return None
        self.refused += 1
        return CommandTooOld(age_s, allowed_s)


# -- How many messages a server reads: enough for everybody, and not so many that a flood takes the loop's time --


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
