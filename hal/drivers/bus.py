"""Transactions on a servo bus: one request, one deadline, and the answers that are really answers to it.

Neither protocol numbers its packets, so a late or a doubled answer looks like the answer to the next request. Three
things tell them apart here. Bytes that came before a request are discarded. The length of a read serves as its number:
a servo is not asked for as many bytes as an answer that may still come would have, but for one or a few more. A write
is confirmed by reading the registers back, never by its acknowledgement.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol

from hal.drivers.packets import Codec
from hal.errors import DeadlineExceeded, RobotError

__all__ = ["BusCounts", "BusSettings", "GroupRead", "Port", "Reply", "ServoBus", "ServoRefused"]

LATE_NS = 100_000_000
"""Longest time after its transaction at which an answer that was given up may still come, nanoseconds."""

DOUBLED_NS = 4_000_000
"""Longest time after its transaction at which the copy of an answer may still come, nanoseconds."""

EARLY = 0.9
"""Share of the shortest duration of such a transaction after which its answers are awaited."""

MOST_EXTRA = 4
"""Most bytes that a read asks for beyond those that are wanted."""


class ServoRefused(RobotError):
    """A servo did not do what it was asked: it reports an error, or holds another value than was written."""


class Reply(NamedTuple):
    """The answer of one servo.

    Attributes:
        data: the bytes of the registers that were asked for.
        alarm: the error byte, as the protocol defines it. Its alarm bits do not make the data wrong.
        stamp_ns: when the transaction's last answer arrived, on the port's monotonic clock.
    """

    data: bytes
    alarm: int
    stamp_ns: int


class Port(Protocol):
    """A serial line, or a stand-in for one."""

    @property
    def baud(self) -> int:
        """Bits a second; a byte has ten."""
        ...

    def now_ns(self) -> int:
        """Return the time of the line's monotonic clock, nanoseconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass while bytes arrive."""
        ...

    def discard(self) -> int:
        """Drop all received bytes and return how many there were, as far as that is known."""
        ...

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionLost: the line is gone.
        """
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Wait for bytes; return those that are there, or none after the time.

        Raises:
            ConnectionLost: the line is gone.
        """
        ...

    def close(self) -> None:
        """Release the line. Calling it twice is allowed."""
        ...


@dataclass(frozen=True, slots=True)
class BusSettings:
    """The time that a bus allows beyond that of the bytes on the wire.

    Attributes:
        turnaround_s: longest time between a request, or the answer of the servo before, and a servo's answer, seconds.
        latency_s: of the adapter and the operating system, both ways, seconds. An FTDI adapter whose latency timer is
            at its default needs 0.02; ``rlenv-robot ports`` says so.
    """

    turnaround_s: float = 0.0005
    latency_s: float = 0.004


