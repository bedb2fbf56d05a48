"""The pictures in a log of ours, decoded from the log itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hal import LogError
from recorder.images.sources import MISSING
from recorder.log.image_codec import decode_bytes
from recorder.read.image_index import ImageIndex

__all__ = ["ByTime", "LogImages"]


class LogImages:
    """The pictures of one run. They belong to rows of the same episode by their stamps, of the robot's clock.

    Args:
        run: the folder with the log, or the log.

    Raises:
        LogError: there is no log, or it can't be read.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self.index = ImageIndex.kept(run)
        self._by_time = {camera: ByTime(places) for camera, places in self.index.places.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self.index.places))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """See `recorder.images.sources.PictureSource.numbers`."""
        return self._by_time[camera].numbers(rows["episode"].astype(np.int64), rows["stamp_ns"], how, max_age_ns)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """See `recorder.images.sources.PictureSource.decode`."""
        data = self.stored(camera, number)
        pixels = decode_bytes(data, rgb)
        if pixels is None:
            raise LogError(f"{self._run}: picture {number} of camera {camera!r} ({len(data)} bytes) can't be decoded")
        return pixels

    def stored(self, camera: str, number: int) -> memoryview:
        """A picture's bytes as they were recorded: JPEG or PNG."""
        place = self.index.places[camera][number]
        return self.index.chunks.stretch(int(place["chunk"]), int(place["start"]), int(place["stop"]))


class ByTime:
    """Finds the picture that belongs to a row by episode and stamp.

    Args:
        places: (N,) of `recorder.read.image_index.Place`, sorted by episode and stamp.
    """

    def __init__(self, places: np.ndarray) -> None:
        self._places = places
        self._times = np.unique(places["stamp_ns"])
        self._base = len(self._times) + 1  # makes of episode and stamp one number that sorts as they do
        self._have = places["episode"] * self._base + np.searchsorted(self._times, places["stamp_ns"]) + 1

    def numbers(self, episodes: np.ndarray, stamps: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """For each row the number of its picture among the places, or `MISSING`; see `PictureSource.numbers`."""
        wanted = episodes * self._base + np.searchsorted(self._times, stamps, "right")
        best = np.searchsorted(self._have, wanted, "right") - 1
        age = self._age(best, episodes, stamps)
        if how == "nearest":
            later = self._age(best + 1, episodes, stamps)
            best, age = np.where(later < age, best + 1, best), np.minimum(age, later)
        return np.where(np.isfinite(age) & (age <= max_age_ns), best, MISSING)

    def _age(self, at: np.ndarray, episodes: np.ndarray, stamps: np.ndarray) -> np.ndarray:
        """How far these pictures are from their rows, nanoseconds; endlessly where they are of another episode."""
        if not len(self._places):
            return np.full(len(at), np.inf)
        inside = (at >= 0) & (at < len(self._places))
        safe = np.where(inside, at, 0)
        fits = inside & (self._places["episode"][safe] == episodes)
        return np.where(fits, np.abs(self._places["stamp_ns"][safe] - stamps).astype(float), np.inf)
