"""The messages inside one chunk of an MCAP file, found without a step of Python for each.

The message index behind a chunk says where its messages are, but has no checksum. So it is believed only if the
records that it names fill the chunk without a gap or an overlap; else the chunk is walked record by record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO

import numpy as np
from mcap.data_stream import ReadDataStream

from recorder.cdr import HEADER

__all__ = ["CHANNEL", "CHUNK_HEAD", "MESSAGE", "RECORD", "SCHEMA", "ChunkMessages"]

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
