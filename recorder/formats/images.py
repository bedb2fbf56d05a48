"""Provide the images of a table to the writers of other formats."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hal import Field, LogError, SourceError
from recorder.formats.runs import Run
from recorder.git_lfs import is_git_lfs_pointer
from recorder.images.images import Images
from recorder.images.sources import ImageSources
from recorder.log.image_codec import opencv
from recorder.names import LOG_NAME
from recorder.read.reader import LogReader
from recorder.table.combine import subset
from recorder.table.table import MISSING, ImageSource, Table, VideoSpan

__all__ = ["Film", "Filming", "StoredVideo", "cameras_of", "with_videos"]

_AT_ONCE = 32
"""Number of images that are decoded together."""


def cameras_of(table: Table) -> list[str]:
    """Return the names of the cameras in the table's logs; empty if the logs don't exist."""
    runs = sorted({str(info.get("run", table.origin)) for info in table.episodes})
    logs = [Path(run) for run in runs if (Path(run) / LOG_NAME).is_file()]
    return sorted({camera for log in logs for camera in LogReader(log).cameras()})


@dataclass(frozen=True)
class Filming:
    """The selection of images to write, with their size and place.

    Attributes:
        cameras: names of the cameras; None for all, empty for none.
        size: (height, width) in pixels of the written images; None keeps their size.
        embedded: for LeRobot: whether to put each image into the Parquet files, instead of videos, as it was recorded
            (or as PNG, if its bytes are not available or its size is changed).
    """

    cameras: tuple[str, ...] | None = None
    size: tuple[int, int] | None = None
    embedded: bool = False


class StoredVideo(NamedTuple):
    """The part of a data set's video that shows a run, and the source of the data set's images."""

    span: VideoSpan
    source: ImageSource


class Film:
    """The images of the runs of one table: for each frame the latest image, as a policy saw it.

    An image that was never recorded is black, but a video that is missing is an error.

    Args:
        table: the runs' table.
        filming: the selection of images; None for all cameras in their own size.
        fields: camera -> observation field that is its image. These images are always written, as they were observed,
            in place of the log's images of that camera.

    Raises:
        SourceError: a selected camera does not exist, or the video of an episode is missing.
        LogError: there are images, and OpenCV is missing.
    """

    def __init__(self, table: Table, filming: Filming | None = None, fields: Mapping[str, Field] | None = None) -> None:
        self.fields = dict(fields or {})
        self._filming = filming or Filming()
        self._sources = ImageSources(table)
        recorded = self._sources.cameras() if self._filming.cameras != () else ()
        chosen = recorded if self._filming.cameras is None else self._filming.cameras
        for camera in chosen:
            if camera not in recorded and camera not in self.fields:
                raise self._sources.no_camera(camera)
        self.cameras = tuple(dict.fromkeys((*self.fields, *chosen)))
        self._spans = _Spans(self._sources)
        _check_videos(table, self._spans, chosen)
        size, sources = self._filming.size, self._sources
        self._images = Images(table, size=size, cache_bytes=0, sources=sources) if recorded else None
        self._table = table
        self._black: dict[str, int] = {}

    @property
    def embedded(self) -> bool:
        """Whether images go into Parquet files; see `Filming`."""
        return self._filming.embedded

    @property
    def size(self) -> tuple[int, int] | None:
        """The (height, width) of the written images; None if they keep theirs."""
        return self._filming.size

    def __enter__(self) -> Film:
        return self

    def __exit__(self, *_: object) -> None:
        if self._images is not None:
            self._images.close()

    def shape(self, run: Run, camera: str) -> tuple[int, int, int]:
        """Return the shape of a camera's images: (height, width, 3)."""
        height, width, channels = self._at(run.numbers[:1], camera)[0].shape[1:]
        return height, width, channels

    def of(self, run: Run, camera: str, every: int = 1) -> Iterator[np.ndarray]:
        """Yield the images of a run's T + 1 frames in blocks: uint8 (n, height, width, 3), RGB; a missing one is black.

        Args:
            run: the run.
            camera: one of `cameras`.
            every: distance from one of the frames to the next; 1 for all of them.

        Raises:
            SourceError: the images differ in size, and no size was chosen.
        """
        rows = run.numbers[::every]
        for first in range(0, len(rows), _AT_ONCE):
            images, mask = self._at(rows[first : first + _AT_ONCE], camera)
            self._black[camera] = self._black.get(camera, 0) + int(np.count_nonzero(~mask))
            yield images

    def stored_video(self, run: Run, camera: str) -> StoredVideo | None:
        """Return the part of a video that shows the frames of a run, one after another; None if there is none.

        A last frame without an image, which repeats an observation, is not part of it.
        """
        found = self._spans.of(self._sources.where(run.episode), camera, int(run.observed["episode"][0]))
        if found is None:
            return None
        numbers = found.source.numbers(camera, run.observed, "latest", np.inf)
        count = len(numbers) - int(numbers[-1] == MISSING)
        steps = [numbers[:count], run.observed["frame_no"][:count]]
        if not count or MISSING in numbers[:count] or any((np.diff(step) != 1).any() for step in steps):
            return None
        if camera in self.fields and not self._shows(run, camera, found.source, numbers[:count]):
            return None
        begin = found.span.seconds + int(run.observed["frame_no"][0]) / found.span.fps
        return found._replace(span=found.span._replace(seconds=begin, frames=count))

    def _shows(self, run: Run, camera: str, source: ImageSource, numbers: np.ndarray) -> bool:
        """Return whether images have the pixels that were observed."""
        observed = run.observed[f"observation_{self.fields[camera].name}"]
        height, width = observed.shape[1:3]  # videos have even sizes
        return all(
            np.array_equal(source.decode(camera, number, rgb=True)[:height, :width], pixels)
            for number, pixels in zip(numbers.tolist(), observed, strict=False)
        )

    def encoded(self, run: Run, camera: str) -> list[bytes]:
        """Return the images of a run's T + 1 frames as JPEG or PNG: the recorded bytes, if they are available."""
        source = self._sources.at(self._sources.where(run.episode))
        unchanged = camera not in self.fields and self._filming.size is None
        if source is not None and camera in source.cameras and unchanged:
            rows = np.asarray(self._table.rows).take(run.numbers)
            numbers = source.numbers(camera, rows, "latest", np.inf)
            stored = [None if number == MISSING else source.stored(camera, number) for number in numbers.tolist()]
            if None not in stored:
                return [bytes(data) for data in stored if data is not None]
        return [_png(image) for part in self.of(run, camera) for image in part]

    def notes(self) -> list[str]:
        """Return notes for users of the written images, one sentence each."""
        return [f"{count} images of camera {name} are black: none was there" for name, count in self._black.items()
                if count]  # fmt: skip

    def _at(self, rows: np.ndarray, camera: str) -> tuple[np.ndarray, np.ndarray]:
        if camera in self.fields:
            name = f"observation_{self.fields[camera].name}"
            return np.asarray(self._table.rows)[rows][name], np.ones(len(rows), bool)
        assert self._images is not None  # called only if there are cameras
        return self._images.at(rows, camera)


