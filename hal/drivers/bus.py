"""Transactions on a servo bus: one request, one deadline, and only the answers that belong to the request.

Neither protocol numbers its packets, so a late or a doubled answer looks like the answer to the next request. Three
rules tell them apart here. Bytes that came before a request are discarded. The length of a read serves as its number:
while an answer of some length may still come, a servo is asked for one or a few bytes more than that. A write is
confirmed by reading the registers back, never by its acknowledgement.

Feetech's checksum of one byte passes one damaged packet in 256. An answer that may be spliced from two is accepted
only if the servo's next answer has the same content. On a noisy line servos are asked one by one, so that noise before
the next answer can't replace the end of a truncated one.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Protocol

from hal.drivers.packets import Codec
from hal.errors import DeadlineExceeded, RobotError

__all__ = ["LATE_NS", "BusCounts", "BusSettings", "Port", "Reply", "ServoBus", "ServoRefused"]

LATE_NS = 100_000_000
"""Longest time after a transaction in which an answer that missed its deadline may still come, in nanoseconds."""

DOUBLED_NS = 4_000_000
"""Longest time after a transaction in which a duplicate of its answer may still come, in nanoseconds."""

MOST_EXTRA = 4
"""Largest number of bytes that a read requests beyond those it needs, to mark its answer."""

NOISY, QUIET = 0.15, 0.01
"""Shares of transactions with bytes outside packets: servos are asked one by one from the first share until it falls to
the second."""

_LATE_WAIT_NS = 5_000_000
"""Time by which a wait ends too late where this process had no processor, in nanoseconds; timers are good to a
tenth of that."""

_NOISE_WEIGHT = 0.02
_MOST_REQUESTS = 256
_ECHOES = 4
_MOST_COPIES = 32

_new = tuple.__new__
"""Makes a named tuple at half the time of its constructor."""


class ServoRefused(RobotError):
    """A servo did not carry out a request: it reports an error, or holds another value than was written."""


class Reply(NamedTuple):
    """The answer of one servo.

    Attributes:
        data: the bytes of the requested registers.
        alarm: the error byte, as the protocol defines it. Its alarm bits do not invalidate the data.
        stamp_ns: arrival time of the transaction's last answer on the port's monotonic clock, nanoseconds.
    """

    data: bytes
    alarm: int
    stamp_ns: int


class Port(Protocol):
    """A serial line, or a stand-in for one."""

    @property
    def baud(self) -> int:
        """Bits a second; a byte takes ten bits."""
        ...

    def now_ns(self) -> int:
        """Return the line's monotonic clock, in nanoseconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds while bytes arrive."""
        ...

    def discard(self) -> int:
        """Drop all received bytes, and return their number; 0 if it is unknown."""
        ...

    def send(self, data: bytes) -> None:
        """Send bytes on the line.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        ...

    def receive(self, timeout_s: float) -> bytes:
        """Wait for bytes and return those received; empty after the timeout.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        ...

    def exchange(self, request: bytes, least: int, timeout_s: float) -> tuple[int, bytes]:
        """Drop received bytes, send a request, and wait for at least ``least`` bytes or the timeout.

        Returns:
            The number of bytes dropped, 0 if unknown, and the bytes received since the request.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        ...

    def close(self) -> None:
        """Release the line. Safe to call more than once."""
        ...


@dataclass(frozen=True, slots=True)
class BusSettings:
    """The times that a bus allows in addition to that of the bytes on the wire.

    Attributes:
        turnaround_s: longest time between a request, or the answer of the servo before, and a servo's answer, seconds.
        latency_s: latency of the adapter and the operating system, both ways, seconds. An FTDI adapter with its default
            latency timer needs 0.02; ``rlenv-robot robot ports`` says so.
    """

    turnaround_s: float = 0.0005
    latency_s: float = 0.004


@dataclass(slots=True)
class BusCounts:
    """Count transactions, and their failures by kind.

    Attributes:
        transactions: requests sent.
        missing: answers that did not come in time.
        noise: headers that did not begin a whole packet with a valid checksum.
        stray: whole packets that do not answer the request: late, of another length, or from another servo.
        spliced: answers rejected because they may be spliced from two.
        doubled: second answers of a servo within one transaction.
        echoed: copies of requests.
        discarded: bytes that had arrived before a request.
        writes: confirmed writes.
    """

    transactions: int = 0
    missing: int = 0
    noise: int = 0
    stray: int = 0
    spliced: int = 0
    doubled: int = 0
    echoed: int = 0
    discarded: int = 0
    writes: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(slots=True)
class _SearchResult:
    """The answers among received bytes, and how much else there was."""

    replies: dict[int, Reply] = field(default_factory=dict)
    rejected: int = 0
    outside: int = 0
    stray: int = 0
    doubled: int = 0
    echoed: int = 0


class ServoBus:
    """Communicate with the servos on one line. Calls may come from any thread; one transaction runs at a time.

    Args:
        port: the line; the bus closes it.
        codec: the module of the protocol, such as `hal.drivers.feetech`.
        settings: the times that the bus allows.

    Attributes:
        counts: transactions and failures so far.
    """

    def __init__(self, port: Port, codec: Codec, settings: BusSettings | None = None) -> None:
        self.port, self.codec = port, codec
        self.counts = BusCounts()
        settings = settings or BusSettings()
        self._byte_s, self._turnaround_s, self._latency_s = 10.0 / port.baud, settings.turnaround_s, settings.latency_s
        self._pending: dict[int, dict[int, int]] = {}  # servo -> length of an answer -> until when it may come
        self._free_ns = 0  # from when on no old answer may come
        self._copies: list[tuple[Sequence[int], int, int]] = []  # servos, length and until when: not yet in `_pending`
        self._pending_ns = 0  # from when on nothing in `_pending` may come
        self._sent: tuple[bytes, ...] = ()  # the last requests, whose echoes may come
        self._timings: dict[tuple[int, int, int], tuple[int, float]] = {}  # shape -> bytes of the answers, time allowed
        self._requests: dict[tuple[int, int, tuple[int, ...]], bytes] = {}  # grouped reads, as they are repeated
        self._suspects: dict[int, bytes] = {}  # servo -> its last answer that may be made of two
        self._late_ns = 0  # by how much the newest wait without all answers ended after its deadline
        self._noise = 0.0  # share of recent transactions with bytes outside packets
        self._one_by_one = False
        self._lock = threading.Lock()

    @property
    def cure(self) -> str:
        """Advice about silent servos, from the newest transaction that missed an answer."""
        cables = "check the cables and the supply"
        if self._late_ns < _LATE_WAIT_NS:
            return cables
        late_ms = self._late_ns / 1e6
        return (
            f"this process waited {late_ms:.0f} ms for a processor meanwhile: end what loads the machine, or {cables}"
        )

    def wire_s(self, sent: int, answers: int, count: int) -> float:
        """Return the time of a transaction's bytes on the wire, in seconds.

        Args:
            sent: length of the request, bytes.
            answers: number of answers.
            count: bytes of data in each answer.
        """
        return (sent + answers * self.codec.status_size(count)) * self._byte_s

    # -- transactions ----------------------------------------------------------------------------------------------

    def read(self, servo: int, address: int, count: int) -> Reply:
        """Read registers of one servo.

        Raises:
            DeadlineExceeded: no valid answer came in time.
            ServoRefused: the servo reports an error.
            ConnectionLost: the serial line is lost.
        """
        with self._lock:
            spliced, reply = self.counts.spliced, None
            for _ in range(2):
                length = self._free_length(servo, count)
                if length is None:
                    self._drain(servo)
                    length = count
                reply = self._transact(self.codec.read(servo, address, length), (servo,), length).get(servo)
                if reply is not None or self.counts.spliced == spliced:
                    break  # otherwise a second answer may confirm the first
        if reply is None:
            raise DeadlineExceeded(
                f"servo {servo} did not answer a read of register {address}", self._allowed_s(8, 1, count),
                f"{self.cure}, its id and the baud rate",
            )  # fmt: skip
        self._check(servo, address, reply)
        return reply._replace(data=reply.data[:count])

    def sync_read(self, address: int, count: int, servos: Sequence[int]) -> dict[int, Reply]:
        """Read the same registers of several servos with one request.

        Returns:
            The answers by servo. Servos without a valid answer are left out, and so are those that were silent so often
            within `LATE_NS` that an old answer could pass for a new one.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        with self._lock:
            if self._one_by_one:
                replies, length = self._read_each(address, count, servos), count
            else:
                asked, length = self._group(servos, count)
                if len(asked) < len(servos) and self._wait_for_copies(servos):
                    asked, length = self._group(servos, count)
                if not asked:
                    return {}
                replies = self._transact(self._sync_read_request(address, length, asked), asked, length)
        if length != count:
            replies = {servo: reply._replace(data=reply.data[:count]) for servo, reply in replies.items()}
        if any(reply.alarm for reply in replies.values()):
            return {servo: reply for servo, reply in replies.items() if self.codec.refusal(reply.alarm) is None}
        return replies

    def _sync_read_request(self, address: int, count: int, servos: Sequence[int]) -> bytes:
        """Return the request of a grouped read, made once for all its repetitions."""
        key = (address, count, tuple(servos))
        request = self._requests.get(key)
        if request is None:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            request = self._requests[key] = self.codec.sync_read(address, count, servos)
        return request

    def _read_each(self, address: int, count: int, servos: Sequence[int]) -> dict[int, Reply]:
        """Read the same registers of several servos by a request for each."""
        replies = {}
        for servo in servos:
            length = self._free_length(servo, count)
            if length is None:
                continue
            reply = self._transact(self.codec.read(servo, address, length), (servo,), length).get(servo)
            if reply is not None:
                replies[servo] = reply._replace(data=reply.data[:count])
        return replies

    def write(self, servo: int, address: int, data: bytes, *, verify: bool = True, attempts: int = 4) -> int:
        """Write registers of one servo and read them back; write again after a lost packet.

        Args:
            servo: id of the servo.
            address: address of the first register.
            data: the bytes to write.
            verify: whether to read back; without it nothing shows that the servo received the request.
            attempts: largest number of writes.

        Returns:
            The servo's error byte; 0 without ``verify``.

        Raises:
            ServoRefused: the registers hold other bytes.
            DeadlineExceeded: the servo does not answer.
            ConnectionLost: the serial line is lost.
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
            ConnectionLost: the serial line is lost.
        """
        with self._lock:
            self._transact(self.codec.sync_write(address, data), (), 0)

    def instruct(self, servo: int, instruction: int, params: bytes = b"") -> Reply | None:
        """Send any instruction; return its answer without data, or None if none comes in time.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        with self._lock:
            addressed = () if servo == self.codec.BROADCAST else (servo,)
            return self._transact(self.codec.request(servo, instruction, params), addressed, 0).get(servo)

    def present(self, servo: int, address: int = 0) -> bool:
        """Return whether a servo answers.

        The request is a read, since the echo of a ping looks like an answer with an alarm.
        """
        try:
            self.read(servo, address, 1)
        except DeadlineExceeded:
            return False
        return True

    def close(self) -> None:
        """Release the line. Safe to call more than once."""
        self.port.close()

    # -- one transaction -------------------------------------------------------------------------------------------

    def _allowed_s(self, sent: int, answers: int, count: int) -> float:
        return self.wire_s(sent, answers, count) + answers * self._turnaround_s + self._latency_s

    def _transact(self, request: bytes, servos: Sequence[int], count: int) -> dict[int, Reply]:
        """Send a request and collect answers of ``count`` bytes of data until all are there, or the deadline."""
        port, counts = self.port, self.counts
        counts.transactions += 1
        self._sent = (*self._sent[1 - _ECHOES :], request)
        if not servos:
            counts.discarded += port.discard()
            port.send(request)
            return {}
        shape = (len(request), len(servos), count)
        timing = self._timings.get(shape)
        if timing is None:
            timing = self._timings[shape] = len(servos) * self.codec.status_size(count), self._allowed_s(*shape)
        expected, allowed_s = timing
        begun_ns = port.now_ns()
        dropped, data = port.exchange(request, expected, allowed_s)
        counts.discarded += dropped
        packets = self._answers(data, servos, count)
        if packets is None:
            deadline_ns = begun_ns + int(allowed_s * 1e9)
            data, packets = self._receive_more(data, deadline_ns, servos, count)
        now_ns = port.now_ns()
        if packets is None:
            replies = self._sort_out(data, servos, count)
            if len(replies) < len(servos):
                self._late_ns = now_ns - begun_ns - int(allowed_s * 1e9)
            self._expect(servos, count, replies, now_ns)
            return replies
        if self._noise:
            self._hear_noise(False)
        self._free_ns = max(self._free_ns, now_ns + DOUBLED_NS)
        self._copies.append((tuple(servos), count, now_ns + DOUBLED_NS))
        if len(self._copies) > _MOST_COPIES:
            self._sort_copies()
        return {servo: _new(Reply, (values, error, now_ns)) for servo, error, values in packets}

    def _answers(self, data: bytes, servos: Sequence[int], count: int) -> list[tuple[int, int, bytes]] | None:
        """Return the answers in bytes that hold nothing else, and no echo: that of a read looks like an answer."""
        return None if data.startswith(self._sent) else self.codec.answers(data, servos, count)

    def _receive_more(
        self, data: bytes, deadline_ns: int, servos: Sequence[int], count: int
    ) -> tuple[bytes, list[tuple[int, int, bytes]] | None]:
        """Go on receiving, until all answers are there or the time is over; return all bytes, and clean answers."""
        expected = len(servos) * self.codec.status_size(count)
        while (left_ns := deadline_ns - self.port.now_ns()) > 0:
            if len(data) >= expected and len(self._search(data, servos, count, final=False).replies) == len(servos):
                break
            received = self.port.receive(left_ns / 1e9)
            if not received:
                break
            data += received
            packets = self._answers(data, servos, count)
            if packets is not None:
                return data, packets
        return data, None

    def _sort_out(self, data: bytes, servos: Sequence[int], count: int) -> dict[int, Reply]:
        """Return the answers among all received bytes, and count whatever else there is."""
        result, counts = self._search(data, servos, count, final=True), self.counts
        counts.noise += result.rejected
        counts.stray += result.stray
        counts.doubled += result.doubled
        counts.echoed += result.echoed
        replies = result.replies
        for servo, reply in list(replies.items()):
            if self.codec.may_be_spliced(servo, reply.alarm, reply.data) and not self._confirms(servo, reply.data):
                del replies[servo]
                counts.spliced += 1
        counts.missing += len(servos) - len(replies)
        self._hear_noise(result.outside > 0)
        return replies

    def _confirms(self, servo: int, data: bytes) -> bool:
        """Return whether an answer that may be made of two says what the servo's last such answer said."""
        before, self._suspects[servo] = self._suspects.get(servo, b""), data
        length = min(len(before), len(data))
        return length > 0 and before[:length] == data[:length]

    def _hear_noise(self, noisy: bool) -> None:
        """Note whether bytes of a transaction lay outside packets, and choose how groups are read from now on."""
        self._noise += (noisy - self._noise) * _NOISE_WEIGHT
        self._one_by_one = self._noise > (QUIET if self._one_by_one else NOISY)

    def _search(self, data: bytes, servos: Sequence[int], count: int, *, final: bool) -> _SearchResult:
        """Find the answers to the present request among received bytes."""
        stamp_ns = self.port.now_ns()
        result = _SearchResult()
        looks = {request: self.codec.scan(request, answers=True).packets for request in self._sent}
        earlier = self._sent
        while echo := next((request for request in self._sent if not looks[request] and data.startswith(request)), b""):
            result.echoed, data = result.echoed + 1, data[len(echo) :]  # no servo answers with the id of all
        if data.startswith(self._sent[-1]):
            result.echoed, data, earlier = result.echoed + 1, data[len(self._sent[-1]) :], earlier[:-1]
        scan = self.codec.scan(data, answers=True, longest=count + 16, final=final)
        result.rejected, result.outside = scan.rejected, scan.outside
        echoes = [packet for request in earlier for packet in looks[request]]
        ambiguous: set[int] = set()
        for packet in scan.packets:
            servo, error, values = packet
            if echoes and packet in echoes:
                result.echoed += 1
                echoes.remove(packet)  # one echo for each request: an equal answer after it is an answer
            elif servo not in servos or len(values) != count:
                result.stray += 1
            elif servo in result.replies or servo in ambiguous:
                result.doubled += 1
                if servo in result.replies and result.replies[servo].data != values:
                    ambiguous.add(servo)  # two different answers: nothing says which one is right
                    del result.replies[servo]
            else:
                result.replies[servo] = Reply(values, error, stamp_ns)
        return result

    # -- answers that may still come -------------------------------------------------------------------------------

    def _expect(self, servos: Sequence[int], count: int, replies: Mapping[int, Reply], now_ns: int) -> None:
        """Note which answers may still come after the end of a transaction: copies, and late ones."""
        missing = [servo for servo in servos if servo not in replies] if len(replies) < len(servos) else []
        for late, until_ns in ((servos, now_ns + DOUBLED_NS), (missing, now_ns + LATE_NS)):
            if late:
                self._copies.append((tuple(late), count, until_ns))
                self._free_ns = max(self._free_ns, until_ns)
        if len(self._copies) > _MOST_COPIES:
            self._sort_copies()

    def _sort_copies(self) -> None:
        """Move what may still come to the servos that it may come from."""
        for servos, count, until_ns in self._copies:
            for servo in servos:
                lengths = self._pending.setdefault(servo, {})
                lengths[count] = max(lengths.get(count, 0), until_ns)
            self._pending_ns = max(self._pending_ns, until_ns)
        self._copies.clear()

    def _blocked(self, servo: int, now_ns: int) -> dict[int, int]:
        """Return the lengths of answers of a servo that may still come."""
        if self._copies:
            self._sort_copies()
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

    def _group(self, servos: Sequence[int], count: int) -> tuple[Sequence[int], int]:
        """Return the servos that can be asked together, and the length that tells their answers from old ones."""
        now_ns = self.port.now_ns()
        if now_ns >= self._free_ns:
            self._copies.clear()
            return servos, count
        lengths = range(count, count + MOST_EXTRA + 1)
        if now_ns >= self._pending_ns:  # a loop that reads one group needs no look at single servos
            self._copies = [copy for copy in self._copies if copy[2] > now_ns]
            if all(copy[0] == servos for copy in self._copies):
                used = [copy[1] for copy in self._copies]
                for length in lengths:
                    if length not in used:
                        return servos, length
        blocked = {servo: self._blocked(servo, now_ns) for servo in servos}
        taken = set().union(*blocked.values())
        for length in lengths:
            if length not in taken:
                return servos, length
        able = {length: [servo for servo in servos if length not in blocked[servo]] for length in lengths}
        length = max(lengths, key=lambda length: len(able[length]))  # of equal ones the first, which is the shortest
        return able[length], length

    def _check(self, servo: int, address: int, reply: Reply) -> None:
        why = self.codec.refusal(reply.alarm)
        if why is not None:
            raise ServoRefused(f"servo {servo} refused to read register {address}: {why}")
