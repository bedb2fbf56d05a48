"""From the control loop to the network thread: outcomes, and a bell that wakes a poll."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

__all__ = ["Mailbox"]

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
