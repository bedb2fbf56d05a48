"""A client asks for a robot that another one holds; the holder says yes or no."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["CONSENT_S", "LeaseTransfer", "RequestId"]

CONSENT_S = 10.0
"""How long a holder has to say yes or no; silence is a no, unless it is so long that the lease is lost."""


class RequestId(NamedTuple):
    """Where an order's answer goes, and when the order came (monotonic, nanoseconds)."""

    peer: bytes
    session: int
    sequence: int
    came_ns: int = 0


class LeaseTransfer:
    """The question under way. For one thread.

    Args:
        token: of who asks.
        name: of who asks.
        beat_s: how often it is told that its question is still open, seconds.
        now: monotonic clock, seconds.
    """

    def __init__(
        self, request_id: RequestId, name: str, beat_s: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.request_id, self.name = request_id, name
        self._now, self._beat_s = now, beat_s
        self._until = now() + CONSENT_S
        self._next = now() + beat_s

    @property
    def expired(self) -> bool:
        """Whether the holder had its time."""
        return self._now() > self._until

    def beat(self) -> bool:
        """Whether it is time to tell that the question is open; true once every ``beat_s``."""
        due = self._now() > self._next
        if due:
            self._next = self._now() + self._beat_s
        return due
