"""Decode the images that belong to rows of a table, by several threads."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from types import TracebackType
from typing import Any

import numpy as np

from hal import SourceError
from recorder.images.sources import ImageSources
from recorder.log.image_codec import opencv
from recorder.table.memory import BufferPool
from recorder.table.table import MISSING, Table

__all__ = ["Images"]

_HOW = ("latest", "nearest")
_ORDERS = ("rgb", "bgr")
_LAYOUTS = ("hwc", "chw")
_SHARES = 4
"""Pieces of work per thread: a thread that is done early takes over what another has not begun."""
_Key = tuple[str, str, int]


class Images:
    """Decode the images of a table's rows.

    In our logs an image belongs to a row of the same episode by their stamps, both by the robot's clock. In other data
    sets the image source decides, usually by the number of the frame.

    Args:
        table: the table; `recorder.images.sources.ImageSources` finds its images.
        crop: (top, left, height, width) in pixels, before the size is changed; None for the whole image.
        size: (height, width) in pixels; None keeps the image's own size.
        order: the order of the colours, ``rgb`` or ``bgr``.
        layout: the order of an image's axes, ``hwc`` or ``chw``.
        threads: number of threads that decode; by default one for each processor.
        cache_bytes: size of the cache of decoded images; 0 for no cache.
        sources: the image sources of the same table, to share them with other `Images`.

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
        layout: str = "hwc",
        threads: int | None = None,
        cache_bytes: int = 256 << 20,
        sources: ImageSources | None = None,
    ) -> None:
        if order not in _ORDERS:
            raise SourceError(f"order is {order!r}, allowed are {', '.join(_ORDERS)}")
        if layout not in _LAYOUTS:
            raise SourceError(f"layout is {layout!r}, allowed are {', '.join(_LAYOUTS)}")
        if crop is not None and not (len(crop) == 4 and min(crop[:2]) >= 0 and min(crop[2:]) > 0):
            raise SourceError(f"crop is {crop}, expected (top, left, height, width) in pixels, the last two above 0")
        if size is not None and not (len(size) == 2 and min(size) > 0):
            raise SourceError(f"size is {size}, expected (height, width) in pixels, both above 0")
        self._table, self._crop, self._order, self._chw = table, crop, order, layout == "chw"
        self._size = None if size is None else (int(size[0]), int(size[1]))
        self._cv2 = opencv("decoding images")
        self._threads = threads or _processors()
        self._pool = ThreadPoolExecutor(self._threads, "images")
        self._sources = sources or ImageSources(table)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._cache, self._room = _Cache(cache_bytes), BufferPool()

    def close(self) -> None:
        """End the threads. Safe to call more than once."""
        self._pool.shutdown()

    def __enter__(self) -> Images:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def cameras(self) -> tuple[str, ...]:
        """Return the names of the cameras in any of the runs."""
        return self._sources.cameras()

    def cameras_of(self, episode: int) -> tuple[str, ...]:
        """Return the names of the cameras in the run of an episode."""
        source = self._sources.at(self._sources.where(episode))
        return () if source is None else source.cameras

    # ---- images of rows ----

    def at(
        self,
        rows: Any,
        camera: str,
        how: str = "latest",
        max_age_s: float = np.inf,
        past: Sequence[int] = (0,),
        out: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the images that belong to rows.

        Args:
            rows: indices into ``table.rows``, shape (B,); `Transitions.row` has those of a sample.
            camera: the camera's name.
            how: ``latest``: the newest image that is not newer than the row, as a policy saw it; or ``nearest``.
            max_age_s: the largest distance between image and row; an image further away counts as missing.
            past: the frames to return, counted back from each row, such as (3, 2, 1, 0) for a stack of four; several
                make a stack. Before an episode's first frame, that frame is repeated.
            out: an array of the shape and type below that receives the images. By default the memory of an array
                returned earlier is reused, once neither that array nor a view of it exists.

        Returns:
            Images, uint8 of shape (B, H, W, 3), or (B, K, H, W, 3) for K frames in ``past``, with layout ``chw``
            ending in (3, H, W); and a mask, bool of shape (B,) or (B, K), False for a missing image, which is
            black.

        Raises:
            SourceError: the camera, a row or ``how`` is unknown; sizes differ without ``size``; or ``out`` does not
                fit.
            LogError: an image can't be decoded.
        """
        numbers = np.asarray(rows, np.int64)
        if numbers.ndim != 1 or not ((numbers >= 0) & (numbers < len(self._table.rows))).all():
            raise SourceError(f"rows have shape {numbers.shape}, expected (B,), from 0 to {len(self._table.rows) - 1}")
        if how not in _HOW:
            raise SourceError(f"how is {how!r}, allowed are {', '.join(_HOW)}")
        if not past or min(past) < 0:
            raise SourceError(f"past is {tuple(past)}, expected numbers from 0, at least one")
        episodes = np.searchsorted(self._table.starts, numbers, "right") - 1
        first = self._table.starts[episodes]
        stacked = np.maximum(numbers[:, None] - np.array(past)[None], first[:, None])
        keys = self._keys(stacked.ravel(), np.repeat(episodes, len(past)), camera, how, max_age_s)
        mask = np.array([number != MISSING for _, _, number in keys], bool)
        leading = stacked.shape if len(past) > 1 else numbers.shape
        images = self._taken((*leading, *self._shape(keys, camera)), out)
        flat = images.reshape(len(keys), *images.shape[len(leading) :])
        flat[~mask] = 0
        self._decode_all(keys, flat)
        return images, mask.reshape(leading)

    def _taken(self, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
        if out is None:
            return self._room.take(shape)
        if out.shape != shape or out.dtype != np.uint8 or not out.flags.c_contiguous:
            raise SourceError(f"out is {out.dtype} of shape {out.shape}, expected uint8 of shape {shape}, contiguous")
        return out

    def _keys(self, rows: np.ndarray, episodes: np.ndarray, camera: str, how: str, max_age_s: float) -> list[_Key]:
        """Return place, camera and number of each row's image."""
        different, which = np.unique(episodes, return_inverse=True)
        places = np.array([self._sources.where(episode) for episode in different.tolist()], object)[which]
        keys: list[_Key] = [("", camera, MISSING)] * len(rows)
        seen = False
        for place in dict.fromkeys(places.tolist()):
            source = self._sources.at(place)
            if source is None or camera not in source.cameras:
                continue
            seen = True
            mine = np.flatnonzero(places == place)
            part = np.asarray(self._table.rows).take(rows[mine])
            numbers = source.numbers(camera, part, how, max_age_s * 1e9)
            for at, number in zip(mine.tolist(), numbers.tolist(), strict=True):
                keys[at] = (place, camera, number)
        if not seen:
            raise self._sources.no_camera(camera)
        return keys

    # ---- decoding ----

    def _decode_all(self, keys: Sequence[_Key], out: np.ndarray) -> None:
        missing: list[tuple[int, _Key]] = []
        for at, key in enumerate(keys):
            cached = self._cache.get(key)
            if cached is not None:
                self._put(out[at], cached)
            elif key[2] != MISSING:
                missing.append((at, key))
        missing.sort(key=lambda place: place[1])  # in the order of the file, and equal images together
        groups = [list(group) for _, group in groupby(missing, lambda place: place[1])]
        length = max(-(-len(groups) // (self._threads * _SHARES)), 1)
        shares = [groups[first : first + length] for first in range(0, len(groups), length)]
        for done in [self._pool.submit(self._decode_groups, share, out) for share in shares]:
            done.result()

    def _decode_groups(self, groups: Sequence[Sequence[tuple[int, _Key]]], out: np.ndarray) -> None:
        for group in groups:
            key = group[0][1]
            pixels = self._decode(key)
            shape = self._arranged(pixels.shape)
            if shape != out.shape[1:]:
                raise SourceError(
                    f"camera {key[1]!r} has images of shape {out.shape[1:]} and {shape}; give a size, to which all "
                    "are brought"
                )
            for at, _ in group:
                self._put(out[at], pixels)
            self._cache.put(key, pixels)

    def _put(self, place: np.ndarray, pixels: np.ndarray) -> None:
        """Copy an image to its place in a batch."""
        if not self._chw:
            place[:] = pixels
            return
        for channel in range(3):
            self._cv2.extractChannel(pixels, channel, place[channel])

    def _arranged(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[2], *shape[:2]) if self._chw else shape

    def _shape(self, keys: Sequence[_Key], camera: str) -> tuple[int, ...]:
        if self._size is not None:
            return self._arranged((*self._size, 3))
        if camera not in self._shapes:
            key = next((key for key in keys if key[2] != MISSING), None)
            if key is None:  # all are missing: take the size of any other image of this camera
                key = (next(key[0] for key in keys if key[0]), camera, 0)
            self._shapes[camera] = self._arranged(self._decode(key).shape)
        return self._shapes[camera]

    def _decode(self, key: _Key) -> np.ndarray:
        source = self._sources.at(key[0])
        assert source is not None  # keys are made of existing sources
        pixels, cv2 = source.decode(key[1], key[2], self._order == "rgb"), self._cv2
        if self._crop is not None:
            top, left, height, width = self._crop
            if top + height > pixels.shape[0] or left + width > pixels.shape[1]:
                raise SourceError(f"crop {self._crop} does not fit images of shape {pixels.shape}")
            pixels = pixels[top : top + height, left : left + width]
        if self._size is not None and pixels.shape[:2] != self._size:
            pixels = cv2.resize(pixels, self._size[::-1], interpolation=cv2.INTER_AREA)
        return np.asarray(pixels)


def _processors() -> int:
    """Return the number of processors that this process may use; where the system does not tell, of all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Cache:
    """A cache of images that drops the least recently used ones first, for any number of threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity, self._size = capacity, 0
        self._kept: OrderedDict[_Key, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> np.ndarray | None:
        with self._lock:
            cached = self._kept.get(key)
            if cached is not None:
                self._kept.move_to_end(key)
            return cached

    def put(self, key: _Key, image: np.ndarray) -> None:
        if image.nbytes > self._capacity:
            return
        owned = image if image.base is None else image.copy()  # a cropped view would hold the whole
        with self._lock:
            old = self._kept.pop(key, None)
            self._size += owned.nbytes - (0 if old is None else old.nbytes)
            self._kept[key] = owned
            while self._size > self._capacity:
                self._size -= self._kept.popitem(last=False)[1].nbytes
