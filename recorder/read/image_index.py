"""Where the pictures of a log are, so that any of them can be read without those before it."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import lz4.frame  # type: ignore[import-untyped]
import numpy as np
from mcap.data_stream import ReadDataStream
from mcap.opcode import Opcode
from mcap.records import Channel, Chunk
from mcap.stream_reader import get_chunk_data_stream

from hal import LogError
from recorder.log.files import log_files
from recorder.log.mcap_writer import CAMERA_TOPIC, FRAME_TOPIC
from recorder.log.ros2 import HEADER, read_compressed_image
from recorder.read.mcap_reader import Lz4Blocks
from recorder.read.reader import LogReader
from recorder.table.cache import FOLDER, stamps

__all__ = ["Chunks", "ImageIndex", "Place", "load", "save"]

_RECORD = struct.Struct("<BQ")  # kind, length
_CHUNK = struct.Struct("<QQQII")  # start and end time, size and checksum when decompressed, length of a name
_MESSAGE = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
_LARGEST = 1 << 30


class _Where(NamedTuple):
    file: int
    start: int  # of the chunk record's content
    stop: int


class Chunks:
    """The chunks of a run's files, mapped into memory.

    Args:
        files: of the log, in order.

    Raises:
        LogError: one can't be read.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.where: list[_Where] = []
        self._data = [_mapped(path) for path in files]
        for number, data in enumerate(self._data):
            self.where += [_Where(number, start, stop) for start, stop in _chunks(data)]

    def content(self, number: int) -> bytes:
        """A chunk's records; their checksum is not looked at.

        Raises:
            ValueError: it is damaged. The decoders raise kinds of their own, too.
        """
        data, size, lz4_at = self._described(number)
        if lz4_at:
            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data[lz4_at:], size))
        stream, length = get_chunk_data_stream(Chunk.read(ReadDataStream(BytesIO(data))))
        return bytes(stream.read(length))

    def stretch(self, number: int, start: int, stop: int) -> memoryview:
        """Some of a chunk's bytes, of which no more is decompressed than it takes.

        Raises:
            ValueError: as `content`.
        """
        data, size, lz4_at = self._described(number)
        if lz4_at:
            try:
                return Lz4Blocks(data[lz4_at:], size).stretch(start, stop)
            except ValueError:  # a frame of another kind
                pass
        return memoryview(self.content(number))[start:stop]

    def _described(self, number: int) -> tuple[memoryview, int, int]:
        """The chunk record's content, its size when decompressed, and where its LZ4 frame begins; 0 if it is none."""
        file, begin, end = self.where[number]
        data = self._data[file][begin:end]
        _, _, size, _, name = _CHUNK.unpack_from(data)
        if size > _LARGEST:
            raise ValueError(f"a chunk claims {size} bytes")
        return data, size, _CHUNK.size + name + 8 if bytes(data[_CHUNK.size : _CHUNK.size + name]) == b"lz4" else 0

    def checked(self, number: int) -> bytes:
        """A chunk's records, or nothing if its checksum is wrong; the reader's notes say so."""
        try:
            content = self.content(number)
        except Exception:  # the decoders raise many kinds on damaged bytes
            return b""
        file, begin, _ = self.where[number]
        return content if zlib.crc32(content) == _CHUNK.unpack_from(self._data[file], begin)[3] else b""


def _mapped(path: Path) -> memoryview:
    try:
        with path.open("rb") as file:
            return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ) if path.stat().st_size else b"")
    except OSError as error:
        raise LogError(f"{path} can't be read: {error}") from error


def _chunks(data: memoryview) -> Iterator[tuple[int, int]]:
    at = 8  # behind the magic
    while at + _RECORD.size <= len(data):
        kind, length = _RECORD.unpack_from(data, at)
        start, at = at + _RECORD.size, at + _RECORD.size + length
        if kind == 0 or at > len(data):
            return
        if kind == Opcode.CHUNK and length >= _CHUNK.size:
            yield start, at


@dataclass(frozen=True)
class ImageIndex:
    """The pictures of one run.

    Attributes:
        chunks: that they lie in.
        places: camera -> shape (N,) of `Place`, by episode and stamp.
    """

    chunks: Chunks
    places: dict[str, np.ndarray]

    @staticmethod
    def kept(run: Path) -> ImageIndex:
        """The index beside the table of a log, or if there is none of this very log, a new one, which is kept there.

        Raises:
            LogError: there is no log, or it can't be read.
        """
        files = log_files(LogReader(run).path.parent)
        places = load(files)
        if places is not None:
            return ImageIndex(Chunks(list(files.values())), places)
        seen = stamps(files)
        index = ImageIndex.of(run)
        save(files, seen, index.places)
        return index

    @staticmethod
    def of(run: Path) -> ImageIndex:
        """Read all of a log once, checksums included.

        Raises:
            LogError: there is no log, or it can't be read.
        """
        reader = LogReader(run)
        dtype = reader.layout.spec.row_dtype
        fields: Any = dtype.fields
        walk = _Walk(len(HEADER) + int(fields["episode"][1]), dtype.itemsize + len(HEADER))
        chunks = Chunks(list(log_files(reader.path.parent).values()))
        for number in range(len(chunks.where)):
            walk.take(number, chunks.checked(number))
        return ImageIndex(chunks, walk.places())


