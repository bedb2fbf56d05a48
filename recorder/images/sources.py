"""Find the images of a table, in our log by its index, or in a data set of another format."""

from __future__ import annotations

import contextlib
import json
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError, SourceError
from hal.atomic_file import atomic_write
from recorder.json_data import JsonObject
from recorder.log.image_codec import decode_bytes
from recorder.log.ros2 import HEADER, read_compressed_image
from recorder.names import CAMERA_TOPIC, FRAME_TOPIC, LOG_NAME, TABLE_FOLDER, file_stamps, log_files
from recorder.read.mcap_reader import ChunkMessages, McapReader, open_files
from recorder.read.npz import read_npz
from recorder.read.reader import LogReader
from recorder.read.verify import claims_signature
from recorder.table.proven import known_proof
from recorder.table.table import MISSING, ImageSource, Table

__all__ = ["ByTime", "ImageIndex", "ImageSources", "LogImages", "Place", "load", "save"]

Place = np.dtype([
    ("episode", "<i8"), ("stamp_ns", "<i8"), ("file", "<i8"), ("chunk", "<i8"), ("start", "<i8"), ("stop", "<i8"),
])  # fmt: skip
"""One image: its episode's number in the run, its stamp, its file and chunk, and its bytes in the chunk."""

_NAME = "pictures.npz"
_FORMAT = 2
_ABOUT = "about"


@dataclass(frozen=True)
class ImageIndex:
    """The index of the images in one run's log.

    Attributes:
        files: number -> the log's file, open for reading.
        places: camera -> shape (N,) of `Place`, sorted by episode and stamp.
    """

    files: Mapping[int, McapReader]
    places: Mapping[str, np.ndarray]

    @staticmethod
    def load_or_build(run: Path) -> ImageIndex:
        """Load the index beside the log's table, or build it and save it there if it is missing or out of date.

        The index of a signed run lies with its proven table (`recorder.table.proven`); without one it is built again.

        Raises:
            LogError: there is no log, or it can't be read.
        """
        folder = LogReader(run).path.parent
        files = log_files(folder)
        place: Path | None = folder / TABLE_FOLDER
        if claims_signature(folder):
            proof = known_proof(folder, files, None)
            place = None if proof is None else proof.place
        if place is None:
            return ImageIndex.build(run)
        places = load(files, place)
        if places is not None:
            return ImageIndex(dict(open_files(files)), places)
        stamps = file_stamps(files)
        index = ImageIndex.build(run)
        save(files, stamps, index.places, place)
        return index

    @staticmethod
    def build(run: Path) -> ImageIndex:
        """Build the index by reading the whole log once, with its checksums.

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
            ValueError: the chunk is damaged; decoders may also raise their own errors.
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


def load(files: Mapping[int, Path], folder: Path) -> dict[str, np.ndarray] | None:
    """Load the index of these files in their present state: camera -> (N,) of `Place`; None if none was saved.

    Args:
        files: the log's files, by number.
        folder: folder of the index.
    """
    try:
        with (folder / _NAME).open("rb") as file:
            arrays = read_npz(file)
            about = json.loads(bytes(arrays[_ABOUT]))
            if about["format"] != _FORMAT or about["files"] != file_stamps(files):
                return None
            places = {camera: arrays[f"camera{number}"] for number, camera in enumerate(about["cameras"])}
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None  # whatever is wrong with the index, it can be made again
    return places if all(rows.dtype == Place and rows.ndim == 1 for rows in places.values()) else None


def save(files: Mapping[int, Path], stamps: JsonObject, places: Mapping[str, np.ndarray], folder: Path) -> None:
    """Save an index atomically; do nothing if the folder can't be written.

    Args:
        files: the log's files, by number.
        stamps: `recorder.names.file_stamps` of the files before they were read, so that the index is out of date if
            the log grew meanwhile.
        places: as `load` returns them.
        folder: folder of the index.
    """
    about = json.dumps({"format": _FORMAT, "files": stamps, "cameras": list(places)}).encode()
    arrays = {f"camera{number}": rows for number, rows in enumerate(places.values())}
    path = folder / _NAME
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        with atomic_write(path) as part, part.open("wb") as file:
            np.savez(file, **{_ABOUT: np.frombuffer(about, np.uint8)}, **arrays)  # type: ignore[arg-type]


# -- sources --------------------------------------------------------------------------------------------------------


class ImageSources:
    """The image sources of a table's episodes, each opened on first use.

    Args:
        table: the table; its ``open_images`` and ``origin``, or its episodes' ``run``, locate the images.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._opened: dict[str, ImageSource | None] = {}

    def where(self, episode: int) -> str:
        """Return the folder or file that holds the images of an episode."""
        if self._table.open_images is not None:  # a data set's ``run`` names the log that it was made from
            return str(self._table.episodes[episode].get("set", self._table.origin))
        return str(self._table.episodes[episode].get("run", self._table.origin))

    def at(self, where: str) -> ImageSource | None:
        """Return the source at a place from `where`, or None if it has no images.

        Raises:
            SourceError, LogError: the images can't be read.
        """
        if where not in self._opened:
            self._opened[where] = self._open(Path(where))
        return self._opened[where]

    def cameras(self) -> tuple[str, ...]:
        """Return the names of all cameras of the table."""
        places = {self.where(number) for number in range(len(self._table.starts))}
        sources = [self.at(place) for place in sorted(places)]
        return tuple(sorted({camera for source in sources if source for camera in source.cameras}))

    def no_camera(self, camera: str) -> SourceError:
        """Return the error that names a missing camera and lists the existing ones."""
        names = ", ".join(self.cameras()) or "none"
        return SourceError(f"{self._table.origin} has no camera {camera!r}, it has {names}")

    def _open(self, where: Path) -> ImageSource | None:
        if where.name == LOG_NAME or (where / LOG_NAME).is_file():
            return LogImages(where)
        if self._table.open_images is not None:
            return self._table.open_images(where)
        return None


