"""The pictures of a LeRobot data set that is written: as videos, or each by itself in the Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from recorder.formats.lerobot_pictures import PREFIX
from recorder.formats.lerobot_stats import PixelStats
from recorder.formats.pictures import Film
from recorder.formats.runs import Run
from recorder.formats.video_encode import encode_video, even

__all__ = ["VIDEO_PATH", "LeRobotFilm"]

VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_CHUNK = 1000
_VIDEO_PIXELS = 2_000_000_000
"""Of all pictures in one video file: at a tenth of a byte a pixel, which AV1 seldom takes, LeRobot's 200 MB."""


class LeRobotFilm:
    """Makes the pictures' part of a data set.

    Args:
        film: the pictures.
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
        """Write all videos; what is to be said of each episode. A video has the last observation's picture, too."""
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
        """The pictures of some runs; on its way it says in their entries where they are."""
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
