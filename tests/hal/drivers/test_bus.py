"""Transactions: no wrong value is accepted, whatever comes over the line, and the right ones are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus, ServoRefused
from hal.drivers.group_read import GroupRead
from hal.errors import ConnectionLost, DeadlineExceeded
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import LineFaults, ServoLine, VirtualPort

IDS = (1, 2, 3, 4, 5, 6)


class Memory:
    """A servo that is nothing but memory, whose contents a test knows."""

    baud = 1_000_000
    turnaround_s = 0.00014

    def __init__(self, servo_id: int) -> None:
        self.servo_id = servo_id
        self.memory = bytearray(256)
        self.alarm = 0

    def read(self, address: int, count: int) -> tuple[int, bytes]:
        return self.alarm, bytes(self.memory[address : address + count])

    def write(self, address: int, data: bytes) -> int:
        self.memory[address : address + len(data)] = data
        return self.alarm

    def instruct(self, instruction: int, params: bytes) -> tuple[int, bytes] | None:
        if instruction == feetech.READ:
            return self.read(*params[:2])
        if instruction == feetech.WRITE:
            return self.write(params[0], params[1:]), b""
        return self.alarm, b""

    def power_cycle(self) -> None:
        """A memory keeps everything."""


def bus_of(servos: list[Memory] | list[FeetechServo], faults: LineFaults | None = None) -> tuple[ServoBus, VirtualPort]:
    port = VirtualPort(ServoLine(servos, faults=faults, seed=3))
    return ServoBus(port, feetech), port


def test_a_read_returns_value_alarm_and_time() -> None:
    servo = Memory(4)
    servo.memory[56:58], servo.alarm = b"\x10\x08", 0b100000
    bus, port = bus_of([servo])
    reply = bus.read(4, 56, 2)
    assert (reply.data, reply.alarm) == (b"\x10\x08", 0b100000), "an alarm does not take the value away"
    assert reply.stamp_ns == port.now_ns() == round((8 * 10e-6 + 0.00014 + 8 * 10e-6) * 1e9)


def test_a_grouped_read_takes_the_wires_time() -> None:
    bus, port = bus_of([Memory(servo) for servo in IDS])
    assert set(bus.sync_read(56, 15, IDS)) == set(IDS)
    assert port.now_ns() == pytest.approx((1.40e-3 + 6 * 0.00014) * 1e9, abs=1), "the facts' 140 bytes"
    assert bus.counts.to_dict() | {"transactions": 0} == dict.fromkeys(bus.counts.to_dict(), 0)


def test_one_silent_servo_leaves_five_fresh() -> None:
    bus, port = bus_of([Memory(servo) for servo in IDS], LineFaults(silent={3}))
    group = GroupRead(bus, 56, 15, IDS)
    for _ in range(100):
        port.sleep(1 / 30)
        assert group.refresh() == (3,)
        assert all(group.age_ns(servo) < 20e6 for servo in IDS if servo != 3)
    with pytest.raises(KeyError):
        group.age_ns(3)
    assert port.now_ns() < 100 * (1 / 30 + 0.02) * 1e9, "one deadline, not one for each servo"


def test_reads_at_full_speed_are_all_answered() -> None:
    bus, port = bus_of([Memory(servo) for servo in IDS])
    for _ in range(200):
        assert set(bus.sync_read(56, 15, IDS)) == set(IDS)
    assert port.now_ns() < 200 * 1.15 * (1.40e-3 + 6 * 0.00014) * 1e9, "no slower than the wire and the servos"
    for _ in range(200):
        assert set(bus.sync_read(56, 2, (1,))) == {1}
        bus.read(1, 62, 1)


def test_a_silent_servo_is_fresh_again_as_soon_as_it_answers() -> None:
    faults = LineFaults(silent={3})
    bus, port = bus_of([Memory(servo) for servo in IDS], faults)
    group = GroupRead(bus, 56, 2, IDS)
    for _ in range(50):
        group.refresh()
        port.sleep(0.001)
    faults.silent.clear()
    port.sleep(0.1)
    assert group.refresh() == ()


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    servo = Memory(1)
    servo.memory[56:60] = b"\x34\x09\x1e\x00"
    faults = LineFaults(delay=1.0, delay_s=0.0045)
    bus, _ = bus_of([servo], faults)
    with pytest.raises(DeadlineExceeded):
        bus.read(1, 56, 1)
    faults.delay = 0.0
    assert bus.read(1, 58, 1).data == b"\x1e", "the late answer, 34, comes while this one is awaited"
    assert bus.counts.stray + bus.counts.discarded >= 1


def test_a_copy_of_an_answer_is_not_taken_for_the_next_one() -> None:
    servo = Memory(1)
    servo.memory[56:58] = b"\x01\x02"
    bus, _ = bus_of([servo], LineFaults(double=1.0))
    for _ in range(10):
        assert bus.read(1, 56, 1).data == b"\x01"
        assert bus.read(1, 57, 1).data == b"\x02"


@pytest.mark.parametrize("alarm", [0, 1, 32])
def test_an_adapters_echo_is_no_answer(alarm: int) -> None:
    servo = Memory(1)
    servo.memory[56:58], servo.alarm = b"\x34\x09", alarm
    bus, _ = bus_of([servo], LineFaults(echo=True))
    assert bus.read(1, 56, 2)[:2] == (b"\x34\x09", alarm)
    bus.write(1, 40, b"\x01")
    assert servo.memory[40] == 1
    assert bus.counts.echoed >= 2


def test_two_different_answers_of_one_servo_are_neither() -> None:
    bus, port = bus_of([Memory(1)])

    def answer(data: bytes, baud: int, at_ns: int) -> list[tuple[int, bytes]]:
        return [(at_ns + 1, feetech.status(2, 0, bytes((value,)))) for value in (0, 9)]

    port.line.receive = answer  # type: ignore[method-assign]
    assert bus.sync_read(56, 1, (1, 2)) == {}
    assert bus.counts.doubled == 1


def test_a_write_is_confirmed_by_reading_back() -> None:
    servo = FeetechServo(1)
    bus, _ = bus_of([servo])
    bus.write(1, 48, b"\xf4\x01")
    assert servo.get("torque_limit") == 500
    with pytest.raises(ServoRefused, match="read-only"):
        bus.write(1, 3, b"\x01\x02")


def test_a_write_survives_lost_packets() -> None:
    servo = FeetechServo(1)
    bus, port = bus_of([servo], LineFaults(lose=0.1))
    written = 0
    for value in range(200):
        try:
            bus.write(1, 46, value.to_bytes(2, "little"))
        except (DeadlineExceeded, ServoRefused):  # lost four times over
            continue
        written += 1
        assert servo.get("goal_speed") == value
        port.sleep(0.2)
    assert written > 190


def test_on_a_noisy_line_servos_are_asked_one_by_one() -> None:
    faults = LineFaults(noise=1.0)
    bus, port = bus_of([Memory(servo) for servo in IDS], faults)

    def fresh() -> int:
        port.sleep(0.2)
        return len(bus.sync_read(56, 2, IDS))

    together = [fresh() for _ in range(4)]
    assert together == [1] * 4, "an answer that noise follows is dropped; only the last one has nothing after it"
    assert [fresh() for _ in range(50)][-20:] == [6] * 20, "noise before the only answer is skipped"
    before = bus.counts.transactions
    fresh()
    assert bus.counts.transactions - before == 6
    faults.noise = 0.0
    [fresh() for _ in range(60)]
    before = bus.counts.transactions
    assert fresh() == 6
    assert bus.counts.transactions - before == 1, "the line is quiet again"


@pytest.mark.parametrize("replaced", [2, 3, 4])
def test_an_answer_whose_end_another_one_replaced_is_refused(replaced: int) -> None:
    other, passed = feetech.status(2, 0, b"\1\2\3\4"), 0
    for value in range(256):
        spliced = feetech.status(1, 0, bytes((value, 11, 12, 13)))[:-replaced] + other[:replaced]
        passed += len(feetech.scan(spliced, answers=True, final=True).packets)
        bus, port = bus_of([Memory(1), Memory(2)])
        port.line.receive = lambda data, baud, at_ns, cut=spliced: [(at_ns + 1, cut)]  # type: ignore[method-assign]
        assert bus.sync_read(56, 4, (1, 2)) == {}
    assert passed == 1, "the checksum alone lets one of them through"


def test_an_answer_that_does_hold_a_header_is_confirmed_by_a_second_one() -> None:
    servos = [Memory(servo) for servo in IDS]
    servos[1].memory[56:60] = b"\x01\xff\xff\x02"
    bus, port = bus_of(servos)
    assert bus.read(2, 56, 4).data == b"\x01\xff\xff\x02"
    assert bus.counts.transactions == 2
    port.sleep(0.2)
    assert bus.sync_read(56, 4, IDS)[2].data == b"\x01\xff\xff\x02", "it says what it said before"
    servos[1].memory[56] = 2
    assert set(bus.sync_read(56, 4, IDS)) == {1, 3, 4, 5, 6}
    assert bus.counts.spliced == 2


def test_an_unplugged_line_is_lost_at_once() -> None:
    faults = LineFaults()
    bus, _ = bus_of([Memory(1)], faults)
    bus.read(1, 0, 1)
    faults.unplugged = True
    with pytest.raises(ConnectionLost):
        bus.read(1, 0, 1)


def test_a_wrong_baud_rate_is_silence() -> None:
    port = VirtualPort(ServoLine([FeetechServo(1)]), baud=115_200)
    assert not ServoBus(port, feetech).present(1)
    assert ServoBus(VirtualPort(ServoLine([FeetechServo(1)])), feetech).present(1)


# -- Many transactions with every fault ----------------------------------------------------------------------------


class Adversary:
    """A line whose answers each have at most one fault; it knows the right value of every read."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.servos = [Memory(servo) for servo in IDS]
        self.port = VirtualPort(ServoLine(self.servos))
        self.port.line.receive = self.receive  # type: ignore[method-assign]
        self.truth: dict[int, bytes] = {}
        self.asked = 0

    def shuffle(self) -> None:
        self.truth.clear()
        for servo in self.servos:
            servo.memory[:] = self.random.bytes(256)
            servo.alarm = int(self.random.choice([0, 0, 1, 32]))

    def receive(self, data: bytes, baud: int, at_ns: int) -> list[tuple[int, bytes]]:
        (servo_id, instruction, params), *_ = feetech.scan(data, answers=False).packets
        at = at_ns + len(data) * 10_000
        ids, arrivals = (servo_id,), []
        if self.random.random() < 0.05:
            arrivals.append((at, data))  # an echo
        if instruction == feetech.SYNC_READ:
            ids = tuple(params[2:])
        for servo in ids:
            self.truth[servo] = bytes(self.servos[servo - 1].memory[params[0] : params[0] + params[1]])
        for servo in ids:
            self.asked += 1
            packet = feetech.status(servo, self.servos[servo - 1].alarm, self.truth[servo])
            at += 140_000 + len(packet) * 10_000
            arrivals += list(self.faulty(packet, at))
        return sorted(arrivals)

    def faulty(self, packet: bytes, at: int) -> Iterator[tuple[int, bytes]]:
        random = self.random
        match random.choice(
            ["fine", "lost", "late", "doubled", "doubled late", "short", "long", "corrupt", "noisy"],
            p=[0.68, 0.04, 0.04, 0.04, 0.04, 0.04, 0.04, 0.04, 0.04],
        ):
            case "fine":
                yield at, packet
            case "late":
                yield at + int(random.integers(1_000_000, 60_000_000)), packet
            case "doubled":
                yield from ((at, packet), (at + len(packet) * 10_000, packet))
            case "doubled late":
                yield from ((at, packet), (at + int(random.integers(0, 3_500_000)), packet))
            case "short":
                yield at, packet[: -int(random.integers(1, len(packet)))]
            case "long":
                yield at, feetech.status(packet[2], packet[4], packet[5:-1] + random.bytes(int(random.integers(1, 5))))
            case "corrupt":
                damaged = bytearray(packet)
                damaged[int(random.integers(len(packet)))] ^= int(random.integers(1, 256))
                yield at, bytes(damaged)
            case "noisy":
                yield at, random.bytes(int(random.integers(1, 30))) + packet


