"""The contract between a table and the images that belong to its rows; each format implements it for its own files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

import numpy as np

__all__ = ["MISSING", "ImageOpener", "ImageSource", "no_images"]

MISSING = -1
"""Stands for the number of an image that does not exist."""


class ImageSource(ABC):
    """The images of one run or of one data set. Any thread may call its methods."""

    @property
    @abstractmethod
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""

    @abstractmethod
    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image, or `MISSING`: (B,) int64.

        Numbers rise in the order in which images are best read.

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

    def stored(self, camera: str, number: int) -> bytes | memoryview | None:
        """Return an image's bytes as they were recorded (JPEG or PNG); None, the default, if they can't be had."""
        return None


ImageOpener = Callable[[Path], ImageSource | None]
"""Opens the images of the data set at a path; returns None if none of them can be read."""


def no_images(path: Path) -> None:
    """Open nothing: the `ImageOpener` of data sets whose images are not read."""
