"""A person answers at a terminal how an episode went: at a pipe, and at a real terminal (pty)."""

from __future__ import annotations

import io
import os
import pty
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hal import DeadlineExceeded, ResetFailed, ResetRequest, Terminal
from hal.reset.confirmation import VerdictRequest

ASKED_TOO = ResetRequest("arm", 3, deadline_s=5.0, verdict=True)
QUESTION = VerdictRequest("arm", 2, deadline_s=5.0)


@contextmanager
def typed(text: str, shown: io.StringIO) -> Iterator[Terminal]:
    robot_state, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    with os.fdopen(robot_state) as source:
        yield Terminal(source, shown)


@pytest.mark.parametrize(
    ("text", "verdict"), [("s\n", "success"), ("F\n", "failure"), ("discard\n", "discard"), ("\n", None), ("y\n", None)]
)
def test_a_verdict_confirms_too(text: str, verdict: str | None) -> None:
    shown = io.StringIO()
    with typed(text, shown) as terminal:
        assert terminal.ask(ASKED_TOO).verdict == verdict
    assert "s success, f failure, d discard" in shown.getvalue()


def test_a_verdict_refuses_where_none_was_requested() -> None:
    with typed("s\n", io.StringIO()) as terminal, pytest.raises(ResetFailed, match="refused the reset: 's'"):
        terminal.ask(ResetRequest("arm", 3, deadline_s=5.0))


def test_a_typing_error_repeats_the_question() -> None:
    shown = io.StringIO()
    with typed("x\nf\n", shown) as terminal:
        assert terminal.judge(QUESTION) == ("terminal", "f", "failure")
    assert "[arm] episode 2: how did it go? s success" in shown.getvalue()
    assert "'x' is no verdict" in shown.getvalue()


def test_silence_ends_at_the_deadline() -> None:
    robot_state, writing = os.pipe()
    with (
        os.fdopen(robot_state) as source,
        pytest.raises(DeadlineExceeded, match=r"0\.05 s"),
    ):
        Terminal(source, io.StringIO()).judge(VerdictRequest("arm", 2, deadline_s=0.05))
    os.close(writing)


def test_a_terminal_in_single_key_mode_reads_lines_for_the_question_only() -> None:
    person, screen = pty.openpty()
    try:
        keys = termios.tcgetattr(screen)
        keys[3] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(screen, termios.TCSANOW, keys)
        before = termios.tcgetattr(screen)

        def press() -> None:
            while not termios.tcgetattr(screen)[3] & termios.ICANON:
                time.sleep(0.005)
            os.write(person, b"x\x7fs\n")  # a slip taken back: only lines can be edited

        pressing = threading.Thread(target=press)
        pressing.start()
        with os.fdopen(os.dup(screen), "r") as source:
            assert Terminal(source, io.StringIO()).judge(QUESTION).verdict == "success"
        pressing.join()
        assert termios.tcgetattr(screen) == before
    finally:
        os.close(person)
        os.close(screen)
