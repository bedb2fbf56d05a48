"""Tests of the foreign emulator: the maker's byte vectors, and what the memory table says."""

from __future__ import annotations

import os
import select
import termios
from collections.abc import Callable

import pytest

from tests.hal.foreign_bus import ForeignBus, ForeignPort
from tests.hal.foreign_sts3215 import packet

Line = Callable[[str | bytes], str]


@pytest.fixture
def bus() -> ForeignPort:
    bus = ForeignPort()
    for id in (2, 3, 4):
        bus.set(id, gravity=0.0)
    return bus


@pytest.fixture
def line(bus: ForeignPort) -> Line:
    """Send bytes, and return those that come back within a moment."""

    def ask(data: str | bytes) -> str:
        bus.send(bytes.fromhex(data) if isinstance(data, str) else data)
        bus.sleep(0.02)
        return bus.receive(0.0).hex(" ").upper()

    return ask


def test_the_terminal_carries_the_bytes() -> None:
    with ForeignBus() as bus:
        port = os.open(bus.path, os.O_RDWR | os.O_NOCTTY)
        mode = termios.tcgetattr(port)
        mode[4] = mode[5] = termios.B1000000
        termios.tcsetattr(port, termios.TCSANOW, mode)
        os.write(port, bytes.fromhex("FF FF 01 02 01 FB"))
        got = b""
        while len(got) < 6:
            assert select.select([port], [], [], 30.0)[0]
            got += os.read(port, 4096)
        os.close(port)
    assert got.hex(" ").upper() == "FF FF 01 02 00 FC"


def test_the_makers_vectors(line: Line) -> None:
    assert line("FF FF 01 02 01 FB") == "FF FF 01 02 00 FC"
    assert line("FF FF 01 04 02 38 02 BE") == "FF FF 01 04 00 00 08 F2"
    assert line("FF FF 01 04 02 38 02 BF") == ""  # a wrong checksum
    both = line("FF FF FE 06 82 38 08 01 02 36")
    assert both == "FF FF 01 0A 00 00 08 00 00 00 00 4A 1E 84 FF FF 02 0A 00 00 08 00 00 00 00 4A 1E 83"
    assert line("FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7") == ""
    assert line("FF FF 01 04 02 2A 02 CC") == "FF FF 01 04 00 00 08 F2"
    assert line("FF FF 01 04 03 28 01 CE") == "FF FF 01 02 00 FC"
    assert line("FF FF 01 09 03 2A 00 08 00 00 E8 03 D5") == "FF FF 01 02 00 FC"


def test_a_locked_eeprom_keeps_a_write_until_power_goes(bus: ForeignPort, line: Line) -> None:
    for locked, kept in ((1, 1000), (0, 300)):
        line(packet(2, 3, bytes((55, locked))))
        line(packet(2, 3, bytes((16, 44, 1))))
        assert bus.register(2, 16, 2) == 300
        bus.brown_out(2)
        assert (bus.register(2, 16, 2), bus.register(2, 48, 2), bus.register(2, 40)) == (kept, kept, 0)


def test_a_servo_moves_to_its_goal_and_a_reset_lets_it_go(bus: ForeignPort, line: Line) -> None:
    line(packet(1, 3, bytes((42, 0, 9))))
    line(packet(1, 3, bytes((40, 1))))
    bus.sleep(0.6)
    assert abs(bus.register(1, 56, 2) - 0x0900) < 60
    bus.brown_out(1)
    bus.set(1, goal_switches_torque_on=True)
    line(packet(1, 3, bytes((42, 0, 9))))
    assert bus.register(1, 40) == 1
    assert [cause for _, _, cause in bus.look(1, "energised")] == ["power", "write", "brown-out", "goal"]


def test_troubles_spoil_the_answers_asked_for(bus: ForeignPort, line: Line) -> None:
    whole = "FF FF 03 02 00 FA"
    bus.trouble(3, "drop")
    bus.trouble(3, "flip")
    bus.trouble(3, "double")
    assert line("FF FF 03 02 01 F9") == ""
    assert line("FF FF 03 02 01 F9") not in ("", whole)
    assert line("FF FF 03 02 01 F9") == f"{whole} {whole}"
    bus.trouble(3, "late", value=0.1)
    assert line("FF FF 03 02 01 F9") == ""
    bus.sleep(0.1)
    assert line("FF FF 04 02 01 F8") == f"{whole} FF FF 04 02 00 F9"
    bus.hang(3, 0.05)
    assert line("FF FF 03 02 01 F9") == ""
    bus.sleep(0.05)
    assert line("FF FF 03 02 01 F9") == whole
