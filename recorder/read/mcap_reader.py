"""Read an MCAP file, complete or torn. Tables, images, recovery, cutting and checks all read through this module.

Layout: https://mcap.dev/spec. A file is a magic number, then records (one byte of kind, eight bytes of length,
content), then the magic number again. Messages lie in chunks; each chunk has a CRC-32 of its decompressed content.

The algorithm trusts nothing that it can't check:

1. Walk the records from the beginning, or from the border that an earlier pass reached, by their lengths. No checksum
   covers a length, so if a record contradicts itself, or no record can begin after it, continue at the next place that
   can only be a chunk or a metadata record of ours, and note the bytes in between. If there is no such place, stop:
   from there on the file is torn, and a later pass may continue there.
2. Decompress a chunk and compare its checksum. A chunk with a wrong checksum is left out and noted; no message comes
   from it.
3. Find the messages in a chunk by the message index behind it, which costs no step of Python for each message. The
   index has no checksum, so it is believed only if the messages that it names, and definitions between them, fill the
   chunk without a gap or an overlap. Otherwise walk the chunk as in step 1.
4. Learn the topics from the channel records inside and outside of chunks, and count the messages whose channel was
   lost with a damaged chunk.
5. Take a metadata record from its copy (`recorder.metadata_copy`), if that has the right checksum.

Random access (`McapReader.chunk_part`) uses offsets that an earlier checked pass stored. It decompresses only the LZ4
blocks that it needs: with whole chunks, reading and decoding random JPEG images of 640 x 480 takes 41 % more time.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cached_property
from io import BytesIO
from itertools import takewhile
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import NamedTuple

import lz4.block  # type: ignore[import-untyped]
import lz4.frame  # type: ignore[import-untyped]
import numpy as np
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk
from mcap.stream_reader import get_chunk_data_stream

from hal import LogError
from recorder.git_lfs import git_lfs_advice
from recorder.log.ros2 import HEADER
from recorder.metadata_copy import verified
from recorder.names import COPY
from recorder.read.record_walk import CHUNK, INDEX, KINDS, MAGIC, RECORD, Record, RecordWalk, records_between

__all__ = ["ChunkMessages", "Lz4Blocks", "McapReader", "Message", "Record", "open_files", "open_mcap"]

_LARGEST = 1 << 30
"""A chunk that claims more bytes than this is damaged; ours close at 1 MiB or soon after."""

_MESSAGE = np.dtype([
    ("kind", "u1"), ("length", "<u8"), ("channel", "<u2"), ("sequence", "<u4"), ("time_ns", "<u8"), ("publish", "<u8"),
])  # fmt: skip
"""A message record up to its data."""
_CDR = np.frombuffer(HEADER, "<u4")[0]


class Message(NamedTuple):
    """One message of a log.

    Attributes:
        topic: the topic of the message's channel.
        time_ns: wall clock, nanoseconds since 1970.
        data: CDR bytes.
    """

    topic: str
    time_ns: int
    data: memoryview


# ---- the file ----


def open_mcap(path: Path, start: int = 0, topics: Mapping[int, str] | None = None) -> McapReader:
    """Open a file for reading through a memory map, since images can make logs larger than memory.

    Args:
        path: the file.
        start: as for `McapReader`.
        topics: as for `McapReader`.

    Raises:
        LogError: the file can't be read, or is not an MCAP file.
    """
    try:
        with path.open("rb") as file:
            data = mmap(file.fileno(), 0, access=ACCESS_READ) if path.stat().st_size else b""
    except (OSError, ValueError) as error:  # ValueError: the file became empty between the two calls
        raise LogError(f"{path} can't be read: {error}") from error
    return McapReader(data, str(path), start, topics)


def open_files(files: Mapping[int, Path]) -> Iterator[tuple[int, McapReader]]:
    """Open a log's files one after another, leaving out those that can't be read, except for the first.

    Args:
        files: the log's files by number, in order.

    Raises:
        LogError: file 0 can't be read, or is not an MCAP file. `recorder.read.scan.Scan.notes` lists other such files.
    """
    for number, path in files.items():
        try:
            reader = open_mcap(path)
        except LogError:
            if number == 0:
                raise
            continue
        yield number, reader


class McapReader:
    """Read one MCAP file.

    Args:
        data: the whole file, for example as a memory map.
        name: the file's name, for messages.
        start: the border between records where reading begins: `whole` of an earlier pass, or 0 for the beginning.
        topics: channel -> topic, as the earlier pass learned them.

    Attributes:
        records: the complete records, in order.
        complete: whether the file was closed.
        whole: the border behind the last complete record; a later pass may begin here when the file has grown.
        topics: channel -> topic; grows while `chunks` runs.
        notes: a sentence for each part that can't be read; grows while `chunks` runs.
        unfinished: a sentence on the part missing at the end of an incomplete file, or empty.

    Raises:
        LogError: the file is empty, or is not an MCAP file.
    """

    def __init__(
        self, data: bytes | mmap | memoryview, name: str, start: int = 0, topics: Mapping[int, str] | None = None
    ) -> None:
        self._data = memoryview(data)
        self._walked = RecordWalk(data)
        self.name = name
        self.topics = dict(topics or {})
        self.notes: list[str] = []
        self.unfinished = ""
        self.complete = False
        self._check_magic()
        self.whole = max(start, len(MAGIC))
        self.records = self._walk()
        self._check_kinds(bool(start))

    def _check_magic(self) -> None:
        head = bytes(self._data[: len(MAGIC)])
        if not head:
            raise LogError(f"{self.name} is empty: its run was stopped before anything was written; delete it")
        if len(head) == len(MAGIC) and sum(a != b for a, b in zip(head, MAGIC, strict=True)) == 1:
            self._note("one of the first 8 bytes, which say that this is an MCAP file, is damaged")
        elif not MAGIC.startswith(head):
            if advice := git_lfs_advice(head):
                raise LogError(f"{self.name} {advice}")
            raise LogError(f"{self.name} is no MCAP file: it begins with {head!r}, an MCAP file with {MAGIC!r}")

    def _walk(self) -> list[Record]:
        """Return all complete records, and note what follows them."""
        records, data_ended = [], False
        for record in self._walked.records(self.whole):
            records.append(record)
            self.whole = record.stop
            data_ended |= record.kind == Opcode.DATA_END
            if record.kind == Opcode.FOOTER:
                self.complete = bytes(self._data[self.whole :]) == MAGIC
                break
        for begin, end in self._walked.skipped:
            self._note(f"bytes {begin} to {end} are damaged and left out")
        if not self.complete:
            self.unfinished = self._describe_end(data_ended)
        return records

    def _describe_end(self, data_ended: bool) -> str:
        size, at = len(self._data), self.whole
        if data_ended:
            return f"the index at the end is cut or followed by something else (byte {at}); no data is lost"
        if at < size:
            return f"torn: the last {size - at} of {size} bytes, from byte {at} on, hold no whole record"
        return f"torn: it was not closed; all its {size} bytes are readable"

    def _check_kinds(self, after_chunk: bool) -> None:
        """Note each record whose kind can't be right: the kind is covered by no checksum."""
        for record in self.records:
            index = record.kind == Opcode.MESSAGE_INDEX
            if record.kind not in KINDS or (index and not (after_chunk and self._walked.is_index(record))):
                start = record.start - RECORD.size
                self._note(
                    f"the record at bytes {start} to {record.stop}, or the one before it, is damaged and left out"
                )
            after_chunk = index or record.kind == Opcode.CHUNK

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def metadata(self, begins: str) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield name and content of the metadata records with this prefix of their name, each name once.

        A record that was written twice is taken from its copy if the copy's checksum is right.
        """
        records: dict[str, dict[str, str]] = {}
        for record in self.records:
            metadata = self._walked.metadata(record) if record.kind == Opcode.METADATA else None
            if metadata is None:
                continue
            name, texts = metadata.name, dict(metadata.metadata)
            if not name.startswith(COPY):
                records.setdefault(name, texts)
            elif (whole := verified(texts)) is not None:
                records[name.removeprefix(COPY)] = whole
        yield from ((name, texts) for name, texts in records.items() if name.startswith(begins))

    def _stream(self, record: Record) -> ReadDataStream:
        return ReadDataStream(BytesIO(self._data[record.start : record.stop]))

    # ---- messages ----

    def chunks(self) -> Iterator[ChunkMessages]:
        """Yield all chunks with a valid checksum, in the order of writing."""
        for record in self.records:
            if record.kind == Opcode.CHANNEL:
                self._learn_topic(self._stream(record))
        number = -1
        for position, record in enumerate(self.records):
            if record.kind != Opcode.CHUNK:
                continue
            number += 1
            content = self._checked_content(record)
            if content is None:
                continue
            chunk = ChunkMessages(content, self._index_behind(position), number)
            for definition in chunk.definitions:
                if definition.kind == Opcode.CHANNEL:
                    self._learn_topic(chunk.stream(definition))
            lost = sum(len(offsets) for channel, offsets in chunk.offsets.items() if channel not in self.topics)
            if lost:
                self._note(f"{lost} messages are lost: the chunk that named their topics is damaged")
            yield chunk

    def messages(self, topics: Container[str] | None = None) -> Iterator[Message]:
        """Yield the messages of some topics, or of all, in the order in which they were written."""
        for chunk in self.chunks():
            yield from self.messages_of(chunk, topics)

    def messages_of(self, chunk: ChunkMessages, topics: Container[str] | None = None) -> Iterator[Message]:
        """Yield the messages of one chunk."""
        chosen = {c: t for c, t in self.topics.items() if c in chunk.offsets and (topics is None or t in topics)}
        for channel, offset, _, time_ns in chunk.in_order(chosen):
            yield Message(chosen[channel], time_ns, chunk.payload(offset))

    def _index_behind(self, position: int) -> dict[int, np.ndarray]:
        """Return the message index behind the chunk at this position: channel -> offsets, unchecked."""
        index: dict[int, np.ndarray] = {}
        behind = (self.records[k] for k in range(position + 1, len(self.records)))
        for record in takewhile(lambda record: record.kind == Opcode.MESSAGE_INDEX, behind):
            if not self._walked.is_index(record):
                return {}
            channel, size = INDEX.unpack_from(self._data, record.start)
            if channel in index:
                return {}
            if size:  # pairs of time and offset
                index[channel] = np.frombuffer(self._data, "<u8", size // 8, record.start + INDEX.size)[1::2]
        return index

    def _learn_topic(self, stream: ReadDataStream) -> None:
        try:
            channel = Channel.read(stream)
        except Exception:  # outside chunks a channel has no checksum
            return
        self.topics[channel.id] = channel.topic

    # ---- the content of a chunk ----

    def _checked_content(self, record: Record) -> bytes | None:
        """Return a chunk's records, or None and add a note if the checksum is wrong."""
        try:
            content = self._decompressed(record)
            if zlib.crc32(content) != CHUNK.unpack_from(self._data, record.start)[3]:
                raise ValueError("its checksum is wrong")
        except Exception as error:  # the decoders raise many kinds on damaged bytes
            start = record.start - RECORD.size
            self._note(f"the chunk at bytes {start} to {record.stop} is damaged and left out: {error}")
            return None
        return content

    def _decompressed(self, record: Record) -> bytes:
        frame, size = self._lz4_frame(record)
        if frame is None:
            stream, length = get_chunk_data_stream(Chunk.read(self._stream(record)))
            return bytes(stream.read(length))
        # Straight from the file, which halves the time.
        content = bytes(lz4.frame.LZ4FrameDecompressor().decompress(frame, size + 1))
        if len(content) != size:
            raise ValueError(f"it has not the {size} bytes that it claims")
        return content

    def _lz4_frame(self, record: Record) -> tuple[memoryview | None, int]:
        """Return the LZ4 frame of a chunk, or None if it is compressed otherwise, and its decompressed size."""
        _, _, size, _, name = CHUNK.unpack_from(self._data, record.start)
        if size > _LARGEST:
            raise ValueError(f"it claims {size} bytes")
        at = record.start + CHUNK.size
        if bytes(self._data[at : at + name]) != b"lz4":
            return None, size
        return self._data[at + name + 8 : record.stop], size

    @cached_property
    def _chunk_records(self) -> list[Record]:
        return [record for record in self.records if record.kind == Opcode.CHUNK]

    def chunk_part(self, number: int, start: int, stop: int) -> memoryview:
        """Return some bytes of a chunk, decompressing no more than necessary, without checking the checksum.

        Args:
            number: number of the chunk, as in `ChunkMessages.number`.
            start: offset of the first byte in the decompressed chunk.
            stop: offset behind the last byte.

        Raises:
            ValueError: the chunk is damaged; decoders may also raise their own errors.
        """
        record = self._chunk_records[number]
        frame, size = self._lz4_frame(record)
        if frame is not None:
            try:
                return Lz4Blocks(frame, size).part(start, stop)
            except ValueError:  # a frame of another kind
                pass
        return memoryview(self._decompressed(record))[start:stop]


