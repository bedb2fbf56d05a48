"""The records of an MCAP file, whole or torn: what can be trusted is given, what can't is said.

Layout: https://mcap.dev/spec. A file is a magic, records (one byte of kind, eight of length, content), and the
magic again. Messages are in chunks, and each chunk has a checksum of its content: a chunk is right or not used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import lz4.frame  # type: ignore[import-untyped]
import numpy as np
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Metadata
from mcap.stream_reader import get_chunk_data_stream

from hal import LogError
from recorder.chunk import CHANNEL, CHUNK_HEAD, RECORD, ChunkMessages

__all__ = ["MAGIC", "Message", "Records"]

MAGIC = b"\x89MCAP0\r\n"

_INDEX = struct.Struct("<HI")
"""What a message index begins with: channel, bytes that follow."""
_KINDS = frozenset(Opcode)
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
        start: where to begin, a border between records that an earlier pass came to; 0 for the beginning.
        topics: channel -> topic, as the earlier pass learned them.

    Attributes:
        complete: whether the file was closed.
        whole: the border behind the last whole record: where a later pass may begin when the file has grown.
        topics: channel -> topic; grows as `chunks` comes upon them.
        notes: what can't be read, a sentence each; grows as `chunks` comes upon damage.
        unfinished: what is missing at the end of a file that is not complete, as a sentence, or empty.

    Raises:
        LogError: it is no MCAP file, or cut before its first record.
    """

    def __init__(self, data: Any, name: str, start: int = 0, topics: Mapping[int, str] | None = None) -> None:
        self._data = memoryview(data)
        self.name = name
        self.topics = dict(topics or {})
        self.notes: list[str] = []
        self.unfinished = ""
        self.complete = False
        self._check_magic()
        self.whole = max(start, len(MAGIC))
        self._records = self._walk()
        self._check_kinds(bool(start))

    def _check_kinds(self, after_chunk: bool) -> None:
        """Say where a record is not what it was: its kind stands outside of every checksum."""
        for record in self._records:
            index = record.kind == Opcode.MESSAGE_INDEX
            if record.kind not in _KINDS or (index and not (after_chunk and self._is_index(record))):
                start = record.start - RECORD.size
                self._note(
                    f"the record at bytes {start} to {record.stop}, or the one before it, is damaged and left out"
                )
            after_chunk = index or record.kind == Opcode.CHUNK

    def _is_index(self, record: _Record) -> bool:
        size = record.stop - record.start - _INDEX.size
        return size >= 0 and size % 16 == 0 and bool(_INDEX.unpack_from(self._data, record.start)[1] == size)

    def _check_magic(self) -> None:
        head = bytes(self._data[: len(MAGIC)])
        if not head:
            raise LogError(f"{self.name} is empty: its run was stopped before anything was written; delete it")
        if not MAGIC.startswith(head):
            raise LogError(f"{self.name} is no MCAP file: it begins with {head!r}, MCAP with {MAGIC!r}")

    def _walk(self) -> list[_Record]:
        """All records that are whole, and a note on what is behind them."""
        at, size, found, data_ended = self.whole, len(self._data), [], False
        while at + RECORD.size <= size:
            kind, length = RECORD.unpack_from(self._data, at)
            record = _Record(kind, at + RECORD.size, at + RECORD.size + length)
            if kind == 0 or record.stop > size:
                break
            found.append(record)
            at = record.stop
            data_ended |= kind == Opcode.DATA_END
            if kind == Opcode.FOOTER:
                self.complete = bytes(self._data[at:]) == MAGIC
                break
        self.whole = at
        if not self.complete:
            self.unfinished = self._end(at, size, data_ended)
        return found

    @staticmethod
    def _end(at: int, size: int, data_ended: bool) -> str:
        if data_ended:
            return f"the index at the end is cut or followed by something else (byte {at}); no data is lost"
        if at < size:
            return f"torn: the last {size - at} of {size} bytes, from byte {at} on, hold no whole record"
        return f"torn: it was not closed; all its {size} bytes are readable"

    def metadata(self, begins: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Name and content of the metadata records whose name begins so."""
        for record in self._records:
            if record.kind == Opcode.METADATA:
                try:
                    metadata = Metadata.read(self._stream(record))
                except Exception:  # whatever damaged bytes lead to
                    continue
                if metadata.name.startswith(begins):
                    yield metadata.name, dict(metadata.metadata)

    def _stream(self, record: _Record) -> ReadDataStream:
        return ReadDataStream(BytesIO(self._data[record.start : record.stop]))

    # -- messages ------------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[ChunkMessages]:
        """All chunks whose checksum is right, in the order in which they were written."""
        for record in self._records:
            if record.kind == Opcode.CHANNEL:
                self._learn(self._stream(record))
        for number, record in enumerate(self._records):
            if record.kind != Opcode.CHUNK:
                continue
            content = self._content(record)
            if content is None:
                continue
            chunk = ChunkMessages(content, self._index(number + 1))
            for kind, start, stop in chunk.definitions:
                if kind == CHANNEL:
                    self._learn(chunk.definition(start, stop))
            lost = sum(len(each) for channel, each in chunk.offsets.items() if channel not in self.topics)
            if lost:
                self._note(f"{lost} messages are lost: the chunk that named their topics is damaged")
            yield chunk

    def messages(self, topics: Container[str] | None = None) -> Iterator[Message]:
        """Messages, of some topics or of all, in the order in which they were written."""
        for chunk in self.chunks():
            yield from self.of_chunk(chunk, topics)

    def of_chunk(self, chunk: ChunkMessages, topics: Container[str] | None = None) -> Iterator[Message]:
        """Messages of one chunk."""
        wanted = {c: t for c, t in self.topics.items() if c in chunk.offsets and (topics is None or t in topics)}
        for channel, offset, _, time_ns in chunk.in_order(wanted):
            yield Message(wanted[channel], time_ns, chunk.payload(offset))

    def _index(self, number: int) -> dict[int, np.ndarray]:
        """The message index behind a chunk, from the record with this number on."""
        index: dict[int, np.ndarray] = {}
        while number < len(self._records) and self._records[number].kind == Opcode.MESSAGE_INDEX:
            record, number = self._records[number], number + 1
            if not self._is_index(record):
                return {}
            channel, size = _INDEX.unpack_from(self._data, record.start)
            if channel in index:
                return {}
            if size:  # pairs of time and offset
                index[channel] = np.frombuffer(self._data, "<u8", size // 8, record.start + _INDEX.size)[1::2]
        return index

    def _learn(self, stream: ReadDataStream) -> None:
        try:
            channel = Channel.read(stream)
        except Exception:  # outside chunks a channel has no checksum
            return
        self.topics[channel.id] = channel.topic

    def _content(self, record: _Record) -> bytes | None:
        """A chunk's records, or None and a note if its checksum is wrong."""
        try:
            content, checksum = self._decompressed(record)
            if zlib.crc32(content) != checksum:
                raise ValueError("its checksum is wrong")
        except Exception as error:  # the decoders raise many kinds on damaged bytes
            start = record.start - RECORD.size
            self._note(f"the chunk at bytes {start} to {record.stop} is damaged and left out: {error}")
            return None
        return content

    def _decompressed(self, record: _Record) -> tuple[bytes, int]:
        _, _, size, checksum, name = CHUNK_HEAD.unpack_from(self._data, record.start)
        if size > _LARGEST:
            raise ValueError(f"it claims {size} bytes")
        at = record.start + CHUNK_HEAD.size
        if bytes(self._data[at : at + name]) != b"lz4":
            stream, length = get_chunk_data_stream(Chunk.read(self._stream(record)))
            return stream.read(length), checksum
        compressed = self._data[at + name + 8 : record.stop]  # straight from the file, which halves the time
        content = lz4.frame.LZ4FrameDecompressor().decompress(compressed, size + 1)
        if len(content) != size:
            raise ValueError(f"it has not the {size} bytes that it claims")
        return content, checksum

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)
