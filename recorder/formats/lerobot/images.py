"""Read the images of a LeRobot data set, v3.0 or v2.1: from its videos, or from its Parquet files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from recorder.formats.lerobot.files import LeRobotFiles, open_files
from recorder.formats.parquet_columns import column, read_parquet
from recorder.images.video import Decoder, open_video
from recorder.json_data import JsonObject
from recorder.log.image_codec import decode_bytes
from recorder.table.image_source import MISSING, ImageSource
from recorder.table.table import Table

__all__ = ["PREFIX", "LeRobotImages", "LeRobotVideos", "VideoPlace"]

PREFIX = "observation.images."
"""Beginning of a camera's name in a LeRobot data set; here cameras have the rest of the name."""
_OPEN_COLUMNS = 4
"""Columns of encoded images that are kept in memory."""
_OPEN_VIDEOS = 8
"""Videos that a thread keeps open."""


class LeRobotImages(ImageSource):
    """The images of one data set. An image belongs to the frame with its number.

    Args:
        root: the data set's folder.

    Raises:
        SourceError: the folder is no data set, or contradicts itself; or pyarrow is missing.
    """

    def __init__(self, root: Path) -> None:
        files = open_files(root)
        self._features = {
            name.removeprefix(PREFIX): name
            for name, about in files.info["features"].items()
            if about.get("dtype") in ("video", "image")
        }
        self._videos, self._embedded = LeRobotVideos(root), _EmbeddedImages(files)
        lengths = np.array([entry.length for entry in files.entries], np.int64)
        self._counts = {
            camera: lengths + np.array([f"last/{name}" in entry.ours for entry in files.entries])
            for camera, name in self._features.items()
        }
        self._starts = np.concatenate([[0], np.cumsum(lengths + 1)])

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self._features))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image; see `ImageSource.numbers`. Each image is as old as its frame."""
        episode, frame = rows["episode"].astype(np.int64), rows["frame_no"].astype(np.int64)
        return np.where(frame < self._counts[camera][episode], self._starts[episode] + frame, MISSING)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image's pixels; see `ImageSource.decode`."""
        episode = int(np.searchsorted(self._starts, number, "right")) - 1
        frame, name = number - int(self._starts[episode]), self._features[camera]
        if name in self._videos.cameras:
            image = self._videos.at(name, episode, frame)
            return image if rgb else np.ascontiguousarray(image[..., ::-1])
        data = self._embedded.stored(name, episode, frame)
        pixels = decode_bytes(data, rgb)
        if pixels is None:
            raise SourceError(f"{name}, frame {frame} of episode {episode}: {len(data)} bytes are no image")
        return pixels


class _Column(NamedTuple):
    """A column of encoded images, and the row of each (episode, frame)."""

    cells: Any
    rows: Mapping[tuple[int, int], int]


class _EmbeddedImages:
    """Reads encoded images, each in a cell of a Parquet file or in a file of its own that the cell names."""

    def __init__(self, files: LeRobotFiles) -> None:
        self._files = files
        self._columns: OrderedDict[tuple[Path, str], _Column] = OrderedDict()
        self._lock = threading.Lock()

    def stored(self, name: str, episode: int, frame: int) -> bytes:
        """Return the bytes of an image.

        Raises:
            SourceError: the image is missing.
        """
        entry = self._files.entries[episode]
        if frame == entry.length:
            return bytes(entry.ours[f"last/{name}"])
        cells, rows = self._column(entry.file, name)
        cell = cells[rows[episode, frame]].as_py() if (episode, frame) in rows else None
        if cell and cell.get("bytes"):
            return bytes(cell["bytes"])
        if cell and cell.get("path") and (self._files.root / cell["path"]).is_file():
            return Path(self._files.root, cell["path"]).read_bytes()
        raise SourceError(f"{entry.file}: {name} has no image at frame {frame} of episode {episode}")

    def _column(self, file: Path, name: str) -> _Column:
        with self._lock:
            if (file, name) not in self._columns:
                while len(self._columns) >= _OPEN_COLUMNS:
                    self._columns.popitem(last=False)
                self._columns[file, name] = _read_column(file, name)
            self._columns.move_to_end((file, name))
            return self._columns[file, name]


def _read_column(file: Path, name: str) -> _Column:
    table = read_parquet(file, [name, "episode_index", "frame_index"])
    if name not in table.column_names:
        raise SourceError(f"{file} has no column {name!r}, it has {', '.join(table.column_names)}")
    keys = [column(table, key, np.int64, (), str(file)) for key in ("episode_index", "frame_index")]
    places = zip(*(key.tolist() for key in keys), strict=True)
    return _Column(table.column(name), {place: row for row, place in enumerate(places)})


# ---- videos ----


class VideoPlace(NamedTuple):
    """The place of an image: the video's file, and the time from the video's beginning in seconds."""

    file: Path
    seconds: float


class _ThreadsVideos(threading.local):
    """The videos that one thread has open, the last used one last."""

    def __init__(self) -> None:
        self.opened: OrderedDict[Path, Decoder] = OrderedDict()


