"""The pseudo-terminal: a serial port of the operating system reaches the virtual servos, and loses them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.drivers import feetech
from hal.drivers.bus import BusSettings, ServoBus
from hal.drivers.serial_port import SerialPort, port_holders
from hal.errors import ConnectionLost
from rlenv_arms.servo_terminal import ServoTerminal
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import LineFaults, ServoLine

PATIENT = BusSettings(latency_s=2.0)  # a busy machine is no fault of the bus


@pytest.fixture
def terminal() -> Iterator[ServoTerminal]:
    with ServoTerminal(ServoLine([FeetechServo(servo) for servo in (1, 2)])) as terminal:
        yield terminal


def bus_at(terminal: ServoTerminal, baud: int = 1_000_000) -> ServoBus:
    return ServoBus(SerialPort(terminal.path, baud), feetech, PATIENT)


def test_servos_are_read_and_written_through_the_operating_system(terminal: ServoTerminal) -> None:
    bus = bus_at(terminal)
    bus.write(1, 48, b"\xf4\x01")
    replies = bus.sync_read(48, 2, (1, 2))
    assert {servo: reply.data for servo, reply in replies.items()} == {1: b"\xf4\x01", 2: b"\xe8\x03"}
    bus.close()
    bus.close()


def test_one_silent_servo_leaves_five_fresh_through_the_operating_system() -> None:
    """Linux returns at most 64 of the bytes that are there where fewer came than were waited for."""
    ids, faults = (1, 2, 3, 4, 5, 6), LineFaults(silent={3})
    with ServoTerminal(ServoLine([FeetechServo(servo) for servo in ids], faults=faults)) as terminal:
        bus = ServoBus(SerialPort(terminal.path), feetech, BusSettings(latency_s=0.5))
        assert set(bus.sync_read(56, 15, ids)) == set(ids) - {3}
        faults.silent.clear()
        time.sleep(0.2)
        for _ in range(3):
            assert set(bus.sync_read(56, 15, ids)) == set(ids)
        bus.close()


@pytest.mark.parametrize("code", range(8))
def test_every_baud_rate_of_the_servo_can_be_set(terminal: ServoTerminal, code: int) -> None:
    from hal.drivers.sts3215 import BAUD_RATES

    terminal.line.servos[0].set("baud_rate", code)  # type: ignore[attr-defined]
    bus = bus_at(terminal, BAUD_RATES[code])
    assert bus.read(1, 3, 2).data == b"\x09\x03"
    bus.close()


def test_a_wrong_baud_rate_is_silence(terminal: ServoTerminal) -> None:
    port = SerialPort(terminal.path, 115_200)
    assert not ServoBus(port, feetech, BusSettings(latency_s=0.05)).present(1)
    port.close()


def test_what_was_received_before_a_request_is_discarded(terminal: ServoTerminal) -> None:
    port = SerialPort(terminal.path)
    port.send(feetech.read(1, 3, 2))
    time.sleep(0.2)
    port.discard()
    assert port.receive(0.05) == b""
    port.close()


def test_a_port_is_opened_once(terminal: ServoTerminal) -> None:
    port = SerialPort(terminal.path)
    with pytest.raises(ConnectionLost, match="held by"):
        SerialPort(terminal.path)
    port.close()
    SerialPort(terminal.path).close()


def test_a_program_with_a_lock_keeps_the_port(terminal: ServoTerminal) -> None:
    other = os.open(terminal.path, os.O_RDWR | os.O_NOCTTY)
    fcntl.flock(other, fcntl.LOCK_EX)  # pyserial's exclusive=True
    with pytest.raises(ConnectionLost, match="held by"):
        SerialPort(terminal.path)
    os.close(other)


def test_an_unplugged_port_is_lost_and_a_replugged_one_is_found(tmp_path: Path) -> None:
    link = tmp_path / "arm"
    with ServoTerminal(ServoLine([FeetechServo(1)]), link) as terminal:
        bus = ServoBus(SerialPort(link), feetech, PATIENT)
        assert bus.present(1)
        terminal.unplug()
        with pytest.raises(ConnectionLost):
            bus.read(1, 3, 2)
        with pytest.raises(ConnectionLost, match="no such device"):
            SerialPort(link)
        terminal.plug()
        bus.close()
        bus = ServoBus(SerialPort(link), feetech, PATIENT)
        assert bus.present(1)
        bus.close()


def test_what_is_no_serial_port_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConnectionLost):
        SerialPort(tmp_path / "file")
    with pytest.raises(ConnectionLost, match="no such device"):
        SerialPort(tmp_path / "missing")


def test_nobody_holds_a_port_that_is_not_open(terminal: ServoTerminal) -> None:
    assert port_holders(terminal.path) == []
