"""LeRobot's own servo bus at speed on virtual servos: answers, errors and wrong values, with the bytes of the first.

    python benchmarks/lerobot_bus.py --strangers PYTHON [--seconds 600] [--bus ours foreign late] [--patience-ms 2000]

PYTHON is an interpreter with LeRobot (0.4.4, or 0.6.1 with Python 3.12), feetech-servo-sdk and pyserial; torch need not
be there. Buses, each in a process of its own: ``ours`` is `rlenv-robot robot twin so101 --bus`; ``foreign`` the
emulator that was written from the maker's tables alone (`tests/hal/foreign_bus.py`), with the wire's time; ``late`` the
same with one answer in 500 that comes 80 ms late, after LeRobot's time-out.

LeRobot waits 50 ms for an answer, by the wall clock, so on a busy machine it gives up answers that came in time. With
``--patience-ms`` it waits longer and is not changed otherwise: then what is wrong is the bus's fault.

The client writes six goals, reads six positions and the six goals, and then writes or reads one register of one servo,
as fast as answers come. A value is wrong if a register does not read back as it was written, or if a position, a
temperature or a voltage is one that the servo can't have. Nothing is tried again. The trace has the last bytes before
each of the first errors and wrong values, with milliseconds before its end.
"""

from __future__ import annotations

import argparse
import collections
import importlib.machinery
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WAVE, PERIOD_S = 150, 4.0  # steps, s
FASTEST = 3400 * 1.3  # step/s


# -- the client, in the interpreter that has LeRobot -----------------------------------------------------------------


