"""Read and write HDF5 files. h5py is imported only here, on use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal import Field, SourceError
from hal.field import DTYPES
from recorder.json_data import JsonDict
from rlenv_formats.foreign import check_file, check_memory, listed, shape_of
from rlenv_formats.remote.mirror import opened

__all__ = [
    "Hdf5Group",
    "as_field",
    "data_sets",
    "h5py_for",
    "member",
    "open_hdf5",
    "own_member",
    "read_attribute",
    "read_json",
    "read_numbers",
    "read_strings",
    "write_arrays",
    "write_images",
    "write_json",
]


Hdf5Group = Any
"""An h5py group or file; h5py has no type hints."""


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
def open_hdf5(path: Path) -> Iterator[Hdf5Group]:
    """Open a file for reading.

    Raises:
        SourceError: the file is missing, damaged or not HDF5, or h5py is not installed.
    """
    h5py = h5py_for(path)
    source = opened(path)
    if isinstance(source, Path):
        check_file(source)
    try:
        with h5py.File(source, "r") as file:
            yield file
    except SourceError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise SourceError(f"{path} can't be read ({error!r:.300}); fetch it again") from error


def member(group: Hdf5Group, name: str) -> Hdf5Group:
    """Return a group or data set by its path in a group, or None if there is none.

    Raises:
        SourceError: a link leads to another file.
    """
    import h5py

    for part in name.split("/"):
        link = group.get(part, getlink=True) if hasattr(group, "keys") else None
        if link is None:
            return None
        if isinstance(link, h5py.ExternalLink):
            raise SourceError(
                f"{group.file.filename}: {group.name.rstrip('/')}/{part} is a link to another file, "
                f"{link.filename!r:.80}, which is not read"
            )
        group = group.get(part)
        if group is None:
            return None
    return group


def data_sets(group: Hdf5Group, most: int = 1000) -> dict[str, Hdf5Group]:
    """Return path below a group -> data set, up to 8 levels deep; links to other files are left out.

    Args:
        group: a group, or a file.
        most: the largest number of members to look at.
    """
    import h5py

    found: dict[str, Hdf5Group] = {}
    groups, looked = [("", group)], 0
    for prefix, parent in groups:
        for name in parent:
            looked += 1
            if looked > most:
                return found
            if isinstance(parent.get(name, getlink=True), h5py.ExternalLink):
                continue
            one, path = parent.get(name), f"{prefix}{name}"
            if hasattr(one, "dtype"):
                found[path] = one
            elif hasattr(one, "keys") and path.count("/") < 7:
                groups.append((f"{path}/", one))
    return found


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
    data = member(group, name) if hasattr(group, "id") else group.get(name)
    if data is None or not hasattr(data, "dtype"):
        raise SourceError(f"{where} is missing; {group.name} has {listed(group, 20) or 'nothing'}")
    if data.dtype.kind not in "fiub":
        raise SourceError(f"{where} holds {data.dtype}, expected numbers")
    if shape is not None and data.shape != shape:
        raise SourceError(f"{where} has shape {data.shape}, expected {shape}")
    return np.asarray(_checked(data, where)[()])


def own_member(group: Hdf5Group, name: str) -> Hdf5Group:
    """Return an existing data set by its path in a group.

    Raises:
        SourceError: the data set is missing, or a link leads to another file.
    """
    data = member(group, name)
    where = f"{group.file.filename}: {group.name.rstrip('/')}/{name}"
    if data is None or not hasattr(data, "dtype"):
        raise SourceError(f"{where} is missing; fetch the file again")
    if data.external or data.is_virtual:
        raise SourceError(f"{where} lies in another file, which is not read")
    return data


def _checked(data: Hdf5Group, where: str) -> Hdf5Group:
    """Return a data set whose content lies in its own file, and can fill its shape."""
    if not hasattr(data, "id"):  # an array of `rlenv_formats.minari.ArrowEpisode`
        return data
    if data.external or data.is_virtual:
        raise SourceError(f"{where} lies in another file, which is not read")
    check_memory(where, data.size * data.dtype.itemsize, data.id.get_storage_size())
    return data


def read_strings(group: Hdf5Group, name: str) -> list[str]:
    """Read a data set of strings.

    Raises:
        SourceError: the data set is missing, damaged, or holds something else.
    """
    where = f"{group.file.filename}: {group.name.rstrip('/')}/{name}"
    data = member(group, name)
    if data is None or not hasattr(data, "dtype") or data.dtype.kind not in "SO" or data.ndim != 1:
        raise SourceError(f"{where} is not a list of strings")
    if data.dtype.kind == "O":
        texts = _in_a_child(data, None, where)
        if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            raise SourceError(f"{where} is not a list of strings")
        return texts
    values = _checked(data, where)[()].tolist()
    if not all(isinstance(one, bytes) for one in values):
        raise SourceError(f"{where} is not a list of strings")
    return [one.decode(errors="replace") for one in values]


def read_attribute(group: Hdf5Group, name: str) -> str | None:
    """Return the string in an attribute, or None without the attribute.

    Raises:
        SourceError: the attribute is damaged, or holds something else.
    """
    where = f"{group.file.filename}: attribute {name} of {group.name}"
    if name not in group.attrs:
        return None
    value = _in_a_child(group, name, where) if group.attrs.get_id(name).dtype.kind == "O" else group.attrs[name]
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise SourceError(f"{where} is {text!r:.80}, expected a text")
    return text


# -- Texts of variable length, which are read in a child process ----------------------------------------------


_CHILD = """
import json, resource, sys
path, name, attribute, seconds, memory, most = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:])
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
import h5py
with h5py.File(path, "r") as file:
    value = file[name].attrs[attribute] if attribute is not None else file[name][()].tolist()
