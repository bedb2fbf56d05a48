"""Single keys from a terminal, which is as it was before on every way out."""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
from types import FrameType
from typing import Any, TextIO

from hal import RobotError

__all__ = ["SingleKeys"]

_ENDS = ("SIGTERM", "SIGHUP")


class SingleKeys:
    """A terminal that gives every key at once and shows none (Ctrl-C still interrupts).

    The terminal is restored by `close`, when Python ends for whatever reason, and before the process ends by SIGTERM or
    SIGHUP, which are made to raise SystemExit so that everything else is closed too; while the process is suspended
    (Ctrl-Z) the terminal is as before. Only SIGKILL and a crash of Python leave it changed: ``stty sane`` mends it.

    Args:
        source: the terminal; by default standard input.
    """

    def __init__(self, source: TextIO | None = None) -> None:
        self._source = source
        self._descriptor = -1
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}

    @property
    def opened(self) -> bool:
        """Whether the terminal is taken."""
        return self._before is not None

    def open(self) -> None:
        """Take the terminal. Twice is fine.

        Raises:
            RobotError: it is no terminal.
        """
        if self._before is not None:
            return
        import termios  # only where there are terminals

        stream = sys.stdin if self._source is None else self._source
        try:
            self._descriptor = stream.fileno()
            before = termios.tcgetattr(self._descriptor)
        except (OSError, ValueError, AttributeError, termios.error):
            raise RobotError(
                "single keys need a terminal, and standard input is none: run it in one (over ssh: ssh -t)"
            ) from None
        self._before = before
        atexit.register(self.close)
        self._watch_signals()
        self._take()

    def _take(self) -> None:
        import termios

        keys = termios.tcgetattr(self._descriptor)
        keys[3] &= ~(termios.ICANON | termios.ECHO)
        keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, keys)

    def _restore(self) -> None:
        import termios

        if self._before is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            except (OSError, termios.error):  # the terminal is gone
                return

    def read(self) -> str:
        """The keys that were pressed since the last call; does not wait.

        Raises:
            OSError: the terminal is gone.
        """
        keys = b""
        while select.select([self._descriptor], [], [], 0)[0]:
            more = os.read(self._descriptor, 1024)
            if not more:
                raise OSError("the terminal was closed")
            keys += more
        return keys.decode(errors="replace")

    def close(self) -> None:
        """Restore the terminal. Twice is fine."""
        if self._before is None:
            return
        self._restore()
        self._before = None
        atexit.unregister(self.close)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    # -- signals -------------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.Signals[name] for name in _ENDS):
            if signal.getsignal(number) is signal.SIG_DFL:  # else somebody has plans of their own
                self._handlers[number] = signal.signal(number, self._end)
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        raise SystemExit(128 + number)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the process goes on
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()
