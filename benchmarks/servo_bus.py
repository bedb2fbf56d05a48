"""CPU and duration of a six-servo read on the virtual bus, ours beside LeRobot's and rustypot's where installed.

    python benchmarks/servo_bus.py

The servos run in a process of their own. "At once" is a bus without wire time: it shows what a client costs. "Wire" has
the wire's time and a turn-around of 0.14 ms for each servo: it shows how near a client comes to the bus's own limit.
Each client reads six positions (LeRobot, rustypot), ours also the 15 bytes that hold every measurement, and the 38 with
the settings before them, which the driver reads, 5 ms after the read before. Processor time is that of the calling
thread, in which all of them work, within the reads alone. "Bare" is the floor of any program: `os.write`, a `poll` that
wakes once, and `os.read`, without a look at a byte.
"""

from __future__ import annotations

import importlib.util
import os
import select
import statistics
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hal.drivers import feetech
from hal.drivers.bus import BusSettings, ServoBus
from hal.drivers.serial_port import SerialPort
from hal.drivers.sts3215 import FEEDBACK, STATE

IDS = (1, 2, 3, 4, 5, 6)
TURNAROUND_S = 0.00014
ROUNDS, READS = 7, 60
PAUSE_S = 0.005
"""Time between two reads, as in a loop of 200 periods a second."""

SERVER = """
import sys, time
from sim.servo_bus.arm import so101_servos
from sim.servo_bus.line import ServoLine
from rlenv_arms.servo_terminal import ServoTerminal
line = ServoLine(so101_servos())
if sys.argv[1] == "at once":
    receive = line.receive
    cache = {}
    def at_once(data, baud, at_ns):
        if data not in cache:
            line._free_ns = 0
            cache[data] = [(0, b"".join(answer for _, answer in receive(data, baud, at_ns)))]
        return cache[data]
    line.receive = at_once
terminal = ServoTerminal(line)
print(terminal.path, flush=True)
time.sleep(600)
"""


@contextmanager
def server(mode: str) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, mode], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def measure(name: str, read: Callable[[], object], wire_s: float | None) -> None:
    """Print medians over rounds: CPU and duration of a read, and their spread."""
    cpu, wall = [], []
    for _ in range(ROUNDS):
        cpu_s = wall_s = 0.0
        for _ in range(READS):
            time.sleep(PAUSE_S)
            begin_cpu_s, begin_s = time.thread_time(), time.perf_counter()
            read()
            cpu_s, wall_s = cpu_s + time.thread_time() - begin_cpu_s, wall_s + time.perf_counter() - begin_s
        cpu.append(cpu_s / READS * 1e3)
        wall.append(wall_s / READS * 1e3)
    times = "" if wire_s is None else f", {statistics.median(wall) / wire_s / 1e3:.2f} times wire and turn-around"
    print(
        f"  {name:28} CPU {statistics.median(cpu):.3f} ms ({min(cpu):.3f} to {max(cpu):.3f}), "
        f"duration {statistics.median(wall):.3f} ms{times}"
    )


def bare(path: str, count: int) -> Callable[[], object]:
    """Return a read of the operating system's calls alone."""
    port, request = SerialPort(path), feetech.sync_read(33, count, IDS)
    expected = 6 * (6 + count)
    port.exchange(request, expected, 1.0)  # so that the terminal wakes once for all answers
    time.sleep(0.2)
    port.discard()  # what came after that: each read is to wait for its own answers
    fd, poll = port.fileno(), select.poll()
    poll.register(fd, select.POLLIN)

    def read() -> None:
        os.write(fd, request)
        poll.poll(1000)
        left = expected
        while left > 0:  # a read that finds fewer than VMIN returns at most 64 bytes
            left -= len(os.read(fd, 4096))

    return read


def lerobot_bus(path: str) -> Callable[[], object] | None:
    if importlib.util.find_spec("lerobot") is None:
        return None
    for name in ("torch", "accelerate", "datasets", "datasets.utils", "datasets.utils.logging"):
        if name not in sys.modules:  # unrelated imports of LeRobot's utilities
            module = types.ModuleType(name)
            module.__getattr__ = lambda member: type(member, (), {})  # type: ignore[method-assign]
            sys.modules[name] = module
    from lerobot.motors import Motor, MotorNormMode
    from lerobot.motors.feetech import FeetechMotorsBus

    bus = FeetechMotorsBus(path, {f"m{servo}": Motor(servo, "sts3215", MotorNormMode.DEGREES) for servo in IDS})
    bus.connect(handshake=False)
    return lambda: bus.sync_read("Present_Position", normalize=False, num_retry=20)


def rustypot_bus(path: str) -> Callable[[], object] | None:
    if importlib.util.find_spec("rustypot") is None:
        return None
    from rustypot import Sts3215PyController

    bus = Sts3215PyController(serial_port=path, baudrate=1_000_000, timeout=0.5)
    return lambda: bus.sync_read_present_position(list(IDS))


def main() -> None:
    for mode in ("at once", "wire"):
        print(f"{mode}:")
        for name, count in (("bare, 6 positions", 2), ("bare, 6 x 15 bytes", 15), ("bare, 6 x 38 bytes", 38)):
            with server(mode) as path:
                measure(name, bare(path, count), None)
        for name, address, count in (
            ("ours, 6 positions", 56, 2), ("ours, 6 x 15 bytes", *FEEDBACK), ("ours, 6 x 38 bytes", *STATE),
        ):  # fmt: skip
            with server(mode) as path:
                bus = ServoBus(SerialPort(path), feetech, BusSettings(latency_s=1.0))
                wire_s = bus.wire_s(14, 6, count) + 6 * TURNAROUND_S if mode == "wire" else None
                measure(name, lambda bus=bus, at=address, n=count: bus.sync_read(at, n, IDS), wire_s)
                if bus.counts.missing:
                    print(f"    {bus.counts.missing} answers missed")
                bus.close()
        for name, connect in (("LeRobot, 6 positions", lerobot_bus), ("rustypot, 6 positions", rustypot_bus)):
            with server(mode) as path:
                read = connect(path)
                if read is None:
                    print(f"  {name:28} not installed")
                else:
                    measure(name, read, (14 + 48) * 1e-5 + 6 * TURNAROUND_S if mode == "wire" else None)


if __name__ == "__main__":
    main()
