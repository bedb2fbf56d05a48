"""Find the images in HDF5 files of one episode or more, and read them one by one."""

from __future__ import annotations

import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.formats.runs import field_names
from recorder.log.image_codec import decode_bytes
from rlenv_formats.foreign import MOST_ELEMENTS, listed, shape_of
from rlenv_formats.hdf5 import Hdf5Group, data_sets, h5py_for, own_member
from rlenv_formats.remote.mirror import opened
from rlenv_formats.stored_images import Part, StoredImages, is_image_shape

__all__ = ["CameraFinder", "FileImages", "FilePart", "is_encoded", "is_image_data"]

_SMALLEST = 8
"""Smallest height and width at which an array of bytes counts as an image."""

_OPEN_FILES = 8
_ENCODED = (b"\xff\xd8\xff", b"\x89PNG\r\n")
_LIKE_IMAGES = re.compile(r"(image|images|rgb|depth|video|camera|cam)(?![a-z])")


@dataclass(frozen=True)
class FilePart(Part):
    """Consecutive images of one episode in one of several files.

    Attributes:
        file: the file; ``name`` is the path of the data set in it.
        swapped: whether the encoded images hold blue where JPEG and PNG have red.
    """

    file: Path
    swapped: bool = False


class FileImages(StoredImages):
    """The images in several HDF5 files, of which few are open at a time.

    Args:
        origin: the data set, for messages.
        cameras: see `StoredImages`.
    """

    def __init__(self, origin: Path, cameras: Mapping[str, Mapping[int, Sequence[FilePart]]]) -> None:
        super().__init__(origin, cameras)
        self._files: OrderedDict[Path, Hdf5Group] = OrderedDict()
        weakref.finalize(self, _close, self._files)
        self._lock = threading.Lock()

    def _stored(self, part: Part, offset: int, where: str) -> np.ndarray | bytes:
        assert isinstance(part, FilePart)
        with self._lock:
            try:
                data = own_member(self._file(part.file), part.name)
                if data.ndim > 1:
                    shape_of(data.shape[1:], where)
                image = data[part.first + offset]
            except SourceError:
                raise
            except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as error:
                raise SourceError(f"{where} can't be read ({error!r:.200}); fetch {part.file} again") from error
        if isinstance(image, bytes | np.void):
            image = np.frombuffer(image if isinstance(image, bytes) else image.tobytes(), np.uint8)
        if not part.swapped or image.ndim != 1:
            return np.asarray(image)
        pixels = decode_bytes(image.tobytes(), rgb=False)  # the order of the stored bytes, which is red, green, blue
        if pixels is None:
            raise SourceError(f"{where}: {len(image)} bytes of {part.file} are not an image")
        return pixels

    def _file(self, path: Path) -> Hdf5Group:
        """Return an open file; call it under the lock."""
        if path not in self._files:
            while len(self._files) >= _OPEN_FILES:
                self._files.popitem(last=False)[1].close()
            self._files[path] = h5py_for(path).File(opened(path), "r")
        self._files.move_to_end(path)
        return self._files[path]


def _close(files: OrderedDict[Path, Hdf5Group]) -> None:
    while files:
        files.popitem()[1].close()


def is_encoded(data: Hdf5Group) -> bool:
    """Return whether a data set holds an encoded image (JPEG or PNG, perhaps padded) in each row."""
    import h5py

    if not hasattr(data, "dtype") or not data.shape or not len(data) or data.external or data.is_virtual:
        return False
    if h5py.check_vlen_dtype(data.dtype) == np.uint8 and data.ndim == 1:
        return True  # not looked at: the library may run for ever in a damaged heap
    bytes_of_rows = data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] <= MOST_ELEMENTS
    fixed = data.dtype.kind in "SV" and data.dtype.names is None and data.ndim == 1
    if not (bytes_of_rows or (fixed and data.dtype.itemsize <= MOST_ELEMENTS)):
        return False
    head = data[0, :8].tobytes() if bytes_of_rows else bytes(data[0])[:8]
    return head.startswith(_ENCODED)


def is_image_data(data: Hdf5Group) -> bool:
    """Return whether a data set holds images: bytes (T, height, width[, channels]) or encoded ones."""
    if not hasattr(data, "dtype"):
        return False
    raw = data.dtype == np.uint8 and data.ndim in (3, 4) and is_image_shape(data.shape[1:], _SMALLEST)
    return (raw and len(data) > 0) or is_encoded(data)


class CameraFinder:
    """Finds the cameras of one episode after another, and remembers what is no image of 8 bits.

    Args:
        swap: whether encoded images hold blue where JPEG has red; None for those that ACT++ compressed (the attribute
            ``compress``), which it encodes in OpenCV's order.
    """

    def __init__(self, swap: bool | None = None) -> None:
        self._swap = swap
        self._left: dict[str, str] = {}
        self._swapped = False

    def notes(self) -> list[str]:
        """Return a sentence for all images that are left out, and one if red and blue were exchanged."""
        notes = []
        if self._left:
            notes.append("left out of the cameras: " + listed((f"{n} ({why})" for n, why in self._left.items()), 8))
        if self._swapped and self._swap is None:
            notes.append(
                "its compressed images are read as ACT++ writes and reads them, with red and blue exchanged inside the "
                "JPEG; if colours look wrong, give swap_red_blue=False (--no-swap-red-blue)"
            )
        return notes

    def cameras(self, file: Path, group: Hdf5Group, names: Mapping[str, str], count: int) -> dict[str, FilePart]:
        """Return camera -> its images in the group of an episode.

        Args:
            file: the file.
            group: the group, or the file itself.
            names: camera -> path below the group, for those that a mapping names; these may have any name.
            count: number of observations; cameras with another number of images (but for one less) are left out.
        """
        found = {path: data for path, data in data_sets(group).items() if self._is_camera(path, data, names.values())}
        ours = {path: camera for camera, path in names.items()}
        free = [path for path in found if path not in ours]
        short = [path.rpartition("/")[2] for path in free]
        texts = [name if short.count(name) == 1 else path for path, name in zip(free, short, strict=True)]
        ours |= {path: field_names(texts)[text] for path, text in zip(free, texts, strict=True)}
        compressed = bool(group.file.attrs.get("compress", False)) if self._swap is None else self._swap
        parts = {}
        for path, data in found.items():
            if len(data) not in (count, count - 1):
                self._left.setdefault(path, f"{len(data)} images for {count} observations, in {file.name}")
                continue
            swapped = compressed and is_encoded(data)
            self._swapped = self._swapped or swapped
            parts[ours[path]] = FilePart(data.name.lstrip("/"), 0, len(data), file, swapped)
        return parts

    def _is_camera(self, path: str, data: Hdf5Group, named: Collection[str]) -> bool:
        if is_image_data(data):
            if "depth" not in path.lower() or not is_encoded(data):
                return True
            self._left.setdefault(path, "encoded depth")
            return False
        looks = data.ndim >= 3 or (data.dtype == np.uint8 and data.ndim == 2) or data.dtype.kind == "O"
        if path not in named and looks and _LIKE_IMAGES.search(path.lower().replace("_", " ")):
            self._left.setdefault(path, f"{data.dtype} of shape {data.shape}, no images of 8 bits")
        return False