class LogImages(ImageSource):
    """The images of one run, decoded from its log.

    An image belongs to a row of the same episode by their stamps, both by the robot's clock.

    Args:
        run: the folder with the log, or the log.

    Raises:
        LogError: there is no log, or it can't be read.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self.index = ImageIndex.load_or_build(run)
        self._by_time = {camera: ByTime(places) for camera, places in self.index.places.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self.index.places))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image, as `ImageSource.numbers` describes."""
        return self._by_time[camera].numbers(rows["episode"].astype(np.int64), rows["stamp_ns"], how, max_age_ns)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image's pixels, as `ImageSource.decode` describes."""
        data = self.stored(camera, number)
        pixels = decode_bytes(data, rgb)
        if pixels is None:
            raise LogError(f"{self._run}: image {number} of camera {camera!r} ({len(data)} bytes) can't be decoded")
        return pixels

    def stored(self, camera: str, number: int) -> memoryview:
        """Return an image's bytes as they were recorded: JPEG or PNG."""
        return self.index.stored(self.index.places[camera][number])


class ByTime:
    """Find the image that belongs to a row by episode and stamp.

    Args:
        places: (N,) of `recorder.images.sources.Place`, sorted by episode and stamp.
    """

    def __init__(self, places: np.ndarray) -> None:
        self._places = places
        self._times = np.unique(places["stamp_ns"])
        self._base = len(self._times) + 1  # makes of episode and stamp one number that sorts as they do
        self._have = places["episode"] * self._base + np.searchsorted(self._times, places["stamp_ns"]) + 1

    def numbers(self, episodes: np.ndarray, stamps: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the index of each row's image among the places, or `MISSING`, as `ImageSource.numbers` describes."""
        keys = episodes * self._base + np.searchsorted(self._times, stamps, "right")
        best = np.searchsorted(self._have, keys, "right") - 1
        age = self._age(best, episodes, stamps)
        if how == "nearest":
            later = self._age(best + 1, episodes, stamps)
            best, age = np.where(later < age, best + 1, best), np.minimum(age, later)
        return np.where(np.isfinite(age) & (age <= max_age_ns), best, MISSING)

    def _age(self, at: np.ndarray, episodes: np.ndarray, stamps: np.ndarray) -> np.ndarray:
        """Return the distance of images from their rows in ns: infinite where they are of different episodes."""
        if not len(self._places):
            return np.full(len(at), np.inf)
        inside = (at >= 0) & (at < len(self._places))
        safe = np.where(inside, at, 0)
        fits = inside & (self._places["episode"][safe] == episodes)
        return np.where(fits, np.abs(self._places["stamp_ns"][safe] - stamps).astype(float), np.inf)
