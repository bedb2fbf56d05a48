"""Walk the records of an MCAP file, and continue after a damaged length.

A record is one byte of kind, eight bytes of length, and its content; no checksum covers kind and length. If a record
contradicts itself, or no record can begin after it, the walk continues at the next place that can only be the
beginning of a chunk or of a metadata record of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from io import BytesIO
from mmap import mmap
from typing import NamedTuple

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Metadata

from recorder.names import COPY, DESCRIPTION

__all__ = ["CHUNK", "INDEX", "KINDS", "MAGIC", "RECORD", "Record", "RecordWalk", "records_between"]

MAGIC = b"\x89MCAP0\r\n"
"""The bytes with which a file begins and ends."""
RECORD = struct.Struct("<BQ")
"""Beginning of every record: kind, and length of the content."""
CHUNK = struct.Struct("<QQQII")
"""Beginning of a chunk: start and end time, decompressed size, checksum, length of the compression's name."""
INDEX = struct.Struct("<HI")
"""Beginning of a message index: channel, and length of the pairs that follow."""
KINDS = frozenset(Opcode)
_LONG, _SHORT = struct.Struct("<Q"), struct.Struct("<I")

_MARKS = (
    (b"\x03\x00\x00\x00lz4", RECORD.size + CHUNK.size - _SHORT.size, Opcode.CHUNK),
    (_SHORT.pack(len(DESCRIPTION)) + DESCRIPTION.encode(), RECORD.size, Opcode.METADATA),
    (COPY.encode(), RECORD.size + _SHORT.size, Opcode.METADATA),
)
"""Bytes that a record of ours has, their distance from its beginning, and its kind: where a walk can begin again."""


class Record(NamedTuple):
    """One record: its kind (an `Opcode`), and start and stop of its content, in bytes."""

    kind: int
    start: int
    stop: int


def records_between(data: memoryview | bytes, at: int, end: int) -> Iterator[Record]:
    """Yield the complete records between two offsets; stop at one that has the kind 0 or ends beyond ``end``."""
    while at + RECORD.size <= end:
        kind, length = RECORD.unpack_from(data, at)
        record = Record(kind, at + RECORD.size, at + RECORD.size + length)
        if kind == 0 or record.stop > end:
            return
        yield record
        at = record.stop


class RecordWalk:
    """Walk the records of one file.

    Args:
        data: the whole file.

    Attributes:
        skipped: begin and end of the parts without a whole record, in bytes; grows while `records` runs.
    """

    def __init__(self, data: bytes | mmap | memoryview) -> None:
        self._data = memoryview(data)
        self._searched = data if isinstance(data, bytes | mmap) else bytes(data)
        self.skipped: list[tuple[int, int]] = []

    def records(self, at: int) -> Iterator[Record]:
        """Yield the complete records from an offset on."""
        size = len(self._data)
        while True:
            for record in records_between(self._data, at, size):
                if not (self._is_consistent(record) or self._may_begin(record.stop)):
                    break
                yield record
                at = record.stop
            if at >= size or (found := self._next_certain(at + 1)) is None:
                break
            self.skipped.append((at, found))
            at = found
        yield from records_between(self._data, at, size)

    def is_index(self, record: Record) -> bool:
        """Return whether a record is a message index with a consistent length."""
        size = record.stop - record.start - INDEX.size
        return size >= 0 and size % 16 == 0 and bool(INDEX.unpack_from(self._data, record.start)[1] == size)

    def metadata(self, record: Record) -> Metadata | None:
        """Return the content of a metadata record, or None if it is damaged."""
        try:
            return Metadata.read(ReadDataStream(BytesIO(self._data[record.start : record.stop])))
        except Exception:  # the library raises many kinds on damaged bytes
            return None

    def _is_consistent(self, record: Record) -> bool:
        """Return whether a record's length is confirmed by its content."""
        if record.kind == Opcode.MESSAGE_INDEX:
            return self.is_index(record)
        if record.kind in (Opcode.HEADER, Opcode.METADATA):
            return self._has_two_parts(record)
        return record.kind == Opcode.CHUNK and self._is_chunk(record)

    def _has_two_parts(self, record: Record) -> bool:
        """Return whether a record is two strings, or a string and a mapping, each after its length, and no more."""
        at = record.start
        for _ in range(2):
            if at + _SHORT.size > record.stop:
                return False
            at += _SHORT.size + _SHORT.unpack_from(self._data, at)[0]
        return bool(at == record.stop)

    def _is_chunk(self, record: Record) -> bool:
        if record.stop - record.start < CHUNK.size + _LONG.size:
            return False
        at = record.start + CHUNK.size + CHUNK.unpack_from(self._data, record.start)[4]
        begin = at + _LONG.size
        return begin <= record.stop and bool(record.stop - begin == _LONG.unpack_from(self._data, at)[0])

    def _may_begin(self, at: int) -> bool:
        """Return whether a complete record may begin at an offset, or the file ends there."""
        left = len(self._data) - at
        if left == 0 or (left == len(MAGIC) and bytes(self._data[at:]) == MAGIC):
            return True
        record = next(records_between(self._data, at, len(self._data)), None)
        if record is None or record.kind not in KINDS:
            return False
        return record.kind != Opcode.CHUNK or self._is_chunk(record)

    def _next_certain(self, begin: int) -> int | None:
        """Return the first place from ``begin`` on that can only be a chunk or a metadata record of ours."""
        places = [self._next_marked(begin, mark, before, kind) for mark, before, kind in _MARKS]
        return min((place for place in places if place is not None), default=None)

    def _next_marked(self, begin: int, mark: bytes, before: int, kind: int) -> int | None:
        found = self._searched.find(mark, begin + before)
        while found >= 0:
            record = next(records_between(self._data, found - before, len(self._data)), None)
            if record is not None and record.kind == kind and self._is_consistent(record):
                return found - before
            found = self._searched.find(mark, found + 1)
        return None