# ---- the messages in a chunk ----


def _gather(content: bytes, offsets: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Return values of any type at any byte offsets, which must leave room for them: one copy of memory each."""
    raw = np.dtype((np.void, kind.itemsize))
    anywhere = np.ndarray((max(len(content) - kind.itemsize + 1, 0),), raw, content, 0, (1,))
    return anywhere[offsets].view(kind)


class ChunkMessages:
    """Find the messages of a chunk.

    Args:
        content: the chunk's records, decompressed and with the right checksum.
        index: channel -> offsets of its message records from the file; it may be wrong or missing.
        number: the chunk's number among the chunks of its file, damaged ones included.

    Attributes:
        definitions: the records of schemas and channels in the chunk.
        offsets: channel -> offsets of its message records, checked.
    """

    def __init__(self, content: bytes, index: Mapping[int, np.ndarray], number: int = 0) -> None:
        self._content = content
        self.number = number
        self.definitions: list[Record] = []
        self.offsets: dict[int, np.ndarray] = {}
        if not self._believe(index):
            self._walk()

    def _believe(self, index: Mapping[int, np.ndarray]) -> bool:
        """Take the index over if its messages, and definitions between them, fill the chunk exactly."""
        size = len(self._content)
        named = np.concatenate([np.zeros(0, np.uint64), *index.values()])
        if not len(named) or int(named.max()) + _MESSAGE.itemsize > size:
            return False
        starts = named.astype(np.int64)
        channels = np.repeat(np.fromiter(index, np.int64), [len(offsets) for offsets in index.values()])
        order = np.argsort(starts)
        starts, channels = starts[order], channels[order]
        heads = _gather(self._content, starts, _MESSAGE)
        right = (heads["kind"] == Opcode.MESSAGE) & (heads["channel"] == channels) & (heads["length"] <= size)
        if not right.all():
            return False
        stops = starts + RECORD.size + heads["length"].astype(np.int64)
        definitions = self._between(np.concatenate([[0], stops]), np.concatenate([starts, [size]]))
        if definitions is None:
            return False
        self.definitions = definitions
        self.offsets = {channel: offsets.astype(np.int64) for channel, offsets in index.items()}
        return True

    def _between(self, begins: np.ndarray, ends: np.ndarray) -> list[Record] | None:
        """Return the definitions in the gaps between messages; None if a gap is filled by anything else."""
        definitions: list[Record] = []
        gaps = np.flatnonzero(begins != ends)
        for begin, end in zip(begins[gaps].tolist(), ends[gaps].tolist(), strict=True):
            records = list(records_between(self._content, begin, end))
            if begin > end or not records or records[-1].stop != end:
                return None
            if any(record.kind == Opcode.MESSAGE for record in records):
                return None
            definitions += [record for record in records if record.kind in (Opcode.SCHEMA, Opcode.CHANNEL)]
        return definitions

    def _walk(self) -> None:
        offsets: dict[int, list[int]] = {}
        for record in records_between(self._content, 0, len(self._content)):
            if record.kind in (Opcode.SCHEMA, Opcode.CHANNEL):
                self.definitions.append(record)
            elif record.kind == Opcode.MESSAGE and record.stop - record.start >= _MESSAGE.itemsize - RECORD.size:
                (channel,) = struct.unpack_from("<H", self._content, record.start)
                offsets.setdefault(channel, []).append(record.start - RECORD.size)
        self.offsets = {channel: np.array(numbers, np.int64) for channel, numbers in offsets.items()}

    def stream(self, definition: Record) -> ReadDataStream:
        """Return the content of one of the definitions, for the ``read`` of the library's records."""
        return ReadDataStream(BytesIO(self._content[definition.start : definition.stop]))

    def heads(self, channel: int) -> np.ndarray:
        """Return the heads of a channel's messages: kind, length, channel, sequence, time_ns, publish."""
        return _gather(self._content, self.offsets[channel], _MESSAGE)

    def in_order(self, channels: Iterable[int]) -> list[tuple[int, int, int, int]]:
        """Return channel, offset, sequence and time of these channels' messages, in the order of writing."""
        messages: list[tuple[int, int, int, int]] = []
        for channel in channels:
            offsets, heads = self.offsets[channel], self.heads(channel)
            columns = (offsets.tolist(), heads["sequence"].tolist(), heads["time_ns"].tolist())
            messages += [(channel, *values) for values in zip(*columns, strict=True)]
        return sorted(messages, key=lambda message: message[1])

    def payload(self, offset: int) -> memoryview:
        """Return the data of the message whose record begins at this offset."""
        return memoryview(self._content)[slice(*self.payload_at(offset))]

    def payload_at(self, offset: int) -> tuple[int, int]:
        """Return start and stop of the data of the message with its record at this offset."""
        (length,) = struct.unpack_from("<Q", self._content, offset + 1)
        return offset + _MESSAGE.itemsize, offset + RECORD.size + length

    def rows(self, channel: int, kind: np.dtype) -> tuple[np.ndarray, int]:
        """Return the messages that are a CDR header and a packed row of this type, and the number of others."""
        offsets, body = self.offsets[channel], len(HEADER) + kind.itemsize
        right = self.heads(channel)["length"] == _MESSAGE.itemsize - RECORD.size + body
        offsets = offsets[right] + _MESSAGE.itemsize
        headed = _gather(self._content, offsets, np.dtype("<u4")) == _CDR
        rows = _gather(self._content, offsets[headed] + len(HEADER), kind) if kind.itemsize else np.zeros(0, kind)
        return rows, int((~right).sum() + (~headed).sum())


# ---- part of an LZ4 frame, without what comes before it ----

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_SIZES = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_LZ4_WORD = struct.Struct("<I")
_LZ4_STORED = 1 << 31


class _Block(NamedTuple):
    start: int
    length: int
    stored: bool  # as it is, without compression


class Lz4Blocks:
    """Decompress parts of one LZ4 frame (frame format 1.6).

    A frame is a sequence of blocks. Decompressed, each block but the last has the same number of bytes. A block that
    would not shrink, such as one of JPEG images, is stored uncompressed.

    Args:
        data: the frame.
        size: its decompressed size in bytes.

    Raises:
        ValueError: finding a block's bytes would take decompressing all blocks before it.
    """

    def __init__(self, data: memoryview, size: int) -> None:
        flags, sizes = data[4], data[5] >> 4 & 7
        if bytes(data[:4]) != _LZ4_MAGIC or flags >> 6 != 1 or sizes not in _LZ4_SIZES or flags & 1:
            raise ValueError("not an LZ4 frame of version 1 without a dictionary")
        self._data, self._size, self._block = data, size, _LZ4_SIZES[sizes]
        self._linked = not flags & 0x20
        self._places = self._walk(15 if flags & 8 else 7, 4 if flags & 0x10 else 0)
        self._check()

    def _walk(self, at: int, checksum: int) -> list[_Block]:
        """List the blocks from the end of the descriptor on; each may be followed by a checksum."""
        places: list[_Block] = []
        while word := _LZ4_WORD.unpack_from(self._data, at)[0]:
            length = word & ~_LZ4_STORED
            places.append(_Block(at + 4, length, bool(word & _LZ4_STORED)))
            at += 4 + length + checksum
        return places

    def _check(self) -> None:
        """Check that the total proves all blocks but the last full: a stored last block has a known length."""
        *others, last = self._places
        full = all(block.length == self._block for block in others if block.stored)
        if not (full and last.stored and len(others) * self._block + last.length == self._size):
            raise ValueError("where the blocks begin is not certain")

    def part(self, start: int, stop: int) -> memoryview:
        """Return the decompressed bytes from start to stop."""
        first, last = start // self._block, (stop - 1) // self._block
        content = memoryview(b"".join([self._content(number) for number in range(first, last + 1)]))
        return content[start - first * self._block : stop - first * self._block]

    def _content(self, number: int) -> memoryview | bytes:
        begin = number  # a linked block needs the one before it, back to one that is stored
        while begin and self._linked and not self._places[begin].stored:
            begin -= 1
        content: memoryview | bytes = b""
        for start, length, stored in self._places[begin : number + 1]:
            block = self._data[start : start + length]
            content = block if stored else lz4.block.decompress(block, self._block, dict=bytes(content))
        return content