def text(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
answer = json.dumps([text(one) for one in value] if isinstance(value, list) else text(value))
print(answer if len(answer) <= most else "null")
"""
_PROCESSOR_S, _CLOCK_S = 10, 120
_ADDRESSES, _ANSWER_BYTES = 8 << 30, 16 << 20


def _in_a_child(group: Hdf5Group, attribute: str | None, where: str) -> object:
    """Read strings of variable length in a child process, with bounds of time and memory.

    They lie in a heap, in which the HDF5 library (2.0 too) runs for ever, or ends the process, if a byte of it is
    damaged: 5 of 8,333 files with one damaged place.

    Args:
        group: the group, or the data set of strings.
        attribute: the name of an attribute; None reads the data set itself.
        where: the place, for messages.

    Raises:
        SourceError: the strings can't be read, or not within 10 s of the processor.
    """
    bounds = (attribute, _PROCESSOR_S, _ADDRESSES, _ANSWER_BYTES)
    command = [sys.executable, "-c", _CHILD, group.file.filename, group.name, *map(json.dumps, bounds)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(command, capture_output=True, env=environment, timeout=_CLOCK_S, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines() or [f"ended by signal {-done.returncode}"]
            raise SourceError(f"{where} can't be read ({lines[-1]:.200}); the file is damaged, fetch it again")
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{where} can't be read ({error!r:.200}); fetch the file again") from error


def write_arrays(group: Hdf5Group, values: Mapping[str, np.ndarray]) -> None:
    """Write each array as a data set of its name."""
    for name, value in values.items():
        group.create_dataset(name, data=value)


def write_images(
    group: Hdf5Group, name: str, images: Iterable[np.ndarray], count: int, shape: tuple[int, int, int]
) -> None:
    """Write images, each as one chunk, so that it can be read alone.

    Args:
        group: the HDF5 group.
        name: the images' path in the group.
        images: blocks of images, uint8 (n, height, width, 3); images beyond ``count`` are left out.
        count: the number of images.
        shape: (height, width, 3) of one image.
    """
    written = group.create_dataset(name, (count, *shape), "u1", chunks=(1, *shape))
    first = 0
    for some in images:
        part = some[: count - first]
        written[first : first + len(part)] = part
        first += len(part)


def write_json(group: Hdf5Group, name: str, text: str) -> None:
    """Write JSON text as a data set of bytes, since attributes are limited to 64 kB.

    A string of variable length would be stored in a heap, and a damaged byte in a heap can make the HDF5 library loop
    forever.
    """
    group.create_dataset(name, data=np.frombuffer(text.encode(), np.uint8))


def read_json(group: Hdf5Group, name: str) -> JsonDict | None:
    """Read the mapping that `write_json` wrote, or return None without the data set.

    Raises:
        SourceError: the text is not a JSON mapping.
    """
    data = member(group, name)
    if data is None:
        return None
    where = f"{group.file.filename}: {group.name.rstrip('/')}/{name}"
    try:
        value = _checked(data, where)[()]
        return dict(json.loads(value.tobytes() if isinstance(value, np.ndarray) else value))
    except SourceError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{where} is not a JSON mapping: {error}") from error


def as_field(name: str, value: Any, meaning: str) -> Field:
    """Make a field for a data set with time as its first axis. Half floats and booleans get the next wider type."""
    dtype = np.dtype(value.dtype)
    wider = {"float16": "float32", "bool": "uint8"}.get(dtype.name, dtype.name)
    shape = shape_of(tuple(value.shape[1:]), name)
    return Field(name, shape, wider if wider in DTYPES else "float64", meaning=meaning)
