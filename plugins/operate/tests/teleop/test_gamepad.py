"""A gamepad's events, through a pipe: only a held shoulder button moves the robot."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal.robots.so101 import SO101
from rlenv_operate.teleop.gamepad import (
    BTN_TL,
    BTN_TR,
    EV_ABS,
    EV_KEY,
    EV_SYN,
    EVENT,
    SYN_DROPPED,
    Gamepad,
    find_gamepads,
)

HERE = {"joint_target": np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], np.float32)}
STRIDE = 0.6 * SO101.period_s


class Pipe:
    """A named pipe that stands for an event device."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self.end = path, os.open(path, os.O_RDWR)

    def put(self, kind: int, code: int, value: int, at_ns: int = 5_000_001_000) -> None:
        os.write(self.end, EVENT.pack(at_ns // 10**9, at_ns % 10**9 // 1000, kind, code, value))


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    made = Pipe(tmp_path / "event")
    yield made
    os.close(made.end)


@pytest.fixture
def gamepad(pipe: Pipe) -> Iterator[Gamepad]:
    made = Gamepad(pipe.path, SO101, 0.6)
    made.open()
    made.open()
    yield made
    made.close()
    made.close()


def moved(gamepad: Gamepad) -> Any:
    target = gamepad.poll(HERE)
    return None if target is None else (target["joint_target"] - HERE["joint_target"]) / STRIDE


def test_a_stick_moves_a_joint_while_a_shoulder_button_is_held(pipe: Pipe, gamepad: Gamepad) -> None:
    pipe.put(EV_ABS, 0, -32768)
    assert moved(gamepad) is None
    assert gamepad.input_ns == 5_000_001_000
    pipe.put(EV_KEY, BTN_TL, 1)
    np.testing.assert_allclose(moved(gamepad), [1, 0, 0, 0, 0, 0], atol=1e-4)
    pipe.put(EV_ABS, 0, 2000)
    pipe.put(EV_ABS, 5, 1023)
    pipe.put(EV_ABS, 17, 1)
    np.testing.assert_allclose(moved(gamepad), [0, 0, 0, -1, 0, 1], atol=1e-4)
    pipe.put(EV_KEY, BTN_TR, 1)
    pipe.put(EV_KEY, BTN_TL, 0)
    assert moved(gamepad) is not None, "the other one is held"
    pipe.put(EV_KEY, BTN_TR, 0)
    assert moved(gamepad) is None


def test_events_that_were_dropped_open_the_clutch_until_it_is_closed_anew(pipe: Pipe, gamepad: Gamepad) -> None:
    pipe.put(EV_KEY, BTN_TR, 1)
    pipe.put(EV_ABS, 1, 32767)
    assert moved(gamepad) is not None
    pipe.put(EV_SYN, SYN_DROPPED, 0)
    pipe.put(EV_ABS, 1, 32767)
    assert moved(gamepad) is None
    pipe.put(EV_KEY, BTN_TR, 1)
    np.testing.assert_allclose(moved(gamepad), [0, -1, 0, 0, 0, 0], atol=1e-4)


def test_an_event_that_comes_in_two_parts_is_read_whole(pipe: Pipe, gamepad: Gamepad) -> None:
    event = EVENT.pack(5, 1, EV_KEY, BTN_TR, 1)
    os.write(pipe.end, event[:7])
    assert moved(gamepad) is None
    os.write(pipe.end, event[7:])
    assert moved(gamepad) is not None


def test_the_first_motion_since_a_mark_has_the_event_s_time(pipe: Pipe, gamepad: Gamepad) -> None:
    gamepad.mark()
    pipe.put(EV_KEY, BTN_TR, 1, 1_000_000)
    pipe.put(EV_ABS, 0, 100, 2_000_000)
    pipe.put(EV_ABS, 0, 9000, 3_000_000)
    pipe.put(EV_ABS, 0, 20000, 4_000_000)
    moved(gamepad)
    assert gamepad.input_ns == 3_000_000


def test_a_gamepad_that_is_gone_is_an_error_and_opens_the_clutch(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path / "event")
    gamepad = Gamepad(pipe.path, SO101, 0.6)
    gamepad.open()
    pipe.put(EV_KEY, BTN_TR, 1)
    assert moved(gamepad) is not None
    os.close(pipe.end)
    with pytest.raises(OSError, match="gone"):
        gamepad.poll(HERE)
    gamepad.close()
    with pytest.raises(FileNotFoundError):
        Gamepad(tmp_path / "none", SO101, 0.6).open()
    assert all("event-joystick" in path for path in find_gamepads())
