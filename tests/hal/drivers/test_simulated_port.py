"""An ordinary terminal stays a serial port, and the clock of a virtual one leaves out what nobody could run."""

from __future__ import annotations

import os
import pty
import threading
import time
from types import SimpleNamespace

import pytest

from hal.drivers.serial_port import SerialPort
from hal.drivers.simulated_port import _RunningClock, open_port, waited_ns
from hal.errors import ConnectionLost

MS = 1_000_000


class Machine:
    """The clocks of a machine that a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ns = self.waited_ns = 0
        monkeypatch.setattr("hal.drivers.simulated_port.time", SimpleNamespace(monotonic_ns=lambda: self.wall_ns))
        monkeypatch.setattr("hal.drivers.simulated_port.waited_ns", lambda: self.waited_ns)
        self.clock = _RunningClock()
        self.clock.now_ns()

    def pass_ms(self, passed: int, waited: int = 0) -> float:
        """Let time pass, some of it without a processor; return what the clock says, milliseconds."""
        self.wall_ns += passed * MS
        self.waited_ns += waited * MS
        return self.clock.now_ns() / MS


def test_an_ordinary_terminal_is_a_serial_port() -> None:
    master, slave = pty.openpty()
    port = open_port(os.ttyname(slave))
    assert isinstance(port, SerialPort)
    port.close()
    os.close(master)
    os.close(slave)
    with pytest.raises(ConnectionLost, match="no such device"):
        open_port("/dev/missing")


def test_the_clock_leaves_out_waiting_for_a_processor_and_catches_up_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert machine.pass_ms(100) == 100
    assert machine.pass_ms(1000, waited=900) == 204, "it ran for 100 ms, and gains a twenty-fifth"
    assert machine.pass_ms(100) == 308
    for _ in range(300):
        behind = machine.pass_ms(100) - machine.wall_ns / MS
    assert behind == 0, "it is never ahead"


def test_the_clock_goes_on_from_the_time_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    machine.pass_ms(100)
    machine.wall_ns += 500 * MS
    machine.clock.set(103 * MS)
    assert machine.clock.now_ns() / MS == 103, "the other process was late, not the servos"
    machine.clock.set(50 * MS)
    assert machine.clock.now_ns() / MS == 103, "it never falls"


def test_the_time_without_a_processor_is_that_of_the_thread() -> None:
    before, found = waited_ns(), []
    assert before >= 0
    thread = threading.Thread(target=lambda: found.append(waited_ns()))
    thread.start()
    thread.join()
    assert found[0] >= 0
    time.sleep(0.01)
    assert waited_ns() >= before
