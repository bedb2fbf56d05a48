"""The commands of the control loop, and the queue that carries commands to it and outcomes from it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

__all__ = ["Command", "CommandQueue", "Finish", "HeldFrame", "Park", "Quit", "Reset", "Step"]


class Reset(NamedTuple):
    """Begin an episode."""

    request_id: Any
    options: Mapping[str, Any]
    stops: int
    """Number of the newest stop when this reset was requested; the reset does not clear a later stop."""


class Step(NamedTuple):
    """Follow a command for one control period."""

    request_id: Any
    command: Mapping[str, np.ndarray]
    sent_ns: int | None = None
    """Time at which the client sent the command, nanoseconds of this machine's monotonic clock; None if unknown."""
    frame: int | None = None
    """The frame in which the command is executed (`real.control.frames`); None executes it at once."""


class HeldFrame(NamedTuple):
    """The request id of an answer to no command: a frame of the episode held, or the count of frames has ended."""

    frame: int


class Finish(NamedTuple):
    """End the episode; no further command will come."""

    why: str = "its client released the robot"


class Park(NamedTuple):
    """Bring the robot to its home before the server ends."""

    deadline_s: float
    done: threading.Event
    velocity: float | None = None
    """Fastest change of a command, units a second; None for that of `hal.homing.HomingSettings`."""


class Quit(NamedTuple):
    """End the control loop."""


Command = Reset | Step | Finish | Park | Quit

T = TypeVar("T")


class CommandQueue(Generic[T]):
    """Pass items from any thread to one reader, which waits in `get`, or in a poll on `fileno` with its sockets.

    Args:
        pollable: whether the reader polls; every `put` then writes to a socket to wake it.

    Attributes:
        empty: returns whether the queue is empty.
        count: returns the number of items in the queue.
    """

    def __init__(self, *, pollable: bool = False) -> None:
        self._items: SimpleQueue[T] = SimpleQueue()
        self.empty: Callable[[], bool] = self._items.empty  # both the queue's own, as they are asked in every step
        self.count: Callable[[], int] = self._items.qsize
        self._waker: socket.socket | None = None
        self._poll_end: socket.socket | None = None
        if pollable:
            self._waker, self._poll_end = socket.socketpair()
            self._waker.setblocking(False)
            self._poll_end.setblocking(False)

    def put(self, item: T) -> None:
        """Add an item, and wake the reader. May be called from any thread."""
        self._items.put(item)
        if self._waker is not None:
            with contextlib.suppress(OSError):  # full: the reader was woken often enough; closed: nobody reads
                self._waker.send(b"!")

    def wake(self) -> None:
        """Wake a polling reader without an item. May be called from any thread."""
        if self._waker is not None:
            with contextlib.suppress(OSError):
                self._waker.send(b"!")

    def get(self, wait_s: float | None = None) -> T:
        """Return the next item.

        Args:
            wait_s: longest wait for the item, seconds; None waits for ever.

        Raises:
            queue.Empty: none came in time.
        """
        return self._items.get_nowait() if wait_s == 0 else self._items.get(timeout=wait_s)

    def fileno(self) -> int:
        """Return the descriptor that is readable while items wait; -1 after `close`.

        Raises:
            ValueError: the queue is not pollable.
        """
        if self._poll_end is None:
            raise ValueError("this queue can't be polled: make it with pollable=True")
        return self._poll_end.fileno()

    def newest(self, wait_s: float, on_replaced: Callable[[Step], None]) -> T | None:
        """Return the newest step in the queue, or the first command that is not a step; None if the queue is empty.

        Args:
            wait_s: longest wait for the first command, seconds.
            on_replaced: called with each step that a later command follows.
        """
        newest: T | None = None
        while True:
            try:
                later = self._items.get(timeout=wait_s) if wait_s else self._items.get_nowait()
            except Empty:
                return newest
            if isinstance(newest, Step):
                on_replaced(newest)
            newest, wait_s = later, 0.0
            if not isinstance(newest, Step):
                return newest

    def collect(self) -> list[T]:
        """Remove and return all items in the queue, oldest first."""
        if self._poll_end is not None:
            with contextlib.suppress(OSError):
                self._poll_end.recv(256)  # before the items: whatever is put from here on wakes the reader again
        items: list[T] = []
        with contextlib.suppress(Empty):
            while True:
                items.append(self._items.get_nowait())
        return items

    def close(self) -> None:
        """Close the sockets. Safe to call more than once; later items are kept, but wake nobody."""
        for end in (self._waker, self._poll_end):
            if end is not None:
                end.close()
