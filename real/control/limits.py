"""Bounds on commands and messages: how old a command may be, and how many messages a server reads a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from hal.errors import CommandTooOld

__all__ = ["BURST", "MaxAge", "RateLimiter"]


class MaxAge:
    """Refuse and count commands that were sent too long ago. For one thread; any may read.

    The stamp is the client's, on this machine's clock as far as the client knows it (`hal.clock`): with an error
    of at most half the shortest round trip of the last minute. A stamp as far in the future is refused as well, since
    a clock has jumped.

    Args:
        max_age_s: age of the oldest command that is executed, seconds; None lets every age through.
        turn_s: how long a command may wait for its turn besides, seconds: a period of the loop.
        now_ns: monotonic clock, nanoseconds.

    Attributes:
        max_age_s: the argument.
        refused: how many commands were too old.
        age_s: of the last command that was let through, seconds; 0 where ages do not count, or it is not known.

    Raises:
        ValueError: ``max_age_s`` is not above 0.
    """

    def __init__(
        self, max_age_s: float | None, turn_s: float = 0.0, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        if max_age_s is not None and not max_age_s > 0:
            raise ValueError(f"max_command_age_s is {max_age_s}, it must be above 0")
        self.max_age_s, self._turn_s = max_age_s, turn_s
        self.refused, self.age_s = 0, 0.0
        self._now_ns = now_ns

    def refusal(self, sent_ns: int | None) -> CommandTooOld | None:
        """Return why a command that was sent at ``sent_ns`` is not to be executed, or None."""
        if self.max_age_s is None or sent_ns is None:
            self.age_s = 0.0
            return None
        age_s = (self._now_ns() - sent_ns) / 1e9
        allowed_s = self.max_age_s + self._turn_s
        if abs(age_s) <= allowed_s:
            self.age_s = max(age_s, 0.0)
            return None
        self.refused += 1
        return CommandTooOld(age_s, allowed_s)

    def refusal_after(self, pause_s: float) -> CommandTooOld | None:
        """Return why the rest of a command is not to be executed after a pause of the loop, or None.

        Args:
            pause_s: time since the loop last moved the robot for this command, seconds.
        """
        if self.max_age_s is None or pause_s <= self.max_age_s + self._turn_s:
            return None
        self.refused += 1
        allowed_s = self.max_age_s + self._turn_s
        return CommandTooOld(
            pause_s,
            allowed_s,
            f"the controller paused for {pause_s * 1e3:.0f} ms while it followed the command, allowed are "
            f"{allowed_s * 1e3:g} ms; the rest was not executed. Its process was frozen or its driver was slow; step "
            "again, or raise serve.max_command_age_s",
            begun=True,
        )


# -- How many messages a server reads: enough for everybody, and so few that a flood does not take the loop's time --


BURST = 20
"""Messages that are handled at once after a pause."""


class RateLimiter:
    """Count out tokens, one a message (a token bucket). For one thread.

    Args:
        per_s: tokens that come in a second, above 0.
        burst: most tokens that are kept.
        now: monotonic clock, seconds.
    """

    def __init__(self, per_s: float, burst: int = BURST, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._now = per_s, burst, now
        self._tokens, self._at = float(burst), now()

    @property
    def spent(self) -> bool:
        """Whether the next message has to wait, for at most the time of one token."""
        self._refill()
        return self._tokens < 1.0

    def take(self) -> bool:
        """Count a message that was read, and return whether the next one has to wait."""
        self._refill()  # first: what came in while there were enough is not kept beyond the burst
        self._tokens -= 1.0
        return self._tokens < 1.0

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(self._tokens + (now - self._at) * self._per_s, float(self._burst))
        self._at = now
