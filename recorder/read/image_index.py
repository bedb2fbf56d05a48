"""Index the images of a log, so that any of them can be read without those before it.

The index is kept on disk beside the log's table. It may be deleted at any time and is made again.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recorder.json_data import JsonObject
from recorder.log.ros2 import HEADER, read_compressed_image
from recorder.names import CAMERA_TOPIC, FRAME_TOPIC, TABLE_FOLDER, file_stamps, log_files
from recorder.read.mcap_reader import ChunkMessages, McapReader, open_files
from recorder.read.reader import LogReader

__all__ = ["ImageIndex", "Place", "load", "save"]

Place = np.dtype([
    ("episode", "<i8"), ("stamp_ns", "<i8"), ("file", "<i8"), ("chunk", "<i8"), ("start", "<i8"), ("stop", "<i8"),
])  # fmt: skip
"""One image: its episode's number in the run, its stamp, its file and chunk, and its bytes in the chunk."""

_NAME = "pictures.npz"
_FORMAT = 2
_ABOUT = "about"


@dataclass(frozen=True)
class ImageIndex:
    """The images of one run.

    Attributes:
        files: number -> the log's file, open for reading.
        places: camera -> shape (N,) of `Place`, sorted by episode and stamp.
    """

    files: Mapping[int, McapReader]
    places: Mapping[str, np.ndarray]

    @staticmethod
    def load_or_build(run: Path) -> ImageIndex:
        """Load the index beside the log's table, or build it and save it there if it is missing or out of date.

        Raises:
            LogError: there is no log, or it can't be read.
        """
        files = log_files(LogReader(run).path.parent)
        places = load(files)
        if places is not None:
            return ImageIndex(dict(open_files(files)), places)
        stamps = file_stamps(files)
        index = ImageIndex.build(run)
        save(files, stamps, index.places)
        return index

    @staticmethod
    def build(run: Path) -> ImageIndex:
        """Read all of a log once, checksums included.

        Raises:
            LogError: there is no log, or it can't be read.
        """
        reader = LogReader(run)
        files = dict(open_files(log_files(reader.path.parent)))
        finder = _ImageFinder(reader.layout.spec.row_dtype)
        for number, file in files.items():
            for chunk in file.chunks():
                finder.take(number, file, chunk)
        return ImageIndex(files, finder.places())

    def stored(self, place: np.void) -> memoryview:
        """Return an image's bytes as they were recorded: JPEG or PNG.

        Args:
            place: one element of `places`.

        Raises:
            ValueError: the chunk is damaged; the decoders raise errors of their own, too.
        """
        return self.files[int(place["file"])].chunk_part(int(place["chunk"]), int(place["start"]), int(place["stop"]))


class _ImageFinder:
    """Goes through the chunks of a run in order, and remembers where the images are and of which episode."""

    def __init__(self, row: np.dtype) -> None:
        fields: Any = row.fields
        self._episode_at, self._row_bytes = len(HEADER) + int(fields["episode"][1]), len(HEADER) + row.itemsize
        self._episode = -1
        self._places: dict[str, list[tuple[int, ...]]] = {}

    def take(self, number: int, file: McapReader, chunk: ChunkMessages) -> None:
        """Look at the frames and images in a chunk of the file with this number."""
        topics = {channel: file.topics.get(channel, "") for channel in chunk.offsets}
        chosen = [channel for channel, topic in topics.items() if topic.startswith((FRAME_TOPIC, CAMERA_TOPIC))]
        for channel, offset, _, _ in chunk.in_order(chosen):
            data, topic = chunk.payload(offset), topics[channel]
            if topic.startswith(CAMERA_TOPIC):
                image, stop = read_compressed_image(data), chunk.payload_at(offset)[1]
                start = stop - len(image.data)  # the bytes are the last field of the message
                place = (self._episode, image.stamp_ns, number, chunk.number, start, stop)
                self._places.setdefault(topic.removeprefix(CAMERA_TOPIC), []).append(place)
            elif topic == FRAME_TOPIC and len(data) == self._row_bytes:
                (self._episode,) = struct.unpack_from("<i", data, self._episode_at)

    def places(self) -> dict[str, np.ndarray]:
        """Return camera -> (N,) of `Place`, sorted by episode and stamp."""
        places = {camera: np.array(rows, Place) for camera, rows in sorted(self._places.items())}
        return {camera: rows[np.lexsort((rows["stamp_ns"], rows["episode"]))] for camera, rows in places.items()}


def load(files: Mapping[int, Path]) -> dict[str, np.ndarray] | None:
    """Return camera -> (N,) of `Place` as saved for these files as they are now; None if nothing of the kind was saved.

    Args:
        files: the log's files, by number.
    """
    try:
        with np.load(_path(files), allow_pickle=False) as arrays:
            about = json.loads(bytes(arrays[_ABOUT]))
            if about["format"] != _FORMAT or about["files"] != file_stamps(files):
                return None
            places = {camera: arrays[f"camera{number}"] for number, camera in enumerate(about["cameras"])}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # whatever is wrong with the index, it can be made again
    return places if all(rows.dtype == Place and rows.ndim == 1 for rows in places.values()) else None


def save(files: Mapping[int, Path], stamps: JsonObject, places: Mapping[str, np.ndarray]) -> None:
    """Save an index; its file appears complete, or not at all where nothing can be written.

    Args:
        files: the log's files, by number.
        stamps: `recorder.names.file_stamps` of the files from before they were read, so that an index of a log that
            grew meanwhile is out of date.
        places: as `load` returns them.
    """
    about = json.dumps({"format": _FORMAT, "files": stamps, "cameras": list(places)}).encode()
    arrays = {f"camera{number}": rows for number, rows in enumerate(places.values())}
    path = _path(files)
    part = path.with_name(f".pictures-{os.getpid()}.npz")
    try:
        path.parent.mkdir(exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, **{_ABOUT: np.frombuffer(about, np.uint8)}, **arrays)  # type: ignore[arg-type]
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _path(files: Mapping[int, Path]) -> Path:
    return next(iter(files.values())).parent / TABLE_FOLDER / _NAME
