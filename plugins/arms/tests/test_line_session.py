"""A program that lets the arm's time pass gets the answers of that time, however late anybody ran."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.drivers import feetech
from hal.drivers.bus import BusSettings, ServoBus
from hal.drivers.serial_port import SerialPort
from hal.drivers.simulated_port import HELLO, MAGIC, SimulatedPort, line_address, open_port
from hal.errors import ConnectionLost
from rlenv_arms.servo_terminal import ServoTerminal
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import ServoLine
from tests.fakes import until

HURRIED = BusSettings(turnaround_s=0.0005, latency_s=0.001)
IDS = (1, 2, 3, 4, 5, 6)


class SlowLine(ServoLine):
    """A line whose process gets no processor for half a second in each request."""

    def receive(self, data: bytes, baud: int, at_ns: int) -> list[tuple[int, bytes]]:
        time.sleep(0.5)
        return super().receive(data, baud, at_ns)


@pytest.fixture
def times() -> list[int]:
    """The times up to which the arm was moved, nanoseconds."""
    return [0]


@pytest.fixture
def terminal(times: list[int]) -> Iterator[ServoTerminal]:
    line = SlowLine([FeetechServo(servo) for servo in IDS])
    with ServoTerminal(line, on_time=times.append) as terminal:
        yield terminal


def test_servos_without_a_processor_are_not_silent(terminal: ServoTerminal) -> None:
    bus = ServoBus(open_port(terminal.path), feetech, HURRIED)
    before_ns = bus.port.now_ns()
    replies = bus.sync_read(56, 15, IDS)
    assert set(replies) == set(IDS)
    assert bus.counts.missing == 0
    assert replies[1].stamp_ns - before_ns >= 14e5, "the bytes take their time"
    bus.write(1, 48, b"\xf4\x01")
    bus.close()
    bus.close()
    with pytest.raises(ConnectionLost):
        bus.port.send(b"")


def test_a_silent_servo_is_missed_after_its_own_time(terminal: ServoTerminal) -> None:
    terminal.line.faults.silent.add(3)
    bus = ServoBus(open_port(terminal.path), feetech, HURRIED)
    assert set(bus.sync_read(56, 15, IDS)) == set(IDS) - {3}
    assert bus.counts.missing == 1
    bus.close()


def test_a_program_of_anothers_reads_the_same_terminal_before_and_after(terminal: ServoTerminal) -> None:
    for _ in range(2):
        stranger = ServoBus(SerialPort(terminal.path), feetech, BusSettings(latency_s=5.0))
        assert stranger.present(1)
        stranger.close()
        bus = ServoBus(open_port(terminal.path), feetech, HURRIED)
        assert bus.present(1)
        bus.close()


def test_a_sleep_lets_the_arm_move_on_meanwhile(times: list[int]) -> None:
    with ServoTerminal(ServoLine([FeetechServo(1)]), on_time=times.append) as terminal:
        port = open_port(terminal.path)

        def moved_within_a_sleep() -> bool:
            begin_ns = port.now_ns()
            port.sleep(0.2)
            assert port.now_ns() - begin_ns >= 0.2e9
            return any(begin_ns < at_ns < begin_ns + 0.19e9 for at_ns in times)

        until(moved_within_a_sleep)
        port.close()


def test_a_program_that_asks_nothing_does_not_let_the_arm_move_on(
    times: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlenv_arms.line_session._PATIENCE_NS", 10**15)
    with ServoTerminal(ServoLine([FeetechServo(1)]), on_time=times.append) as terminal:
        port = open_port(terminal.path)
        port.discard()
        at_ns = times[-1]
        time.sleep(0.1)
        assert times[-1] == at_ns
        port.close()


def test_a_frozen_program_lets_the_arm_move_on_after_a_second(times: list[int]) -> None:
    with ServoTerminal(ServoLine([FeetechServo(1)]), on_time=times.append) as terminal:
        port = open_port(terminal.path)
        port.discard()
        at_ns = times[-1]
        until(lambda: times[-1] > at_ns)
        port.close()


def test_a_killed_program_gives_the_arm_back_to_the_clock(terminal: ServoTerminal, times: list[int]) -> None:
    port = open_port(terminal.path)
    assert isinstance(port, SimulatedPort)
    port._connection.close()
    at_ns = time.monotonic_ns()
    until(lambda: times[-1] > at_ns)


def test_an_unplugged_arm_is_lost_and_found_again(tmp_path: Path) -> None:
    with ServoTerminal(ServoLine([FeetechServo(1)]), tmp_path / "arm") as terminal:
        bus = ServoBus(open_port(tmp_path / "arm"), feetech, HURRIED)
        assert bus.present(1)
        terminal.unplug()
        with pytest.raises(ConnectionLost):
            bus.read(1, 3, 2)
        bus.close()
        terminal.plug()
        bus = ServoBus(open_port(tmp_path / "arm"), feetech, HURRIED)
        assert bus.present(1)
        bus.close()


def test_a_port_is_opened_once_and_a_stranger_at_the_socket_is_refused(terminal: ServoTerminal) -> None:
    port = open_port(terminal.path)
    with pytest.raises(ConnectionLost, match="held by"):
        open_port(terminal.path)
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger.settimeout(10.0)
    stranger.connect(line_address(str(Path(terminal.path).resolve())))
    stranger.sendall(HELLO.pack(b"x" * len(MAGIC), 1, 0))
    assert stranger.recv(1) == b""
    stranger.close()
    assert ServoBus(port, feetech, HURRIED).present(1), "the session goes on"
    port.close()
