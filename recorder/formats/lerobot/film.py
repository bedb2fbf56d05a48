"""The images of a LeRobot data set that is written: as videos, or each by itself in the Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recorder.formats.images import Film
from recorder.formats.lerobot.images import PREFIX
from recorder.formats.runs import Run
from recorder.images.video import encode_video, even

__all__ = ["VIDEO_PATH", "LeRobotFilm", "PixelStats", "column_stats"]

VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_CHUNK = 1000
_VIDEO_PIXELS = 2_000_000_000
"""Of all images in one video file: at a tenth of a byte a pixel, which AV1 seldom takes, LeRobot's 200 MB."""


class LeRobotFilm:
    """Makes the images' part of a data set.

    Args:
        film: the images.
        runs: that are written.
        fps: frames a second.
    """

    def __init__(self, film: Film, runs: list[Run], fps: int) -> None:
        self._film, self._runs, self._fps = film, runs, fps
        self._shapes = {camera: self._shape(camera) for camera in film.cameras}
        self._codec = ""
        self._stats: dict[str, PixelStats] = {PREFIX + camera: PixelStats() for camera in film.cameras}

    @property
    def embedded(self) -> tuple[str, ...]:
        """Features that are columns of the Parquet files."""
        return tuple(self._stats) if self._film.embedded else ()

    def features(self) -> dict[str, dict[str, Any]]:
        """For ``info.json``; those of videos are known once they are written."""
        found: dict[str, dict[str, Any]] = {}
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
        """About how much a frame's embedded images take."""
        if not self._film.embedded:
            return 0
        first = self._runs[0]
        return sum(len(self._film.encoded(first, camera)[0]) for camera in self._film.cameras)

    def images(self, run: Run) -> tuple[dict[str, list[bytes]], dict[str, Any]]:
        """A run's embedded images.

        Returns:
            Feature -> T encoded images; and what is to be said of the episode, the image of its last observation among
            it, for which LeRobot has no place.
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

    def videos(self, root: Path) -> list[dict[str, Any]]:
        """Write all videos; what is to be said of each episode. A video has the last observation's image, too."""
        entries: list[dict[str, Any]] = [{} for _ in self._runs]
        for camera in self._film.cameras:
            height, width, _ = self._shapes[camera]
            for number, members in enumerate(self._files(height * width)):
                names = {"video_key": PREFIX + camera, "chunk_index": number // _CHUNK, "file_index": number % _CHUNK}
                path = root / VIDEO_PATH.format(**names)
                self._codec = encode_video(path, self._frames(camera, members, names, entries), self._fps)
        return entries

    def stats(self) -> dict[str, dict[str, Any]]:
        """Feature -> its statistics over all episodes."""
        return {name: stats.of_all() for name, stats in self._stats.items()}

    def _files(self, pixels: int) -> list[list[int]]:
        """Numbers of the runs that share a video."""
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
        self, camera: str, members: list[int], names: dict[str, Any], entries: list[dict[str, Any]]
    ) -> Iterator[np.ndarray]:
        """The images of some runs; on its way it says in their entries where they are."""
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


# -- Statistics of a LeRobot data set's columns and images, as its sources name and shape them -------------


_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_EVERY, _COARSE = 8, 4
"""Every so-manieth image of an episode is looked at, and in it every so-manieth row and column."""


def column_stats(value: np.ndarray) -> dict[str, list[float]]:
    """Of a column of numbers, (N, ...), an element each."""
    return {name: stat.tolist() for name, stat in _stats(value.reshape(len(value), -1).astype(np.float64)).items()} | {
        "count": [len(value)]
    }


def _stats(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Of (N, elements)."""
    return {
        "min": numbers.min(0),
        "max": numbers.max(0),
        "mean": numbers.mean(0),
        "std": numbers.std(0),
        **dict(zip(_QUANTILES, np.quantile(numbers, list(_QUANTILES.values()), axis=0), strict=True)),
    }


class PixelStats:
    """Of images, from a sample of their pixels: one number a channel, 0 to 1, in the shape (3, 1, 1)."""

    def __init__(self) -> None:
        self._sample: list[np.ndarray] = []
        self._seen = 0
        self._episodes: list[tuple[int, dict[str, np.ndarray]]] = []

    def add(self, images: np.ndarray) -> None:
        """Look at images, uint8 (N, height, width, 3), that follow those before."""
        chosen = images[-self._seen % _EVERY :: _EVERY, ::_COARSE, ::_COARSE]
        self._seen += len(images)
        self._sample.append(chosen.reshape(-1, 3).astype(np.float64) / 255)

    def of_episode(self, prefix: str) -> dict[str, Any]:
        """The statistics of what was added since the last episode, each name with the prefix before it."""
        found = _stats(np.concatenate(self._sample))
        self._episodes.append((self._seen, found))
        self._sample, count, self._seen = [], self._seen, 0
        return {prefix + name: stat.reshape(3, 1, 1).tolist() for name, stat in found.items()} | {
            f"{prefix}count": [count]
        }

    def of_all(self) -> dict[str, Any]:
        """Of all episodes; a quantile is the mean of theirs, as LeRobot has it."""
        counts = np.array([count for count, _ in self._episodes], float)
        parts = {name: np.stack([found[name] for _, found in self._episodes]) for name in self._episodes[0][1]}
        share = (counts / counts.sum())[:, None]
        means = {name: (part * share).sum(0) for name, part in parts.items()}
        spread = ((parts["std"] ** 2 + (parts["mean"] - means["mean"]) ** 2) * share).sum(0)
        found = means | {"min": parts["min"].min(0), "max": parts["max"].max(0), "std": np.sqrt(spread)}
        return {name: stat.reshape(3, 1, 1).tolist() for name, stat in found.items()} | {"count": [int(counts.sum())]}
