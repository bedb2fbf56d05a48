"""Where the pictures of a table are: in logs of ours, or in another project's data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from hal import SourceError
from recorder.log.files import LOG_NAME
from recorder.table.table import Table

__all__ = ["MISSING", "ImageSource", "ImageSources"]

MISSING = -1
"""The number of a picture that is not there."""


class ImageSource(Protocol):
    """The pictures of one run, or of one data set. Its methods may be called from any thread."""

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        ...

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """For each of a run's frame rows, (B,), the number of its picture, or `MISSING`: (B,) int64.

        Numbers rise in the order in which pictures are best read.

        Args:
            camera: one of `cameras`.
            rows: with ``episode``, ``frame_no`` and ``stamp_ns``.
            how: ``latest`` or ``nearest``, by the stamp.
            max_age_ns: between picture and row.
        """
        ...

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """A picture: uint8, (height, width, 3), RGB or BGR.

        Raises:
            SourceError, LogError: it can't be read or decoded.
        """
        ...


class ImageSources:
    """The sources of a table's episodes, each opened when it is first asked for.

    Args:
        table: whose origin, or whose episodes' ``run``, says where the pictures are.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._opened: dict[str, ImageSource | None] = {}
        self._foreign: Callable[[Path], ImageSource | None] | None = _foreign(Path(table.origin))

    def where(self, episode: int) -> str:
        """The folder or file with the pictures of an episode."""
        if self._foreign is not None:  # what a data set says of the run that it was made from counts no more
            return self._table.origin
        return str(self._table.episodes[episode].get("run", self._table.origin))

    def at(self, where: str) -> ImageSource | None:
        """The source in such a place; None where nothing has pictures.

        Raises:
            SourceError, LogError: it can't be read.
        """
        if where not in self._opened:
            self._opened[where] = self._open(Path(where))
        return self._opened[where]

    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras in any of the places."""
        places = {self.where(number) for number in range(len(self._table.starts))}
        sources = [self.at(place) for place in sorted(places)]
        return tuple(sorted({camera for source in sources if source for camera in source.cameras}))

    def no_camera(self, camera: str) -> SourceError:
        """That there is no such camera, and which there are."""
        there = ", ".join(self.cameras()) or "none"
        return SourceError(f"{self._table.origin} has no camera {camera!r}, it has {there}")

    def _open(self, where: Path) -> ImageSource | None:
        if self._foreign is not None:
            return self._foreign(where)
        if where.name == LOG_NAME or (where / LOG_NAME).is_file():
            from recorder.images.log_images import LogImages

            return LogImages(where)
        return None


def _foreign(origin: Path) -> Callable[[Path], ImageSource | None] | None:
    """What opens the pictures of another project's data set, if the table is of one."""
    from recorder.formats.lerobot.read import is_lerobot
    from recorder.formats.minari.dataset import is_minari
    from recorder.formats.robomimic import is_robomimic

    if is_lerobot(origin):
        from recorder.formats.lerobot.images import LeRobotImages

        return LeRobotImages
    if is_minari(origin) or is_robomimic(origin):
        return lambda _: None  # theirs are not read, and their episodes are counted otherwise than the run's
    return None