class _Walk:
    """Goes through all chunks in order, and remembers where the pictures are."""

    def __init__(self, episode_at: int, row_bytes: int) -> None:
        self._episode_at, self._row_bytes = episode_at, row_bytes
        self._topics: dict[int, str] = {}
        self._episode = -1
        self._found: dict[str, list[tuple[int, int, int, int, int]]] = {}

    def take(self, number: int, content: bytes) -> None:
        at, whole = 0, memoryview(content)
        while at + _RECORD.size <= len(content):
            kind, length = _RECORD.unpack_from(content, at)
            start, at = at + _RECORD.size, at + _RECORD.size + length
            if at > len(content):
                return
            if kind == Opcode.CHANNEL:
                channel = Channel.read(ReadDataStream(BytesIO(content[start:at])))
                self._topics[channel.id] = channel.topic
            elif kind == Opcode.MESSAGE:
                topic = self._topics.get(_MESSAGE.unpack_from(content, start)[0], "")
                self._message(topic, number, whole[start + _MESSAGE.size : at], start + _MESSAGE.size)

    def _message(self, topic: str, number: int, data: memoryview, at: int) -> None:
        if topic == FRAME_TOPIC:
            if len(data) == self._row_bytes:
                (self._episode,) = struct.unpack_from("<i", data, self._episode_at)
        elif topic.startswith(CAMERA_TOPIC):
            image = read_compressed_image(data)
            size = len(image.data)  # the last field of the message
            place = (self._episode, image.stamp_ns, number, at + len(data) - size, at + len(data))
            self._found.setdefault(topic[len(CAMERA_TOPIC) :], []).append(place)

    def places(self) -> dict[str, np.ndarray]:
        found = {camera: np.array(places, Place) for camera, places in sorted(self._found.items())}
        return {camera: each[np.lexsort((each["stamp_ns"], each["episode"]))] for camera, each in found.items()}


# -- The index of a log's pictures on disk, beside its table: thrown away and made again at will -------------


Place = np.dtype([("episode", "<i8"), ("stamp_ns", "<i8"), ("chunk", "<i8"), ("start", "<i8"), ("stop", "<i8")])
"""Of one picture: the number of its episode in the run, its stamp, its chunk, and its bytes in that."""

_NAME = "pictures.npz"
_FORMAT = 1
_ABOUT = "about"


def load(files: Mapping[int, Path]) -> dict[str, np.ndarray] | None:
    """Camera -> shape (N,) of `Place`, as it was saved for the log as it is now; None if there is no such index.

    Args:
        files: of the log, by number.
    """
    try:
        with np.load(_path(files), allow_pickle=False) as kept:
            about = json.loads(bytes(kept[_ABOUT]))
            if about["format"] != _FORMAT or about["files"] != stamps(files):
                return None
            places = {camera: kept[f"camera{number}"] for number, camera in enumerate(about["cameras"])}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # whatever is wrong with it, it can be made again
    return places if all(each.dtype == Place and each.ndim == 1 for each in places.values()) else None


def save(files: Mapping[int, Path], seen: Mapping[str, Any], places: Mapping[str, np.ndarray]) -> None:
    """Keep an index; it appears whole or not at all, and not where nothing can be written.

    Args:
        files: of the log, by number.
        seen: `recorder.table.cache.stamps` of them from before they were read, so that what grew meanwhile is stale.
        places: as `load` gives them.
    """
    about = json.dumps({"format": _FORMAT, "files": seen, "cameras": list(places)}).encode()
    arrays = {f"camera{number}": each for number, each in enumerate(places.values())}
    path = _path(files)
    fresh = path.with_name(f".pictures-{os.getpid()}.npz")
    try:
        path.parent.mkdir(exist_ok=True)
        with fresh.open("wb") as file:
            np.savez(file, **{_ABOUT: np.frombuffer(about, np.uint8)}, **arrays)  # type: ignore[arg-type]
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def _path(files: Mapping[int, Path]) -> Path:
    return next(iter(files.values())).parent / FOLDER / _NAME
