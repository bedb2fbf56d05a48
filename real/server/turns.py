"""Queue messages of each client within bounds, and serve the clients in turn at a bounded rate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from real.control.limits import RateLimiter

__all__ = ["MOST_BYTES", "MOST_MESSAGES", "PER_S", "Turns"]

PER_S = 1500.0
"""Largest number of messages a second that are handled for all clients that do not move the robot. At 60 microseconds
each they hold Python's global lock for a tenth of the time."""

MOST_MESSAGES = 64
"""Largest number of queued messages of one client."""

MOST_BYTES = 256 * 1024
"""Largest number of bytes of one client's queued messages."""

T = TypeVar("T")


class Turns(Generic[T]):
    """Queue messages that were read but not handled yet, and return one of each client in turn. Not thread-safe.

    ZeroMQ takes connections in turn, so that a client with a hundred connections has a hundred turns. Here the caller
    defines what counts as one client, such as a key.

    Args:
        per_s: largest number of messages returned in a second.
        now: monotonic clock, seconds.

    Attributes:
        dropped: number of messages that found their client's queue full.
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
        """Add a message of ``size`` bytes to its client's queue; if the queue is full, drop it and return False."""
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
        """Return the next message; None if all queues are empty, or if the rate does not allow a message yet."""
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
