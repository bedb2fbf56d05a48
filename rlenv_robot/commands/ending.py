"""Until Ctrl-C or SIGTERM: a wait that a signal can end at any instant."""

from __future__ import annotations

import signal
from queue import Empty, SimpleQueue

__all__ = ["Ending"]


class Ending:
    """From here on SIGINT and SIGTERM are remembered, and do nothing else. For the main thread.

    A handler runs in the midst of whatever the main thread does. If that is a wait for a `threading.Event`, which holds
    a lock now and then, a handler that sets the event waits for that lock for ever, and so does the program. A
    `queue.SimpleQueue` is made for being filled from handlers (Python's documentation of it: "reentrant").
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda got, _: self._told.put(got))

    def wait(self, seconds: float) -> bool:
        """Whether a signal came, now or within so long; once."""
        try:
            self._told.get(timeout=seconds)
        except Empty:
            return False
        return True
