"""Run a thread that reads the network, so that other threads can tell whether it ended too early or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["WatchedThread"]


class WatchedThread:
    """Run a function on a daemon thread until `end`.

    The function sets `alive_s` in each of its turns, and returns when `over` is set.

    Args:
        name: name of the thread.
        what: beginning of the message if the thread hangs, such as "the network's thread has read nothing".

    Attributes:
        over: set by `end`.
        alive_s: time of the last sign of life, monotonic, seconds.
    """

    def __init__(self, name: str, what: str) -> None:
        self._name, self._what = name, what
        self.over = threading.Event()
        self.alive_s = time.monotonic()
        self._thread: threading.Thread | None = None

    def start(self, run: Callable[[], None]) -> None:
        """Start the thread with a function."""
        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()

    @property
    def dead(self) -> bool:
        """Whether the thread has ended without an `end`."""
        return self._thread is not None and not self._thread.is_alive() and not self.over.is_set()

    def silence(self, limit_s: float) -> str | None:
        """Return why the thread hangs, or None if it gave a sign of life in the last ``limit_s`` seconds."""
        silent_s = time.monotonic() - self.alive_s
        return f"{self._what} for {silent_s:.1f} s" if silent_s > limit_s else None

    def end(self) -> None:
        """Let the thread end, and wait for it. Safe to call more than once, or before `start`."""
        self.over.set()
        if self._thread is not None:
            self._thread.join()
