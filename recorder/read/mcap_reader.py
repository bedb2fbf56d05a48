"""The records of an MCAP file, whole or torn: what can be trusted is given, what can't is said.

Layout: https://mcap.dev/spec. A file is a magic, records (one byte of kind, eight of length, content), and the
magic again. Messages are in chunks, and each chunk has a checksum of its content: a chunk is right or not used.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import lz4.block  # type: ignore[import-untyped]
import lz4.frame  # type: ignore[import-untyped]
import numpy as np
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk, Metadata
from mcap.stream_reader import get_chunk_data_stream

from hal import LogError
from recorder.log.ros2 import HEADER

__all__ = [
    "CHANNEL", "CHUNK_HEAD", "MAGIC", "MESSAGE", "RECORD", "SCHEMA", "ChunkMessages", "Lz4Blocks", "Message", "Records",
]  # fmt: skip

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


# -- The messages inside one chunk of an MCAP file, found without a step of Python for each ------------------
#
# The message index behind a chunk says where its messages are, but has no checksum. So it is believed only if the
# records that it names fill the chunk without a gap or an overlap; else the chunk is walked record by record.


RECORD = struct.Struct("<BQ")
"""What every record begins with: kind, and length of what follows."""
CHUNK_HEAD = struct.Struct("<QQQII")
"""Start and end time, uncompressed size and checksum, length of the name of the compression that follows."""
SCHEMA, CHANNEL, MESSAGE = 3, 4, 5

_HEAD = np.dtype([
    ("kind", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("time_ns", "<u8"), ("publish", "<u8"),
])  # fmt: skip
"""A message record up to its data."""
_CDR = np.frombuffer(HEADER, "<u4")[0]


def _gather(content: bytes, offsets: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Values of any type at any byte offsets, which must leave room for them: one copy of memory each."""
    raw = np.dtype((np.void, kind.itemsize))
    anywhere = np.ndarray((max(len(content) - kind.itemsize + 1, 0),), raw, content, 0, (1,))
    taken: np.ndarray = anywhere[offsets].view(kind)
    return taken


class ChunkMessages:
    """Where the messages of a chunk are.

    Args:
        content: the chunk's records, decompressed and with the right checksum.
        index: channel -> offsets of its messages' records, as the file says; may be wrong or missing.

    Attributes:
        definitions: the chunk's schemas and channels, as (kind, start, stop) of their records' content.
        offsets: channel -> offsets of its messages' records, right.
    """

    def __init__(self, content: bytes, index: Mapping[int, np.ndarray]) -> None:
        self._content = content
        self.definitions: list[tuple[int, int, int]] = []
        self.offsets: dict[int, np.ndarray] = {}
        if not self._believe(index):
            self._walk()

    def _believe(self, index: Mapping[int, np.ndarray]) -> bool:
        """Take over the index if its messages, and definitions between them, fill the chunk exactly."""
        size = len(self._content)
        named = np.concatenate([np.zeros(0, np.uint64), *index.values()])
        if not len(named) or int(named.max()) + _HEAD.itemsize > size:
            return False
        starts = named.astype(np.int64)
        channels = np.repeat(np.fromiter(index, np.int64), [len(each) for each in index.values()])
        order = np.argsort(starts)
        starts, channels = starts[order], channels[order]
        heads = _gather(self._content, starts, _HEAD)
        if (heads["kind"] != MESSAGE).any() or (heads["channel"] != channels).any() or (heads["length"] > size).any():
            return False
        stops = starts + RECORD.size + heads["length"].astype(np.int64)
        edges = np.concatenate([[0], stops]), np.concatenate([starts, [size]])
        gaps = np.flatnonzero(edges[0] != edges[1])
        definitions: list[tuple[int, int, int]] = []
        for begin, end in zip(edges[0][gaps].tolist(), edges[1][gaps].tolist(), strict=True):
            records = list(_parts(self._content, begin, end))
            if begin > end or not records or records[-1][2] != end or any(kind == MESSAGE for kind, _, _ in records):
                return False
            definitions += [record for record in records if record[0] in (SCHEMA, CHANNEL)]
        self.definitions = definitions
        self.offsets = {channel: each.astype(np.int64) for channel, each in index.items()}
        return True

    def _walk(self) -> None:
        found: dict[int, list[int]] = {}
        for kind, start, stop in _parts(self._content, 0, len(self._content)):
            if kind in (SCHEMA, CHANNEL):
                self.definitions.append((kind, start, stop))
            elif kind == MESSAGE and stop - start >= _HEAD.itemsize - RECORD.size:
                (channel,) = struct.unpack_from("<H", self._content, start)
                found.setdefault(channel, []).append(start - RECORD.size)
        self.offsets = {channel: np.array(each, np.int64) for channel, each in found.items()}

    def definition(self, start: int, stop: int) -> ReadDataStream:
        """The content of one of the definitions."""
        return ReadDataStream(BytesIO(self._content[start:stop]))

    def heads(self, channel: int) -> np.ndarray:
        """Structured: kind, length, channel, sequence, time_ns, publish."""
        return _gather(self._content, self.offsets[channel], _HEAD)

    def in_order(self, channels: Iterable[int]) -> list[tuple[int, int, int, int]]:
        """Channel, offset of the record, sequence and time of these channels' messages, as they were written."""
        found: list[tuple[int, int, int, int]] = []
        for channel in channels:
            offsets, heads = self.offsets[channel], self.heads(channel)
            columns = (offsets.tolist(), heads["sequence"].tolist(), heads["time_ns"].tolist())
            found += [(channel, *each) for each in zip(*columns, strict=True)]
        return sorted(found, key=lambda each: each[1])

    def payload(self, offset: int) -> memoryview:
        """The data of the message whose record is at this offset."""
        (length,) = struct.unpack_from("<Q", self._content, offset + 1)
        return memoryview(self._content)[offset + _HEAD.itemsize : offset + RECORD.size + length]

    def rows(self, channel: int, kind: np.dtype) -> tuple[np.ndarray, int]:
        """The messages that are a CDR header and a packed row of this type, and how many are not."""
        offsets, body = self.offsets[channel], len(HEADER) + kind.itemsize
        right = self.heads(channel)["length"] == _HEAD.itemsize - RECORD.size + body
        offsets = offsets[right] + _HEAD.itemsize
        headed = _gather(self._content, offsets, np.dtype("<u4")) == _CDR
        rows = _gather(self._content, offsets[headed] + len(HEADER), kind) if kind.itemsize else np.zeros(0, kind)
        return rows, int((~right).sum() + (~headed).sum())


