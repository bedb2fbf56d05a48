"""Read the images of a LeRobot data set, from videos or from its Parquet files, and their statistics."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from recorder.git_lfs import is_git_lfs_pointer
from recorder.images.video import Decoder, open_video
from recorder.json_data import JsonObject
from recorder.log.image_codec import decode_bytes
from recorder.table.table import MISSING, ImageSource, Table, VideoSpan
from rlenv_formats.foreign import check_file, fill_pattern, inside, read_mapping, read_text, whole_number
from rlenv_formats.lerobot.features import PREFIX, Feature
from rlenv_formats.lerobot.files import LINES_BYTES, LeRobotFiles, open_files, place_values
from rlenv_formats.parquet_columns import column, read_parquet

__all__ = ["STATISTICS", "LeRobotImages", "LeRobotVideos", "VideoPlace"]

STATISTICS = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99", "count")
"""Names of the statistics that LeRobot keeps of a feature; data sets from before 0.4 lack the quantiles."""
_OPEN_COLUMNS = 4
"""Largest number of columns of encoded images in memory."""
_OPEN_VIDEOS = 8
"""Largest number of videos that a thread keeps open."""


class LeRobotImages(ImageSource):
    """The images of one data set, numbered by frame.

    Args:
        root: the data set's folder.

    Raises:
        SourceError: the folder is not a data set or its description is inconsistent, or pyarrow is not installed.
    """

    def __init__(self, root: Path) -> None:
        files = open_files(root)
        self._features = {
            name.removeprefix(PREFIX): name
            for name, about in files.info["features"].items()
            if about.get("dtype") in ("video", "image")
        }
        self._videos, self._embedded = LeRobotVideos(root), _EmbeddedImages(files)
        self._files, self._kept = files, dict[str, dict[int, JsonObject]]()
        self._indices = files.indices
        lengths = np.array([entry.length for entry in files.entries], np.int64)
        self._counts = {
            camera: (lengths + np.array([f"last/{name}" in entry.ours for entry in files.entries])) * self._exist(name)
            for camera, name in self._features.items()
        }
        self._starts = {camera: np.concatenate([[0], np.cumsum(counts)]) for camera, counts in self._counts.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self._features))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image; see `ImageSource.numbers`. Each image is as old as its frame."""
        episode = np.searchsorted(self._indices, rows["episode"].astype(np.int64))
        frame = rows["frame_no"].astype(np.int64)
        return np.where(frame < self._counts[camera][episode], self._starts[camera][episode] + frame, MISSING)

    def _exist(self, name: str) -> np.ndarray:
        """Return whether each episode has images, (E,); if none has, all count, so that the error names the video."""
        there = self._videos.exist(name) if name in self._videos.cameras else np.ones(len(self._indices), bool)
        return there if there.any() else ~there

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image's pixels; see `ImageSource.decode`."""
        starts = self._starts[camera]
        position = int(np.searchsorted(starts, number, "right")) - 1
        frame, name = number - int(starts[position]), self._features[camera]
        episode = int(self._indices[position])
        if name in self._videos.cameras:
            image = self._videos.at(name, episode, frame)
            return image if rgb else np.ascontiguousarray(image[..., ::-1])
        data = self._embedded.stored(name, episode, frame)
        pixels = decode_bytes(data, rgb)
        if pixels is None:
            raise SourceError(f"{name}, frame {frame} of episode {episode}: {len(data)} bytes are not an image")
        return pixels

    def fill(self, rows: np.ndarray, feature: Feature) -> None:
        """Set an observed image in the rows of an episode. A row after the last image repeats it.

        Raises:
            SourceError: an image is missing, can't be decoded, or is smaller than its field.
        """
        camera, (height, width, _) = feature.column.removeprefix(PREFIX), feature.field.shape
        values, pixels = rows[f"observation_{feature.field.name}"], None
        for row, number in enumerate(self.numbers(camera, rows, "latest", np.inf).tolist()):
            if number != MISSING:
                pixels = self.decode(camera, number, rgb=True)[:height, :width]  # videos have even sizes
            if pixels is None or pixels.shape != feature.field.shape:
                got = "missing" if pixels is None else f"of shape {pixels.shape}, expected {feature.field.shape}"
                raise SourceError(f"{feature.column}: image of row {row} is {got}")
            values[row] = pixels

    def videos(self) -> Iterator[VideoSpan]:
        """Yield the span of video for each episode; see `ImageSource.videos`."""
        for camera, name in self._features.items():
            if name in self._videos.cameras:
                for index in self._indices.tolist():
                    place = self._videos.place(name, index, 0)
                    frames = self._videos.frames(name, index)
                    yield VideoSpan(camera, place.file, index, place.seconds, frames, self._videos.fps)

    def statistics(self, camera: str, episode: int) -> JsonObject | None:
        """Return the statistics that the data set keeps of an episode's images: name -> value; None if it has none."""
        name = self._features[camera]
        if name not in self._kept:
            of_files = _statistics_v3 if self._files.info["codebase_version"] == "v3.0" else _statistics_v2
            try:
                self._kept[name] = of_files(self._files, name)
            except SourceError:  # missing or damaged: they can be computed anew
                self._kept[name] = {}
        return self._kept[name].get(episode)