def without_torch() -> None:
    """Put empty modules in the place of packages that LeRobot imports and its bus does not use."""
    for name in ("torch", "accelerate", "datasets", "datasets.utils", "datasets.utils.logging"):
        if name.partition(".")[0] in sys.modules or importlib.util.find_spec(name.partition(".")[0]) is None:
            module = types.ModuleType(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            module.__getattr__ = lambda member: type(member, (), {})  # type: ignore[method-assign]
            sys.modules[name] = module


class Client:
    """Drive LeRobot's bus, and judge every value that it returns."""

    def __init__(self, path: str, patience_ms: float) -> None:
        from lerobot.motors import Motor, MotorNormMode
        from lerobot.motors.feetech import FeetechMotorsBus

        self.names = [f"m{servo}" for servo in range(1, 7)]
        motors = {name: Motor(int(name[1:]), "sts3215", MotorNormMode.DEGREES) for name in self.names}
        self.bus = FeetechMotorsBus(path, motors)
        port = self.bus.port_handler
        own = port.setPacketTimeout
        port.setPacketTimeout = lambda length: port.setPacketTimeoutMillis(patience_ms or 3000.0)
        self.bus.connect()  # which tries nothing again
        if not patience_ms:
            port.setPacketTimeout = own
        self.trace: collections.deque[tuple[float, str, bytes]] = collections.deque(maxlen=400)
        serial = port.ser
        write, read = serial.write, serial.read

        def traced_write(data: bytes) -> int:
            self.trace.append((time.perf_counter(), ">", bytes(data)))
            return write(data)

        def traced_read(size: int) -> bytes:
            data = read(size)
            if data:
                self.trace.append((time.perf_counter(), "<", bytes(data)))
            return data

        serial.write, serial.read = traced_write, traced_read
        self.done: collections.Counter[str] = collections.Counter()
        self.errors: collections.Counter[str] = collections.Counter()
        self.wrong: collections.Counter[str] = collections.Counter()
        self.first: list[str] = []
        self.error_s = -math.inf
        self.after_error = 0  # wrong values within a second of an error
        self.worst_lag = 0
        self.longest_s = 0.0

    def call(self, kind: str, method: Callable[..., Any], *args: Any) -> Any:
        """Call the bus; return None after an error."""
        begun_s = time.perf_counter()
        try:
            value = method(*args, normalize=False)
        except Exception as error:
            self.errors[f"{kind}: {str(error).rpartition(']')[2].strip()}"] += 1
            self.error_s = time.perf_counter()
            self.note(f"error in {kind}: {error}", begun_s)
            return None
        self.longest_s = max(self.longest_s, time.perf_counter() - begun_s)
        self.done[kind] += 1
        return value

    def judge(self, kind: str, right: bool, text: str) -> None:
        if not right:
            self.wrong[kind] += 1
            self.after_error += time.perf_counter() - self.error_s < 1.0
            self.note(f"wrong {kind}: {text}", time.perf_counter() - 0.3)

    def note(self, title: str, since_s: float) -> None:
        if len(self.first) < 12:
            end_s = time.perf_counter()
            rows = [row for row in self.trace if row[0] > since_s - 0.02][-24:]
            lines = [f"  {(at - end_s) * 1e3:9.3f} {way} {data.hex(' ')}" for at, way, data in rows]
            self.first.append("\n".join([title, *lines]))

    def run(self, seconds: float) -> dict[str, Any]:
        bus, rng = self.bus, random.Random(0)
        for motor in self.names:
            bus.write("Torque_Enable", motor, 0, normalize=False, num_retry=20)
        begin = bus.sync_read("Present_Position", normalize=False, num_retry=20)
        bus.sync_write("Goal_Position", begin, normalize=False)
        bus.enable_torque(num_retry=20)
        base = {name: min(max(position, 2048 - 700), 2048 + 700) for name, position in begin.items()}
        seen = dict(begin)
        seen_s = start_s = time.perf_counter()
        while (now_s := time.perf_counter() - start_s) < seconds:
            share = min(1.0, now_s / 3.0)  # to the middle first, in three seconds
            wave = WAVE * math.sin(2 * math.pi * now_s / PERIOD_S) * share
            goals = {name: round(begin[name] + (base[name] - begin[name]) * share + wave) for name in self.names}
            self.call("sync_write", bus.sync_write, "Goal_Position", goals)
            positions = self.call("sync_read position", bus.sync_read, "Present_Position")
            if positions is not None:
                at_s = time.perf_counter()
                reach = FASTEST * (at_s - seen_s) + 20
                right = all(abs(positions[name] - seen[name]) <= reach for name in self.names)
                self.judge("position", right, f"{positions} after {seen}, {(at_s - seen_s) * 1e3:.1f} ms later")
                if right:
                    seen, seen_s = positions, at_s
                if now_s > 6.0:
                    self.worst_lag = max(self.worst_lag, *(abs(positions[name] - goals[name]) for name in self.names))
            held_now = self.call("sync_read goal", bus.sync_read, "Goal_Position")
            if held_now is not None:
                self.judge("goal", held_now == goals, f"{held_now}, written {goals}")
            self.single(rng.choice(self.names), rng, goals)
        return self.report(seconds)

    def single(self, name: str, rng: random.Random, goals: dict[str, int]) -> None:
        """Write, or read, one register of one servo."""
        bus, act = self.bus, rng.randrange(4)
        if act == 0:
            limit = rng.randrange(600, 1000)
            written = self.call("write", lambda *args, normalize: (bus.write(*args, normalize=normalize), True)[1],
                                "Torque_Limit", name, limit)  # fmt: skip
            got = self.call("read", bus.read, "Torque_Limit", name)
            if written and got is not None:
                self.judge("limit", got == limit, f"{name} has {got}, written {limit}")
            return
        register, right = [
            ("Goal_Position", lambda value: value == goals[name]),
            ("Present_Temperature", lambda value: 15 <= value <= 70),
            ("Present_Voltage", lambda value: 40 <= value <= 130),
        ][act - 1]
        got = self.call("read", bus.read, register, name)
        if got is not None:
            self.judge(register, right(got), f"{name} has {got}")

    def report(self, seconds: float) -> dict[str, Any]:
        return {
            "answers": dict(self.done), "rate": sum(self.done.values()) / seconds, "errors": dict(self.errors),
            "wrong": dict(self.wrong), "wrong within 1 s of an error": self.after_error, "first": self.first,
            "farthest from its goal": self.worst_lag, "longest ms": self.longest_s * 1e3,
        }  # fmt: skip


# -- the buses -----------------------------------------------------------------------------------------------------


@contextmanager
def served(kind: str) -> Iterator[tuple[str, Callable[[], dict[str, int]]]]:
    """Yield the path of a bus in a process of its own, and a function that returns its counts."""
    if kind == "ours":
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/arm"
            words = [sys.executable, "-m", "rlenv_robot", "robot", "twin", "so101", "--bus", "--link", path]
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
            assert process.stdout is not None
            try:
                process.stdout.readline()
                yield path, dict
            finally:
                process.terminate()
                process.communicate()
        return
    sys.path.insert(0, str(ROOT))
    from tests.hal.foreign_bus import ForeignProcess

    with ForeignProcess(wire_time=True) as bus:
        if kind == "late":
            bus.random_troubles(0.002, ("late",), value=0.08)
        yield bus.path, bus.count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strangers", default=sys.executable, help="interpreter with LeRobot")
    parser.add_argument("--seconds", type=float, default=600.0, help="of each bus")
    parser.add_argument("--bus", nargs="+", default=["ours", "foreign", "late"], choices=("ours", "foreign", "late"))
    parser.add_argument("--patience-ms", type=float, default=0.0, help="LeRobot's time-out; 0: its own, 50 ms")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        without_torch()
        print(json.dumps(Client(options.client, options.patience_ms).run(options.seconds)))
        return
    for kind in options.bus:
        with served(kind) as (path, counts):
            words = [options.strangers, "-W", "ignore", __file__, "--client", path, "--seconds", str(options.seconds),
                     "--patience-ms", str(options.patience_ms)]  # fmt: skip
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{kind}: {done.stderr.strip()[-2000:]}")
                continue
            told = json.loads(done.stdout.strip().splitlines()[-1])
            first = told.pop("first")
            summary = json.dumps(told | {"bus": counts()}, indent=1)
            print(f"{kind}: load {os.getloadavg()[0]:.1f}", summary, *first, sep="\n", flush=True)


if __name__ == "__main__":
    main()
