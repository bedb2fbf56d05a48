"""Keep a learner running in a separate process beside the actor."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from types import TracebackType

from hal import RobotError

__all__ = ["LearnerProcess", "over_with_parent"]

_log = logging.getLogger(__name__)

_END_S = 30.0
_MOST_ERRORS = 3


class LearnerProcess:
    """Run a learner in another process, and restart it after a kill or a failure.

    Args:
        command: the program and its arguments. The program must end on SIGTERM and when its parent process ends
            (`over_with_parent`).

    Attributes:
        starts: number of times that the process was started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command, self.starts, self._errors = list(command), 0, 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process ID.

        Raises:
            RuntimeError: the process was never started.
        """
        if self._process is None:
            raise RuntimeError("the learner was not started; call ensure first")
        return self._process.pid

    def ensure(self) -> None:
        """Start the process if it is not running, without waiting for it.

        Raises:
            RobotError: the process has ended with an error for the third time.
            OSError: the program can't be started.
        """
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._errors += code > 0  # a signal's code is below 0
            if self._errors >= _MOST_ERRORS:
                raise RobotError(
                    f"the learner has ended with an error {_MOST_ERRORS} times; it printed the reason. What was "
                    "recorded is in its folder: fix the cause, and restart it there"
                )
            _log.warning("the learner ended with code %d; it is started again and goes on from its folder", code)
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        self.starts += 1

    def close(self) -> None:
        """Let the learner save its state and end; kill it after 30 s. Safe to call more than once."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> LearnerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def over_with_parent() -> Callable[[], bool]:
    """Return a function that tells whether this process should end: after SIGTERM, Ctrl-C or its parent's end."""
    parent, ended = os.getppid(), [False]

    def end(*_: object) -> None:
        ended[0] = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return lambda: ended[0] or os.getppid() != parent
