"""Write a log in a thread of its own, behind a bounded queue."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from hal import LogError
from recorder.json_data import to_json
from recorder.log.rotation import DiskBudget, Rotating
from recorder.log.tail import Tail

__all__ = ["ITEM_BYTES", "Background", "Write"]

Write = Callable[[Rotating], None]
"""Writes one item; called in the thread with the log."""

ITEM_BYTES = 300
"""About what a queued row costs in memory beside its bytes."""

_POLL_S = 0.02
_BATCH = 500
"""Items written between two looks at the clock."""
_LOG = logging.getLogger("rlenv_robot.recorder")


class Background:
    """Writes queued items in order, in a thread of its own.

    `put` does not wake the thread, which would cost more than everything else: the thread looks every 20 ms.

    Args:
        sink: the log to write to; the thread closes it.
        capacity: bytes that may wait in the queue.
        tail: keeps copies of what waits, for a killed process; removed when all is written. None: no copies.
    """

    def __init__(self, sink: Rotating, capacity: int, tail: Tail | None = None) -> None:
        self._tail = tail
        self.dropped = 0
        self._reported = 0
        self._sink = sink
        self._capacity = capacity
        self._queue: deque[tuple[int, Write]] = deque()
        self._lock = threading.Lock()
        self._given = self._taken = 0  # bytes; each is written by one side only
        self._wake = threading.Event()
        self._closing = False
        self._failure: LogError | None = None
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)
        self._thread.start()

    def put(self, size: int, write: Write, copy: tuple[bytes, bytes, int] | None = None) -> None:
        """Queue an item, or drop and count it if there is no room. An item of size 0 always has room.

        Args:
            size: of the item, bytes.
            write: writes it.
            copy: topic, message and time of the item for `Tail.keep`; None: there is no copy of it.

        Raises:
            LogError: the log can't be written any more.
        """
        if self._failure is not None:
            raise self._failure
        with self._lock:
            if size and self._given - self._taken + size > self._capacity:
                self.dropped += 1
                return
            self._given += size
            self._queue.append((size, write))
            if copy is not None and self._tail is not None:
                self._tail.keep(*copy)

    def wake(self) -> None:
        """Let the thread look at the queue now."""
        self._wake.set()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def sync(self, timeout_s: float) -> None:
        """Wait until everything queued so far is on the disk.

        Raises:
            LogError: the items can't be written, or not in time.
        """
        done = threading.Event()

        def write(sink: Rotating) -> None:
            sink.sync()
            done.set()

        self.put(0, write)
        self.wake()
        deadline = time.monotonic() + timeout_s
        while not done.wait(_POLL_S):
            self.check()
            if time.monotonic() > deadline:
                raise self._too_slow(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write the rest and end the thread. Calling it twice is allowed.

        Raises:
            LogError: not everything could be written, or not in time.
        """
        if self._closing:
            return
        self._closing = True
        self.wake()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise self._too_slow(timeout_s)
        self.check()
        self._failure = LogError(f"{self._sink.path} is closed; begin a new run")  # for items that still come

    def _too_slow(self, timeout_s: float) -> LogError:
        return LogError(
            f"{self._sink.path}: the disk did not take what waited within {timeout_s:g} s; look at the disk"
        )

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            while self._queue or not self._closing:
                if not self._queue:
                    self._wake.wait(_POLL_S)
                    self._wake.clear()
                self._drain()
                self._sink.keep_up()
            self._sink.close()
            self._remove_tail()
        except Exception as error:  # no error may end this thread unseen
            if isinstance(error, DiskBudget):  # the log is closed in order, so nothing is added to it later
                self._remove_tail()
            self._failure = error if isinstance(error, LogError) else LogError(f"{self._sink.path}: {error!r}")
            self._failure.__cause__ = self._failure.__cause__ or (error if error is not self._failure else None)
            self._sink.abandon()

    def _remove_tail(self) -> None:
        with self._lock:
            if self._tail is not None:
                self._tail.remove()

    def _drain(self) -> None:
        for _ in range(min(_BATCH, len(self._queue))):
            size, write = self._queue.popleft()
            write(self._sink)
            self._taken += size
        if self.dropped != self._reported:
            self._report_drops(self.dropped)

    def _report_drops(self, total: int) -> None:
        if not self._reported:
            _LOG.warning("%s: the disk is too slow, frames or images are dropped; the log counts them", self._sink.path)
        counts = to_json({"since": total - self._reported, "total": total}, "a drop")
        self._sink.event("dropped", -1, counts, time.time_ns())
        self._reported = total