class LeRobotVideos:
    """Decodes the images in the videos of one data set, for any number of threads: each has decoders of its own.

    Args:
        path: the data set's folder.
        by: the decoder, see `recorder.images.video.open_video`.

    Attributes:
        cameras: names of the features that are videos.

    Raises:
        SourceError: the folder is no data set, or contradicts itself; or pyarrow is missing.
    """

    def __init__(self, path: Path | str, by: str | None = None) -> None:
        self._files = open_files(Path(path))
        self._by = by
        info = self._files.info
        self.cameras = tuple(name for name, about in info["features"].items() if about.get("dtype") == "video")
        self._begins = _begins(self._files, self.cameras)
        self._mine = _ThreadsVideos()
        self._all: set[Decoder] = set()

    def place(self, camera: str, episode: int, frame: int) -> VideoPlace:
        """Return the place of an image.

        Args:
            camera: one of `cameras`.
            episode, frame: numbers from 0, as ``episode`` and ``frame_no`` of a row.

        Raises:
            SourceError: there is no such camera, episode or frame. A frame that a table has beyond those of the data
                set has an image only if the data set keeps each episode's last observation.
        """
        if camera not in self.cameras:
            raise SourceError(
                f"{self._files.root} has no camera {camera!r}, it has {', '.join(self.cameras) or 'none'}"
            )
        entries = self._files.entries
        exists = 0 <= episode < len(entries)
        if not exists or not 0 <= frame < entries[episode].length + (f"last/{camera}" in entries[episode].ours):
            reason = f"it has {entries[episode].length}" if exists else "there is no such episode"
            raise SourceError(f"{self._files.root}: no image of frame {frame} in episode {episode}: {reason}")
        begin = self._begins[camera][episode]
        return VideoPlace(begin.file, begin.seconds + frame / float(self._files.info["fps"]))

    def at(self, camera: str, episode: int, frame: int) -> np.ndarray:
        """Return one image: uint8, (height, width, 3), RGB.

        Raises:
            SourceError: as `place`; or the video is missing, can't be decoded, or needs PyAV.
        """
        place = self.place(camera, episode, frame)
        return self._decoder(place.file).at(place.seconds)

    def of_rows(self, table: Table, rows: Any, camera: str) -> np.ndarray:
        """Return the images of rows, uint8 (B, height, width, 3); each video is read once, from front to back.

        Args:
            table: the data set's, by `recorder.formats.lerobot.read.load_lerobot`.
            rows: their numbers in the table, (B,).
            camera: one of `cameras`.

        Raises:
            SourceError: as `at`.
        """
        picked = [table.rows[int(row)] for row in np.asarray(rows)]
        places = [self.place(camera, int(row["episode"]), int(row["frame_no"])) for row in picked]
        images = {place: self._decoder(place.file).at(place.seconds) for place in sorted(set(places))}
        return np.stack([images[place] for place in places])

    def _decoder(self, path: Path) -> Decoder:
        opened = self._mine.opened
        if path not in opened:
            if len(opened) >= _OPEN_VIDEOS:
                self._end(opened.popitem(last=False)[1])
            opened[path] = open_video(path, self._by)
            self._all.add(opened[path])
        opened.move_to_end(path)
        return opened[path]

    def _end(self, decoder: Decoder) -> None:
        self._all.discard(decoder)
        decoder.close()

    def close(self) -> None:
        """Close the videos, once no other thread decodes. Calling it twice is allowed."""
        for decoder in list(self._all):
            self._end(decoder)
        self._mine = _ThreadsVideos()

    def __enter__(self) -> LeRobotVideos:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _begins(files: LeRobotFiles, cameras: tuple[str, ...]) -> dict[str, list[VideoPlace]]:
    """Return camera -> the place where each episode begins."""
    if not cameras:
        return {}
    pattern = files.info.get("video_path")
    if not pattern:
        raise SourceError(f"{files.root / 'meta' / 'info.json'}: there are videos, but no video_path")
    if files.info["codebase_version"] == "v3.0":
        return {camera: _begins_v3(files, camera, pattern) for camera in cameras}
    size = int(files.info.get("chunks_size", 1000))
    return {
        camera: [
            VideoPlace(files.root / pattern.format(episode_chunk=n // size, video_key=camera, episode_index=n), 0.0)
            for n in range(len(files.entries))
        ]
        for camera in cameras
    }


def _begins_v3(files: LeRobotFiles, camera: str, pattern: str) -> list[VideoPlace]:
    keys = [f"videos/{camera}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")]
    places: dict[int, VideoPlace] = {}
    for file in sorted((files.root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        for line in read_parquet(file, ["episode_index", *keys]).to_pylist():
            values: list[Any] = [line.get(key) for key in keys]
            if None in values:
                raise SourceError(f"{file}: episode {line['episode_index']} without {', '.join(keys)}")
            names: JsonObject = {"video_key": camera, "chunk_index": values[0], "file_index": values[1]}
            places[int(line["episode_index"])] = VideoPlace(files.root / pattern.format(**names), float(values[2]))
    return [places[entry.index] for entry in files.entries]
