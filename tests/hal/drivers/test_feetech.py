"""The Feetech codec against the vendor's byte vectors, and against noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.drivers import feetech
from hal.drivers.registers import from_sign_magnitude, to_sign_magnitude

VECTORS = {
    "ping": (feetech.ping(1), "FF FF 01 02 01 FB"),
    "ping's answer": (feetech.status(1, 0), "FF FF 01 02 00 FC"),
    "read position": (feetech.read(1, 56, 2), "FF FF 01 04 02 38 02 BE"),
    "position 2048": (feetech.status(1, 0, b"\x00\x08"), "FF FF 01 04 00 00 08 F2"),
    "torque on": (feetech.write(1, 40, b"\x01"), "FF FF 01 04 03 28 01 CE"),
    "read positions": (feetech.sync_read(56, 2, range(1, 7)), "FF FF FE 0A 82 38 02 01 02 03 04 05 06 26"),
    "write goals": (
        feetech.sync_write(42, dict.fromkeys(range(1, 7), b"\x00\x08")),
        "FF FF FE 16 83 2A 02 01 00 08 02 00 08 03 00 08 04 00 08 05 00 08 06 00 08 F7",
    ),
    "read 8 bytes of two": (feetech.sync_read(56, 8, (1, 2)), "FF FF FE 06 82 38 08 01 02 36"),
    "write position and speed": (
        feetech.write(1, 42, bytes.fromhex("00 08 00 00 E8 03")),
        "FF FF 01 09 03 2A 00 08 00 00 E8 03 D5",
    ),
    "calibrate": (feetech.request(1, feetech.CALIBRATE), "FF FF 01 02 0B F1"),
    "calibrate to 1024": (feetech.request(1, feetech.CALIBRATE, b"\x00\x04"), "FF FF 01 04 0B 00 04 EB"),
    "reset turns": (feetech.request(1, feetech.RESET_STATUS), "FF FF 01 02 0A F2"),
    "action to all": (feetech.request(feetech.BROADCAST, feetech.ACTION), "FF FF FE 02 05 FA"),
    "unlock all": (feetech.write(feetech.BROADCAST, 55, b"\x00"), "FF FF FE 04 03 37 00 C3"),
}
"""Sources: ftservo-wiki, docs/en/reference/protocol/ft-scs.md; the others by its formula of the checksum."""

PACKETS = st.tuples(st.integers(0, 253), st.integers(0, 255), st.binary(max_size=40))
NOISE = st.binary(max_size=20).filter(lambda noise: b"\xff" not in noise)


@pytest.mark.parametrize("name", VECTORS)
def test_bytes_are_the_vendors(name: str) -> None:
    got, wanted = VECTORS[name]
    assert got.hex(" ").upper() == wanted


@pytest.mark.parametrize("name", VECTORS)
def test_the_vendors_bytes_are_read(name: str) -> None:
    wanted = bytes.fromhex(VECTORS[name][1])
    (packet,), consumed, rejected, outside = feetech.scan(wanted, answers=False)
    assert feetech.request(*packet) == wanted
    assert (consumed, rejected, outside) == (len(wanted), 0, 0)


@given(st.lists(PACKETS, max_size=5), NOISE)
def test_packets_are_found_after_noise(packets: list[tuple[int, int, bytes]], noise: bytes) -> None:
    data = noise + b"".join(feetech.status(*packet) for packet in packets)
    assert feetech.scan(data, answers=True).packets == packets


@given(st.lists(PACKETS, min_size=1, max_size=5), NOISE.filter(bool))
def test_a_packet_that_noise_follows_is_dropped_and_all_others_are_found(
    packets: list[tuple[int, int, bytes]], noise: bytes
) -> None:
    data = feetech.status(9, 0, b"\x01\x02") + noise + b"".join(feetech.status(*packet) for packet in packets)
    assert feetech.scan(data, answers=True).packets == packets


def test_a_cut_packet_completed_by_the_next_ones_header_is_dropped() -> None:
    # Two bytes are lost; the header of the next packet stands in for them, and the checksum happens to be right.
    cut = next(
        packet[:-2]
        for value in range(256)
        if sum((packet := feetech.status(2, 0, bytes((value, 7, 0))))[2:-2]) + 255 + 255 & 0xFF == 0xFF
    )
    following = feetech.status(3, 0, b"\x05\x06\x07")
    assert feetech.scan(cut + following, answers=True).packets == [(3, 0, b"\x05\x06\x07")]


@given(PACKETS, st.data())
def test_a_packet_is_found_whatever_pieces_it_comes_in(packet: tuple[int, int, bytes], draw: st.DataObject) -> None:
    data, rest, found = feetech.status(*packet), b"", []
    while data:
        size = draw.draw(st.integers(1, len(data)))
        scan = feetech.scan(rest + data[:size], answers=True)
        found += scan.packets
        rest, data = (rest + data[:size])[scan.consumed :], data[size:]
    assert found == [packet]


@given(PACKETS, st.data())
def test_one_wrong_byte_never_gives_another_packet(packet: tuple[int, int, bytes], draw: st.DataObject) -> None:
    data = bytearray(feetech.status(*packet))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] ^= draw.draw(st.integers(1, 255))
    assert packet[2] == b"" or all(
        len(found[2]) < len(packet[2]) for found in feetech.scan(bytes(data), answers=True, final=True).packets
    )


@given(st.binary(max_size=200))
def test_any_bytes_are_scanned_to_an_end(data: bytes) -> None:
    scan = feetech.scan(data, answers=True, final=True)
    assert 0 <= scan.consumed <= len(data)
    assert len(data) - scan.consumed <= 1, "at most the first byte of a header is kept"


def test_an_incomplete_packet_in_front_hides_no_later_one_at_the_end() -> None:
    cut, whole = feetech.status(1, 0, bytes(9))[:-3], feetech.status(2, 0, b"\x01\x02")
    assert feetech.scan(cut + whole[:4], answers=True).packets == []
    assert feetech.scan(cut + whole, answers=True, final=True).packets == [(2, 0, b"\x01\x02")]


def test_a_length_beyond_the_expected_is_noise_at_once() -> None:
    fake = b"\xff\xff\x01\xc8"
    assert feetech.scan(fake + feetech.status(3, 0, b"\x07"), answers=True, longest=16).packets == [(3, 0, b"\x07")]


@given(st.integers(-2047, 2047))
def test_sign_and_magnitude_round_trip(value: int) -> None:
    assert from_sign_magnitude(to_sign_magnitude(value, 11), 11) == value


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="sign bit 11"):
        to_sign_magnitude(2048, 11)
    with pytest.raises(ValueError, match="id 255"):
        feetech.ping(255)
    with pytest.raises(ValueError, match="params"):
        feetech.request(1, feetech.WRITE, bytes(252))
    with pytest.raises(ValueError, match="same number"):
        feetech.sync_write(42, {1: b"\0", 2: b"\0\0"})


def test_alarms_have_names() -> None:
    assert feetech.alarm_names(0b100101) == ["voltage", "temperature", "overload"]
    assert feetech.alarm_names(0b10000000) == ["bit 7"]


@given(st.lists(st.tuples(st.integers(0, 253), st.integers(0, 255)), min_size=1, max_size=6), st.binary(max_size=20))
def test_answers_that_hold_nothing_else_are_found_at_once(answers: list[tuple[int, int]], values: bytes) -> None:
    packets = [(servo, alarm, values) for servo, alarm in answers]
    data, ids = b"".join(feetech.status(*packet) for packet in packets), [servo for servo, _ in answers]
    spliced = any(feetech.may_be_spliced(*packet) for packet in packets)
    assert feetech.answers(data, ids, len(values)) == (None if spliced else packets)
    assert feetech.answers(data[:-1], ids, len(values)) is None
    for at in range(len(data)):
        assert feetech.answers(data[:at] + bytes((data[at] ^ 4,)) + data[at + 1 :], ids, len(values)) is None
