"""Emulate the serial line between a controller and virtual servos: times of bytes, order of answers, and faults."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hal.drivers import feetech
from hal.drivers.packets import Codec
from hal.errors import ConnectionLost

__all__ = ["LineFaults", "Servo", "ServoLine", "VirtualPort"]

_PING, _SYNC_READ, _SYNC_WRITE = feetech.PING, feetech.SYNC_READ, feetech.SYNC_WRITE  # the same in both protocols

Arrivals = list[tuple[int, bytes]]
"""Pairs of an arrival time, in nanoseconds, and the bytes that arrive."""

_SLOT_S = 0.0004
"""The wait of a servo for the answer of the one before it in a grouped read, in seconds; then it takes its turn."""


class Servo(Protocol):
    """A servo on a serial line. It answers instructions to itself; the line handles broadcasts and grouped ones."""

    @property
    def servo_id(self) -> int:
        """The id to which the servo answers now."""
        ...

    @property
    def baud(self) -> int:
        """The rate at which the servo listens now, bits a second."""
        ...

    turnaround_s: float
    """Time between the end of a request and the beginning of its answer, in seconds."""

    def instruct(self, instruction: int, params: bytes) -> tuple[int, bytes] | None:
        """Carry out an instruction; return error byte and data of the answer, or None for silence."""
        ...

    def read(self, address: int, count: int) -> tuple[int, bytes]:
        """Return the error byte and registers, for a grouped read."""
        ...

    def write(self, address: int, data: bytes) -> int:
        """Write registers, for a grouped write; return the error byte."""
        ...

    def power_cycle(self) -> None:
        """Lose all contents outside the EEPROM, as in a brown-out."""
        ...


@dataclass
class LineFaults:
    """Faults of a line. They may be changed at any time.

    Attributes:
        lose: share of packets (requests and answers) that are lost.
        corrupt: share of packets with one changed byte.
        double: share of answers that come twice.
        shorten: share of answers that lose their last bytes.
        noise: share of answers that follow random bytes.
        delay: share of answers that come late.
        delay_s: delay of late answers, seconds.
        echo: whether the adapter returns every request, as some half-duplex ones do.
        silent: ids of servos that hang.
        collide: whether servos answer a broadcast ping at the same time, instead of one after the other.
        unplugged: whether the adapter is unplugged.
    """

    lose: float = 0.0
    corrupt: float = 0.0
    double: float = 0.0
    shorten: float = 0.0
    noise: float = 0.0
    delay: float = 0.0
    delay_s: float = 0.02
    echo: bool = False
    silent: set[int] = field(default_factory=set)
    collide: bool = False
    unplugged: bool = False


class ServoLine:
    """Pass bytes to servos, and return their answers with the times of their arrival.

    Args:
        servos: the servos on the line.
        codec: the codec of their protocol.
        faults: the faults of the line.
        seed: seed of the faults.
        before_request: called with the time, nanoseconds, before each request acts, such as to advance the physics.

    Attributes:
        faults: the faults of the line, which may be changed.
        requests: number of whole requests received.
    """

    def __init__(
        self,
        servos: Sequence[Servo],
        codec: Codec = feetech,
        faults: LineFaults | None = None,
        seed: int = 0,
        before_request: Callable[[int], None] | None = None,
    ) -> None:
        self.servos, self.codec = tuple(servos), codec
        self.faults = faults or LineFaults()
        self.requests = 0
        self._before = before_request
        self._random = np.random.default_rng(seed)
        self._rest = b""
        self._free_ns = 0  # when the line falls silent

    def receive(self, data: bytes, baud: int, at_ns: int) -> Arrivals:
        """Receive bytes from the controller, and return the answers.

        Args:
            data: the bytes.
            baud: the controller's bits a second. Servos at another rate neither understand nor answer.
            at_ns: time at which the controller began to send, nanoseconds.

        Returns:
            The answers in the order of their arrival: arrival time, in nanoseconds, and bytes of each.
        """
        byte_ns = round(1e10 / baud)
        arrivals: Arrivals = []
        begin_ns = max(at_ns, self._free_ns)
        self._free_ns = begin_ns + len(data) * byte_ns
        if self.faults.echo:
            arrivals.append((self._free_ns, data))
        scan = self.codec.scan(self._rest + data, answers=False)
        self._rest = (self._rest + data)[scan.consumed :]
        for servo, instruction, params in scan.packets:
            self.requests += 1
            if self._happens(self.faults.lose) or self._happens(self.faults.corrupt):
                continue  # a servo ignores a request whose checksum is wrong
            if self._before is not None:
                self._before(self._free_ns)
            self._carry_out(servo, instruction, params, baud, byte_ns, arrivals)
        arrivals.sort(key=lambda arrival: arrival[0])
        return arrivals

    def _hearing(self, baud: int) -> list[Servo]:
        return [servo for servo in self.servos if servo.baud == baud and servo.servo_id not in self.faults.silent]

    def _carry_out(
        self, servo_id: int, instruction: int, params: bytes, baud: int, byte_ns: int, arrivals: Arrivals
    ) -> None:
        hearing = self._hearing(baud)
        if servo_id != self.codec.BROADCAST:
            asked = [servo for servo in hearing if servo.servo_id == servo_id]
            before = self._free_ns
            for servo in asked:  # two servos of one id answer at once, and garble each other
                self._free_ns = before
                self._answer(servo, servo_id, servo.instruct(instruction, params), byte_ns, arrivals)
            if len(asked) > 1:
                arrivals[-len(asked) :] = [_collided(arrivals[-len(asked) :])]
        elif instruction == _SYNC_READ:
            self._sync_read(hearing, params, byte_ns, arrivals)
        elif instruction == _SYNC_WRITE:
            self._sync_write(hearing, params)
        elif instruction == _PING:
            self._ping_all(hearing, byte_ns, arrivals)
        else:
            for servo in hearing:
                servo.instruct(instruction, params)

    def _address(self, params: bytes) -> tuple[int, int, bytes]:
        """Return address, count and the rest of a grouped instruction's params."""
        if self.codec is feetech:
            return params[0], params[1], params[2:]
        return int.from_bytes(params[:2], "little"), int.from_bytes(params[2:4], "little"), params[4:]

    def _sync_read(self, hearing: Sequence[Servo], params: bytes, byte_ns: int, arrivals: Arrivals) -> None:
        if len(params) < 3:
            return
        address, count, ids = self._address(params)
        by_id = {servo.servo_id: servo for servo in hearing}
        for servo_id in ids:
            if servo_id in by_id:
                self._answer(by_id[servo_id], servo_id, by_id[servo_id].read(address, count), byte_ns, arrivals)
            else:
                self._free_ns += round(_SLOT_S * 1e9)

    def _sync_write(self, hearing: Sequence[Servo], params: bytes) -> None:
        if len(params) < 3:
            return
        address, count, rest = self._address(params)
        by_id = {servo.servo_id: servo for servo in hearing}
        for at in range(0, len(rest) - count, count + 1):
            if rest[at] in by_id:
                by_id[rest[at]].write(address, rest[at + 1 : at + 1 + count])

    def _ping_all(self, hearing: Sequence[Servo], byte_ns: int, arrivals: Arrivals) -> None:
        first = len(arrivals)
        begin_ns = self._free_ns
        for servo in sorted(hearing, key=lambda servo: servo.servo_id):
            if self.faults.collide:
                self._free_ns = begin_ns
            self._answer(servo, servo.servo_id, servo.instruct(_PING, b""), byte_ns, arrivals)
        if self.faults.collide and len(arrivals) > first + 1:
            arrivals[first:] = [_collided(arrivals[first:])]

    def _answer(
        self,
        servo: Servo,
        servo_id: int,
        answer: tuple[int, bytes] | None,
        byte_ns: int,
        arrivals: Arrivals,
    ) -> None:
        if answer is None:
            return
        packet = self.codec.status(servo_id, *answer)
        self._free_ns += round(servo.turnaround_s * 1e9) + len(packet) * byte_ns
        faults = self.faults
        if self._happens(faults.lose):
            return
        late_ns = round(faults.delay_s * 1e9) if self._happens(faults.delay) else 0
        if self._happens(faults.corrupt):
            packet = self._corrupted(packet)
        if self._happens(faults.shorten):
            packet = packet[: -1 - int(self._random.integers(0, 4))]
        if self._happens(faults.noise):
            packet = self._random.bytes(int(self._random.integers(1, 12))) + packet
        arrivals.append((self._free_ns + late_ns, packet))
        if self._happens(faults.double):
            self._free_ns += len(packet) * byte_ns
            arrivals.append((self._free_ns + late_ns, packet))

    def _happens(self, share: float) -> bool:
        return share > 0 and bool(self._random.random() < share)

    def _corrupted(self, packet: bytes) -> bytes:
        damaged = bytearray(packet)
        damaged[int(self._random.integers(len(packet)))] ^= int(self._random.integers(1, 256))
        return bytes(damaged)


