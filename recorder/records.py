"""The records of an MCAP file, whole or torn: what can be trusted is given, what can't is said.

Layout: https://mcap.dev/spec. A file is a magic, records (one byte of kind, eight of length, content), and the
magic again. Messages are in chunks, and each chunk has a checksum of its content: a chunk is right or not used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Metadata
from mcap.stream_reader import get_chunk_data_stream

from hal import LogError

__all__ = ["MAGIC", "Message", "Records"]

MAGIC = b"\x89MCAP0\r\n"

_PREFIX = struct.Struct("<BQ")
_MESSAGE = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
_LARGEST = 1 << 30
"""A chunk that claims more bytes than this is damaged; ours close at 1 MiB or soon after."""


class Message(NamedTuple):
    """One message of a log.

    Attributes:
        topic: of its channel.
        time_ns: wall clock, nanoseconds since 1970.
        data: CDR bytes.
    """

    topic: str
    time_ns: int
    data: memoryview


@dataclass(frozen=True)
class _Record:
    kind: int
    start: int  # of the content
    stop: int


class Records:
    """The records of one file.

    Args:
        data: the whole file, perhaps mapped into memory.
        name: of the file, for messages.

    Attributes:
        complete: whether the file was closed.
        notes: what can't be read, a sentence each; grows as `messages` comes upon damage.

    Raises:
        LogError: it is no MCAP file, or cut before its first record.
    """

    def __init__(self, data: Any, name: str) -> None:
        self._data = memoryview(data)
        self.name = name
        self.notes: list[str] = []
        self.complete = False
        self._check_magic()
        self._records = self._walk()

    def _check_magic(self) -> None:
        head = bytes(self._data[: len(MAGIC)])
        if not head:
            raise LogError(f"{self.name} is empty: its run was stopped before anything was written; delete it")
        if not MAGIC.startswith(head):
            raise LogError(f"{self.name} is no MCAP file: it begins with {head!r}, MCAP with {MAGIC!r}")

    def _walk(self) -> list[_Record]:
        """All records that are whole, and a note on what is behind them."""
        at, size, found, data_ended = len(MAGIC), len(self._data), [], False
        while at + _PREFIX.size <= size:
            kind, length = _PREFIX.unpack_from(self._data, at)
            record = _Record(kind, at + _PREFIX.size, at + _PREFIX.size + length)
            if kind == 0 or record.stop > size:
                break
            found.append(record)
            at = record.stop
            data_ended |= kind == Opcode.DATA_END
            if kind == Opcode.FOOTER:
                self.complete = bytes(self._data[at:]) == MAGIC
                break
        if not self.complete:
            self._note_end(at, size, data_ended)
        return found

    def _note_end(self, at: int, size: int, data_ended: bool) -> None:
        if data_ended:
            self.notes.append(f"the index at the end is cut or followed by something else (byte {at}); no data is lost")
        elif at < size:
            self.notes.append(f"torn: the last {size - at} of {size} bytes, from byte {at} on, hold no whole record")
        else:
            self.notes.append(f"torn: it was not closed; all its {size} bytes are readable")

    def metadata(self, name: str) -> dict[str, str] | None:
        """The first metadata record of that name."""
        for record in self._records:
            if record.kind == Opcode.METADATA:
                try:
                    metadata = Metadata.read(self._stream(record))
                except Exception:  # whatever damaged bytes lead to
                    continue
                if metadata.name == name:
                    return dict(metadata.metadata)
        return None

    def _stream(self, record: _Record) -> ReadDataStream:
        return ReadDataStream(BytesIO(self._data[record.start : record.stop]))

    def messages(self) -> Iterator[Message]:
        """Messages of all chunks whose checksum is right, in the order in which they were written."""
        topics: dict[int, str] = {}
        lost = 0
        for record in self._records:
            if record.kind == Opcode.CHANNEL:
                self._learn(topics, self._stream(record))
        for record in self._records:
            if record.kind != Opcode.CHUNK:
                continue
            content = self._content(record)
            for kind, start, stop in _parts(content):
                if kind == Opcode.CHANNEL:
                    self._learn(topics, ReadDataStream(BytesIO(content[start:stop])))
                elif kind == Opcode.MESSAGE and stop - start >= _MESSAGE.size:
                    channel, _, time_ns, _ = _MESSAGE.unpack_from(content, start)
                    topic = topics.get(channel)
                    if topic is None:
                        lost += 1
                    else:
                        yield Message(topic, time_ns, content[start + _MESSAGE.size : stop])
        if lost:
            self._note(f"{lost} messages are lost: the chunk that named their topics is damaged")

    @staticmethod
    def _learn(topics: dict[int, str], stream: ReadDataStream) -> None:
        try:
            channel = Channel.read(stream)
        except Exception:  # outside chunks a channel has no checksum
            return
        topics[channel.id] = channel.topic

    def _content(self, record: _Record) -> memoryview:
        """A chunk's records, or nothing and a note if its checksum is wrong."""
        try:
            chunk = Chunk.read(self._stream(record))
            if chunk.uncompressed_size > _LARGEST:
                raise ValueError(f"it claims {chunk.uncompressed_size} bytes")
            stream, length = get_chunk_data_stream(chunk)
            content = stream.read(length)
            if zlib.crc32(content) != chunk.uncompressed_crc:
                raise ValueError("its checksum is wrong")
        except Exception as error:  # the decoders raise many kinds on damaged bytes
            start = record.start - _PREFIX.size
            self._note(f"the chunk at bytes {start} to {record.stop} is damaged and left out: {error}")
            return memoryview(b"")
        return memoryview(content)

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


def _parts(content: memoryview) -> Iterator[tuple[int, int, int]]:
    """Kind, start and stop of the records in a chunk."""
    at = 0
    while at + _PREFIX.size <= len(content):
        kind, length = _PREFIX.unpack_from(content, at)
        start = at + _PREFIX.size
        at = start + length
        if at > len(content):
            return
        yield kind, start, at
