"""Six STS3215 whose registers are a table, without physics: a servo bus that costs the measured machine little.

    python benchmarks/table_bus.py LINK CALIBRATION

A joint follows its goal at the servo's fastest rate; to the guard, one that is there at once is a faulty encoder.
Answers leave together when the wire's time and a turn-around of 0.14 ms for each servo are over, as a driver that
waits for the whole group sees them. The process sleeps in between, and asks for a real-time priority above that of any
loop, as servos answer however busy a machine is. So a loop beside it is measured, and not the simulation of an arm
(`rlenv-robot robot twin so101 --bus`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pty
import select
import sys
import time
import tty
from pathlib import Path

from hal.drivers import feetech
from hal.drivers.calibration import nominal_calibration, save_calibration
from hal.drivers.sts3215 import STEPS, STS3215
from sim.servo_bus.arm import so101_servos

BYTE_S, TURNAROUND_S = 1e-5, 0.00014
PRIORITY = 60
GOAL, PRESENT = slice(42, 44), slice(56, 58)


class TableBus:
    """The registers of six servos, and their answers to requests."""

    def __init__(self) -> None:
        calibrated = so101_servos((STEPS // 2,) * 6)
        self._memory = {servo.servo_id: servo.memory for servo in calibrated}
        self._moved_s = time.perf_counter()

    def answer(self, data: bytes) -> tuple[bytes, int]:
        """Return the bytes of the answers to requests, and how many servos answer."""
        self._move()
        answers, count = [], 0
        for servo, instruction, params in feetech.scan(data, answers=False, final=True).packets:
            if instruction == feetech.SYNC_READ:
                reads = [(name, params[0], params[1]) for name in params[2:] if name in self._memory]
            elif instruction == feetech.SYNC_WRITE:
                reads, size = [], params[1] + 1
                for at in range(2, len(params), size):
                    self._write(params[at], params[0], params[at + 1 : at + size])
            elif instruction == feetech.READ:
                reads = [(servo, params[0], params[1])] if servo in self._memory else []
            elif servo in self._memory:
                if instruction == feetech.WRITE:
                    self._write(servo, params[0], params[1:])
                reads = [(servo, 0, 0)]
            else:
                continue
            count += len(reads)
            answers += [feetech.status(name, 0, bytes(self._memory[name][at : at + size])) for name, at, size in reads]
        return b"".join(answers), count

    def _write(self, servo: int, address: int, values: bytes) -> None:
        memory = self._memory[servo]
        memory[address : address + len(values)] = values

    def _move(self) -> None:
        """Bring each joint nearer to its goal for the time since the last call."""
        now_s = time.perf_counter()
        farthest = int((now_s - self._moved_s) * STS3215.max_rate)
        if not farthest:
            return
        self._moved_s = now_s
        for memory in self._memory.values():
            goal, present = (int.from_bytes(memory[where], "little") for where in (GOAL, PRESENT))
            present += max(-farthest, min(farthest, goal - present))
            memory[PRESENT] = present.to_bytes(2, "little")


def serve(link: Path) -> None:
    """Answer for ever at a pseudo-terminal."""
    ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK: a sleep ends on time
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    bus = TableBus()
    master, slave = pty.openpty()
    tty.setraw(slave)
    link.unlink(missing_ok=True)
    link.symlink_to(os.ttyname(slave))
    print(link, flush=True)
    while True:
        select.select([master], [], [])
        begun = time.perf_counter()
        data = os.read(master, 4096)
        answer, count = bus.answer(data)
        if answer:
            wire_s = (len(data) + len(answer)) * BYTE_S + count * TURNAROUND_S
            time.sleep(max(begun + wire_s - time.perf_counter(), 0.0))
            os.write(master, answer)


if __name__ == "__main__":
    save_calibration(Path(sys.argv[2]), nominal_calibration())
    serve(Path(sys.argv[1]))