@dataclass(slots=True)
class BusCounts:
    """Count transactions, and their failures by kind.

    Attributes:
        transactions: requests that were sent.
        missing: answers that did not come in time.
        noise: headers that led to no whole packet with a right checksum.
        stray: whole packets that are no answer to the request: late ones, of another length, of another servo.
        doubled: second answers of a servo within one transaction.
        echoed: copies of requests.
        discarded: bytes that had come before a request.
        writes: confirmed writes.
    """

    transactions: int = 0
    missing: int = 0
    noise: int = 0
    stray: int = 0
    doubled: int = 0
    echoed: int = 0
    discarded: int = 0
    writes: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class ServoBus:
    """Talk to the servos on one line. Calls may come from any thread; one transaction runs at a time.

    Args:
        port: the line, which the bus owns.
        codec: the module of the protocol, such as `hal.drivers.feetech`.
        settings: the times that it allows.

    Attributes:
        counts: what happened on the line.
    """

    def __init__(self, port: Port, codec: Codec, settings: BusSettings | None = None) -> None:
        self.port, self.codec = port, codec
        self.counts = BusCounts()
        settings = settings or BusSettings()
        self._byte_s, self._turnaround_s, self._latency_s = 10.0 / port.baud, settings.turnaround_s, settings.latency_s
        self._pending: dict[int, dict[int, int]] = {}  # servo -> length of an answer -> until when it may come
        self._sent: list[tuple[int, int, bytes]] = []  # the last requests, as an echo of them is decoded
        self._fastest_ns: dict[tuple[int, int, int], int] = {}  # shape of a transaction -> its shortest duration
        self._lock = threading.Lock()

    def wire_s(self, sent: int, answers: int, count: int) -> float:
        """Return the time of a transaction's bytes on the wire, seconds.

        Args:
            sent: length of the request.
            answers: number of answers.
            count: bytes of data in each.
        """
        return (sent + answers * self.codec.status_size(count)) * self._byte_s

    # -- transactions ----------------------------------------------------------------------------------------------

    def read(self, servo: int, address: int, count: int) -> Reply:
        """Read registers of one servo.

        Raises:
            DeadlineExceeded: no right answer came in time.
            ServoRefused: the servo reports an error.
            ConnectionLost: the line is gone.
        """
        with self._lock:
            length = self._free_length(servo, count)
            if length is None:
                self._drain(servo)
                length = count
            replies = self._transact(self.codec.read(servo, address, length), (servo,), length)
        reply = replies.get(servo)
        if reply is None:
            raise DeadlineExceeded(
                f"servo {servo} did not answer a read of register {address}", self._allowed_s(8, 1, length),
                "check its cable, its power, its id and the baud rate",
            )  # fmt: skip
        self._check(servo, address, reply)
        return reply._replace(data=reply.data[:count])

    def sync_read(self, address: int, count: int, servos: Sequence[int]) -> dict[int, Reply]:
        """Read the same registers of several servos with one request.

        Returns:
            The answers by servo; a servo without a right answer is left out, and so is one that has been silent so
            often within `LATE_NS` that an old answer could pass for a new one.

        Raises:
            ConnectionLost: the line is gone.
        """
        with self._lock:
            asked, length = self._group(servos, count)
            if len(asked) < len(servos) and self._wait_for_copies(servos):
                asked, length = self._group(servos, count)
            if not asked:
                return {}
            replies = self._transact(self.codec.sync_read(address, length, asked), asked, length)
        if length != count:
            replies = {servo: reply._replace(data=reply.data[:count]) for servo, reply in replies.items()}
        return {servo: reply for servo, reply in replies.items() if self.codec.refusal(reply.alarm) is None}

    def write(self, servo: int, address: int, data: bytes, *, verify: bool = True, attempts: int = 4) -> int:
        """Write registers of one servo and read them back; write again where a packet was lost.

        Args:
            servo: its id.
            address: of the first register.
            data: the bytes.
            verify: whether to read back. Without, nothing shows that the servo received the request.
            attempts: how often to write.

        Returns:
            The servo's error byte; 0 without ``verify``.

        Raises:
            ServoRefused: the registers hold something else.
            DeadlineExceeded: the servo does not answer.
            ConnectionLost: the line is gone.
        """
        request = self.codec.write(servo, address, data)
        for attempt in range(1, attempts + 1):
            with self._lock:
                acknowledged = self._transact(request, (servo,), 0).get(servo)
            if not verify:
                return 0
            try:
                reply = self.read(servo, address, len(data))
            except DeadlineExceeded:
                if attempt == attempts:
                    raise
                continue
            if reply.data == data:
                self.counts.writes += 1
                return reply.alarm
        why = acknowledged and self.codec.refusal(acknowledged.alarm)
        raise ServoRefused(
            f"servo {servo} holds {reply.data.hex(' ')} at register {address} after {data.hex(' ')} was written"
            + (f": {why}" if why else "; the register may be read-only, locked or bounded")
        )

    def sync_write(self, address: int, data: Mapping[int, bytes]) -> None:
        """Write the same registers of several servos with one request, which no servo acknowledges.

        Raises:
            ConnectionLost: the line is gone.
        """
        with self._lock:
            self._transact(self.codec.sync_write(address, data), (), 0)

    def instruct(self, servo: int, instruction: int, params: bytes = b"") -> Reply | None:
        """Send any instruction; return the answer that carries no data, if one comes in time.

        Raises:
            ConnectionLost: the line is gone.
        """
        with self._lock:
            wanted = () if servo == self.codec.BROADCAST else (servo,)
            return self._transact(self.codec.request(servo, instruction, params), wanted, 0).get(servo)

    def present(self, servo: int, address: int = 0) -> bool:
        """Return whether a servo answers.

        A read asks, not a ping: the echo of a ping looks like an answer with an alarm.
        """
        try:
            self.read(servo, address, 1)
        except DeadlineExceeded:
            return False
        return True

    def close(self) -> None:
        """Release the line. Calling it twice is allowed."""
        self.port.close()

    # -- one transaction -------------------------------------------------------------------------------------------

    def _allowed_s(self, sent: int, answers: int, count: int) -> float:
        return self.wire_s(sent, answers, count) + answers * self._turnaround_s + self._latency_s

    def _transact(self, request: bytes, servos: Sequence[int], count: int) -> dict[int, Reply]:
        """Send a request and collect answers of ``count`` bytes of data until all are there, or the deadline."""
        port, counts = self.port, self.counts
        counts.transactions += 1
        counts.discarded += port.discard()
        self._remember(request)
        port.send(request)
        if not servos:
            return {}
        sent_ns = port.now_ns()
        deadline_ns = sent_ns + int(self._allowed_s(len(request), len(servos), count) * 1e9)
        expected = len(servos) * self.codec.status_size(count)
        data = b""
        shape = (len(request), len(servos), count)
        if fastest_ns := self._fastest_ns.get(shape):
            port.sleep(fastest_ns * EARLY / 1e9)  # one look at the end costs less than one for each answer
        while True:
            left_ns = deadline_ns - port.now_ns()
            received = port.receive(left_ns / 1e9) if left_ns > 0 else b""
            data += received
            if received and len(data) < expected:
                continue
            scan = self.codec.scan(data, answers=True, longest=count + 16, final=not received)
            replies, tally = self._sort(scan.packets, servos, count)
            if len(replies) == len(servos) or not received:
                break
        if len(replies) == len(servos):
            self._fastest_ns[shape] = min(port.now_ns() - sent_ns, self._fastest_ns.get(shape, deadline_ns))
        counts.noise += scan.rejected
        counts.stray, counts.doubled, counts.echoed = (
            counts.stray + tally[0], counts.doubled + tally[1], counts.echoed + tally[2]
        )  # fmt: skip
        counts.missing += len(servos) - len(replies)
        self._expect(servos, count, replies)
        return replies

    def _sort(
        self, packets: Sequence[tuple[int, int, bytes]], servos: Sequence[int], count: int
    ) -> tuple[dict[int, Reply], tuple[int, int, int]]:
        """Return the answers to the present request, and how many packets were stray, doubled and echoed."""
        stamp_ns = self.port.now_ns()
        replies: dict[int, Reply] = {}
        ambiguous: set[int] = set()
        echoes = list(self._sent)
        stray = doubled = echoed = 0
        for packet in packets:
            servo, error, data = packet
            if echoes and packet in echoes:
                echoed += 1
                echoes.remove(packet)  # one echo for each request: an equal answer after it is an answer
            elif servo not in servos or len(data) != count:
                stray += 1
            elif servo in replies or servo in ambiguous:
                doubled += 1
                if servo in replies and replies[servo].data != data:
                    ambiguous.add(servo)  # two different answers: nothing says which one is right
                    del replies[servo]
            else:
                replies[servo] = Reply(data, error, stamp_ns)
        return replies, (stray, doubled, echoed)

    def _remember(self, request: bytes) -> None:
        """Keep how echoes of the last requests are decoded, where the protocol does not tell them from answers."""
        self._sent = [*self._sent[-3:], *self.codec.scan(request, answers=True).packets]

    # -- answers that may still come -------------------------------------------------------------------------------

    def _expect(self, servos: Sequence[int], count: int, replies: Mapping[int, Reply]) -> None:
        now_ns = self.port.now_ns()  # the end of the transaction: a copy follows its answer
        for servo in servos:
            until_ns = now_ns + (DOUBLED_NS if servo in replies else LATE_NS)
            lengths = self._pending.setdefault(servo, {})
            lengths[count] = max(until_ns, lengths.get(count, 0))

    def _blocked(self, servo: int, now_ns: int) -> dict[int, int]:
        """Return the lengths of answers of a servo that may still come."""
        lengths = self._pending.get(servo)
        if not lengths:
            return {}
        for count in [count for count, until_ns in lengths.items() if until_ns <= now_ns]:
            del lengths[count]
        return lengths

    def _free_length(self, servo: int, count: int) -> int | None:
        blocked = self._blocked(servo, self.port.now_ns())
        return next((length for length in range(count, count + MOST_EXTRA + 1) if length not in blocked), None)

    def _drain(self, servo: int) -> None:
        """Wait until no old answer of a servo may come any more."""
        while blocked := self._blocked(servo, self.port.now_ns()):
            self.port.receive((max(blocked.values()) - self.port.now_ns()) / 1e9)

    def _wait_for_copies(self, servos: Sequence[int]) -> bool:
        """Wait until one more length is free, if that is soon; return whether it was.

        Only reads that follow one another faster than a bus of several servos allows come here.
        """
        now_ns = self.port.now_ns()
        waits_ns = [until_ns - now_ns for servo in servos for until_ns in self._blocked(servo, now_ns).values()]
        if not waits_ns or min(waits_ns) > DOUBLED_NS:
            return False
        until_ns = now_ns + min(waits_ns)
        while (left_ns := until_ns - self.port.now_ns()) > 0:
            self.port.receive(left_ns / 1e9)
        return True

    def _group(self, servos: Sequence[int], count: int) -> tuple[list[int], int]:
        """Return the servos that can be asked together, and the length that tells their answers from old ones."""
        now_ns = self.port.now_ns()
        blocked = {servo: self._blocked(servo, now_ns) for servo in servos}
        lengths = range(count, count + MOST_EXTRA + 1)
        taken = set().union(*blocked.values())
        for length in lengths:
            if length not in taken:
                return list(servos), length
        able = {length: [servo for servo in servos if length not in blocked[servo]] for length in lengths}
        length = max(lengths, key=lambda length: len(able[length]))  # of equal ones the first, which is the shortest
        return able[length], length

    def _check(self, servo: int, address: int, reply: Reply) -> None:
        why = self.codec.refusal(reply.alarm)
        if why is not None:
            raise ServoRefused(f"servo {servo} refused to read register {address}: {why}")


class GroupRead:
    """The same registers of several servos, each with the newest answer and its age.

    Args:
        bus: the bus.
        address: of the first register.
        count: how many bytes.
        servos: ids.

    Attributes:
        newest: the newest answer of each servo that ever answered.
    """

    def __init__(self, bus: ServoBus, address: int, count: int, servos: Sequence[int]) -> None:
        self._bus, self._address, self._count, self._servos = bus, address, count, tuple(servos)
        self.newest: dict[int, Reply] = {}

    def refresh(self, attempts: int = 2) -> tuple[int, ...]:
        """Read all servos with one request; ask those that did not answer again.

        Returns:
            The servos whose newest answer is an old one.

        Raises:
            ConnectionLost: the line is gone.
        """
        missing = self._servos
        for _ in range(attempts):
            replies = self._bus.sync_read(self._address, self._count, missing)
            self.newest |= replies
            missing = tuple(servo for servo in missing if servo not in replies)
            if not missing:
                break
        return missing

    def age_ns(self, servo: int) -> int:
        """Return the age of a servo's newest answer, nanoseconds.

        Raises:
            KeyError: it never answered.
        """
        return self._bus.port.now_ns() - self.newest[servo].stamp_ns