class _Spans:
    """Finds the videos of episodes in the sources of a table's images."""

    def __init__(self, sources: ImageSources) -> None:
        self.sources = sources
        self._spans: dict[str, dict[tuple[str, int], VideoSpan]] = {}

    def of(self, where: str, camera: str, episode: int) -> StoredVideo | None:
        """Return the video of an episode, by its number in its data set; None if its images are kept otherwise."""
        source = self.sources.at(where)
        if source is None:
            return None
        if where not in self._spans:
            self._spans[where] = {(span.camera, span.episode): span for span in source.videos()}
        span = self._spans[where].get((camera, episode))
        return None if span is None else StoredVideo(span, source)


def _missing_videos(table: Table, spans: _Spans, cameras: Collection[str]) -> dict[int, VideoSpan]:
    """Return position of an episode -> a video of it that is missing."""
    there, missing = dict[Path, bool](), dict[int, VideoSpan]()
    for position, start in enumerate(table.starts.tolist()):
        for camera in cameras if start < table.stops[position] else ():
            stored = spans.of(spans.sources.where(position), camera, int(table.rows[start]["episode"]))
            if stored is not None:
                file = stored.span.file
                if file not in there:
                    there[file] = file.is_file() and not is_git_lfs_pointer(file)
                if not there[file]:
                    missing[position] = stored.span
    return missing


def _check_videos(table: Table, spans: _Spans, cameras: Collection[str]) -> None:
    missing = _missing_videos(table, spans, cameras)
    if missing:
        span = next(iter(missing.values()))
        raise SourceError(
            f"{span.file} is missing, the video of camera {span.camera} for episode {span.episode}; {len(missing)} of "
            f"{len(table.starts)} episodes lack a video: fetch the videos of the data set too, leave these episodes "
            "out (--skip-missing), or choose cameras (--cameras NAMES, or none)"
        )


def with_videos(table: Table, filming: Filming | None = None) -> tuple[Table, list[str]]:
    """Return the episodes of a table whose videos all exist, and a note on the others.

    Args:
        table: any table.
        filming: the selection of images, see `Filming`; None for all cameras.

    Raises:
        SourceError: each episode lacks a video.
    """
    sources = ImageSources(table)
    chosen = filming.cameras if filming is not None else None
    missing = _missing_videos(table, _Spans(sources), sources.cameras() if chosen is None else chosen)
    if not missing:
        return table, []
    kept = [position for position in range(len(table.starts)) if position not in missing]
    if not kept:
        raise SourceError(
            f"each episode of {table.origin} lacks a video, such as {next(iter(missing.values())).file}; fetch the "
            "videos of the data set too, or choose cameras (--cameras NAMES, or none)"
        )
    lost = f"{len(missing)} of {len(table.starts)} episodes are left out: they lack a video"
    return subset(table, kept), [f"{lost}, such as {next(iter(missing.values())).file}"]


def _png(image: np.ndarray) -> bytes:
    done, data = opencv("PNG").imencode(".png", np.ascontiguousarray(image[..., ::-1]))
    if not done:
        raise LogError(f"an image of shape {image.shape} could not be encoded as PNG")
    encoded: Any = data.tobytes()
    return bytes(encoded)
