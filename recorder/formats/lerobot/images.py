"""The pictures of a LeRobot data set by row: from its videos, or from the images in its Parquet files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.formats.lerobot_files import LeRobotFiles, open_files
from recorder.formats.lerobot_videos import LeRobotVideos
from recorder.formats.parquet_columns import column, read_parquet
from recorder.picture import decode_bytes
from recorder.picture_source import MISSING

__all__ = ["PREFIX", "LeRobotImages"]

PREFIX = "observation.images."
"""What the names of cameras begin with in a data set, and not here."""
_OPEN = 4
"""Files whose encoded images are kept in memory."""


class LeRobotImages:
    """The pictures of one data set, v3.0 or v2.1. A picture belongs to the frame of its number.

    Args:
        root: of the data set.

    Raises:
        SourceError: it is no data set, or contradicts itself; or pyarrow is missing.
    """

    def __init__(self, root: Path) -> None:
        files = open_files(root)
        self._features = {
            name.removeprefix(PREFIX): name
            for name, about in files.info["features"].items()
            if about.get("dtype") in ("video", "image")
        }
        self._videos, self._images = LeRobotVideos(root), _Images(files)
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
        """See `recorder.picture_source.PictureSource.numbers`; each picture is as old as its frame."""
        episode, frame = rows["episode"].astype(np.int64), rows["frame_no"].astype(np.int64)
        return np.where(frame < self._counts[camera][episode], self._starts[episode] + frame, MISSING)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """See `recorder.picture_source.PictureSource.decode`."""
        episode = int(np.searchsorted(self._starts, number, "right")) - 1
        frame, name = number - int(self._starts[episode]), self._features[camera]
        if name in self._videos.cameras:
            pixels = self._videos.at(name, episode, frame)
            return pixels if rgb else np.ascontiguousarray(pixels[..., ::-1])
        data = self._images.stored(name, episode, frame)
        found = decode_bytes(data, rgb)
        if found is None:
            raise SourceError(f"{name}, frame {frame} of episode {episode}: {len(data)} bytes are no picture")
        return found


class _Images:
    """Encoded images, each in a cell of a Parquet file or a file of its own that the cell names."""

    def __init__(self, files: LeRobotFiles) -> None:
        self._files = files
        self._open: OrderedDict[tuple[Path, str], tuple[Any, dict[tuple[int, int], int]]] = OrderedDict()
        self._lock = threading.Lock()

    def stored(self, name: str, episode: int, frame: int) -> bytes:
        """The bytes of an image.

        Raises:
            SourceError: it is missing.
        """
        entry = self._files.entries[episode]
        if frame == entry.length:
            return bytes(entry.ours[f"last/{name}"])
        cells, rows = self._column(entry.file, name)
        found = cells[rows[episode, frame]].as_py() if (episode, frame) in rows else None
        if found and found.get("bytes"):
            return bytes(found["bytes"])
        if found and found.get("path") and (self._files.root / found["path"]).is_file():
            return Path(self._files.root, found["path"]).read_bytes()
        raise SourceError(f"{entry.file}: {name} has no image at frame {frame} of episode {episode}")

    def _column(self, file: Path, name: str) -> tuple[Any, dict[tuple[int, int], int]]:
        with self._lock:
            if (file, name) not in self._open:
                while len(self._open) >= _OPEN:
                    self._open.popitem(last=False)
                table = read_parquet(file, [name, "episode_index", "frame_index"])
                if name not in table.column_names:
                    raise SourceError(f"{file} has no column {name!r}, it has {', '.join(table.column_names)}")
                keys = [column(table, key, np.int64, (), str(file)) for key in ("episode_index", "frame_index")]
                places = zip(*(key.tolist() for key in keys), strict=True)
                self._open[file, name] = table.column(name), {place: row for row, place in enumerate(places)}
            self._open.move_to_end((file, name))
            return self._open[file, name]
