"""Write the images of a LeRobot data set, as videos or inside the Parquet files, and their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from recorder.formats.images import Film
from recorder.formats.lerobot.images import PREFIX
from recorder.formats.runs import Run
from recorder.images.video import encode_video, even
from recorder.json_data import JsonDict

__all__ = ["VIDEO_PATH", "LeRobotFilm", "PixelStats", "column_stats"]

VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_CHUNK = 1000
_VIDEO_PIXELS = 2_000_000_000
"""Largest number of pixels in one video file. At a tenth of a byte per pixel, a high rate for AV1, that is the 200 MB
that LeRobot uses."""


class LeRobotFilm:
    """Writes the images of one data set.

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
        """Return the features for ``info.json``; a video's codec is known once the video is written."""
        found: dict[str, JsonDict] = {}
        for camera, shape in self._shapes.items():
            kind = "image" if self._film.embedded else "video"
            found[PREFIX + camera] = {"dtype": kind, "shape": list(shape), "names": ["height", "width", "channels"]}
            if kind == "video":
                found[PREFIX + camera]["info"] = {
                    "video.height": shape[0], "video.width": shape[1], "video.channels": 3, "video.fps": self._fps,
                    "video.codec": self._codec, "video.pix_fmt": "yuv420p", "video.is_depth_map": False,
                    "has_audio": False,
                }  # fmt: skip
        return found

    def bytes_a_frame(self) -> int:
        """Return the approximate size of a frame's embedded images in bytes."""
        if not self._film.embedded:
            return 0
        first = self._runs[0]
        return sum(len(self._film.encoded(first, camera)[0]) for camera in self._film.cameras)

    def images(self, run: Run) -> tuple[dict[str, list[bytes]], JsonDict]:
        """Encode a run's embedded images.

        Returns:
            Feature -> T encoded images; and the entries of the episode's description, among them the image of its last
            observation, for which LeRobot has no place.
        """
        columns, said = {}, {}
        for camera in self._film.cameras:
            name = PREFIX + camera
            encoded = self._film.encoded(run, camera)
            columns[name], said[f"rlenv_robot/last/{name}"] = encoded[:-1], encoded[-1]
            for images in self._film.of(run, camera):
                self._stats[name].add(images)
            said |= self._stats[name].of_episode(f"stats/{name}/")
        return columns, said

    def videos(self, root: Path) -> list[JsonDict]:
        """Write all videos, the image of each last observation included; return each episode's description."""
        entries: list[JsonDict] = [{} for _ in self._runs]
        for camera in self._film.cameras:
            height, width, _ = self._shapes[camera]
            for number, members in enumerate(self._files(height * width)):
                names = {"video_key": PREFIX + camera, "chunk_index": number // _CHUNK, "file_index": number % _CHUNK}
                path = root / VIDEO_PATH.format(**names)
                self._codec = encode_video(path, self._frames(camera, members, names, entries), self._fps)
        return entries

    def stats(self) -> dict[str, JsonDict]:
        """Return feature -> its statistics over all episodes."""
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
    """Return the statistics of a column of numbers, (N, ...), for each element."""
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
    """Statistics of images from a sample of their pixels: a number for each channel, 0 to 1, in the shape (3, 1, 1)."""

    def __init__(self) -> None:
        self._sample: list[np.ndarray] = []
        self._seen = 0
        self._episodes: list[tuple[int, dict[str, np.ndarray]]] = []

    def add(self, images: np.ndarray) -> None:
        """Add images, uint8 (N, height, width, 3), that follow those added before."""
        chosen = images[-self._seen % _EVERY :: _EVERY, ::_COARSE, ::_COARSE]
        self._seen += len(images)
        self._sample.append(chosen.reshape(-1, 3).astype(np.float64) / 255)

    def of_episode(self, prefix: str) -> JsonDict:
        """Return the statistics of the images added since the last episode; names begin with the prefix."""
        found = _stats(np.concatenate(self._sample))
        self._episodes.append((self._seen, found))
        self._sample, count, self._seen = [], self._seen, 0
        return {prefix + name: stat.reshape(3, 1, 1).tolist() for name, stat in found.items()} | {
            f"{prefix}count": [count]
        }

    def of_all(self) -> JsonDict:
        """Return the statistics of all episodes; a quantile is the mean of the episodes' quantiles, as in LeRobot."""
        counts = np.array([count for count, _ in self._episodes], float)
        parts = {name: np.stack([found[name] for _, found in self._episodes]) for name in self._episodes[0][1]}
        share = (counts / counts.sum())[:, None]
        means = {name: (part * share).sum(0) for name, part in parts.items()}
        spread = ((parts["std"] ** 2 + (parts["mean"] - means["mean"]) ** 2) * share).sum(0)
        found = means | {"min": parts["min"].min(0), "max": parts["max"].max(0), "std": np.sqrt(spread)}
        return {name: stat.reshape(3, 1, 1).tolist() for name, stat in found.items()} | {"count": [int(counts.sum())]}
