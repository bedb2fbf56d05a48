"""Pictures that belong to rows of a table, decoded from the log itself by several threads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from hal import LogError, SourceError
from recorder.picture import opencv
from recorder.picture_index import PictureIndex
from recorder.table import Table

__all__ = ["Images"]

_HOW = ("latest", "nearest")
_ORDERS = ("rgb", "bgr")
_NONE = -1
_SHARES = 4
"""Pieces of work a thread: one that is done early takes over what another has not begun."""
_Key = tuple[str, str, int]


class Images:
    """The pictures of a table's runs, by row.

    A picture belongs to a row of the same episode by their stamps, which are of the robot's clock. The logs are
    indexed when their pictures are first asked for: one pass over each, checksums included.

    Args:
        table: whose runs are logs of ours.
        crop: (top, left, height, width) in pixels, before the size is changed; None for all of it.
        size: (height, width) in pixels; None keeps that of the picture.
        order: of the colours, ``rgb`` or ``bgr``.
        threads: that decode; by default one a processor.
        cache_bytes: of decoded pictures that are kept, those that were used last; 0 keeps none.

    Raises:
        SourceError: an option is not allowed.
        LogError: OpenCV is missing.
    """

    def __init__(
        self,
        table: Table,
        *,
        crop: tuple[int, int, int, int] | None = None,
        size: tuple[int, int] | None = None,
        order: str = "rgb",
        threads: int | None = None,
        cache_bytes: int = 256 << 20,
    ) -> None:
        if order not in _ORDERS:
            raise SourceError(f"order is {order!r}, allowed are {', '.join(_ORDERS)}")
        if crop is not None and not (len(crop) == 4 and min(crop[:2]) >= 0 and min(crop[2:]) > 0):
            raise SourceError(f"crop is {crop}, wanted (top, left, height, width) in pixels, the last two above 0")
        if size is not None and not (len(size) == 2 and min(size) > 0):
            raise SourceError(f"size is {size}, wanted (height, width) in pixels, both above 0")
        self._table, self._crop, self._size, self._order = table, crop, size, order
        self._cv2 = opencv("decoding pictures")
        self._threads = threads or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._threads, "pictures")
        self._indices: dict[str, PictureIndex] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._cache = _Cache(cache_bytes)

    def close(self) -> None:
        """End the threads. Twice is fine."""
        self._pool.shutdown()

    def __enter__(self) -> Images:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras in any of the runs."""
        runs = {self._run(number) for number in range(len(self._table.starts))}
        return tuple(sorted({camera for run in runs for camera in self._index(run).places}))

    def cameras_of(self, episode: int) -> tuple[str, ...]:
        """Names of the cameras in the run of an episode."""
        return tuple(sorted(self._index(self._run(episode)).places))

    # -- pictures of rows ----------------------------------------------------------------------------------

    def at(
        self,
        rows: Any,
        camera: str,
        how: str = "latest",
        max_age_s: float = np.inf,
        past: Sequence[int] = (0,),
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pictures that belong to rows.

        Args:
            rows: indices into ``table.rows``, shape (B,); `Transitions.row` has those of a sample.
            camera: its name.
            how: ``latest``: the newest picture that is not newer than the row, as a policy saw it; ``nearest``.
            max_age_s: between picture and row; a picture further away counts as missing.
            past: frames before each row that are wanted too, such as (3, 2, 1, 0) for a stack of four; more than
                one gives a stack. Before an episode's first frame that frame is taken again.
            out: takes the pictures, an array of the shape and type below; a large batch spends a good part of its
                time on fresh memory otherwise.

        Returns:
            Pictures, uint8 of shape (B, H, W, 3), or (B, K, H, W, 3) for K in ``past``; and a mask, bool of shape
            (B,) or (B, K), False where there is none: such a picture is black.

        Raises:
            SourceError: no such camera, row or choice; sizes differ and no ``size`` was given; ``out`` does not fit.
            LogError: a picture can't be decoded.
        """
        wanted = np.asarray(rows, np.int64)
        if wanted.ndim != 1 or not ((wanted >= 0) & (wanted < len(self._table.rows))).all():
            raise SourceError(f"rows are of shape {wanted.shape}, wanted (B,), from 0 to {len(self._table.rows) - 1}")
        if how not in _HOW:
            raise SourceError(f"how is {how!r}, allowed are {', '.join(_HOW)}")
        if not past or min(past) < 0:
            raise SourceError(f"past is {tuple(past)}, wanted numbers from 0, at least one")
        episodes = np.searchsorted(self._table.starts, wanted, "right") - 1
        first = self._table.starts[episodes]
        stacked = np.maximum(wanted[:, None] - np.array(past)[None], first[:, None])
        keys = self._keys(stacked.ravel(), np.repeat(episodes, len(past)), camera, how, max_age_s)
        mask = np.array([number != _NONE for _, _, number in keys], bool)
        leading = stacked.shape if len(past) > 1 else wanted.shape
        pictures = _room((*leading, *self._shape(keys, camera)), out)
        flat = pictures.reshape(len(keys), *pictures.shape[len(leading) :])
        flat[~mask] = 0
        self._decode_all(keys, flat)
        return pictures, mask.reshape(leading)

    def _run(self, episode: int) -> str:
        return str(self._table.episodes[episode].get("run", self._table.origin))

    def _index(self, run: str) -> PictureIndex:
        if run not in self._indices:
            self._indices[run] = PictureIndex.of(Path(run))
        return self._indices[run]

    def _keys(self, rows: np.ndarray, episodes: np.ndarray, camera: str, how: str, max_age_s: float) -> list[_Key]:
        """Run, camera and number of the picture of each row."""
        keys: list[_Key] = [("", camera, _NONE)] * len(rows)
        runs = np.array([self._run(episode) for episode in episodes], object)
        seen = False
        for run in dict.fromkeys(runs.tolist()):
            places = self._index(run).places.get(camera)
            if places is None:
                continue
            seen = True
            mine = np.flatnonzero(runs == run)
            part = self._table.rows[rows[mine]]
            numbers = _numbers(places, part["episode"].astype(np.int64), part["stamp_ns"], how, max_age_s * 1e9)
            for at, number in zip(mine.tolist(), numbers.tolist(), strict=True):
                keys[at] = (run, camera, number)
        if not seen:
            there = ", ".join(self.cameras()) or "none"
            raise SourceError(f"{self._table.origin} has no camera {camera!r}, it has {there}")
        return keys

    # -- decoding ------------------------------------------------------------------------------------------

    def _decode_all(self, keys: Sequence[_Key], out: np.ndarray) -> None:
        missing: list[tuple[int, _Key]] = []
        for at, key in enumerate(keys):
            kept = self._cache.get(key)
            if kept is not None:
                out[at] = kept
            elif key[2] != _NONE:
                missing.append((at, key))
        missing.sort(key=lambda each: each[1])  # in the order of the file, and what is wanted twice together
        groups = [list(group) for _, group in groupby(missing, lambda each: each[1])]
        shares = [groups[first :: self._threads * _SHARES] for first in range(self._threads * _SHARES)]
        for done in [self._pool.submit(self._decode_groups, share, out) for share in shares if share]:
            done.result()

    def _decode_groups(self, groups: Sequence[Sequence[tuple[int, _Key]]], out: np.ndarray) -> None:
        for group in groups:
            key = group[0][1]
            pixels = self._decode(key)
            if pixels.shape != out.shape[1:]:
                raise SourceError(
                    f"camera {key[1]!r} has pictures of shape {out.shape[1:]} and {pixels.shape}; give Images a size"
                )
            for at, _ in group:
                out[at] = pixels
            self._cache.put(key, pixels)

    def _shape(self, keys: Sequence[_Key], camera: str) -> tuple[int, ...]:
        if self._size is not None:
            return (*self._size, 3)
        if camera not in self._shapes:
            key = next((key for key in keys if key[2] != _NONE), None)
            if key is None:  # all are missing: as large as any other of this camera
                run = next(run for run, index in self._indices.items() if camera in index.places)
                key = (run, camera, 0)
            self._shapes[camera] = self._decode(key).shape
        return self._shapes[camera]

    def _decode(self, key: _Key) -> np.ndarray:
        cv2, index = self._cv2, self._indices[key[0]]
        place = index.places[key[1]][key[2]]
        data = index.chunks.stretch(int(place["chunk"]), int(place["start"]), int(place["stop"]))
        rgb = self._order == "rgb"
        direct = getattr(cv2, "IMREAD_COLOR_RGB", None)  # since OpenCV 4.11
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), direct if rgb and direct is not None else cv2.IMREAD_COLOR)
        if pixels is None:
            raise LogError(f"{key[0]}: picture {key[2]} of camera {key[1]!r} ({len(data)} bytes) can't be decoded")
        if rgb and direct is None:
            pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
        if self._crop is not None:
            top, left, height, width = self._crop
            if top + height > pixels.shape[0] or left + width > pixels.shape[1]:
                raise SourceError(f"crop {self._crop} does not fit pictures of shape {pixels.shape}")
            pixels = pixels[top : top + height, left : left + width]
        if self._size is not None and pixels.shape[:2] != self._size:
            pixels = cv2.resize(pixels, self._size[::-1], interpolation=cv2.INTER_AREA)
        return np.asarray(pixels)


def _room(shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
    if out is None:
        return np.empty(shape, np.uint8)
    if out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
        raise SourceError(f"out is {out.dtype} of shape {out.shape}, wanted uint8 of shape {shape}, contiguous")
    return out


def _numbers(places: np.ndarray, episodes: np.ndarray, stamps: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
    """For each row the number of its picture among the places, which are sorted by episode and stamp; or -1."""
    times = np.unique(places["stamp_ns"])
    base = len(times) + 1  # episode and stamp as one number that sorts as they do
    have = places["episode"] * base + np.searchsorted(times, places["stamp_ns"]) + 1
    wanted = episodes * base + np.searchsorted(times, stamps, "right")
    before = np.searchsorted(have, wanted, "right") - 1
    best, age = _aged(places, before, episodes, stamps)
    if how == "nearest":
        _, later = _aged(places, before + 1, episodes, stamps)
        best, age = np.where(later < age, before + 1, best), np.minimum(age, later)
    return np.where(np.isfinite(age) & (age <= max_age_ns), best, _NONE)


def _aged(
    places: np.ndarray, at: np.ndarray, episodes: np.ndarray, stamps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """How far these pictures are from their rows, nanoseconds; endlessly where they are of another episode."""
    if not len(places):
        return at, np.full(len(at), np.inf)
    inside = (at >= 0) & (at < len(places))
    safe = np.where(inside, at, 0)
    fits = inside & (places["episode"][safe] == episodes)
    age = np.abs(places["stamp_ns"][safe] - stamps).astype(float)
    return at, np.where(fits, age, np.inf)


class _Cache:
    """Pictures by key; those that were not used for longest go first. For any number of threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._size = capacity, 0
        self._kept: OrderedDict[_Key, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> np.ndarray | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: _Key, picture: np.ndarray) -> None:
        if picture.nbytes > self._capacity:
            return
        owned = picture if picture.base is None else picture.copy()  # a cropped view would hold the whole
        with self._lock:
            old = self._kept.pop(key, None)
            self._size += owned.nbytes - (0 if old is None else old.nbytes)
            self._kept[key] = owned
            while self._size > self._capacity:
                self._size -= self._kept.popitem(last=False)[1].nbytes