def _collided(arrivals: Iterable[tuple[int, bytes]]) -> tuple[int, bytes]:
    """Return what arrives where answers overlap: each byte's low bits win, as on an open-collector line."""
    times, packets = zip(*arrivals, strict=True)
    mixed = [255 if not column else _all(column) for column in itertools.zip_longest(*packets, fillvalue=255)]
    return max(times), bytes(mixed)


def _all(column: Iterable[int]) -> int:
    value = 255
    for byte in column:
        value &= byte
    return value


class VirtualPort:
    """A `hal.drivers.bus.Port` to virtual servos in virtual time: it never waits, and every run is the same.

    Args:
        line: the line with the servos.
        baud: bits a second.
        on_time: called with the new time, nanoseconds, whenever time passes.
    """

    def __init__(self, line: ServoLine, baud: int = 1_000_000, on_time: Callable[[int], None] | None = None) -> None:
        self.line = line
        self._baud, self._on_time = baud, on_time
        self._now_ns = 0
        self._arriving: list[tuple[int, int, bytes]] = []
        self._number = itertools.count()
        self._closed = False

    @property
    def baud(self) -> int:
        """Bits a second."""
        return self._baud

    def now_ns(self) -> int:
        """Return the port's virtual time, in nanoseconds."""
        return self._now_ns

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.pass_to(self._now_ns + round(max(seconds, 0.0) * 1e9))

    def pass_to(self, now_ns: int) -> None:
        """Let virtual time pass up to a time, in nanoseconds; do nothing if it has already passed."""
        self._now_ns = max(now_ns, self._now_ns)
        if self._on_time is not None:
            self._on_time(self._now_ns)

    def discard(self) -> int:
        """Drop all received bytes, and return their number."""
        self._check()
        dropped = 0
        while self._arriving and self._arriving[0][0] <= self._now_ns:
            dropped += len(heapq.heappop(self._arriving)[2])
        return dropped

    def send(self, data: bytes) -> None:
        """Send bytes to the servos.

        Raises:
            ConnectionLost: the line is unplugged, or the port was closed.
        """
        self._check()
        for at_ns, answer in self.line.receive(data, self._baud, self._now_ns):
            heapq.heappush(self._arriving, (at_ns, next(self._number), answer))

    def receive(self, timeout_s: float) -> bytes:
        """Return the next bytes, or none after the timeout; virtual time passes at once.

        Raises:
            ConnectionLost: the line is unplugged, or the port was closed.
        """
        self._check()
        until_ns = self._now_ns + round(timeout_s * 1e9)
        if not self._arriving or self._arriving[0][0] > until_ns:
            self.pass_to(until_ns)
            return b""
        at_ns, _, data = heapq.heappop(self._arriving)
        self.pass_to(at_ns)
        return data

    def exchange(self, request: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        """Drop received bytes, send a request, and return the number of bytes dropped and the bytes received.

        Raises:
            ConnectionLost: the line is unplugged, or the port was closed.
        """
        dropped = self.discard()
        self.send(request)
        until_ns, data = self._now_ns + round(timeout_s * 1e9), b""
        while len(data) < least and (part := self.receive((until_ns - self._now_ns) / 1e9)):
            data += part
        return dropped, data

    def close(self) -> None:
        """Release the line. Safe to call more than once."""
        self._closed = True

    def _check(self) -> None:
        if self._closed or self.line.faults.unplugged:
            raise ConnectionLost("the virtual line is closed" if self._closed else "the virtual line is unplugged")
