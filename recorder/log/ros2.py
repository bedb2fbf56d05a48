"""CDR, the encoding of ROS 2 messages: the part that strings, sequences and stamps need.

Plain CDR, little-endian (OMG "DDS Interoperability Wire Protocol" 2.5, clause 10.2): four header bytes, then the
fields one after another, each number at a multiple of its own size counted from the end of the header.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from hal import LogError

__all__ = ["HEADER", "CdrReader", "CdrWriter"]

HEADER = b"\x00\x01\x00\x00"
"""Representation identifier CDR_LE and two option bytes that are not used."""


class CdrWriter:
    """Builds one message, field after field."""

    def __init__(self) -> None:
        self._body = bytearray()

    def align(self, size: int) -> int:
        """Pad to a multiple of ``size`` bytes; returns the position in the message, header included."""
        self._body += bytes(-len(self._body) % size)
        return len(HEADER) + len(self._body)

    def uint32(self, value: int) -> CdrWriter:
        """An unsigned number, as counts are."""
        self.align(4)
        self._body += struct.pack("<I", value)
        return self

    def int32(self, value: int) -> CdrWriter:
        """A signed number."""
        self.align(4)
        self._body += struct.pack("<i", value)
        return self

    def stamp(self, nanoseconds: int) -> CdrWriter:
        """A ``builtin_interfaces/Time``: int32 seconds and uint32 nanoseconds."""
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        return self.int32(seconds).uint32(rest)

    def string(self, text: str) -> CdrWriter:
        """Length with the closing zero, UTF-8, zero."""
        encoded = text.encode()
        self.uint32(len(encoded) + 1)
        self._body += encoded + b"\x00"
        return self

    def float64s(self, values: Any) -> CdrWriter:
        """A ``float64[]``."""
        numbers = np.asarray(values, "<f8").ravel()
        self.uint32(len(numbers))
        if len(numbers):
            self.align(8)
        self._body += numbers.tobytes()
        return self

    def message_with(self, data: bytes | memoryview) -> bytes:
        """The whole message, with a ``uint8[]`` as its last field: copied once, as pictures are large."""
        self.uint32(len(data))
        return b"".join((HEADER, self._body, data))

    def message(self) -> bytes:
        """The whole message with its header."""
        return HEADER + bytes(self._body)


class CdrReader:
    """Reads one message, field after field, in the order in which it was written.

    Raises:
        LogError: the message is shorter than its fields, or no little-endian CDR.
    """

    def __init__(self, message: bytes | memoryview) -> None:
        self._body = memoryview(message)[len(HEADER) :]
        self._at = 0
        if bytes(message[:2]) != HEADER[:2]:
            raise LogError(f"a message begins with {bytes(message[:4]).hex(' ')}, little-endian CDR with 00 01")

    def _take(self, size: int, aligned: int = 1) -> memoryview:
        start = self._at + -self._at % aligned
        if start + size > len(self._body):
            raise LogError(f"a message of {len(self._body)} bytes ends before its field at byte {start}")
        self._at = start + size
        return self._body[start : self._at]

    def uint32(self) -> int:
        """An unsigned number."""
        return int(struct.unpack("<I", self._take(4, 4))[0])

    def int32(self) -> int:
        """A signed number."""
        return int(struct.unpack("<i", self._take(4, 4))[0])

    def stamp(self) -> int:
        """A ``builtin_interfaces/Time`` in nanoseconds."""
        return self.int32() * 1_000_000_000 + self.uint32()

    def string(self) -> str:
        """A text without its closing zero."""
        try:
            return bytes(self._take(self.uint32())).rstrip(b"\x00").decode()
        except UnicodeDecodeError as error:
            raise LogError(f"a text in a message is not UTF-8: {error}") from error

    def octets(self) -> bytes:
        """A ``uint8[]``."""
        return bytes(self._take(self.uint32()))
