"""Read the arrays of a zarr group, versions 2 and 3, in a folder or in one zip file.

The layout is that of zarr's specifications (https://zarr-specs.readthedocs.io). numcodecs and imagecodecs decode the
chunks, and are imported on use. zarr itself takes as much memory as a chunk claims, and stands zeros for a chunk that
is missing; here each chunk must decode to its own size, which is checked before, and missing chunks are counted.
"""

from __future__ import annotations

import bz2
import itertools
import math
import os
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from hal import SourceError
from hal.field import DTYPES
from recorder.json_data import JsonDict, JsonObject
from rlenv_formats.foreign import check_file, check_memory, listed, read_mapping, shape_of, whole_number
from rlenv_formats.remote.mirror import opened

__all__ = ["ZARRAY", "ZARR_JSON", "ZIP", "ZarrArray", "open_arrays", "zip_names"]

ZIP = ".zip"
ZARRAY, ZARR_JSON = ".zarray", "zarr.json"
"""The description of an array in versions 2 and 3."""
_LARGEST_SLAB = 2 << 30
"""Largest part of an array that has to be in memory at once, bytes."""
_ADVICE = "read it with zarr and write it again with blosc or zstd"
_DEEPEST = 4
"""Largest depth of an array below its group."""
_IMAGE_CODECS = ("jpegxl", "jpeg2k", "jpeg", "png", "webp")
"""Codecs of images that imagecodecs decodes, by the end of their names ``imagecodecs_<name>``."""


class _Store(Protocol):
    """The files of a group, by their paths in it."""

    def descriptions(self) -> Iterator[str]:
        """Yield the paths of arrays' descriptions; where chunks have none, the path of their folder with a slash."""

    def has(self, key: str) -> bool: ...

    def chunks(self, name: str) -> int:
        """Return the number of the chunks of an array that exist."""

    def read(self, key: str) -> bytes: ...


class _Folder:
    """A group in a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def descriptions(self) -> Iterator[str]:
        folders = [(self._path, 0)]
        while folders:
            folder, depth = folders.pop()
            name = folder.relative_to(self._path).as_posix()
            if (mark := _described(folder)) is not None:
                yield f"{name}/{mark}"
                continue
            below = sorted(one for one in folder.iterdir() if _is_chunk(one.name))
            deeper = [one for one in below if one.is_dir()]
            if depth and below and not deeper:
                yield f"{name}/"
            if depth < _DEEPEST:
                folders += [(one, depth + 1) for one in reversed(deeper)]

    def has(self, key: str) -> bool:
        return (self._path / key).is_file()

    def chunks(self, name: str) -> int:
        return sum(_is_chunk(one) for _, _, files in os.walk(self._path / name) for one in files)

    def read(self, key: str) -> bytes:
        return check_file(self._path / key).read_bytes()


def _described(folder: Path) -> str | None:
    if (folder / ZARRAY).is_file():
        return ZARRAY
    path = folder / ZARR_JSON
    return ZARR_JSON if path.is_file() and read_mapping(path).get("node_type") == "array" else None


def _is_chunk(name: str) -> bool:
    return bool(name) and not name.startswith(".") and name != ZARR_JSON


class _Zip:
    """A group in a zip file, which has a checksum of each of its files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: tuple[int, zipfile.ZipFile] | None = None
        self._lock = threading.Lock()

    @property
    def _file(self) -> zipfile.ZipFile:
        """The file, which each process opens for itself, since they would share its position."""
        with self._lock:
            if self._opened is None or self._opened[0] != os.getpid():
                source: Any = opened(self._path)
                self._opened = os.getpid(), zipfile.ZipFile(check_file(source) if isinstance(source, Path) else source)
            return self._opened[1]

    def descriptions(self) -> Iterator[str]:
        names = sorted(self._file.NameToInfo)
        marks = [
            name for name in names
            if name.endswith(f"/{ZARRAY}") or (name.endswith(f"/{ZARR_JSON}") and self._is_array(name))
        ]  # fmt: skip
        yield from marks
        arrays = {name.rpartition("/")[0] for name in marks}
        folders = {
            folder for name in names for folder, _, last in (name.rpartition("/"),) if folder and _is_chunk(last)
        }
        for folder in sorted(folders - arrays):
            parts = folder.split("/")
            if not any("/".join(parts[:end]) in arrays for end in range(1, len(parts))):
                yield f"{folder}/"

    def _is_array(self, name: str) -> bool:
        return read_mapping(self._path / name, self.read(name).decode()).get("node_type") == "array"

    def has(self, key: str) -> bool:
        return key in self._file.NameToInfo

    def chunks(self, name: str) -> int:
        names = (one for one in self._file.NameToInfo if one.startswith(f"{name}/"))
        return sum(_is_chunk(one.rpartition("/")[2]) for one in names)

    def read(self, key: str) -> bytes:
        info = self._file.getinfo(key)
        check_memory(f"{self._path}: {key}", info.file_size, info.compress_size)
        return self._file.read(info)


