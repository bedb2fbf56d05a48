"""What the control loop can be told to do next."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

__all__ = ["Finish", "Inbox", "Mailbox", "Order", "Park", "Quit", "Reset", "Step"]


class Reset(NamedTuple):
    """An episode shall begin."""

    request_id: Any
    options: Mapping[str, Any]
    stops: int  # how many stops there had been when it was asked for


class Step(NamedTuple):
    """One control period of a command."""

    request_id: Any
    command: Mapping[str, np.ndarray]
    sent_ns: int | None = None  # on this machine's monotonic clock, as far as it is known


class Finish:
    """The client said goodbye."""


class Park(NamedTuple):
    """The server is about to end."""

    deadline_s: float
    done: threading.Event
    velocity: float | None = None  # fastest change of a command, units a second; None is `HomingSettings`' own


class Quit:
    """The loop is to end."""


Order = Reset | Step | Finish | Park | Quit


# -- The orders that wait for the control loop; of several commands the newest counts ------------------------


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


# -- From the control loop to the network thread: outcomes, and a bell that wakes a poll ---------------------


T = TypeVar("T")


class Mailbox(Generic[T]):
    """A queue whose reader can sleep in a poll on `fileno` together with its sockets.

    `post` and `ring` are for any thread, the rest for the reader's.
    """

    def __init__(self) -> None:
        self._letters: SimpleQueue[T] = SimpleQueue()
        self._bell, self._ear = socket.socketpair()
        self._bell.setblocking(False)
        self._ear.setblocking(False)

    def fileno(self) -> int:
        """Readable when the bell was rung."""
        return self._ear.fileno()

    def post(self, letter: T) -> None:
        """Put something in, and ring."""
        self._letters.put(letter)
        self.ring()

    def ring(self) -> None:
        """Wake the reader."""
        with contextlib.suppress(OSError):  # full: it was rung often enough; closed: nobody reads
            self._bell.send(b"!")

    def collect(self) -> Iterator[T]:
        """All that is there."""
        with contextlib.suppress(BlockingIOError):
            self._ear.recv(256)  # first the bell: what is posted from here on rings again
        return self._rest()

    def _rest(self) -> Iterator[T]:
        while True:
            try:
                yield self._letters.get_nowait()
            except Empty:
                return

    def close(self) -> None:
        """Close the bell. Twice is fine."""
        self._bell.close()
        self._ear.close()