def test_no_wrong_value_is_accepted_in_many_faulty_transactions(transactions: int) -> None:
    line = Adversary(seed=11)
    bus = ServoBus(line.port, feetech)
    random = np.random.default_rng(5)
    accepted = 0
    for _ in range(transactions):
        line.shuffle()
        address, count = int(random.integers(0, 80)), int(random.integers(1, 16))
        if random.random() < 0.5:
            servo = int(random.integers(1, 7))
            try:
                replies = {servo: bus.read(servo, address, count)}
            except DeadlineExceeded:
                replies = {}
        else:
            replies = bus.sync_read(address, count, IDS)
        for servo, reply in replies.items():
            assert reply.data == line.truth[servo][:count], (servo, address, count)
            assert reply.alarm == line.servos[servo - 1].alarm
        accepted += len(replies)
        line.port.sleep(float(random.choice([0.0, 0.001, 0.03])))
    assert accepted > 0.5 * line.asked, "most answers were right, and were taken"


def test_silence_while_this_process_had_no_processor_names_the_busy_machine() -> None:
    """As on a real port: the deadline passed, but this process came to look 45 ms later."""

    class Starved(VirtualPort):
        late_s = 0.0

        def receive(self, timeout_s: float) -> bytes:
            data = super().receive(timeout_s)
            if not data:
                self.sleep(self.late_s)
            return data

    port = Starved(ServoLine([Memory(1)], faults=LineFaults(silent={1})))
    bus = ServoBus(port, feetech)
    with pytest.raises(DeadlineExceeded, match=r"register 56 .*; check the cables and the supply, its id"):
        bus.read(1, 56, 2)
    port.late_s = 0.045
    with pytest.raises(
        DeadlineExceeded, match=r"; this process waited 45 ms for a processor meanwhile: end what loads"
    ):
        bus.read(1, 56, 2)
    port.late_s = 0.0
    assert bus.sync_read(56, 2, (1,)) == {}
    assert bus.cure == "check the cables and the supply", "the newest silence had no such cause"
