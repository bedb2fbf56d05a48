"""Keys from a pipe and from a terminal: verdicts are kept, the others go to the device."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from typing import TextIO

import pytest

from rlenv_operate.teleop.terminal import KeyClutch, TeleopKeys


@pytest.fixture(params=["pipe", "terminal"])
def person(request: pytest.FixtureRequest) -> Iterator[tuple[int, TextIO]]:
    """Return the descriptor at which a person types, and the stream that the program reads."""
    source, target = os.pipe() if request.param == "pipe" else pty.openpty()[::-1]
    with os.fdopen(source, "r") as stream:
        yield target, stream
    os.close(target)


def test_verdicts_are_kept_and_other_keys_are_handed_on(person: tuple[int, TextIO]) -> None:
    keyboard, stream = person
    keys = TeleopKeys(stream)
    assert (keys.read(), keys.opened) == ("", False)
    keys.open()
    keys.open()
    os.write(keyboard, b"q-w")
    assert keys.read() == "qw"
    assert keys.verdict == "failure"
    keys.press(" ")
    os.write(keyboard, b"+\n")
    assert (keys.read(), keys.verdict) == (" ", "success")
    os.write(keyboard, b"x")
    keys.clear()
    assert (keys.read(), keys.verdict) == ("", None)
    keys.close()
    keys.close()
    assert not keys.opened


def test_the_space_bar_closes_and_opens_the_clutch(person: tuple[int, TextIO]) -> None:
    keyboard, stream = person
    keys = TeleopKeys(stream)
    keys.open()
    clutch = KeyClutch(keys)
    for pressed, engaged in ((b"", False), (b" ", True), (b"q", True), (b"i ", True), (b" ", False)):
        os.write(keyboard, pressed)
        assert clutch.engaged() is engaged
    os.write(keyboard, b" ")
    assert clutch.engaged()
    clutch.release()
    assert not clutch.engaged()
    keys.close()


def test_a_pipe_whose_other_end_is_closed_presses_no_more_keys() -> None:
    source, target = os.pipe()
    with os.fdopen(source, "r") as stream:
        keys = TeleopKeys(stream)
        keys.open()
        os.write(target, b" ")
        os.close(target)
        assert keys.read() == " "
        assert keys.read() == ""
        assert keys.read() == ""