def _parts(content: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Kind, start and stop of the content of the records between two offsets."""
    while at + RECORD.size <= end:
        kind, length = RECORD.unpack_from(content, at)
        start = at + RECORD.size
        at = start + length
        if at > end:
            return
        yield kind, start, at


# -- A stretch of an LZ4 frame without what comes before it --------------------------------------------------
#
# A frame is a row of blocks, each of which holds the same number of bytes when it is decompressed, but for the last. A
# block that would not shrink, as pictures don't, is stored as it is. The layout is that of the LZ4 frame format 1.6.


_MAGIC = b"\x04\x22\x4d\x18"
_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_WORD = struct.Struct("<I")
_STORED = 1 << 31


class Lz4Blocks:
    """The blocks of one frame.

    Args:
        data: the frame.
        size: of what is in it.

    Raises:
        ValueError: it can't be said without decompressing all of it where a block's bytes belong.
    """

    def __init__(self, data: memoryview, size: int) -> None:
        if bytes(data[:4]) != _MAGIC or data[4] >> 6 != 1 or data[5] >> 4 & 7 not in _SIZES or data[4] & 1:
            raise ValueError("not a frame of a kind that is known here")
        self._data, self._size, self._block = data, size, _SIZES[data[5] >> 4 & 7]
        self._linked = not data[4] & 0x20
        self._places: list[tuple[int, int, bool]] = []  # start, length, stored
        at = 15 if data[4] & 8 else 7  # behind the descriptor, perhaps with the content's size
        checksum = 4 if data[4] & 0x10 else 0
        while word := _WORD.unpack_from(data, at)[0]:
            length = word & ~_STORED
            self._places.append((at + 4, length, bool(word & _STORED)))
            at += 4 + length + checksum
        self._check()

    def _check(self) -> None:
        """That all blocks but the last are full follows where the last is stored: its length is known then."""
        *others, (_, length, stored) = self._places
        full = all(size == self._block for _, size, plain in others if plain)
        if not (full and stored and len(others) * self._block + length == self._size):
            raise ValueError("where its blocks begin is not certain")

    def stretch(self, start: int, stop: int) -> memoryview:
        """The bytes from start to stop."""
        first, last = start // self._block, (stop - 1) // self._block
        whole = memoryview(b"".join([self._content(number) for number in range(first, last + 1)]))
        return whole[start - first * self._block : stop - first * self._block]

    def _content(self, number: int) -> memoryview | bytes:
        begin = number  # a linked block needs the one before it, back to one that is stored
        while begin and self._linked and not self._places[begin][2]:
            begin -= 1
        content: memoryview | bytes = b""
        for start, length, stored in self._places[begin : number + 1]:
            block = self._data[start : start + length]
            content = block if stored else lz4.block.decompress(block, self._block, dict=bytes(content))
        return content
