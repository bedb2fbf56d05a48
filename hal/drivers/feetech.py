"""Encode and decode packets of Feetech's STS, SMS and SCS servos (protocol 0), in pure functions.

A packet is ``FF FF ID LENGTH CODE PARAMS CHECKSUM``; the code of a request is its instruction, that of an answer its
alarm bits. Source: Feetech, ``ftservo-wiki``, ``docs/en/reference/protocol/ft-scs.md``; its byte vectors are tested.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hal.drivers.packets import Scan, grouped_size

__all__ = [
    "ACTION", "ALARMS", "BROADCAST", "CALIBRATE", "HEADER", "PING", "READ", "REG_WRITE", "RESET_STATUS", "RESTART",
    "RESTORE", "SYNC_READ", "SYNC_WRITE", "WRITE", "alarm_names", "answers", "may_be_spliced", "ping", "read",
    "refusal", "request", "scan", "status", "status_size", "sync_read", "sync_write", "write",
]  # fmt: skip

HEADER: Final = b"\xff\xff"
BROADCAST: int = 0xFE
PING, READ, WRITE, REG_WRITE, ACTION = 0x01, 0x02, 0x03, 0x04, 0x05
RESTORE, RESTART, RESET_STATUS, CALIBRATE = 0x06, 0x08, 0x0A, 0x0B
SYNC_READ, SYNC_WRITE = 0x82, 0x83

ALARMS: Final = {0: "voltage", 1: "encoder", 2: "temperature", 3: "current", 4: "angle", 5: "overload"}
"""Bit of the error byte (and of registers 19, 20 and 65) -> its meaning."""

_LONGEST = 253 - 2
_OVERHEAD = 6


def request(servo: int, instruction: int, params: bytes = b"") -> bytes:
    """Return the bytes of a request.

    Raises:
        ValueError: the id is not 0 to 254, or there are more than 251 bytes of params.
    """
    if not 0 <= servo <= BROADCAST:
        raise ValueError(f"servo id {servo} is not allowed: 0 to 253, or 254 for all")
    if len(params) > _LONGEST:
        raise ValueError(f"{len(params)} bytes of params do not fit into a packet, at most {_LONGEST} do")
    body = bytes((servo, len(params) + 2, instruction)) + params
    return HEADER + body + bytes((~sum(body) & 0xFF,))


def status(servo: int, error: int, data: bytes = b"") -> bytes:
    """Return the bytes of a servo's answer, which has the layout of a request."""
    return request(servo, error, data)


def status_size(count: int) -> int:
    """Return the length of an answer with ``count`` bytes of data, bytes."""
    return _OVERHEAD + count


def refusal(error: int) -> str | None:
    """Return None: these servos carry out an instruction or stay silent; the error byte holds only alarms."""
    return None


def ping(servo: int) -> bytes:
    """Return the request that a servo only acknowledges."""
    return request(servo, PING)


def read(servo: int, address: int, count: int) -> bytes:
    """Return a request for registers of one servo."""
    return request(servo, READ, bytes((address, count)))


def write(servo: int, address: int, data: bytes) -> bytes:
    """Return a request that writes registers of one servo, which acknowledges it."""
    return request(servo, WRITE, bytes((address,)) + data)


def sync_read(address: int, count: int, servos: Iterable[int]) -> bytes:
    """Return a request for the same registers of several servos, which answer in the order of ``servos``."""
    return request(BROADCAST, SYNC_READ, bytes((address, count, *servos)))


def sync_write(address: int, data: Mapping[int, bytes]) -> bytes:
    """Return a request that writes the same registers of several servos; none answers.

    Raises:
        ValueError: the servos get different numbers of bytes.
    """
    size = grouped_size(data)
    params = b"".join(bytes((servo,)) + values for servo, values in data.items())
    return request(BROADCAST, SYNC_WRITE, bytes((address, size)) + params)


def scan(data: bytes, *, answers: bool, longest: int = _LONGEST, final: bool = False) -> Scan:
    """Find the packets in received bytes, as `hal.drivers.packets.Codec.scan`.

    Requests and answers look alike in this protocol, so ``answers`` changes only which ids are allowed: no servo
    answers with the broadcast id. An adapter's echo of a request to one servo therefore passes for an answer; the bus
    removes it.

    A checksum of one byte matches by chance once in 256 times. This matters if a packet lost its last bytes and the
    first ones of the next packet take their place, so a packet must be followed by a header, or by nothing.
    """
    packets: list[tuple[int, int, bytes]] = []
    at = rejected = inside = 0
    size = len(data)
    highest = BROADCAST - 1 if answers else BROADCAST
    while True:
        at = data.find(HEADER, at)
        if at < 0:
            at = size - data.endswith(b"\xff")
            break
        if size - at >= _OVERHEAD:
            end = at + 4 + data[at + 3]
            if data[at + 2] > highest or not 2 <= data[at + 3] <= longest + 2:
                rejected += data[at + 2] != 0xFF
                at += 1
                continue
            if end <= size:
                if sum(data[at + 2 : end]) & 0xFF == 0xFF and (end == size or HEADER.startswith(data[end : end + 2])):
                    packets.append((data[at + 2], data[at + 4], data[at + 5 : end - 1]))
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
    """Return the answers in bytes that contain nothing else, as `hal.drivers.packets.Codec.answers`."""
    size, heads, sums, unpack = _layout(tuple(servos), count)
    if len(data) != size or data.count(HEADER) > len(heads):
        return None
    parts = unpack(data)
    if parts[::4] != heads:
        return None
    errors, values = parts[1::4], parts[2::4]
    for before, error, value, checksum in zip(sums, errors, values, parts[3::4], strict=True):
        if (before + error + sum(value) + checksum) & 0xFF != 0xFF:
            return None
    return list(zip(servos, errors, values, strict=True))


@functools.cache
def _layout(
    servos: tuple[int, ...], count: int
) -> tuple[int, tuple[bytes, ...], tuple[int, ...], Callable[[bytes], tuple[Any, ...]]]:
    """Return how answers that follow one another are checked.

    Returns:
        The length of all; the header, id and length of each; the sum of each one's id and length, which its checksum
        covers; and a function that returns head, error, data and checksum of each.
    """
    heads = tuple(HEADER + bytes((servo, count + 2)) for servo in servos)
    unpack = struct.Struct(f"<{f'4sB{count}sB' * len(servos)}").unpack
    return (_OVERHEAD + count) * len(servos), heads, tuple(servo + count + 2 for servo in servos), unpack


def may_be_spliced(servo: int, error: int, data: bytes) -> bool:
    """Return whether an answer's data or checksum contains a header, so that it may be spliced from two answers.

    The checksum of one byte passes one in 256 packets in which the first bytes of the next answer replace the last.
    """
    return HEADER in status(servo, error, data)[5:]


def alarm_names(error: int) -> list[str]:
    """Return the names of the alarm bits that are set; an unknown bit shows its number."""
    return [ALARMS.get(bit, f"bit {bit}") for bit in range(8) if error >> bit & 1]
