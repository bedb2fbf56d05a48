"""Limit the age of commands, and the rate at which a server reads messages."""

from __future__ import annotations

import time
from collections.abc import Callable

from hal.errors import CommandTooOld

__all__ = ["BURST", "MaxAge", "RateLimiter"]


class MaxAge:
    """Refuse and count commands that were sent too long ago. For one thread; any thread may read.

    The client stamps a command with its estimate of this machine's clock (`hal.clock`), which is exact to half the
    shortest round trip of the last minute. A stamp equally far in the future is also refused, since a clock has jumped.

    Args:
        max_age_s: greatest age of a command that is executed, seconds; None for any age.
        turn_s: additional time that a command may wait for its turn, seconds: a period of the loop.
        now_ns: monotonic clock, nanoseconds.

    Attributes:
        max_age_s: the argument.
        refused: number of commands that were too old.
        age_s: age of the last accepted command, seconds; 0 if there is no limit, or if the age is unknown.

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
        """Return the error that refuses a command sent at ``sent_ns``, or None if it may be executed."""
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
        """Return the error that refuses the rest of a command after a pause of the loop, or None.

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
"""Number of messages that are handled without delay after a pause."""


class RateLimiter:
    """Limit a rate of messages by a token bucket, with one token a message. Not thread-safe.

    Args:
        per_s: tokens that are added in a second, above 0.
        burst: largest number of tokens that are kept.
        now: monotonic clock, seconds.
    """

    def __init__(self, per_s: float, burst: int = BURST, now: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._now = per_s, burst, now
        self._tokens, self._at = float(burst), now()

    @property
    def spent(self) -> bool:
        """Whether the next message has to wait, at most for the time of one token."""
        self._refill()
        return self._tokens < 1.0

    def take(self) -> bool:
        """Count a message, and return whether the next one has to wait."""
        self._refill()  # first: what came in while there were enough is not kept beyond the burst
        self._tokens -= 1.0
        return self._tokens < 1.0

    def _refill(self) -> None:
        now = self._now()
        self._tokens = min(self._tokens + (now - self._at) * self._per_s, float(self._burst))
        self._at = now
