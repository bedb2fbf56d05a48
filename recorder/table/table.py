"""Hold packed frame rows with an index of episodes, and open the images that belong to the rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonObject
from recorder.log.preferences import EpisodeId

__all__ = ["MISSING", "ImageOpener", "ImageSource", "StoredRows", "Table", "VideoSpan", "no_images"]


@dataclass(frozen=True)
class StoredRows:
    """Rows that lie in files, and the place for keeping data computed from them.

    Attributes:
        rows: the rows; a table with other rows can't use the kept data.
        place: the file for the kept data.
        key: a string that changes whenever the files of rows do.
    """

    rows: np.ndarray
    place: Path
    key: str


@dataclass(frozen=True)
class Table:
    """All frames of a data set, episode after episode.

    Attributes:
        layout: the layout of a row; ``layout.spec.row_dtype`` is the rows' dtype.
        rows: shape (R,), structured, perhaps memory-mapped; read-only by convention.
        starts: shape (E,), int64: episode e is ``rows[starts[e]:stops[e]]``, T + 1 frames.
        stops: shape (E,), int64.
        episodes: one mapping of plain data for each episode: ``env_id``, ``goal`` (name -> list), ``seed``, ``task``,
            ``policy``, ``source`` (expert, random, ...), ``end`` (why it ended), ``verdict``, ... where known.
        origin: the path that the table was read from, for messages and to find its images.
        notes: a sentence for each loss or repair while reading.
        open_images: opens the images at ``origin``; None if the images are in our logs, at the path ``run`` in an
            episode's info, or else at ``origin``.
        stored: the files of the rows; None if they lie elsewhere.
    """

    layout: FrameLayout
    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    episodes: tuple[JsonObject, ...]
    origin: str = "memory"
    notes: tuple[str, ...] = ()
    open_images: ImageOpener | None = None
    stored: StoredRows | None = None

    def episode_id(self, number: int) -> EpisodeId:
        """Return the identity of an episode: its run or data set, and its number there."""
        return EpisodeId(str(Path(self.place(number)).resolve()), int(self.episodes[number].get("episode", number)))

    def place(self, number: int) -> str:
        """Return the path of the run or data set that holds an episode, as it was opened."""
        info = self.episodes[number]
        return str(info.get("set") or (self.origin if self.open_images is not None else info.get("run", self.origin)))


# -- The images that belong to a table's rows; each format implements `ImageSource` for its own files --------


MISSING = -1
"""Marks the number of an image that does not exist."""


class VideoSpan(NamedTuple):
    """The part of a video that shows one episode.

    Attributes:
        camera: the camera's name.
        file: the video.
        episode: the episode's number in its data set.
        seconds: the episode's beginning in the video, seconds.
        frames: the number of its frames.
        fps: frames per second according to the data set's description.
    """

    camera: str
    file: Path
    episode: int
    seconds: float
    frames: int
    fps: float


class ImageSource(ABC):
    """The images of one run or of one data set. Any thread may call its methods."""

    @property
    @abstractmethod
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""

    @abstractmethod
    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image, or `MISSING`: (B,) int64.

        Numbers ascend in the order in which images are read fastest.

        Args:
            camera: one of `cameras`.
            rows: (B,), frame rows with ``episode``, ``frame_no`` and ``stamp_ns``.
            how: ``latest`` or ``nearest``, by the stamp.
            max_age_ns: the largest allowed distance between image and row, in nanoseconds.
        """

    @abstractmethod
    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image: uint8, (height, width, 3), RGB or BGR.

        Raises:
            SourceError, LogError: the image can't be read or decoded.
        """

    def videos(self) -> Iterator[VideoSpan]:
        """Yield the videos with the images; none, the default, if images are kept otherwise."""
        yield from ()

    def stored(self, camera: str, number: int) -> bytes | memoryview | None:
        """Return an image's bytes as they were recorded (JPEG or PNG); None, the default, if they are not available."""
        return None


ImageOpener = Callable[[Path], ImageSource | None]
"""A function that opens the images of the data set at a path; it returns None if none of them can be read."""


def no_images(path: Path) -> None:
    """Open nothing: an `ImageOpener` for data sets without readable images."""
