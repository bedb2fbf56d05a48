"""Provide the images of a table to the writers of other formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, LogError
from recorder.formats.runs import Run
from recorder.images.images import Images
from recorder.images.sources import ImageSources
from recorder.log.image_codec import opencv
from recorder.names import LOG_NAME
from recorder.read.reader import LogReader
from recorder.table.table import MISSING, Table

__all__ = ["Film", "Filming", "cameras_of"]

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


class Film:
    """The images of the runs of one table: for each frame the latest image, as a policy saw it.

    Args:
        table: the runs' table.
        filming: the selection of images; None for all cameras in their own size.
        fields: camera -> observation field that is its image. These images are always written, as they were observed,
            in place of the log's images of that camera.

    Raises:
        SourceError: a selected camera does not exist.
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
        size, sources = self._filming.size, self._sources
        self._images = Images(table, size=size, cache_bytes=0, sources=sources) if recorded else None
        self._table = table
        self._black: dict[str, int] = {}

    @property
    def embedded(self) -> bool:
        """Whether images go into Parquet files; see `Filming`."""
        return self._filming.embedded

    def __enter__(self) -> Film:
        return self

    def __exit__(self, *_: object) -> None:
        if self._images is not None:
            self._images.close()

    def shape(self, run: Run, camera: str) -> tuple[int, int, int]:
        """Return the shape of a camera's images: (height, width, 3)."""
        height, width, channels = self._at(run.numbers[:1], camera)[0].shape[1:]
        return height, width, channels

    def of(self, run: Run, camera: str) -> Iterator[np.ndarray]:
        """Yield the images of a run's T + 1 frames in blocks: uint8 (n, height, width, 3), RGB; a missing one is black.

        Raises:
            SourceError: the images differ in size, and no size was chosen.
        """
        for first in range(0, len(run.numbers), _AT_ONCE):
            images, mask = self._at(run.numbers[first : first + _AT_ONCE], camera)
            self._black[camera] = self._black.get(camera, 0) + int(np.count_nonzero(~mask))
            yield images

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


def _png(image: np.ndarray) -> bytes:
    done, data = opencv("PNG").imencode(".png", np.ascontiguousarray(image[..., ::-1]))
    if not done:
        raise LogError(f"an image of shape {image.shape} could not be encoded as PNG")
    encoded: Any = data.tobytes()
    return bytes(encoded)
