"""Read and write the images of a LeRobot data set, as videos or inside its Parquet files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from recorder.formats.images import Film
from recorder.formats.runs import Run
from recorder.git_lfs import is_git_lfs_pointer
from recorder.images.video import Decoder, encode_video, even, open_video
from recorder.json_data import JsonDict
from recorder.log.image_codec import decode_bytes
from recorder.table.table import MISSING, ImageSource, Table, VideoSpan
from rlenv_formats.foreign import check_file, fill_pattern, inside, whole_number
from rlenv_formats.lerobot.features import PREFIX, Feature
from rlenv_formats.lerobot.files import LeRobotFiles, open_files, place_values
from rlenv_formats.parquet_columns import column, read_parquet

__all__ = [
    "VIDEO_PATH", "LeRobotFilm", "LeRobotImages", "LeRobotVideos", "PixelStats", "VideoPlace", "column_stats",
]  # fmt: skip

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


# -- Writing, with the statistics that LeRobot keeps of images -----------------------------------------------


VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_CHUNK = 1000
_VIDEO_PIXELS = 2_000_000_000
"""Largest number of pixels in one video file. At 0.1 byte per pixel, a high rate for AV1, this gives LeRobot's limit of
200 MB."""


class LeRobotFilm:
    """Write the images of one data set.

    Args:
        film: the images.
        runs: the runs to write.
        fps: frames per second.
    """

    def __init__(self, film: Film, runs: list[Run], fps: int) -> None:
        self._film, self._runs, self._fps = film, runs, fps
        self._shapes = {camera: self._shape(camera) for camera in film.cameras}
        self._codec = ""
        self._stats: dict[str, PixelStats] = {PREFIX + camera: PixelStats() for camera in film.cameras}

    @property
    def embedded(self) -> tuple[str, ...]:
        """Names of the features that are columns of the Parquet files."""
        return tuple(self._stats) if self._film.embedded else ()

    def features(self) -> dict[str, JsonDict]:
        """Return the features for ``info.json``. A video's codec is known only after the video is written."""
        features: dict[str, JsonDict] = {}
        for camera, shape in self._shapes.items():
            kind = "image" if self._film.embedded else "video"
            features[PREFIX + camera] = {"dtype": kind, "shape": list(shape), "names": ["height", "width", "channels"]}
            if camera in self._film.fields:
                features[PREFIX + camera]["fields"] = [self._film.fields[camera].to_dict()]
            if kind == "video":
                features[PREFIX + camera]["info"] = {
                    "video.height": shape[0], "video.width": shape[1], "video.channels": 3, "video.fps": self._fps,
                    "video.codec": self._codec, "video.pix_fmt": "yuv420p", "video.is_depth_map": False,
                    "has_audio": False,
                }  # fmt: skip
        return features

    def bytes_a_frame(self) -> int:
        """Return the approximate size of a frame's embedded images in bytes."""
        if not self._film.embedded:
            return 0
        first = self._runs[0]
        return sum(len(self._film.encoded(first, camera)[0]) for camera in self._film.cameras)

    def images(self, run: Run) -> tuple[dict[str, list[bytes]], JsonDict]:
        """Encode a run's embedded images.

        Returns:
            Feature -> T encoded images; and the entries of the episode's description, including the image of its last
            observation, which LeRobot's frames can't hold.
        """
        columns, description = {}, {}
        for camera in self._film.cameras:
            name = PREFIX + camera
            encoded = self._film.encoded(run, camera)
            columns[name], description[f"rlenv_robot/last/{name}"] = encoded[:-1], encoded[-1]
            for images in self._film.of(run, camera):
                self._stats[name].add(images)
            description |= self._stats[name].of_episode(f"stats/{name}/")
        return columns, description

    def videos(self, root: Path) -> list[JsonDict]:
        """Write all videos, including the image of each last observation, and return each episode's description."""
        entries: list[JsonDict] = [{} for _ in self._runs]
        for camera in self._film.cameras:
            height, width, _ = self._shapes[camera]
            for number, members in enumerate(self._files(height * width)):
                names = {"video_key": PREFIX + camera, "chunk_index": number // _CHUNK, "file_index": number % _CHUNK}
                path = root / VIDEO_PATH.format(**names)
                self._codec = encode_video(path, self._frames(camera, members, names, entries), self._fps)
        return entries

    def stats(self) -> dict[str, JsonDict]:
        """Return the statistics of each feature over all episodes, feature -> statistics."""
        return {name: stats.of_all() for name, stats in self._stats.items()}

    def _files(self, pixels: int) -> list[list[int]]:
        """Return the numbers of the runs that share a video, for each video."""
        files: list[list[int]] = [[]]
        held = 0
        for number, run in enumerate(self._runs):
            size = (len(run) + 1) * pixels
            if files[-1] and held + size > _VIDEO_PIXELS:
                files.append([])
                held = 0
            files[-1].append(number)
            held += size
        return files

    def _frames(
        self, camera: str, members: list[int], names: JsonDict, entries: list[JsonDict]
    ) -> Iterator[np.ndarray]:
        """Yield the images of some runs for one video, and enter their places and statistics into ``entries``."""
        done, name = 0, PREFIX + camera
        for number in members:
            run = self._runs[number]
            for images in self._film.of(run, camera):
                self._stats[name].add(images)
                yield from map(even, images)
            entries[number] |= {
                f"videos/{name}/chunk_index": names["chunk_index"],
                f"videos/{name}/file_index": names["file_index"],
                f"videos/{name}/from_timestamp": done / self._fps,
                f"videos/{name}/to_timestamp": (done + len(run)) / self._fps,
                f"rlenv_robot/last/{name}": (done + len(run)) / self._fps,
            } | self._stats[name].of_episode(f"stats/{name}/")
            done += len(run) + 1

    def _shape(self, camera: str) -> tuple[int, int, int]:
        height, width, channels = self._film.shape(self._runs[0], camera)
        return (height, width, channels) if self._film.embedded else (height + height % 2, width + width % 2, channels)


# ---- statistics, named and shaped as in LeRobot's sources ----


_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_EVERY, _COARSE = 8, 4
"""Statistics use every 8th image of an episode, and every 4th row and column of it."""


def column_stats(value: np.ndarray) -> dict[str, list[float]]:
    """Return the statistics of each element of a column of numbers, (N, ...)."""
    return {name: stat.tolist() for name, stat in _stats(value.reshape(len(value), -1).astype(np.float64)).items()} | {
        "count": [len(value)]
    }


def _stats(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Return the statistics of (N, elements)."""
    return {
        "min": numbers.min(0),
        "max": numbers.max(0),
        "mean": numbers.mean(0),
        "std": numbers.std(0),
        **dict(zip(_QUANTILES, np.quantile(numbers, list(_QUANTILES.values()), axis=0), strict=True)),
    }


class PixelStats:
    """Statistics of images from a sample of their pixels: one number per channel, 0 to 1, of shape (3, 1, 1)."""

    def __init__(self) -> None:
        self._sample: list[np.ndarray] = []
        self._seen = 0
        self._episodes: list[tuple[int, dict[str, np.ndarray]]] = []

    def add(self, images: np.ndarray) -> None:
        """Add the next images, uint8 (N, height, width, 3)."""
        chosen = images[-self._seen % _EVERY :: _EVERY, ::_COARSE, ::_COARSE]
        self._seen += len(images)
        self._sample.append(chosen.reshape(-1, 3).astype(np.float64) / 255)

    def of_episode(self, prefix: str) -> JsonDict:
        """Return the statistics of the images added since the last episode, under names with the prefix."""
        stats = _stats(np.concatenate(self._sample))
        self._episodes.append((self._seen, stats))
        self._sample, count, self._seen = [], self._seen, 0
        return {prefix + name: stat.reshape(3, 1, 1).tolist() for name, stat in stats.items()} | {
            f"{prefix}count": [count]
        }

    def of_all(self) -> JsonDict:
        """Return the statistics of all episodes; a quantile is the mean of the episodes' quantiles, as in LeRobot."""
        counts = np.array([count for count, _ in self._episodes], float)
        parts = {name: np.stack([stats[name] for _, stats in self._episodes]) for name in self._episodes[0][1]}
        share = (counts / counts.sum())[:, None]
        means = {name: (part * share).sum(0) for name, part in parts.items()}
        spread = ((parts["std"] ** 2 + (parts["mean"] - means["mean"]) ** 2) * share).sum(0)
        stats = means | {"min": parts["min"].min(0), "max": parts["max"].max(0), "std": np.sqrt(spread)}
        return {name: stat.reshape(3, 1, 1).tolist() for name, stat in stats.items()} | {"count": [int(counts.sum())]}
