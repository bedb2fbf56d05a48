"""The line: times of bytes, order of answers, broadcast pings, and faults."""

from __future__ import annotations

import pytest

from hal.drivers import feetech
from hal.errors import ConnectionLost
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import LineFaults, ServoLine, VirtualPort

BAUD = 1_000_000


def line_of(*ids: int, faults: LineFaults | None = None) -> ServoLine:
    return ServoLine([FeetechServo(servo) for servo in ids], faults=faults, seed=1)


def test_an_answer_takes_wire_time_and_turnaround() -> None:
    ((at_ns, answer),) = line_of(1).receive(feetech.ping(1), BAUD, 0)
    assert answer == feetech.status(1, 0)
    assert at_ns == 60_000 + 140_000 + 60_000
    line = line_of(1)
    line.servos[0].write(6, b"\x04")
    ((at_ns, _),) = line.receive(feetech.ping(1), 115_200, 0)
    assert at_ns == pytest.approx(140_000 + 12 * 86_806, abs=2)


def test_requests_queue_on_the_wire() -> None:
    line = line_of(1)
    first = line.receive(feetech.ping(1), BAUD, 0)
    second = line.receive(feetech.ping(1), BAUD, 0)
    assert second[0][0] == 2 * first[0][0]


def test_grouped_answers_come_in_the_order_of_the_request() -> None:
    answers = line_of(1, 2, 3).receive(feetech.sync_read(5, 1, (3, 1, 2)), BAUD, 0)
    assert [answer[5] for _, answer in answers] == [3, 1, 2]


def test_a_request_may_come_in_pieces() -> None:
    line, request = line_of(1), feetech.ping(1)
    assert line.receive(request[:3], BAUD, 0) == []
    assert len(line.receive(request[3:], BAUD, 0)) == 1


def test_a_ping_to_all_is_answered_one_after_the_other_or_collides() -> None:
    line = line_of(1, 2, 3)
    assert [answer[2] for _, answer in line.receive(feetech.ping(feetech.BROADCAST), BAUD, 0)] == [1, 2, 3]
    line.faults.collide = True
    ((_, garbled),) = line.receive(feetech.ping(feetech.BROADCAST), BAUD, 0)
    assert feetech.scan(garbled, answers=True, final=True).packets == []


def test_two_servos_of_one_id_garble_each_other() -> None:
    line = line_of(1, 1)
    line.servos[0].write(46, b"\x23\x01")
    line.servos[1].write(46, b"\x55\xaa")
    ((_, garbled),) = line.receive(feetech.read(1, 46, 2), BAUD, 0)
    assert feetech.scan(garbled, answers=True, final=True).packets == []


def test_a_write_to_all_reaches_all_and_none_answers() -> None:
    line = line_of(1, 2)
    assert line.receive(feetech.write(feetech.BROADCAST, 55, b"\x00"), BAUD, 0) == []
    assert line.receive(feetech.sync_write(46, {1: b"\x01\x00", 2: b"\x02\x00"}), BAUD, 0) == []
    assert [servo.get("goal_speed") for servo in line.servos] == [1, 2]  # type: ignore[attr-defined]
    assert [servo.get("lock") for servo in line.servos] == [0, 0]  # type: ignore[attr-defined]


def test_faults_do_what_their_names_say() -> None:
    def answers(**faults: object) -> list[bytes]:
        line = line_of(1, faults=LineFaults(**faults))  # type: ignore[arg-type]
        return [answer for _, answer in line.receive(feetech.ping(1), BAUD, 0)]

    good = feetech.status(1, 0)
    assert answers(lose=1.0) == answers(silent={1}) == []
    assert answers(double=1.0) == [good, good]
    assert answers(echo=True) == [feetech.ping(1), good]
    assert answers(shorten=1.0)[0] == good[: len(answers(shorten=1.0)[0])] != good
    assert answers(noise=1.0)[0].endswith(good)
    late = line_of(1, faults=LineFaults(delay=1.0, delay_s=0.5)).receive(feetech.ping(1), BAUD, 0)
    assert late == [(500_260_000, good)]


def test_a_virtual_port_passes_time_without_waiting() -> None:
    times: list[int] = []
    port = VirtualPort(line_of(1), on_time=times.append)
    port.send(feetech.ping(1))
    assert port.receive(1.0) == feetech.status(1, 0)
    assert (port.now_ns(), times) == (260_000, [260_000])
    assert port.receive(1.0) == b""
    assert port.now_ns() == 1_000_260_000
    port.send(feetech.ping(1))
    port.sleep(1.0)
    assert port.discard() == 6
    port.close()
    port.close()
    with pytest.raises(ConnectionLost, match="closed"):
        port.send(b"")
