"""The codec of Protocol 2.0 against ROBOTIS's byte vectors, and against noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.drivers import feetech
from hal.drivers.bus import ServoBus, ServoRefused
from rlenv_arms import dynamixel
from sim.servo_bus.line import LineFaults, ServoLine, VirtualPort
from tests.hal.drivers.test_bus import IDS, Memory

VECTORS = {
    "ping": (dynamixel.ping(1), "FF FF FD 00 01 03 00 01 19 4E"),
    "ping's answer": (dynamixel.status(1, 0, b"\x06\x04\x26"), "FF FF FD 00 01 07 00 55 00 06 04 26 65 5D"),
    "ping all": (dynamixel.ping(dynamixel.BROADCAST), "FF FF FD 00 FE 03 00 01 31 42"),
    "read position": (dynamixel.read(1, 132, 4), "FF FF FD 00 01 07 00 02 84 00 04 00 1D 15"),
    "position 166": (dynamixel.status(1, 0, b"\xa6\0\0\0"), "FF FF FD 00 01 08 00 55 00 A6 00 00 00 8C C0"),
    "write goal": (dynamixel.write(1, 116, b"\0\x02\0\0"), "FF FF FD 00 01 09 00 03 74 00 00 02 00 00 CA 89"),
    "read six": (
        dynamixel.sync_read(126, 10, range(1, 7)),
        "FF FF FD 00 FE 0D 00 82 7E 00 0A 00 01 02 03 04 05 06 18 B7",
    ),
    "read six fast": (
        dynamixel.request(
            dynamixel.BROADCAST, dynamixel.FAST_SYNC_READ, bytes.fromhex("7E 00 0A 00 01 02 03 04 05 06")
        ),
        "FF FF FD 00 FE 0D 00 8A 7E 00 0A 00 01 02 03 04 05 06 1B 9D",
    ),
    "write two goals": (
        dynamixel.sync_write(116, dict.fromkeys((1, 2), b"\0\x08\0\0")),
        "FF FF FD 00 FE 11 00 83 74 00 04 00 01 00 08 00 00 02 00 08 00 00 68 4C",
    ),
    "watchdog": (dynamixel.write(1, 98, b"\x05"), "FF FF FD 00 01 06 00 03 62 00 05 68 E4"),
}
"""Source: ROBOTIS e-Manual, DYNAMIXEL Protocol 2.0; the CRCs agree with dynamixel-sdk 4.1.0."""

PACKETS = st.tuples(st.integers(0, 252), st.integers(0, 255), st.binary(max_size=40))
HARD = st.lists(st.sampled_from([b"\xff", b"\xfd", b"\x00", b"\xff\xff\xfd", b"\x01"]), max_size=20).map(b"".join)


@pytest.mark.parametrize("name", VECTORS)
def test_bytes_are_the_vendors(name: str) -> None:
    got, wanted = VECTORS[name]
    assert got.hex(" ").upper() == wanted


@given(st.lists(PACKETS, max_size=4), st.binary(max_size=12).filter(lambda noise: b"\xff" not in noise))
def test_packets_are_found_between_noise(packets: list[tuple[int, int, bytes]], noise: bytes) -> None:
    data = noise + noise.join(dynamixel.status(*packet) for packet in packets) + noise
    assert dynamixel.scan(data, answers=True).packets == packets


@given(HARD)
def test_stuffing_keeps_every_content_and_hides_every_header(content: bytes) -> None:
    packet = dynamixel.status(1, 0, content)
    assert packet.find(dynamixel.HEADER, 1) < 0
    assert dynamixel.scan(packet, answers=True).packets == [(1, 0, content)]


@given(PACKETS, st.data())
def test_one_wrong_byte_never_gives_a_packet(packet: tuple[int, int, bytes], draw: st.DataObject) -> None:
    data = bytearray(dynamixel.status(*packet))
    data[draw.draw(st.integers(0, len(data) - 1))] ^= draw.draw(st.integers(1, 255))
    assert dynamixel.scan(bytes(data), answers=True, final=True).packets == []


@given(PACKETS, st.data())
def test_a_packet_is_found_whatever_pieces_it_comes_in(packet: tuple[int, int, bytes], draw: st.DataObject) -> None:
    data, rest, found = dynamixel.status(*packet), b"", []
    while data:
        size = draw.draw(st.integers(1, len(data)))
        scan = dynamixel.scan(rest + data[:size], answers=True)
        found += scan.packets
        rest, data = (rest + data[:size])[scan.consumed :], data[size:]
    assert found == [packet]


def test_an_echoed_request_is_no_answer() -> None:
    assert dynamixel.scan(dynamixel.read(1, 132, 4), answers=True).packets == []
    assert dynamixel.scan(dynamixel.read(1, 132, 4), answers=False).packets == [(1, dynamixel.READ, b"\x84\0\x04\0")]


def test_error_bytes_have_meanings() -> None:
    assert dynamixel.refusal(0) is None
    assert dynamixel.refusal(dynamixel.ALERT) is None, "an alarm of the hardware refuses nothing"
    assert dynamixel.refusal(7) == "access denied, such as EEPROM while torque is on"
    assert dynamixel.refusal(0x7F) == "error 127"


@given(st.lists(st.integers(0, 252), min_size=1, max_size=6), st.integers(0, 255), st.binary(max_size=20))
def test_answers_that_hold_nothing_else_are_found_at_once(ids: list[int], error: int, values: bytes) -> None:
    packets = [(servo, error, values) for servo in ids]
    data = b"".join(dynamixel.status(*packet) for packet in packets)
    assert dynamixel.answers(data, ids, len(values)) in (packets, None), "None where a byte is stuffed"
    assert (dynamixel.answers(data, ids, len(values)) is None) == (b"\xff\xff\xfd" in bytes((error,)) + values)
    for at in range(len(data)):
        assert dynamixel.answers(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :], ids, len(values)) is None


def test_dynamixels_take_the_same_transactions() -> None:
    class Dynamixel(Memory):
        def instruct(self, instruction: int, params: bytes) -> tuple[int, bytes] | None:
            address = int.from_bytes(params[:2], "little")
            if instruction == dynamixel.READ:
                return self.read(address, int.from_bytes(params[2:4], "little"))
            return self.write(address, params[2:]), b""

    servos = [Dynamixel(servo) for servo in IDS]
    bus = ServoBus(VirtualPort(ServoLine(servos, dynamixel, LineFaults(echo=True))), dynamixel)
    bus.write(2, 116, b"\x01\x02\x03\x04")
    bus.sync_write(100, {servo: bytes((servo,)) for servo in IDS})
    assert bus.read(2, 116, 4).data == b"\x01\x02\x03\x04"
    assert {servo: reply.data for servo, reply in bus.sync_read(100, 1, IDS).items()} == {
        servo: bytes((servo,)) for servo in IDS
    }
    servos[0].alarm = 7
    with pytest.raises(ServoRefused, match="access denied"):
        bus.read(1, 116, 4)


def test_the_virtual_line_tells_the_instructions_of_both_protocols_apart_by_the_same_numbers() -> None:
    assert (dynamixel.PING, dynamixel.SYNC_READ, dynamixel.SYNC_WRITE) == (
        feetech.PING, feetech.SYNC_READ, feetech.SYNC_WRITE,
    )  # fmt: skip
