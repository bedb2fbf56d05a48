"""Keys of a real terminal (a pty), which is as it was on every way out."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np
import pytest

from hal import Field, RobotError, Spec, SpecError
from hal.robots.so101 import SO101
from rlenv_operate.teleop.keyboard import Keyboard
from tests.fakes import until

HERE = {"joint_target": np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], np.float32)}


class Screen:
    """A terminal: what a person types goes in at ``person``."""

    def __init__(self) -> None:
        self.person, self.screen = pty.openpty()
        self.before = termios.tcgetattr(self.screen)
        self.stream: TextIO = os.fdopen(os.dup(self.screen), "r")

    def type(self, keys: str) -> None:
        before, data = self._unread(), keys.encode()
        os.write(self.person, data)
        until(lambda: self._unread() == before + len(data))  # the kernel passes them on in a thread of its own

    def _unread(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.screen, termios.FIONREAD, bytes(4)), sys.byteorder)

    @property
    def untouched(self) -> bool:
        return termios.tcgetattr(self.screen) == self.before


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.stream.close()
    os.close(made.screen)
    os.close(made.person)


@pytest.fixture
def keyboard(screen: Screen) -> Iterator[Any]:
    made = Keyboard(SO101.commands, 0.05, screen.stream, io.StringIO())
    made.open()
    yield made
    made.close()


def wanted(keyboard: Keyboard) -> np.ndarray:
    action = keyboard.poll(HERE)
    assert action is not None
    return np.asarray(action["joint_target"])


@pytest.mark.parametrize("take", [" ", "i"])
def test_one_key_takes_over_and_hands_back(screen: Screen, keyboard: Keyboard, take: str) -> None:
    assert keyboard.poll(HERE) is None
    screen.type(take)
    np.testing.assert_array_equal(wanted(keyboard), HERE["joint_target"])
    np.testing.assert_array_equal(wanted(keyboard), HERE["joint_target"])
    screen.type(take)
    assert keyboard.poll(HERE) is None


def test_each_joint_has_a_key_up_and_a_key_down(screen: Screen, keyboard: Keyboard) -> None:
    screen.type("i")
    keyboard.poll(HERE)
    for place, (up, down) in enumerate(zip("qwerty", "asdfgh", strict=True)):
        for keys, times in ((up, 1), (down * 3, -3), (up + down, 0)):
            screen.type(keys)
            change = np.zeros(6)
            change[place] = 0.05 * times
            np.testing.assert_allclose(wanted(keyboard) - HERE["joint_target"], change, atol=1e-12)


def test_other_keys_and_the_policys_time_move_nothing(screen: Screen, keyboard: Keyboard) -> None:
    screen.type("qqq")
    assert keyboard.poll(HERE) is None
    screen.type("iuz9\x1b[A\r\xc3\xa9")
    np.testing.assert_array_equal(wanted(keyboard), HERE["joint_target"])


def test_a_new_episode_is_the_policys_and_old_keys_are_forgotten(screen: Screen, keyboard: Keyboard) -> None:
    screen.type("i")
    keyboard.poll(HERE)
    screen.type("i")
    keyboard.release()
    assert keyboard.poll(HERE) is None


def test_the_help_names_each_joint(keyboard: Keyboard) -> None:
    assert "space or i takes over" in keyboard.help
    assert "q/a shoulder_pan, w/s shoulder_lift" in keyboard.help
    assert "y/h gripper" in keyboard.help


def test_a_terminal_that_goes_away_is_an_error_and_not_a_key(screen: Screen) -> None:
    keyboard = Keyboard(SO101.commands, source=screen.stream, target=io.StringIO())
    keyboard.open()
    person, screen.person = screen.person, os.dup(screen.screen)
    os.close(person)
    with pytest.raises(OSError, match=r"closed|Input/output"):
        keyboard.poll(HERE)
    keyboard.close()


def test_too_many_joints_for_the_keys() -> None:
    with pytest.raises(SpecError, match=r"12 elements, .* 7"):
        Keyboard(Spec("dog", (Field("legs", (12,)),)))


def test_no_terminal_is_said() -> None:
    with open(os.devnull) as nothing, pytest.raises(RobotError, match="single keys need a terminal"):
        Keyboard(SO101.commands, source=nothing).open()


# -- every way out ---------------------------------------------------------------------------------------------

LONG_S = 60.0
TAKE_TERMINAL = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""
"""Makes the terminal that of the session, so that Ctrl-C and Ctrl-Z reach the process as from a real one.

The program itself does it: a function between fork and exec, in a process with the threads of other tests, may wait
forever for a lock that one of them had.
"""
PROGRAM = """
import os, signal, sys, time
from hal.robots.so101 import SO101
from rlenv_operate.teleop.keyboard import Keyboard
keyboard = Keyboard(SO101.commands)
keyboard.open()
print("open", flush=True)
sys.stdin.fileno()
{ending}
"""
NAP = "time.sleep(600)"
WAYS = {
    "end": ("pass", None, 0),
    "error": ("raise KeyError", None, 1),
    "ctrl-c": (NAP, b"\x03", -signal.SIGINT),
    "SIGTERM": (NAP, signal.SIGTERM, 128 + signal.SIGTERM),
}


def started(screen: Screen, ending: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL + PROGRAM.format(ending=ending)], stdin=screen.screen,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    return process


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_the_terminal_is_as_it_was_after(screen: Screen, way: str) -> None:
    ending, how, code = WAYS[way]
    with started(screen, ending) as process:
        if isinstance(how, bytes):
            assert not screen.untouched
            os.write(screen.person, how)
        elif how is not None:
            assert not screen.untouched
            process.send_signal(how)
        ended = process.wait(LONG_S)
    assert screen.untouched
    assert ended == code


SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], process_group=0, stdout=subprocess.PIPE)
os.tcsetpgrp(0, child.pid)
child.stdout.readline()
print(child.pid, flush=True)
_, status = os.waitpid(child.pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else status, flush=True)
sys.exit(child.wait())
"""
"""Program that starts a job as a shell does: without a job of its own, Ctrl-Z would be ignored."""


@pytest.mark.process
def test_while_suspended_the_terminal_is_as_before(screen: Screen) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKE_TERMINAL + SHELL, PROGRAM.format(ending=NAP)], stdin=screen.screen,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as shell:  # fmt: skip
        assert shell.stdout is not None
        job = int(shell.stdout.readline())
        assert not screen.untouched
        os.write(screen.person, b"\x1a")
        assert shell.stdout.readline() == b"stopped\n"
        assert screen.untouched
        os.kill(job, signal.SIGCONT)
        until(lambda: not screen.untouched, LONG_S)
        os.kill(job, signal.SIGTERM)
        shell.wait(LONG_S)
    assert screen.untouched


def test_closing_restores_the_terminal_and_the_handlers(screen: Screen) -> None:
    keyboard = Keyboard(SO101.commands, source=screen.stream, target=io.StringIO())
    for _ in range(2):
        keyboard.open()
        assert not screen.untouched
        keyboard.close()
        keyboard.close()
        assert screen.untouched
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
