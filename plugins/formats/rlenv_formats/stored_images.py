"""Read the images that a data set stores as arrays or as encoded images, in order for each episode."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.log.image_codec import decode_bytes
from recorder.table.table import MISSING, ImageSource
from rlenv_formats.foreign import shape_of
from rlenv_formats.hdf5 import Hdf5Group, h5py_for, own_member
from rlenv_formats.remote.mirror import opened

__all__ = ["Hdf5Images", "Part", "StoredImages", "is_image_shape", "pixels_of"]

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Part:
    """Consecutive images of one episode in an array.

    Attributes:
        name: name of the array.
        first: index of the part's first image in the array.
        count: number of its images.
    """

    name: str
    first: int
    count: int


class StoredImages(ImageSource):
    """The images of a data set, numbered by frame.

    Args:
        origin: the data set, for messages.
        cameras: camera -> number of an episode -> the parts with its images, from frame 0 on.
    """

    def __init__(self, origin: Path, cameras: Mapping[str, Mapping[int, Sequence[Part]]]) -> None:
        self._origin, self._parts = origin, cameras
        self._episodes = {camera: np.array(sorted(parts), np.int64) for camera, parts in cameras.items()}
        self._counts = {
            camera: np.array([sum(part.count for part in cameras[camera][number]) for number in numbers.tolist()], int)
            for camera, numbers in self._episodes.items()
        }
        self._starts = {camera: np.concatenate([[0], np.cumsum(counts)]) for camera, counts in self._counts.items()}

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras."""
        return tuple(sorted(self._parts))

    def numbers(self, camera: str, rows: np.ndarray, how: str, max_age_ns: float) -> np.ndarray:
        """Return the number of each row's image; see `ImageSource.numbers`. Each image is as old as its frame."""
        episodes, counts = self._episodes[camera], self._counts[camera]
        number, frame = rows["episode"].astype(np.int64), rows["frame_no"].astype(np.int64)
        place = np.minimum(np.searchsorted(episodes, number), len(episodes) - 1)
        exists = (episodes[place] == number) & (frame < counts[place])
        return np.where(exists, self._starts[camera][place] + frame, MISSING)

    def decode(self, camera: str, number: int, rgb: bool) -> np.ndarray:
        """Return an image's pixels; see `ImageSource.decode`."""
        position = int(np.searchsorted(self._starts[camera], number, "right")) - 1
        episode, frame = int(self._episodes[camera][position]), number - int(self._starts[camera][position])
        where, offset = f"{self._origin}: camera {camera!r}, frame {frame} of episode {episode}", frame
        for part in self._parts[camera][episode]:
            if offset < part.count:
                return pixels_of(self._stored(part, offset, where), rgb, where)
            offset -= part.count
        raise SourceError(f"{where} has no image")

    @abstractmethod
    def _stored(self, part: Part, offset: int, where: str) -> np.ndarray | bytes:
        """Return an image as it is stored: an array of bytes, or an encoded image.

        Raises:
            SourceError: it can't be read.
        """


class Hdf5Images(StoredImages):
    """The images in an HDF5 file, read one by one.

    Args:
        path: the file.
        cameras: see `StoredImages`; a part's name is the path of its data set in the file.
    """

    def __init__(self, path: Path, cameras: Mapping[str, Mapping[int, Sequence[Part]]]) -> None:
        super().__init__(path, cameras)
        self._path = path
        self._opened: Hdf5Group = None
        self._lock = threading.Lock()

    def _stored(self, part: Part, offset: int, where: str) -> np.ndarray | bytes:
        with self._lock:
            try:
                if self._opened is None:
                    self._opened = h5py_for(self._path).File(opened(self._path), "r")
                data = own_member(self._opened, part.name)
                if data.ndim > 1:
                    shape_of(data.shape[1:], where)
                return np.asarray(data[part.first + offset])
            except SourceError:
                raise
            except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as error:
                raise SourceError(f"{where} can't be read ({error!r:.200}); fetch the data set again") from error


def is_image_shape(shape: tuple[int, ...], least: int = 1) -> bool:
    """Return whether an array of bytes of this shape is an image: (H, W), (H, W, C) or (C, H, W); C is 1, 3 or 4.

    Args:
        shape: shape of the array.
        least: smallest height and width.
    """
    if len(shape) == 3 and shape[-1] in _CHANNELS:
        shape = shape[:2]
    elif len(shape) == 3 and shape[0] in _CHANNELS:
        shape = shape[1:]
    return len(shape) == 2 and min(shape) >= least


def pixels_of(image: np.ndarray | bytes, rgb: bool, where: str) -> np.ndarray:
    """Return an image as uint8 (height, width, 3).

    Args:
        image: a grey, RGB or RGBA image of bytes, channels last or first; or the bytes of a JPEG or PNG.
        rgb: whether to return RGB; otherwise BGR.
        where: place of the image, for errors.

    Raises:
        SourceError: the data are not an image.
        LogError: the image is encoded, and OpenCV is not installed.
    """
    if isinstance(image, bytes) or image.ndim == 1:
        decoded = decode_bytes(image if isinstance(image, bytes) else image.tobytes(), rgb)
        if decoded is None:
            raise SourceError(f"{where}: {len(image)} bytes are not an image")
        return decoded
    if image.dtype != np.uint8 or not is_image_shape(image.shape):
        raise SourceError(f"{where} is {image.dtype} of shape {image.shape}, expected an image of bytes")
    pixels: np.ndarray[Any, Any] = image[..., None] if image.ndim == 2 else image
    if pixels.shape[-1] not in _CHANNELS:
        pixels = np.moveaxis(pixels, 0, -1)
    pixels = np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels[..., :3]
    return np.ascontiguousarray(pixels if rgb else pixels[..., ::-1])