def _statistics_v2(files: LeRobotFiles, name: str) -> dict[int, JsonObject]:
    path = files.root / "meta" / "episodes_stats.jsonl"
    lines = (read_mapping(path, line) for line in read_text(path, LINES_BYTES).split("\n") if line.strip())
    return {line["episode_index"]: (line.get("stats") or {}).get(name) or {} for line in lines}


def _statistics_v3(files: LeRobotFiles, name: str) -> dict[int, JsonObject]:
    prefix, kept = f"stats/{name}/", dict[int, JsonObject]()
    for file in sorted((files.root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        table = read_parquet(file, ["episode_index", *(prefix + stat for stat in STATISTICS)])
        for line in table.to_pylist():
            kept[line.pop("episode_index")] = {column.removeprefix(prefix): value for column, value in line.items()}
    return kept


class _Column(NamedTuple):
    """A column of encoded images, and the row of each (episode, frame)."""

    cells: Any
    rows: Mapping[tuple[int, int], int]


class _EmbeddedImages:
    """Reads encoded images, each in a cell of a Parquet file or in a file of its own that the cell names."""

    def __init__(self, files: LeRobotFiles) -> None:
        self._files = files
        self._entries = {entry.index: entry for entry in files.entries}
        self._columns: OrderedDict[tuple[Path, str], _Column] = OrderedDict()
        self._lock = threading.Lock()

    def stored(self, name: str, episode: int, frame: int) -> bytes:
        """Return the bytes of an image.

        Raises:
            SourceError: the image is missing.
        """
        entry = self._entries[episode]
        if frame == entry.length:
            return bytes(entry.ours[f"last/{name}"])
        cells, rows = self._column(entry.file, name)
        cell = cells[rows[episode, frame]].as_py() if (episode, frame) in rows else None
        if cell and cell.get("bytes"):
            return bytes(cell["bytes"])
        if cell and cell.get("path"):
            return check_file(inside(self._files.root, cell["path"], f"{entry.file}: {name}")).read_bytes()
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
    """The location of an image: its video file, and its time from the start of the video in seconds."""

    file: Path
    seconds: float


class _ThreadsVideos(threading.local):
    """The videos that one thread has open, the last used one last."""

    def __init__(self) -> None:
        self.opened: OrderedDict[Path, Decoder] = OrderedDict()


class LeRobotVideos:
    """Decode the images in the videos of one data set. Any number of threads may call it; each has its own decoders.

    Args:
        path: the data set's folder.
        by: the decoder, see `recorder.images.video.open_video`.

    Attributes:
        cameras: names of the features that are videos.

    Raises:
        SourceError: the folder is not a data set or its description is inconsistent, or pyarrow is not installed.
    """

    def __init__(self, path: Path | str, by: str | None = None) -> None:
        self._files = open_files(Path(path))
        self._by = by
        info = self._files.info
        self.cameras = tuple(name for name, about in info["features"].items() if about.get("dtype") == "video")
        self._entries = {entry.index: entry for entry in self._files.entries}
        self._begins = _begins(self._files, self.cameras)
        self._mine = _ThreadsVideos()
        self._all: set[Decoder] = set()

    @property
    def fps(self) -> float:
        """Frames per second according to the data set's description."""
        return self._files.fps

    def place(self, camera: str, episode: int, frame: int) -> VideoPlace:
        """Return the location of an image.

        Args:
            camera: one of `cameras`.
            episode: number from 0, as ``episode`` of a row.
            frame: number from 0, as ``frame_no`` of a row.

        Raises:
            SourceError: there is no such camera, episode or frame. A table's extra last frame of an episode has an
                image only if the data set keeps each episode's last observation.
        """
        if camera not in self.cameras:
            raise SourceError(
                f"{self._files.root} has no camera {camera!r}, it has {', '.join(self.cameras) or 'none'}"
            )
        entry = self._entries.get(episode)
        if entry is None or not 0 <= frame < entry.length + (f"last/{camera}" in entry.ours):
            reason = "there is no such episode" if entry is None else f"it has {entry.length}"
            raise SourceError(f"{self._files.root}: no image of frame {frame} in episode {episode}: {reason}")
        begin = self._begins[camera][episode]
        return VideoPlace(begin.file, begin.seconds + frame / self._files.fps)

    def exist(self, camera: str) -> np.ndarray:
        """Return whether the video of each episode exists, bool (E,)."""
        files = [self._begins[camera][entry.index].file for entry in self._files.entries]
        there = {file: file.is_file() and not is_git_lfs_pointer(file) for file in set(files)}
        return np.array([there[file] for file in files], bool)

    def frames(self, camera: str, episode: int) -> int:
        """Return the number of an episode's images, even if its video is missing."""
        entry = self._entries[episode]
        return entry.length + (f"last/{camera}" in entry.ours)

    def at(self, camera: str, episode: int, frame: int) -> np.ndarray:
        """Return one image, RGB, uint8 (height, width, 3).

        Raises:
            SourceError: as for `place`; or the video is missing, can't be decoded, or needs PyAV.
        """
        place = self.place(camera, episode, frame)
        return self._decoder(place.file).at(place.seconds)

    def of_rows(self, table: Table, rows: Any, camera: str) -> np.ndarray:
        """Return the images of rows, uint8 (B, height, width, 3). Each video is read once, from start to end.

        Args:
            table: the data set's table from `rlenv_formats.lerobot.read.load_lerobot`.
            rows: row numbers in the table, (B,).
            camera: one of `cameras`.

        Raises:
            SourceError: as for `at`.
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
        """Close the videos. No other thread may be decoding. Safe to call more than once."""
        for decoder in list(self._all):
            self._end(decoder)
        self._mine = _ThreadsVideos()

    def __enter__(self) -> LeRobotVideos:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()


def _begins(files: LeRobotFiles, cameras: tuple[str, ...]) -> dict[str, dict[int, VideoPlace]]:
    """Return camera -> number of an episode -> the place where it begins."""
    if not cameras:
        return {}
    where = f"{files.root / 'meta' / 'info.json'}: video_path"
    if not files.info.get("video_path"):
        raise SourceError(f"{where} is missing, but there are videos")
    of_files = _begins_v3 if files.info["codebase_version"] == "v3.0" else _begins_v2
    return {camera: of_files(files, camera, where) for camera in cameras}


def _begins_v2(files: LeRobotFiles, camera: str, where: str) -> dict[int, VideoPlace]:
    size, places = files.info["chunks_size"], {}
    for index in (entry.index for entry in files.entries):
        values = place_values(index, index // size, index, size) | {"video_key": camera}
        places[index] = VideoPlace(fill_pattern(files.root, files.info["video_path"], where, values), 0.0)
    return places


def _begins_v3(files: LeRobotFiles, camera: str, where: str) -> dict[int, VideoPlace]:
    keys = [f"videos/{camera}/{name}" for name in ("chunk_index", "file_index", "from_timestamp")]
    places: dict[int, VideoPlace] = {}
    for file in sorted((files.root / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        for line in read_parquet(file, ["episode_index", *keys]).to_pylist():
            index = whole_number(line.get("episode_index"), f"{file}: an episode_index")
            chunk, number, seconds = (line.get(key) for key in keys)
            if not isinstance(chunk, int) or not isinstance(number, int) or not isinstance(seconds, int | float):
                raise SourceError(f"{file}: episode {index} without {', '.join(keys)}")
            values = place_values(index, chunk, number, files.info["chunks_size"]) | {"video_key": camera}
            places[index] = VideoPlace(
                fill_pattern(files.root, files.info["video_path"], where, values), float(seconds)
            )
    if missing := [entry.index for entry in files.entries if entry.index not in places]:
        raise SourceError(f"{files.root}: camera {camera!r} has no video of episode {missing[0]}")
    return places
