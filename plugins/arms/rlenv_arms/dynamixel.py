"""Encode and decode packets of Dynamixel's Protocol 2.0, as pure functions.

A packet is ``FF FF FD 00 ID LENGTH(2) INSTRUCTION PARAMS CRC(2)``, little-endian. Where ``FF FF FD`` would occur from
the instruction on, an ``FD`` is inserted after it, so that no packet contains a header. Source: ROBOTIS e-Manual,
"DYNAMIXEL Protocol 2.0"; the tests use its example packets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hal.drivers.packets import Scan, grouped_size

__all__ = [
    "ACTION", "ALERT", "BROADCAST", "ERRORS", "FAST_SYNC_READ", "HEADER", "PING", "READ", "REBOOT", "REG_WRITE",
    "STATUS", "SYNC_READ", "SYNC_WRITE", "WRITE", "answers", "crc", "may_be_spliced", "ping", "read", "refusal",
    "request", "scan", "status", "status_size", "sync_read", "sync_write", "write",
]  # fmt: skip

HEADER: Final = b"\xff\xff\xfd\x00"
BROADCAST: int = 0xFE
PING, READ, WRITE, REG_WRITE, ACTION, REBOOT = 0x01, 0x02, 0x03, 0x04, 0x05, 0x08
STATUS, SYNC_READ, SYNC_WRITE, FAST_SYNC_READ = 0x55, 0x82, 0x83, 0x8A

ALERT: Final = 0x80
"""Bit of the error byte: the hardware has an alarm (register 70, Hardware Error Status)."""

ERRORS: Final = {
    1: "it failed",
    2: "unknown instruction",
    3: "wrong CRC",
    4: "value out of range",
    5: "wrong length",
    6: "value beyond its limit",
    7: "access denied, such as EEPROM while torque is on",
}
"""Error number (the lower seven bits of the error byte) -> its meaning."""

_LONGEST = 1024 - 10
_OVERHEAD = 10
_PATTERN: Final = b"\xff\xff\xfd"


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte << 8
        for _ in range(8):
            value = (value << 1 ^ 0x8005) if value & 0x8000 else value << 1
        table.append(value & 0xFFFF)
    return tuple(table)


_TABLE = _crc_table()


def crc(data: bytes) -> int:
    """Return the CRC-16 of the protocol: polynomial 8005, initial value 0, most significant bit first."""
    value = 0
    for byte in data:
        value = (value << 8 & 0xFFFF) ^ _TABLE[value >> 8 ^ byte]
    return value


def _packet(servo: int, body: bytes) -> bytes:
    """Return a packet around instruction and params."""
    if not 0 <= servo <= BROADCAST or servo == 0xFD:
        raise ValueError(f"servo id {servo} is not allowed: 0 to 252, or 254 for all")
    stuffed = body.replace(_PATTERN, _PATTERN + b"\xfd")
    if len(stuffed) > _LONGEST:
        raise ValueError(f"{len(stuffed)} bytes do not fit into a packet, at most {_LONGEST} do")
    packet = HEADER + bytes((servo,)) + (len(stuffed) + 2).to_bytes(2, "little") + stuffed
    return packet + crc(packet).to_bytes(2, "little")


def request(servo: int, instruction: int, params: bytes = b"") -> bytes:
    """Return the bytes of a request to a servo.

    Raises:
        ValueError: the id is not 0 to 252 or 254, or ``params`` do not fit into a packet.
    """
    return _packet(servo, bytes((instruction,)) + params)


def status(servo: int, error: int, data: bytes = b"") -> bytes:
    """Return the bytes of a servo's status packet."""
    return _packet(servo, bytes((STATUS, error)) + data)


def status_size(count: int) -> int:
    """Return the length of a status packet with this many bytes of data, without stuffing."""
    return _OVERHEAD + 1 + count


def refusal(error: int) -> str | None:
    """Return why a servo did not carry out an instruction, or None if it did, with or without an alert."""
    number = error & ~ALERT
    return ERRORS.get(number, f"error {number}") if number else None


def ping(servo: int) -> bytes:
    """Return a request that a servo answers with its model and firmware."""
    return request(servo, PING)


def _pair(address: int, count: int) -> bytes:
    return address.to_bytes(2, "little") + count.to_bytes(2, "little")


def read(servo: int, address: int, count: int) -> bytes:
    """Return a request for registers of one servo."""
    return request(servo, READ, _pair(address, count))


def write(servo: int, address: int, data: bytes) -> bytes:
    """Return a request that writes registers of one servo, which acknowledges it."""
    return request(servo, WRITE, address.to_bytes(2, "little") + data)


def sync_read(address: int, count: int, servos: Iterable[int]) -> bytes:
    """Return a request for the same registers of several servos, which answer in the order of ``servos``."""
    return request(BROADCAST, SYNC_READ, _pair(address, count) + bytes(servos))


def sync_write(address: int, data: Mapping[int, bytes]) -> bytes:
    """Return a request that writes the same registers of several servos; none answers.

    Raises:
        ValueError: the servos get different numbers of bytes.
    """
    size = grouped_size(data)
    params = b"".join(bytes((servo,)) + values for servo, values in data.items())
    return request(BROADCAST, SYNC_WRITE, _pair(address, size) + params)


def scan(data: bytes, *, answers: bool, longest: int = _LONGEST, final: bool = False) -> Scan:
    """Find the packets in received bytes, as `hal.drivers.packets.Codec.scan` specifies.

    An adapter's echo of a request is not taken for an answer, since its instruction is not `STATUS`.
    """
    packets: list[tuple[int, int, bytes]] = []
    at = rejected = inside = 0
    size = len(data)
    while True:
        at = data.find(HEADER, at)
        if at < 0:
            at = size - next(kept for kept in (3, 2, 1, 0) if data.endswith(HEADER[:kept]))
            break
        if size - at >= 7:
            length = data[at + 5] | data[at + 6] << 8
            end = at + 7 + length
            if data[at + 4] > BROADCAST or not 3 <= length <= longest * 4 // 3 + 5:
                rejected += 1
                at += 1
                continue
            if end <= size:
                if crc(data[at : end - 2]) == data[end - 2] | data[end - 1] << 8:
                    body = data[at + 7 : end - 2].replace(_PATTERN + b"\xfd", _PATTERN)
                    if answers == (body[0] == STATUS) and len(body) > answers:
                        packets.append((data[at + 4], body[answers], body[1 + answers :]))
                    inside += end - at
                    at = end
                else:
                    rejected += 1
                    at += 1
                continue
        if not final:
            break
        rejected += 1
        at += 1
    return Scan(packets, at, rejected, size - inside)


def answers(data: bytes, servos: Sequence[int], count: int) -> list[tuple[int, int, bytes]] | None:
    """Return the answers in bytes that hold only answers, as `hal.drivers.packets.Codec.answers` specifies.

    If a byte was stuffed, the lengths differ; the result is None, and `scan` finds the answers.
    """
    size = status_size(count)
    if len(data) != size * len(servos):
        return None
    packets = []
    for at, servo in zip(range(0, len(data), size), servos, strict=True):
        packet = data[at : at + size]
        head = HEADER + bytes((servo,)) + (size - 7).to_bytes(2, "little") + bytes((STATUS,))
        if packet[:8] != head or crc(packet[:-2]) != packet[-2] | packet[-1] << 8 or _PATTERN in packet[7:-2]:
            return None
        packets.append((servo, packet[8], packet[9:-2]))
    return packets


def may_be_spliced(servo: int, error: int, data: bytes) -> bool:
    """Return False: a CRC of 16 bits covers the packet, and no header lies inside one."""
    return False
