"""The orders that wait for the control loop; of several commands the newest counts."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue

from real.orders import Order, Step

__all__ = ["Inbox"]


class Inbox:
    """A queue. `put` is for any thread, the rest for the loop's."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[Order] = SimpleQueue()

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return self._orders.empty()

    def put(self, order: Order) -> None:
        """Add an order."""
        self._orders.put(order)

    def wait(self) -> Order:
        """The next order, as soon as there is one."""
        return self._orders.get()

    def newest(self, wait_s: float, replaced: Callable[[Step], None]) -> Order | None:
        """The last of the commands that are there, or the first order that is none.

        Args:
            wait_s: how long to wait for the first, seconds.
            replaced: told of each command that a newer order follows.
        """
        order: Order | None = None
        while True:
            try:
                later = self._orders.get(timeout=wait_s) if wait_s else self._orders.get_nowait()
            except Empty:
                return order
            if isinstance(order, Step):
                replaced(order)
            order, wait_s = later, 0.0
            if not isinstance(order, Step):
                return order
