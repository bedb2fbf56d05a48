"""A bus of foreign STS3215 servos behind a pseudo-terminal, with the troubles of a real line.

python -m tests.hal.foreign_bus '{"wire_time": true}'     # in a process of its own: see ForeignProcess
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
import tty
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.hal.foreign_sts3215 import INITIAL, Servo, packet

PING, READ, WRITE, REG_WRITE, ACTION = 0x01, 0x02, 0x03, 0x04, 0x05
RESTORE, RESTART, CLEAR_TURNS, CALIBRATE, SYNC_READ, SYNC_WRITE = 0x06, 0x08, 0x0A, 0x0B, 0x82, 0x83
ALL = 0xFE
BAUD = (1_000_000, 500_000, 250_000, 128_000, 115_200, 76_800, 57_600, 38_400)
KINDS: tuple[str, ...] = ("drop", "flip", "cut", "noise")  # of random troubles


class Request(NamedTuple):
    """An instruction that arrived whole, with the time of its last byte."""

    time: float
    instruction: int
    id: int
    params: bytes

    @property
    def is_read(self) -> bool:
        return self.instruction in (READ, SYNC_READ)

    @property
    def address(self) -> int:
        """The first register; -1 for instructions without one."""
        addressed = self.instruction in (READ, WRITE, REG_WRITE, SYNC_READ, SYNC_WRITE)
        return self.params[0] if self.params and addressed else -1

    def written(self) -> dict[int, bytes]:
        """Return the data that the instruction writes, by servo."""
        if self.instruction == WRITE:
            return {self.id: self.params[1:]}
        if self.instruction != SYNC_WRITE:
            return {}
        size = self.params[1]
        rows = self.params[2:]
        return {rows[at]: rows[at + 1 : at + 1 + size] for at in range(0, len(rows), size + 1)}


class ForeignServos:
    """Six STS3215 (ids 1 to 6) on a line with the troubles of a real one. A subclass carries the bytes.

    Args:
        wire_time: Answers take the time of their bytes, and servos their turn-around.
        echo: The adapter gives the host its own bytes back.
        positions: Where the encoders stand, in steps.
        clock: The time, in seconds.
    """

    def __init__(
        self,
        *,
        wire_time: bool = False,
        echo: bool = False,
        positions: tuple[float, ...] = (2048.0,) * 6,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wire_time, self.echo, self.turn_around, self.clock = wire_time, echo, 0.00012, clock
        gravity = (0.0, 0.6, 0.4, 0.15, 0.0, 0.0)
        self.servos = [Servo(id, at, pull) for id, at, pull in zip(range(1, 7), positions, gravity, strict=True)]
        self.requests: deque[Request] = deque(maxlen=400_000)
        self.trace: deque[tuple[float, str, bytes]] = deque(maxlen=20_000)  # time, ">" to the servos or "<", bytes
        self.counts: Counter[str] = Counter()
        self._troubles: dict[int, deque[tuple[str, float]]] = {id: deque() for id in range(1, 7)}
        self._random_rate, self._random_kinds, self._random, self._random_value = 0.0, KINDS, random.Random(0), 0.0
        self._planned: list[tuple[int, int, float]] = []  # reads until then, servo, time without an answer
        self._due: list[tuple[float, int, bytes]] = []
        self._count = 0
        self._buffer = b""
        self._lock = threading.RLock()

    # -- the script's side: each method may be called from any thread, and through ForeignProcess

    def servo(self, id: int) -> Servo:
        return next(servo for servo in self.servos if servo.kept[5] == id or servo.get(5) == id)

    def brown_out(self, id: int, off_s: float = 0.0) -> float:
        """Reset a servo's firmware as a dip of its supply does; it answers again after ``off_s``. Return the time."""
        with self._lock:
            servo, now = self.servo(id), self.clock()
            servo.advance(now)
            servo.boot("brown-out")
            self.counts["brown-outs"] += 1
            servo.silent_until = now + off_s
            return now

    def brown_out_at_read(self, id: int, reads: int, off_s: float = 0.0) -> None:
        """Brown out a servo just before the answer to the n-th read from now of its position."""
        with self._lock:
            self._planned.append((reads, id, off_s))

    def hang(self, id: int, seconds: float) -> None:
        """Let a servo's firmware answer nothing for a while; its motor goes on."""
        with self._lock:
            self.servo(id).silent_until = self.clock() + seconds

    def trouble(self, id: int, kind: str, count: int = 1, value: float = 0.0) -> None:
        """Spoil the next answers of a servo.

        Kinds: ``drop``; ``flip`` (one bit); ``cut`` (the last bytes are lost); ``short`` (fewer data, right checksum);
        ``double``; ``noise`` (bytes before it, an \\xff among them); ``other`` (the id of another servo); ``late`` by
        ``value`` seconds; ``deaf`` (the instruction is lost).
        """
        with self._lock:
            self._troubles[id].extend([(kind, value)] * count)

    def random_troubles(self, rate: float, kinds: tuple[str, ...] = KINDS, seed: int = 0, value: float = 0.05) -> None:
        """Spoil this share of all answers, with the value that `trouble` takes."""
        with self._lock:
            self._random_rate, self._random_kinds, self._random = rate, tuple(kinds), random.Random(seed)
            self._random_value = value

    def set(self, id: int, **attributes: Any) -> None:
        """Set attributes of a servo: volts, celsius, ambient, wall, forced, gravity, goal_switches_torque_on, …."""
        with self._lock:
            for name, value in attributes.items():
                if not hasattr(self.servo(id), name):
                    raise AttributeError(name)
                setattr(self.servo(id), name, value)

    def keep(self, id: int, address: int, value: int, size: int = 1) -> None:
        """Write a register of the EEPROM, as a calibration before the test has done."""
        with self._lock:
            servo = self.servo(id)
            servo.kept[address : address + size] = value.to_bytes(size, "little")
            servo.ram[address : address + size] = servo.kept[address : address + size]

    def look(self, id: int, name: str) -> Any:
        """Return an attribute of a servo, up to date."""
        with self._lock:
            self.servo(id).advance(self.clock())
            return getattr(self.servo(id), name)

    def register(self, id: int, address: int, size: int = 1) -> int:
        with self._lock:
            self.servo(id).advance(self.clock())
            return self.servo(id).get(address, size)

    def count(self) -> dict[str, int]:
        with self._lock:
            return dict(self.counts)

    def requests_since(self, when: float) -> list[Request]:
        with self._lock:
            return [request for request in self.requests if request.time >= when]

    def trace_text(self, last: int = 40) -> str:
        """Return the last bytes of the line, one packet a line."""
        with self._lock:
            return "\n".join(f"{at:.6f} {way} {data.hex(' ')}" for at, way, data in [*self.trace][-last:])

    # -- the line

    def rate(self) -> int:
        """Return the rate of the host's end, in bits a second."""
        return BAUD[0]

    def _pop_due(self, now: float) -> bytes:
        """Return the bytes that are on the host's side of the wire by now."""
        ready = b""
        while self._due and self._due[0][0] <= now:
            data = heapq.heappop(self._due)[2]
            self.trace.append((now, "<", data))
            ready += data
        return ready

    def _send(self, data: bytes, when: float) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, data))

    def _parse(self, data: bytes) -> None:
        """Take bytes from the host, and obey the instructions that are whole."""
        self._buffer += data
        while True:
            start = self._buffer.find(b"\xff\xff")
            if start < 0:
                self._buffer = self._buffer[-1:] if self._buffer.endswith(b"\xff") else b""
                return
            self._buffer = self._buffer[start:]
            while self._buffer[2:3] == b"\xff":
                self._buffer = self._buffer[1:]
            if len(self._buffer) < 4 or len(self._buffer) < 4 + self._buffer[3]:
                return
            size = 4 + self._buffer[3]
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            now = self.clock()
            self.trace.append((now, ">", frame))
            if self.echo:
                self._send(frame, now)
            if size < 6 or ~sum(frame[2:-1]) & 0xFF != frame[-1]:
                self.counts["bad requests"] += 1
                continue
            self._obey(Request(now, frame[4], frame[2], frame[5:-1]))

    def _obey(self, request: Request) -> None:
        """Carry out an instruction in each servo that hears it, and send the answers one after another."""
        self.requests.append(request)
        self.counts[f"{request.instruction:02x}"] += 1
        if request.is_read and request.address <= 56 < request.address + request.params[1]:
            for left, servo_id, off_s in self._planned:
                if left == 1:
                    self.brown_out(servo_id, off_s)
            self._planned = [(left - 1, servo_id, off_s) for left, servo_id, off_s in self._planned if left > 1]
        rate = self.rate()
        heard = [servo for servo in self.servos if BAUD[servo.get(6)] == rate and servo.silent_until <= request.time]
        if request.instruction == SYNC_READ:
            listed = request.params[2:]
            heard = sorted((s for s in heard if s.get(5) in listed), key=lambda servo: listed.index(servo.get(5)))
        elif request.id != ALL:
            heard = [servo for servo in heard if servo.get(5) == request.id]
        at = request.time + (len(request.params) + 6) * 10 / rate * self.wire_time
        for servo in heard:
            servo.advance(request.time)
            answer = self._execute(servo, request)
            if answer is not None:
                slack = (self.turn_around + servo.get(7) * 2e-6 + (len(answer) + 6) * 10 / rate) * self.wire_time
                at += slack
                self._answer(servo, answer, at)

    def _execute(self, servo: Servo, request: Request) -> bytes | None:
        """Carry out an instruction. Return the answer's data, None without an answer."""
        id, params = servo.get(5), request.params
        if self._troubles.get(id) and self._troubles[id][0][0] == "deaf":
            self._troubles[id].popleft()
            return None
        answers = request.id != ALL and servo.get(8) != 0
        match request.instruction:
            case 0x01:
                return b""
            case 0x02 if len(params) == 2 and request.id != ALL:
                return bytes(servo.ram[params[0] : params[0] + params[1]])
            case 0x82 if len(params) > 2:
                return bytes(servo.ram[params[0] : params[0] + params[1]])
            case 0x83:
                mine = request.written().get(id)
                if mine is not None:
                    servo.write(params[0], mine)
                return None
            case 0x03 if len(params) > 1:
                servo.write(params[0], params[1:])
            case 0x04 if len(params) > 1:
                servo.pending = (params[0], params[1:])
            case 0x05:
                if servo.pending:
                    servo.write(*servo.pending)
                servo.pending = None
            case 0x06:
                for address, (value, size) in INITIAL.items():
                    if address != 5:
                        servo.kept[address : address + size] = value.to_bytes(size, "little")
                servo.boot("restore")
            case 0x08:
                servo.boot("restart")
            case 0x0A:
                servo.position = servo.position % 4096
                servo.forced, servo.overloaded = 0, False
            case 0x0B:
                servo.calibrate(int.from_bytes(params[:2], "little") if params else 2048)
            case _:
                return None
        servo.measure()
        return b"" if answers else None

    def _answer(self, servo: Servo, data: bytes, at: float) -> None:
        """Send a status packet, spoiled as the script asks."""
        id = servo.get(5)
        kind, value = "", 0.0
        if self._troubles.get(id):
            kind, value = self._troubles[id].popleft()
        elif self._random_rate and self._random.random() < self._random_rate:
            kind, value = self._random.choice(self._random_kinds), self._random_value
        reply = packet(id, servo.get(65), data)
        if kind:
            self.counts[kind] += 1
        match kind:
            case "drop":
                return
            case "flip":
                place = self._random.randrange(2 * 8, len(reply) * 8)
                broken = bytearray(reply)
                broken[place // 8] ^= 1 << place % 8
                reply = bytes(broken)
            case "cut":
                reply = reply[: -self._random.randrange(1, len(reply) - 1)]
            case "short":
                reply = packet(id, servo.get(65), data[:-1])
            case "double":
                reply += reply
            case "noise":
                reply = bytes(self._random.choice((0xFF, 0x00, id, 0x55)) for _ in range(5)) + reply
            case "other":
                reply = packet(id % 6 + 1, servo.get(65), data)
            case "late":
                at += value
        self.counts["answers"] += 1
        self._send(reply, at)


class ForeignBus(ForeignServos):
    """The servos behind a pseudo-terminal, served by a thread.

    Args:
        options: Those of ForeignServos.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        self.path = os.ttyname(self.slave)
        os.set_blocking(self.master, False)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="foreign servos", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self.master)
        os.close(self.slave)

    def __enter__(self) -> ForeignBus:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rate(self) -> int:
        """Return the rate that the host set on the terminal."""
        termios2 = bytearray(44)
        fcntl.ioctl(self.slave, 0x802C542A, termios2)  # TCGETS2, which knows rates without a name too
        return int(struct.unpack_from("I", termios2, 40)[0])

    def _run(self) -> None:
        while not self._stop.is_set():
            wait = 0.1 if not self._due else min(0.1, max(0.0, self._due[0][0] - time.monotonic()))
            with contextlib.suppress(OSError):
                if select.select([self.master], [], [], wait)[0]:
                    data = os.read(self.master, 4096)
                    with self._lock:
                        self._parse(data)
                if ready := self._pop_due(time.monotonic()):
                    os.write(self.master, ready)


class ForeignPort(ForeignServos):
    """The servos as a port (`hal.drivers.bus.Port`) with a time of its own, which passes in the waits of the host.

    Args:
        options: Those of ForeignServos, without a clock.
    """

    def __init__(self, **options: Any) -> None:
        self._now = 100.0
        self._received = b""
        self._plans: list[tuple[float, int, float]] = []
        super().__init__(clock=lambda: self._now, **options)

    def brown_out_at(self, id: int, when: float, off_s: float = 0.0) -> None:
        """Brown out a servo at a time."""
        self._plans.append((when, id, off_s))

    def _pass(self, until: float) -> None:
        """Let time pass."""
        for when, id, off_s in sorted(self._plans):
            if when <= until:
                self._now = max(self._now, when)
                self.brown_out(id, off_s)
                self._plans.remove((when, id, off_s))
        self._now = max(self._now, until)
        self._received += self._pop_due(self._now)

    @property
    def baud(self) -> int:
        return BAUD[0]

    def now_ns(self) -> int:
        return int(self._now * 1e9)

    def sleep(self, seconds: float) -> None:
        self._pass(self._now + seconds)

    def discard(self) -> int:
        dropped, self._received = len(self._received), b""
        return dropped

    def send(self, data: bytes) -> None:
        self._pass(self._now + 5e-6)
        self._parse(data)

    def receive(self, timeout_s: float) -> bytes:
        return self._wait(1, timeout_s)

    def exchange(self, request: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        dropped = self.discard()
        self.send(request)
        return dropped, self._wait(least, timeout_s)

    def _wait(self, least: int, timeout_s: float) -> bytes:
        end = self._now + timeout_s
        while len(self._received) < least and self._now < end:
            self._pass(min(end, max(self._now, self._due[0][0]) if self._due else end))
        received, self._received = self._received, b""
        return received

    def close(self) -> None:
        """Nothing is open."""


class ForeignProcess:
    """A ForeignBus in a process of its own: every method of the bus by its name, with JSON's values.

    Args:
        options: Those of ForeignBus.
    """

    def __init__(self, **options: Any) -> None:
        command = [sys.executable, "-m", "tests.hal.foreign_bus", json.dumps(options)]
        root = Path(__file__).resolve().parents[2]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        self.path = str(self._answer())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            assert self._child.stdin is not None
            self._child.stdin.write(json.dumps([name, args, options]) + "\n")
            self._child.stdin.flush()
            return self._answer()

        return call

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        answer = json.loads(self._child.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def close(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(10)

    def __enter__(self) -> ForeignProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main() -> None:
    """Serve the calls of a ForeignProcess until its end of standard input."""
    with ForeignBus(**json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")) as bus:
        print(json.dumps({"value": bus.path}), flush=True)
        for line in sys.stdin:
            name, args, options = json.loads(line)
            try:
                answer = {"value": getattr(bus, name)(*args, **options)}
                text = json.dumps(answer, default=lambda value: value.hex() if isinstance(value, bytes) else str(value))
            except Exception as error:  # the script hears of it
                text = json.dumps({"error": f"{type(error).__name__}: {error}"})
            print(text, flush=True)


if __name__ == "__main__":
    main()