def zip_names(path: Path) -> frozenset[str]:
    """Return the names in a zip file; none if it is no zip file."""
    try:
        source: Any = opened(path)
        with zipfile.ZipFile(source) as file:
            return frozenset(file.namelist())
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return frozenset()


# -- Arrays --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """How an array is stored.

    Attributes:
        shape: its shape.
        chunks: shape of each chunk.
        dtype: type of its elements.
        fill: value of the elements of a chunk that is missing.
        order: order of the elements in a chunk, C or F.
        codecs: configurations of the codecs, in the order of encoding.
        key: returns the name of a chunk by its place in the grid.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: np.dtype
    fill: Any
    order: Literal["C", "F"]
    codecs: tuple[JsonObject, ...]
    key: Callable[[Sequence[int]], str]


class ZarrArray:
    """An array with time as its first axis.

    Args:
        where: the array, for messages.
        name: its path in the group.
        store: the files.
        layout: how it is stored.
    """

    def __init__(self, where: str, name: str, store: _Store, layout: _Layout) -> None:
        self.where, self.name, self.shape, self.dtype = where, name, layout.shape, layout.dtype
        self._store, self._layout = store, layout
        self._size = math.prod(layout.chunks) * layout.dtype.itemsize
        self._held: tuple[int, np.ndarray] = (-1, np.empty(0))
        self._absent: set[tuple[int, ...]] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def absent(self) -> int:
        """Number of the chunks that are missing."""
        counts = (-(-size // chunk) for size, chunk in zip(self.shape, self._layout.chunks, strict=True))
        return max(len(self._absent), math.prod(counts) - self._store.chunks(self.name))

    @property
    def fill(self) -> object:
        """The value that stands for the elements of missing chunks."""
        return self._layout.fill

    def read(self, begin: int, stop: int) -> np.ndarray:
        """Return the values from one time to another, (stop - begin, ...).

        Raises:
            SourceError: a chunk is damaged, or numcodecs or imagecodecs is not installed.
        """
        length = self._layout.chunks[0]
        values = np.empty((stop - begin, *self.shape[1:]), self.dtype)
        for number in range(begin // length, -(-stop // length)):
            first, last = max(begin, number * length), min(stop, (number + 1) * length)
            values[first - begin : last - begin] = self._slab(number)[first - number * length : last - number * length]
        return values

    def check_size(self) -> None:
        """Check that the chunks that exist can fill the array.

        Raises:
            SourceError: there are far fewer.
        """
        there = self._store.chunks(self.name) * self._size
        check_memory(self.where, math.prod(self.shape) * self.dtype.itemsize, there)

    def _slab(self, number: int) -> np.ndarray:
        """Return all values of one chunk's length in time; the last ones stay in memory."""
        with self._lock:
            if self._held[0] == number:
                return self._held[1]
        sizes, lengths = self.shape[1:], self._layout.chunks[1:]
        grid = [range(-(-size // length)) for size, length in zip(sizes, lengths, strict=True)]
        slab = None
        for place in itertools.product(*grid):
            begins = [at * length for at, length in zip(place, lengths, strict=True)]
            chunk = self._chunk((number, *place))
            if slab is None:
                slab = self._empty(min(self._layout.chunks[0], len(self) - number * self._layout.chunks[0]))
            spans = tuple(slice(begin, begin + length) for begin, length in zip(begins, lengths, strict=True))
            part = slab[(slice(None), *spans)]
            part[...] = chunk[tuple(slice(0, size) for size in part.shape)] if chunk.ndim else chunk
        assert slab is not None  # a shape has no size 0
        with self._lock:
            self._held = (number, slab)
        return slab

    def _empty(self, count: int) -> np.ndarray:
        size = count * math.prod(self.shape[1:]) * self.dtype.itemsize
        if size > _LARGEST_SLAB:
            raise SourceError(f"{self.where} has chunks for {size} bytes at once, at most {_LARGEST_SLAB}; {_ADVICE}")
        return np.empty((count, *self.shape[1:]), self.dtype)

    def _chunk(self, place: tuple[int, ...]) -> np.ndarray:
        """Return the values of a chunk, or the single value that stands for all of a missing one."""
        layout, key = self._layout, f"{self.name}/{self._layout.key(place)}"
        where = f"{self.where}, chunk {'.'.join(map(str, place))}"
        if not self._store.has(key):
            self._absent.add(place)
            return np.asarray(layout.fill)
        try:
            data = self._store.read(key)
            check_memory(where, self._size, len(data))
            decoded = _decoded(layout, data, self._size, where)
            return np.frombuffer(decoded, layout.dtype).reshape(layout.chunks, order=layout.order)
        except SourceError:
            raise
        except Exception as error:  # zipfile and the codecs raise errors of many kinds
            raise SourceError(f"{where} can't be read ({error!r:.200}); fetch the data set again") from error


def open_arrays(path: Path) -> dict[str, ZarrArray | SourceError]:
    """Return the arrays of numbers in a folder or zip file by their paths, each as an array or as an error.

    Raises:
        SourceError: the folder or file can't be read.
    """
    store: _Store = _Zip(path) if path.suffix == ZIP else _Folder(path)
    arrays: dict[str, ZarrArray | SourceError] = {}
    try:
        for key in store.descriptions():
            name, _, mark = key.rpartition("/")
            if not mark:
                arrays[name] = SourceError(f"{path}: the description of {name} is missing; fetch the data set again")
                continue
            try:
                about = read_mapping(path / key, store.read(key).decode())
                layout = (_version2 if mark == ZARRAY else _version3)(about, f"{path}: {name}")
            except SourceError as error:
                arrays[name] = error
                continue
            if layout is not None:
                arrays[name] = ZarrArray(f"{path}: {name}", name, store, layout)
            elif mark == ZARRAY or about.get("node_type") == "array":
                kind = about.get("dtype", about.get("data_type"))
                arrays[name] = SourceError(f"{path}: {name} holds {kind!r:.60}, expected numbers")
    except SourceError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError, zlib.error, zipfile.BadZipFile) as error:
        raise SourceError(f"{path} can't be read ({error!r:.200}); fetch the data set again") from error
    return arrays


# -- Descriptions --------------------------------------------------------------------------------------------


def _version2(about: JsonObject, where: str) -> _Layout | None:
    """Return the layout in a description of version 2; None if the array holds no numbers."""
    dtype = _dtype(about.get("dtype"), where)
    if dtype is None:
        return None
    if about.get("filters"):
        raise SourceError(f"{where} is stored with filters, which are not read; {_ADVICE}")
    shape, chunks = _shapes(about.get("shape"), about.get("chunks"), where)
    separator = about.get("dimension_separator", ".")
    compressor = about.get("compressor")
    codecs = () if compressor is None else (_mapping(compressor, f"{where}: compressor"),)
    return _Layout(
        shape, chunks, dtype, _fill(about.get("fill_value"), dtype, where), _order(about.get("order", "C"), where),
        codecs, lambda place: _separated(separator, where).join(map(str, place)),
    )  # fmt: skip


def _version3(about: JsonObject, where: str) -> _Layout | None:
    """Return the layout in a description of version 3; None if the array holds no numbers."""
    dtype = _dtype(about.get("data_type"), where)
    if dtype is None:
        return None
    grid, keys = (_mapping(about.get(name), f"{where}: {name}") for name in ("chunk_grid", "chunk_key_encoding"))
    if grid.get("name") != "regular":
        raise SourceError(f"{where}: chunk_grid is {grid.get('name')!r:.60}, expected regular; {_ADVICE}")
    shape, chunks = _shapes(about.get("shape"), _configuration(grid).get("chunk_shape"), where)
    stated = about.get("codecs")
    configured = [_mapping(one, f"{where}: a codec") for one in stated] if isinstance(stated, list) else []
    names = [str(one.get("name")) for one in configured]
    if names[:1] != ["bytes"]:
        raise SourceError(f"{where} is stored with {listed(names)}, expected first bytes (no shards); {_ADVICE}")
    if _configuration(configured[0]).get("endian") == "big":
        dtype = dtype.newbyteorder(">")
    prefix = "c/" if keys.get("name") == "default" else ""
    separator = _configuration(keys).get("separator", "/" if prefix else ".")
    return _Layout(
        shape, chunks, dtype, _fill(about.get("fill_value"), dtype, where), "C",
        tuple({"id": name, **_configuration(one)} for name, one in zip(names[1:], configured[1:], strict=True)),
        lambda place: prefix + _separated(separator, where).join(map(str, place)),
    )  # fmt: skip


def _mapping(value: object, where: str) -> JsonDict:
    if not isinstance(value, dict):
        raise SourceError(f"{where} is {value!r:.60}, expected a mapping; the description is damaged")
    return value


def _configuration(about: JsonObject) -> JsonObject:
    configuration = about.get("configuration")
    return configuration if isinstance(configuration, dict) else {}


def _separated(separator: object, where: str) -> str:
    if separator not in (".", "/"):
        raise SourceError(f"{where}: the separator of its chunks' names is {separator!r:.60}, expected . or /")
    return str(separator)


def _dtype(text: object, where: str) -> np.dtype | None:
    """Return the type of an array's numbers; None for texts, objects and structures."""
    if not isinstance(text, str):
        if isinstance(text, list | dict):
            return None
        raise SourceError(f"{where} has elements of type {text!r:.60}, which is damaged")
    try:
        dtype = np.dtype(text)
    except TypeError:
        return None
    return dtype if dtype.name in (*DTYPES, "float16", "bool") else None


def _shapes(shape: object, chunks: object, where: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of an array and of its chunks."""
    if not isinstance(shape, list) or not shape or not isinstance(chunks, list) or len(chunks) != len(shape):
        raise SourceError(f"{where} has the shape {shape!r:.60} and chunks {chunks!r:.60}; its description is damaged")
    whole = (whole_number(shape[0], f"{where}: its length"), *shape_of(shape[1:], where))
    lengths = tuple(whole_number(one, f"{where}: a size of its chunks", 1) for one in chunks)
    if any(one > 2 * size for one, size in zip(lengths[1:], whole[1:], strict=True)):
        raise SourceError(f"{where} has chunks of {lengths}, its shape is {whole}; its description is damaged")
    return whole, lengths


def _order(order: object, where: str) -> Literal["C", "F"]:
    if order not in ("C", "F"):
        raise SourceError(f"{where} has the order {order!r:.60}, expected C or F")
    return "C" if order == "C" else "F"


def _fill(value: object, dtype: np.dtype, where: str) -> Any:
    """Return the value of missing elements."""
    try:
        return (
            np.zeros((), dtype) if value is None else np.array(float(value) if isinstance(value, str) else value, dtype)
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise SourceError(f"{where}: fill_value is {value!r:.60}, expected a number of {dtype}") from error


# -- Chunks --------------------------------------------------------------------------------------------------


def _decoded(layout: _Layout, data: bytes, size: int, where: str) -> Any:
    """Return the bytes of a chunk: exactly ``size`` of them.

    Raises:
        SourceError: a codec is not known or not installed, or the chunk has another size.
    """
    decoded: Any = data
    for codec in reversed(layout.codecs):
        name = str(codec.get("id")).removeprefix("numcodecs.")
        if name == "crc32c":
            decoded = _checked(decoded, where)
        elif name.removeprefix("imagecodecs_") in _IMAGE_CODECS and name.startswith("imagecodecs_"):
            decoded = _image(name.removeprefix("imagecodecs_"), decoded, layout, where)
        elif name in _STREAMS:
            stream = _STREAMS[name]()
            decoded = stream.decompress(decoded, size + 1)
            if not stream.eof:
                raise SourceError(f"{where} does not end at its {size} bytes; it is damaged")
        elif name in _SIZES:
            if (stated := _SIZES[name](decoded)) != size:
                raise SourceError(f"{where} states {stated} bytes, expected {size}; it is damaged")
            decoded = _numcodecs(where).get_codec({**codec, "id": name}).decode(decoded)
        else:
            known = (*_SIZES, *_STREAMS, *(f"imagecodecs_{one}" for one in _IMAGE_CODECS))
            raise SourceError(f"{where} is stored by {name!r:.60}, known are {', '.join(known)}; {_ADVICE}")
    if len(memoryview(decoded).cast("B")) != size:
        raise SourceError(f"{where} has {len(memoryview(decoded).cast('B'))} bytes, expected {size}; it is damaged")
    return decoded


def _image(kind: str, data: bytes, layout: _Layout, where: str) -> np.ndarray:
    """Decode a chunk that is one image. The decoder compares the image's size with the array that it fills."""
    shape = layout.chunks
    while len(shape) > 3 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) not in (2, 3):
        raise SourceError(f"{where} is {kind} of shape {layout.chunks}, chunks of one image are read; {_ADVICE}")
    try:
        import imagecodecs
    except ImportError:
        raise SourceError(f"{where} needs imagecodecs: pip install 'rlenv-robot[zarr]'") from None
    out = np.empty(shape, layout.dtype)
    getattr(imagecodecs, f"{kind}_decode")(data, out=out)
    return out


def _numcodecs(where: str) -> Any:
    try:
        import numcodecs
    except ImportError:
        raise SourceError(f"{where} needs numcodecs: pip install 'rlenv-robot[zarr]'") from None
    return numcodecs


def _checked(data: bytes, where: str) -> bytes:
    """Return data without the CRC-32C behind them, which must be theirs."""
    try:
        import google_crc32c
    except ImportError:
        raise SourceError(f"{where} needs google-crc32c: pip install 'rlenv-robot[zarr]'") from None
    body = bytes(data[:-4])
    if google_crc32c.value(body) != int.from_bytes(data[-4:], "little"):
        raise SourceError(f"{where} does not match its checksum; fetch the data set again")
    return body


def _zstd_size(data: bytes) -> int:
    """Return the size that a Zstandard frame states (RFC 8878, 3.1.1.1); -1 if it states none."""
    flags = data[4]
    single, kind = flags >> 5 & 1, flags >> 6
    begin = 5 + (not single) + (0, 1, 2, 4)[flags & 3]
    width = (single, 2, 4, 8)[kind]
    return int.from_bytes(data[begin : begin + width], "little") + (256 if kind == 1 else 0) if width else -1


_SIZES: Mapping[str, Callable[[bytes], int]] = {
    "blosc": lambda data: int.from_bytes(data[4:8], "little"),
    "lz4": lambda data: int.from_bytes(data[:4], "little"),
    "zstd": _zstd_size,
}
"""Codec of numcodecs -> the decoded size that its data state, for which the decoder takes memory."""

_STREAMS: Mapping[str, Callable[[], Any]] = {
    "zlib": zlib.decompressobj,
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "bz2": bz2.BZ2Decompressor,
}
"""Codec -> a decoder that stops at a given size, as those of numcodecs do not."""
