"""Find the images of a table: in logs of ours, or in a data set of another format."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hal import LogError, SourceError
from recorder.log.image_codec import decode_bytes
from recorder.names import LOG_NAME
from recorder.read.image_index import ImageIndex
from recorder.table.table import MISSING, ImageSource, Table

__all__ = ["ByTime", "ImageSources", "LogImages"]


class ImageSources:
    """The image sources of a table's episodes, each opened on first use.

    Args:
        table: its ``open_images`` and ``origin``, or its episodes' ``run``, say where the images are.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._opened: dict[str, ImageSource | None] = {}

    def where(self, episode: int) -> str:
        """Return the folder or file that holds the images of an episode."""
        if self._table.open_images is not None:  # a data set's ``run`` names the log that it was made from
            return self._table.origin
        return str(self._table.episodes[episode].get("run", self._table.origin))

    def at(self, where: str) -> ImageSource | None:
        """Return the source at such a place, or None if there are no images.

        Raises:
            SourceError, LogError: the images can't be read.
        """
        if where not in self._opened:
            self._opened[where] = self._open(Path(where))
        return self._opened[where]

    def cameras(self) -> tuple[str, ...]:
        """Return the names of the cameras in any of the places."""
        places = {self.where(number) for number in range(len(self._table.starts))}
        sources = [self.at(place) for place in sorted(places)]
        return tuple(sorted({camera for source in sources if source for camera in source.cameras}))

    def no_camera(self, camera: str) -> SourceError:
        """Return the error that names a missing camera and lists the existing ones."""
        names = ", ".join(self.cameras()) or "none"
        return SourceError(f"{self._table.origin} has no camera {camera!r}, it has {names}")

    def _open(self, where: Path) -> ImageSource | None:
        if self._table.open_images is not None:
            return self._table.open_images(where)
        if where.name == LOG_NAME or (where / LOG_NAME).is_file():
            return LogImages(where)
        return None


class LogImages(ImageSource):
    """The images of one run, decoded from its log.

    An image belongs to a row of the same episode by their stamps, which are of the robot's clock.

    Args:
        run: the folder with the log, or the log.

    Raises:
        LogError: there is no log, or it can't be read.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self.index = ImageIndex.load_or_build(run)
        self._by_time = {camera: ByTime(places) for camera, places in self.index.places.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self.index.places))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image; see `ImageSource.numbers`."""
        return self._by_time[camera].numbers(rows["episode"].astype(np.int64), rows["stamp_ns"], how, max_age_ns)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image's pixels; see `ImageSource.decode`."""
        data = self.stored(camera, number)
        pixels = decode_bytes(data, rgb)
        if pixels is None:
            raise LogError(f"{self._run}: image {number} of camera {camera!r} ({len(data)} bytes) can't be decoded")
        return pixels

    def stored(self, camera: str, number: int) -> memoryview:
        """Return an image's bytes as they were recorded: JPEG or PNG."""
        return self.index.stored(self.index.places[camera][number])


class ByTime:
    """Finds the image that belongs to a row by episode and stamp.

    Args:
        places: (N,) of `recorder.read.image_index.Place`, sorted by episode and stamp.
    """

    def __init__(self, places: np.ndarray) -> None:
        self._places = places
        self._times = np.unique(places["stamp_ns"])
        self._base = len(self._times) + 1  # makes of episode and stamp one number that sorts as they do
        self._have = places["episode"] * self._base + np.searchsorted(self._times, places["stamp_ns"]) + 1

    def numbers(self, episodes: np.ndarray, stamps: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image among the places, or `MISSING`; see `ImageSource.numbers`."""
        keys = episodes * self._base + np.searchsorted(self._times, stamps, "right")
        best = np.searchsorted(self._have, keys, "right") - 1
        age = self._age(best, episodes, stamps)
        if how == "nearest":
            later = self._age(best + 1, episodes, stamps)
            best, age = np.where(later < age, best + 1, best), np.minimum(age, later)
        return np.where(np.isfinite(age) & (age <= max_age_ns), best, MISSING)

    def _age(self, at: np.ndarray, episodes: np.ndarray, stamps: np.ndarray) -> np.ndarray:
        """Return the distance of images from their rows in ns: infinite where they are of different episodes."""
        if not len(self._places):
            return np.full(len(at), np.inf)
        inside = (at >= 0) & (at < len(self._places))
        safe = np.where(inside, at, 0)
        fits = inside & (self._places["episode"][safe] == episodes)
        return np.where(fits, np.abs(self._places["stamp_ns"][safe] - stamps).astype(float), np.inf)
