"""The port of a power cut: statuses, settings, and what is wrong with a board."""

from __future__ import annotations

import os
import pty
import tty
from contextlib import closing
from pathlib import Path

import pytest

from hal.errors import ConnectionLost
from rlenv_power_cut.firmware import power_cut as firmware
from rlenv_power_cut.link import PowerCutError, PowerCutLink


def test_a_board_is_set_and_keeps_it(board) -> None:
    with closing(PowerCutLink(board.port)) as link:
        assert not link.first_status().is_on
        status = link.set(300, True)
        assert (status.cut_ms, status.needs_button, status.refusal) == (300, True, "")
    board.orders.append("restart")
    with closing(PowerCutLink(board.port)) as link:
        status = link.first_status()
        assert (status.cut_ms, status.needs_button) == (300, True)


@pytest.mark.parametrize("wrong", [19, 2001, 0x8000, -1])
def test_the_cut_time_has_limits(board, wrong: int) -> None:
    with closing(PowerCutLink(board.port)) as link, pytest.raises(PowerCutError, match="20 to 2000 ms"):
        link.set(wrong, False)


def test_a_device_that_is_no_power_cut_is_named() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    try:
        with closing(PowerCutLink(os.ttyname(slave))) as link:
            os.write(master, b"MicroPython v1.29.0 on 2026-08-29; Raspberry Pi Pico\r\n>>> " * 20)
            with pytest.raises(PowerCutError, match="no status"):
                link.first_status(0.2)
    finally:
        os.close(master)
        os.close(slave)


def test_another_firmware_is_named(board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firmware, "VERSION", 2)
    with closing(PowerCutLink(board.port)) as link:
        link.first_status()
        monkeypatch.setattr(firmware, "VERSION", 1)
        link.receive(0.0)
        with pytest.raises(PowerCutError, match="has firmware 2, expected is 1"):
            link.first_status()


def test_an_absent_port_and_a_second_program_are_refused(board, tmp_path: Path) -> None:
    with pytest.raises(ConnectionLost, match="no such device"):
        PowerCutLink(tmp_path / "absent")
    with closing(PowerCutLink(board.port)), pytest.raises(ConnectionLost, match="held by"):
        PowerCutLink(board.port)
