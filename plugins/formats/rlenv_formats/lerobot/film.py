"""Write the images of a LeRobot data set, as videos or inside its Parquet files, with their statistics.

Images that lie in a video of another data set are copied with it, packet by packet; all others are encoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hal import SourceError
from recorder.formats.images import Film, StoredVideo
from recorder.formats.runs import Run
from recorder.images.video import encode_video, even
from recorder.images.video_copy import VideoIndex, VideoPart, copy_parts, index_video
from recorder.json_data import JsonDict, JsonObject
from rlenv_formats.lerobot.features import PREFIX
from rlenv_formats.lerobot.images import STATISTICS, LeRobotImages

__all__ = ["VIDEO_PATH", "LeRobotFilm", "PixelStats", "column_stats"]

VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
_CHUNK = 1000
_VIDEO_BYTES = 200 << 20
"""Largest number of bytes in one video file with several episodes: LeRobot's limit of 200 MB."""
_VIDEO_PIXELS = 2_000_000_000
"""Largest number of pixels in one encoded video file. At 0.1 byte per pixel, a high rate for AV1, this gives the same
limit."""


class _Copy(NamedTuple):
    """A run whose images are copied with a video.

    Attributes:
        stored: the run's place in the video.
        part: the packets to copy.
        first: number of the run's first frame in the video.
        step: number of the video's frames for each frame of the run.
    """

    stored: StoredVideo
    part: VideoPart
    first: int
    step: int


@dataclass
class _VideoFile:
    """One new video.

    Attributes:
        members: the runs in it, and the number of the file's frame at which each begins.
        parts: the packets to copy into it, one part after another; empty if its images are encoded.
        step: number of its frames for each frame of a run.
        frames: number of its frames.
    """

    members: list[tuple[int, int]] = field(default_factory=list)
    parts: list[VideoPart] = field(default_factory=list)
    step: int = 1
    frames: int = 0

    def add(self, run: int, copy: _Copy) -> bool:
        """Add a run by copying its packets; return False if the file can't take it."""
        together = self.parts[-1].joined(copy.part) if self.parts else None
        if self.parts and (copy.step != self.step or copy.part.video.kind != self.parts[0].video.kind):
            return False
        if together is not None:
            begin = self.frames - len(self.parts[-1])
            self.parts[-1], self.frames = together, begin + len(together)
        else:
            if self.parts and sum(part.size for part in (*self.parts, copy.part)) > _VIDEO_BYTES:
                return False
            self.parts.append(copy.part)
            begin, self.step, self.frames = self.frames, copy.step, self.frames + len(copy.part)
        self.members.append((run, begin + copy.first - self.parts[-1].first))
        return True


