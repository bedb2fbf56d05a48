"""Confirm resets by a person at a terminal, also over ssh."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

from hal.errors import DeadlineExceeded, ResetFailed
from hal.reset.confirmation import VERDICTS, Answer, ResetRequest, VerdictRequest

__all__ = ["Terminal"]

_POLL_S = 0.05
"""Time between two checks for a question's cancellation, in seconds."""

_READY = frozenset({"", "y", "yes", "ok", "ready"})
_VERDICTS = {word: verdict for verdict in VERDICTS for word in (verdict[0], verdict)}
_KEYS = ", ".join(f"{verdict[0]} {verdict}" for verdict in VERDICTS)
_CLOSED = "the terminal is closed, so nobody can answer there; use another signal"


class Terminal:
    """Confirm resets by a person at a terminal: Enter (or ``y``, ``yes``, ``ok``) when ready; anything else refuses.

    Where the request also asks for a verdict on the last episode, ``s``, ``f`` or ``d`` and Enter gives the verdict and
    confirms the reset. On a real terminal, input typed before the question is ignored, so that an early Enter does not
    move a robot.

    Args:
        source: the stream from which answers are read; it has a file descriptor. By default standard input.
        target: the stream to which questions are written; by default standard error.
    """

    def __init__(self, source: TextIO | None = None, target: TextIO | None = None) -> None:
        self._source, self._target = source, target
        self._cancelled = threading.Event()

    def ask(self, request: ResetRequest) -> Answer:
        """Write the request and wait for one line.

        Raises:
            DeadlineExceeded: no line came in time.
            ResetFailed: the person refused, or the terminal is closed.
        """
        hint = "Enter when ready, n to refuse"
        if request.verdict:
            hint = f"Enter when ready, with a verdict on the last episode if you like ({_KEYS}), n to refuse"
        answer = self._line(
            f"[{request.robot}] episode {request.episode}: {request.message}; {hint}: ", request.deadline_s
        )
        word = answer.lower()
        if request.verdict and word in _VERDICTS:
            return Answer("terminal", answer, _VERDICTS[word])
        if word not in _READY:
            raise ResetFailed(f"the person at the terminal refused the reset: {answer!r}")
        return Answer("terminal", answer)

    def judge(self, request: VerdictRequest) -> Answer:
        """Write the question and wait for a line with a verdict, or an empty line for no verdict.

        Raises:
            DeadlineExceeded: no answer came in time.
            ResetFailed: the terminal is closed.
        """
        end = time.monotonic() + request.deadline_s
        question = f"[{request.robot}] episode {request.episode}: {request.message} {_KEYS}, Enter for no verdict: "
        while True:
            answer = self._line(question, max(0.0, end - time.monotonic()), request.deadline_s)
            word = answer.lower()
            if not word or word in _VERDICTS:
                return Answer("terminal", answer, _VERDICTS.get(word))
            question = f"{answer!r} is no verdict; {_KEYS}, Enter for none: "  # a slip must not lose the verdict

    def _line(self, question: str, left_s: float, deadline_s: float | None = None) -> str:
        source = _descriptor(self._source or sys.stdin)
        target = self._target or sys.stderr
        with _by_lines(source):
            target.write(question)
            target.flush()
            self._cancelled.clear()
            return _read_line(source, left_s, left_s if deadline_s is None else deadline_s, self._cancelled)

    def cancel(self) -> None:
        """End the open question; later input is ignored. May be called from any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Do nothing: the streams belong to the caller."""


def _descriptor(source: TextIO | None) -> int:
    if source is not None:  # sys.stdin is None in a process without a terminal
        with contextlib.suppress(OSError, ValueError):
            return source.fileno()
    raise ResetFailed(_CLOSED)


@contextlib.contextmanager
def _by_lines(source: int) -> Iterator[None]:
    """Drop what was typed before, and read lines with an echo, even from a terminal in the mode of single keys."""
    if not os.isatty(source):
        yield
        return
    import termios  # only where there are terminals

    before = termios.tcgetattr(source)
    lines = [*before[:3], before[3] | termios.ICANON | termios.ECHO, *before[4:]]
    lines[0] |= termios.ICRNL
    termios.tcsetattr(source, termios.TCSAFLUSH, lines)
    try:
        yield
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def _read_line(source: int, left_s: float, deadline_s: float, cancelled: threading.Event) -> str:
    """Read one line byte by byte: a buffered reader would hide the next line from select, and could wait forever."""
    line = bytearray()
    end = time.monotonic() + left_s
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([source], [], [], max(0.0, min(_POLL_S, end - time.monotonic())))
        if cancelled.is_set():
            raise ResetFailed("the question at the terminal was cancelled")
        if not ready and time.monotonic() < end:
            continue
        if not ready:
            raise DeadlineExceeded("nobody pressed Enter", deadline_s, "try again when somebody is there")
        byte = os.read(source, 1)
        if not byte:
            raise ResetFailed(_CLOSED)
        line += byte
    return line.decode(errors="replace").strip()
