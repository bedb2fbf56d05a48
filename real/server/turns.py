"""A bounded queue of messages for each client, served in turn at a bounded rate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from real.control.limits import RateLimiter

__all__ = ["MOST_BYTES", "MOST_MESSAGES", "PER_S", "Turns"]

PER_S = 1500.0
"""Messages a second that are handled for all clients together that do not move the robot. At 60 microseconds each they
take a tenth of Python's lock."""

MOST_MESSAGES = 64
"""Messages of one client that wait at most."""

MOST_BYTES = 256 * 1024
"""Bytes of one client's messages that wait at most."""

T = TypeVar("T")


class Turns(Generic[T]):
    """Keep messages that were read and not handled yet, and give out one of each client in turn. For one thread.

    ZeroMQ's own turns go by connection, so that a client with a hundred of them has a hundred turns. Here a client is
    whatever the caller takes for one, such as a key.

    Args:
        per_s: messages that are given out in a second.
        now: monotonic clock, seconds.

    Attributes:
        dropped: how many messages found their client's queue full.
    """

    def __init__(self, per_s: float = PER_S, now: Callable[[], float] = time.monotonic) -> None:
        self._queues: dict[Hashable, deque[tuple[T, int]]] = {}  # the order of the keys is that of the turns
        self._bytes: dict[Hashable, int] = {}
        self._allowance = RateLimiter(per_s, now=now)
        self.dropped = 0

    def __contains__(self, client: Hashable) -> bool:
        return client in self._queues

    def __bool__(self) -> bool:
        return bool(self._queues)

    def put(self, client: Hashable, message: T, size: int) -> bool:
        """Add a message of ``size`` bytes behind its client's earlier ones; return False, and drop it, where full."""
        queue = self._queues.get(client)
        waiting = 0 if queue is None else len(queue)
        total = self._bytes.get(client, 0) + size
        if waiting >= MOST_MESSAGES or total > MOST_BYTES:
            self.dropped += 1
            return False
        if queue is None:
            queue = self._queues[client] = deque()
        queue.append((message, size))
        self._bytes[client] = total
        return True

    def next(self) -> T | None:
        """Return the next message; None where none waits, or where the next one has to wait for its time."""
        if not self._queues or self._allowance.spent:
            return None
        self._allowance.take()
        client = next(iter(self._queues))
        queue = self._queues.pop(client)
        message, size = queue.popleft()
        if queue:
            self._queues[client] = queue  # behind all others
            self._bytes[client] -= size
        else:
            del self._bytes[client]
        return message