class LeRobotFilm:
    """Write the images of one data set.

    Args:
        film: the images.
        runs: the runs to write.
        fps: frames per second.
    """

    def __init__(self, film: Film, runs: list[Run], fps: int) -> None:
        self._film, self._runs, self._fps = film, runs, fps
        self._anew: dict[str, list[str]] = {}
        self._mute: set[Path] = set()
        self._indices: dict[Path, VideoIndex] = {}
        self._copies = {camera: self._copied(camera) for camera in film.cameras if not film.embedded}
        self._shapes = {camera: self._shape(camera) for camera in film.cameras}
        self._about: dict[str, JsonDict] = {}
        self._stats: dict[str, PixelStats] = {PREFIX + camera: PixelStats() for camera in film.cameras}

    @property
    def embedded(self) -> tuple[str, ...]:
        """Names of the features that are columns of the Parquet files."""
        return tuple(self._stats) if self._film.embedded else ()

    @property
    def encoded(self) -> tuple[str, ...]:
        """Names of the cameras of which some images are encoded as videos."""
        return tuple(camera for camera, copies in self._copies.items() if None in copies)

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
                    "video.height": shape[0], "video.width": shape[1], "video.channels": 3,
                    "video.is_depth_map": False, "has_audio": False, **self._about.get(camera, {}),
                }  # fmt: skip
        return features

    def notes(self) -> list[str]:
        """Return notes for users of the written videos, one sentence each."""
        notes = [
            f"{len(reasons)} of {len(self._runs)} episodes of camera {camera} were encoded anew, at a loss: {reason}"
            for camera, reasons in self._anew.items()
            for (reason, _), *_ in [Counter(reasons).most_common()]
        ]
        return notes + ([f"the sound of {len(self._mute)} videos is left out"] if self._mute else [])

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
            name = PREFIX + camera
            for number, file in enumerate(self._files(camera)):
                names = {"video_key": name, "chunk_index": number // _CHUNK, "file_index": number % _CHUNK}
                path = root / VIDEO_PATH.format(**names)
                codec, pixels = self._write(path, camera, file, entries)
                rate = file.step * self._fps
                about = {"video.fps": rate, "video.codec": codec, "video.pix_fmt": pixels}
                self._about.setdefault(camera, about)
                for run, begin in file.members:
                    entries[run] |= {
                        f"videos/{name}/chunk_index": names["chunk_index"],
                        f"videos/{name}/file_index": names["file_index"],
                        f"videos/{name}/from_timestamp": begin / rate,
                        f"videos/{name}/to_timestamp": begin / rate + len(self._runs[run]) / self._fps,
                        f"rlenv_robot/last/{name}": self._last(camera, run, begin / rate),
                    }
        return entries

    def stats(self) -> dict[str, JsonDict]:
        """Return the statistics of each feature over all episodes, feature -> statistics."""
        return {name: stats.of_all() for name, stats in self._stats.items()}

    # ---- what is copied, and where to ----

    def _copied(self, camera: str) -> list[_Copy | None]:
        """Return for each run how its images are copied; None if they are encoded."""
        copies: list[_Copy | None] = []
        for run in self._runs:
            stored = self._film.stored_video(run, camera)
            copy = None if stored is None else self._copy(camera, stored)
            copies.append(copy)
        sizes = {copy.part.video.size for copy in copies if copy is not None}
        if None in copies and any(size % 2 for pair in sizes for size in pair):
            return [None] * len(copies)  # encoded images have even sizes, and all of a camera have one
        return copies

    def _copy(self, camera: str, stored: StoredVideo) -> _Copy | None:
        span = stored.span
        try:
            index = self._indices.get(span.file) or index_video(span.file)
        except SourceError as error:
            self._anew.setdefault(camera, []).append(str(error))
            return None
        self._indices[span.file] = index
        if self._film.size not in (None, index.size):
            return None
        found = index.frames(span.seconds, span.fps, span.frames)
        if found is None:
            reason = f"{span.file} has no frame at the times of its episode, or uneven ones"
            self._anew.setdefault(camera, []).append(reason)
            return None
        if index.has_sound:
            self._mute.add(span.file)
        first, step = found
        return _Copy(stored, index.part(first, first + step * (span.frames - 1) + 1), first, step)

    def _files(self, camera: str) -> list[_VideoFile]:
        """Return the videos of a camera, with the runs that share each."""
        files: list[_VideoFile] = []
        height, width, _ = self._shapes[camera]
        for number, (run, copy) in enumerate(zip(self._runs, self._copies[camera], strict=True)):
            frames = len(run) + 1
            if copy is not None:
                if files and files[-1].parts and files[-1].add(number, copy):
                    continue
                files.append(_VideoFile())
                files[-1].add(number, copy)
                continue
            if not files or files[-1].parts or (files[-1].frames + frames) * height * width > _VIDEO_PIXELS:
                files.append(_VideoFile())
            files[-1].members.append((number, files[-1].frames))
            files[-1].frames += frames
        return files

    def _last(self, camera: str, run: int, begin: float) -> float | None:
        """Return the time of a run's last observation in its video; None if it has no image there."""
        copy = self._copies[camera][run]
        shown = len(self._runs[run]) + 1 if copy is None else copy.stored.span.frames
        return begin + len(self._runs[run]) / self._fps if shown > len(self._runs[run]) else None

    # ---- writing ----

    def _write(self, path: Path, camera: str, file: _VideoFile, entries: list[JsonDict]) -> tuple[str, str]:
        """Write one video, and enter the statistics of its images; return its codec and the format of its pixels."""
        if not file.parts:
            frames = self._frames(camera, [run for run, _ in file.members], entries)
            return encode_video(path, frames, self._fps), "yuv420p"
        copy_parts(path, file.parts, Fraction(file.step * self._fps))
        for run, _ in file.members:
            entries[run] |= self._copied_stats(camera, run)
        return file.parts[0].video.codec, file.parts[0].video.pixels

    def _copied_stats(self, camera: str, run: int) -> JsonDict:
        """Return the statistics of a copied run, from its data set or else from a sample of its images."""
        name, copy = PREFIX + camera, self._copies[camera][run]
        assert copy is not None  # called for copied runs only
        stats, prefix = self._stats[name], f"stats/{name}/"
        source, span = copy.stored.source, copy.stored.span
        kept = source.statistics(camera, span.episode) if isinstance(source, LeRobotImages) else None
        carried = stats.carry_over(prefix, kept)
        if carried is not None:
            return carried
        for images in self._film.of(self._runs[run], camera, _EVERY):
            stats.add_sample(images, min(_EVERY * len(images), span.frames))
        return stats.of_episode(prefix)

    def _frames(self, camera: str, members: Sequence[int], entries: list[JsonDict]) -> Iterator[np.ndarray]:
        """Yield the images of some runs for one video, and enter their statistics into ``entries``."""
        name = PREFIX + camera
        for number in members:
            for images in self._film.of(self._runs[number], camera):
                self._stats[name].add(images)
                yield from map(even, images)
            entries[number] |= self._stats[name].of_episode(f"stats/{name}/")

    def _shape(self, camera: str) -> tuple[int, int, int]:
        """Return the shape of a camera's written images.

        Raises:
            SourceError: copied videos differ in size.
        """
        sizes = {copy.part.video.size for copy in self._copies.get(camera, ()) if copy is not None}
        if self._film.embedded or None in self._copies[camera]:
            height, width, _ = self._film.shape(self._runs[0], camera)
            odd = 0 if self._film.embedded else 1
            sizes.add((height + height % 2 * odd, width + width % 2 * odd))
        if len(sizes) > 1:
            listed = " and ".join(f"{width}x{height}" for height, width in sorted(sizes))
            raise SourceError(f"camera {camera!r} has images of {listed}; give a size, to which all are brought")
        return (*sizes.pop(), 3)


# ---- statistics, named and shaped as in LeRobot's sources ----


_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
_NEEDED = frozenset({"min", "max", "mean", "std"})
_NAMES = tuple(name for name in STATISTICS if name != "count")
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
        self.add_sample(images[-self._seen % _EVERY :: _EVERY], len(images))

    def add_sample(self, images: np.ndarray, count: int) -> None:
        """Add a sample, uint8 (n, height, width, 3), of the next ``count`` images."""
        self._seen += count
        self._sample.append(images[:, ::_COARSE, ::_COARSE].reshape(-1, 3).astype(np.float64) / 255)

    def of_episode(self, prefix: str) -> JsonDict:
        """Return the statistics of the images added since the last episode, under names with the prefix."""
        stats, count = _stats(np.concatenate(self._sample)), self._seen
        self._sample, self._seen = [], 0
        return self._entered(prefix, stats, count)

    def carry_over(self, prefix: str, kept: JsonObject | None) -> JsonDict | None:
        """Return the statistics that the source keeps of the next episode, as `of_episode` does; None if it has none.

        Args:
            prefix: as for `of_episode`.
            kept: name of a statistic -> its value.
        """
        given = kept or {}
        try:
            stats = {name: np.array(given[name], np.float64).reshape(3) for name in _NAMES if name in given}
            count = int(np.array(given["count"]).reshape(()))
        except (KeyError, ValueError, TypeError):
            return None
        fits = all(((stat >= 0) & (stat <= 1)).all() for stat in stats.values())
        if not (fits and stats.keys() >= _NEEDED and count > 0):
            return None
        return self._entered(prefix, stats, count)

    def _entered(self, prefix: str, stats: dict[str, np.ndarray], count: int) -> JsonDict:
        self._episodes.append((count, stats))
        return {prefix + name: stat.reshape(3, 1, 1).tolist() for name, stat in stats.items()} | {
            f"{prefix}count": [count]
        }

    def of_all(self) -> JsonDict:
        """Return the statistics of all episodes; a quantile is the mean of the episodes' quantiles, as in LeRobot."""
        counts = np.array([count for count, _ in self._episodes], float)
        common = [name for name in _NAMES if all(name in stats for _, stats in self._episodes)]  # older sets lack some
        parts = {name: np.stack([stats[name] for _, stats in self._episodes]) for name in common}
        share = (counts / counts.sum())[:, None]
        means = {name: (part * share).sum(0) for name, part in parts.items()}
        spread = ((parts["std"] ** 2 + (parts["mean"] - means["mean"]) ** 2) * share).sum(0)
        stats = means | {"min": parts["min"].min(0), "max": parts["max"].max(0), "std": np.sqrt(spread)}
        return {name: stat.reshape(3, 1, 1).tolist() for name, stat in stats.items()} | {"count": [int(counts.sum())]}
