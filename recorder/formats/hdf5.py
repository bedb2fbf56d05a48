"""Read and write HDF5 files. h5py is imported only here, on use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal import Field, SourceError
from hal.field import DTYPES
from recorder.json_data import JsonDict

__all__ = [
    "Hdf5Group",
    "as_field",
    "h5py_for",
    "open_hdf5",
    "read_json",
    "read_numbers",
    "write_arrays",
    "write_images",
    "write_json",
]


Hdf5Group = Any
"""A group or a file of h5py, which has no types."""


def h5py_for(what: Path | str) -> ModuleType:
    """Return the module h5py.

    Raises:
        SourceError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise SourceError(f"{what} needs h5py: pip install 'rlenv-robot[hdf5]'") from None
    module: ModuleType = h5py
    return module


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file for reading.

    Raises:
        SourceError: the file is missing, no HDF5, or damaged; or h5py is missing.
    """
    h5py = h5py_for(path)
    if not path.is_file():
        raise SourceError(f"{path} is missing; the data set is incomplete, fetch it again")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise SourceError(f"{path} can't be read ({error}); fetch it again") from error


def read_numbers(group: Hdf5Group, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Read a data set of numbers.

    Args:
        group: the HDF5 group.
        name: the data set's path in the group.
        shape: the required shape; None for any.

    Raises:
        SourceError: the data set is missing, holds no numbers, or has another shape.
    """
    where = f"{group.file.filename}: {group.name.rstrip('/')}/{name}"
    data = group.get(name)
    if data is None or not hasattr(data, "dtype"):
        raise SourceError(f"{where} is missing; {group.name} has {', '.join(group) or 'nothing'}")
    value = np.asarray(data[()])
    if value.dtype.kind not in "fiub":
        raise SourceError(f"{where} holds {value.dtype}, expected numbers")
    if shape is not None and value.shape != shape:
        raise SourceError(f"{where} has shape {value.shape}, expected {shape}")
    return value


def write_arrays(group: Hdf5Group, values: Mapping[str, np.ndarray]) -> None:
    """Write arrays, name by name."""
    for name, value in values.items():
        group.create_dataset(name, data=value)


def write_images(
    group: Hdf5Group, name: str, images: Iterable[np.ndarray], count: int, shape: tuple[int, int, int]
) -> None:
    """Write images, each as a chunk of its own, so that any image can be read alone.

    Args:
        group: the HDF5 group.
        name: the images' path in the group.
        images: blocks of images, uint8, (n, height, width, 3); those beyond ``count`` are left out.
        count: the number of images.
        shape: the shape of one image.
    """
    written = group.create_dataset(name, (count, *shape), "u1", chunks=(1, *shape))
    first = 0
    for some in images:
        part = some[: count - first]
        written[first : first + len(part)] = part
        first += len(part)


def write_json(group: Hdf5Group, name: str, text: str) -> None:
    """Write a text as a data set, since attributes are limited to 64 kB."""
    group.create_dataset(name, data=text)


def read_json(group: Hdf5Group, name: str) -> JsonDict | None:
    """Read what `write_json` wrote; return None if there is none.

    Raises:
        SourceError: the text is no mapping in JSON.
    """
    if name not in group:
        return None
    try:
        value = json.loads(group[name][()])
        return dict(value)
    except (ValueError, TypeError) as error:
        raise SourceError(f"{group.file.filename}: {group.name}/{name} is no mapping in JSON: {error}") from error


def as_field(name: str, value: Any, meaning: str) -> Field:
    """Make a field for a data set whose first axis is time; half floats and booleans get the next wider type."""
    dtype = np.dtype(value.dtype)
    wider = {"float16": "float32", "bool": "uint8"}.get(dtype.name, dtype.name)
    return Field(name, tuple(value.shape[1:]), wider if wider in DTYPES else "float64", meaning=meaning)
