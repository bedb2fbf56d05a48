"""Read ``features.json`` of TensorFlow Datasets, which describes the steps of an RLDS data set.

The description is the JSON form of ``tensorflow_datasets/core/proto/feature.proto``. In an example, a feature of the
steps is one list with the values of all steps, named by its path, such as ``steps/observation/state``.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from hal.field import DTYPES
from recorder.json_data import JsonDict
from rlenv_formats.foreign import read_mapping, shape_of
from rlenv_formats.tfrecord import Example

__all__ = ["FEATURES", "STEPS", "Leaf", "leaves_in", "read_leaf"]

FEATURES, STEPS = "features.json", "steps"
_DEEPEST = 8
_READ = (*DTYPES, "float16", "bfloat16", "bool")


@dataclass(frozen=True)
class Leaf:
    """A value of each step, or of each episode.

    Attributes:
        path: its name in an example, such as ``steps/observation/state``.
        kind: ``numbers``, ``image``, ``text``, or ``other`` for what is not read.
        dtype: the type of numbers.
        shape: the shape of one value.
        encoding: ``none``; or ``bytes`` or ``zlib``, for numbers that are stored as such.
    """

    path: str
    kind: str
    dtype: np.dtype = np.dtype(np.float32)
    shape: tuple[int, ...] = ()
    encoding: str = "none"


def leaves_in(folder: Path) -> list[Leaf]:
    """Return the values that a data set's description names, in its order.

    Raises:
        SourceError: there is no description, or it describes no steps.
    """
    path = folder / FEATURES
    leaves = list(_leaves(read_mapping(path), "", f"{path}: ", 0))
    if not any(leaf.path.startswith(f"{STEPS}/") for leaf in leaves):
        raise SourceError(f"{path} describes no {STEPS}, so this is no RLDS data set; it has {leaves[:1]}")
    return leaves


def _leaves(about: object, path: str, where: str, depth: int) -> Iterator[Leaf]:
    if not isinstance(about, dict) or depth > _DEEPEST:
        raise SourceError(f"{where}{path or 'its features'} is {about!r:.60}, expected a mapping; it is damaged")
    if "featuresDict" in about:
        members = _mapping(_mapping(about["featuresDict"], path, where).get("features"), path, where)
        for name, member in members.items():
            yield from _leaves(member, f"{path}/{name}" if path else name, where, depth + 1)
    elif "sequence" in about and path == STEPS:
        yield from _leaves(_mapping(about["sequence"], path, where).get("feature"), path, where, depth + 1)
    elif "tensor" in about:
        yield _tensor(_mapping(about["tensor"], path, where), path, where)
    elif "image" in about:
        dtype = _mapping(about["image"], path, where).get("dtype", "uint8")
        yield Leaf(path, "image" if dtype == "uint8" else "other")
    elif "classLabel" in about:
        yield Leaf(path, "numbers", np.dtype(np.int64))
    else:
        yield Leaf(path, "text" if "text" in about else "other")


def _mapping(value: object, path: str, where: str) -> JsonDict:
    if not isinstance(value, dict):
        raise SourceError(f"{where}{path} is {value!r:.60}, expected a mapping; it is damaged")
    return value


def _tensor(about: JsonDict, path: str, where: str) -> Leaf:
    stated, dtype = about.get("shape") or {}, about.get("dtype")
    sizes = stated.get("dimensions", []) if isinstance(stated, dict) else None
    if not isinstance(sizes, list) or not all(isinstance(one, str | int) for one in sizes):
        raise SourceError(f"{where}{path} has shape {stated!r:.60}, expected dimensions; it is damaged")
    if dtype in ("string", "object") and not sizes:
        return Leaf(path, "text")
    if dtype not in _READ or any(str(one) == "-1" for one in sizes):
        return Leaf(path, "other")
    try:
        shape = shape_of([int(one) for one in sizes], f"{where}{path}")
    except ValueError as error:
        raise SourceError(f"{where}{path} has shape {sizes!r:.60}; it is damaged") from error
    encoding = str(about.get("encoding", "none")).lower()
    if encoding not in ("none", "bytes", "zlib") or (dtype == "bfloat16" and encoding != "none"):
        return Leaf(path, "other")
    return Leaf(path, "numbers", np.dtype("float32" if dtype == "bfloat16" else dtype), shape, encoding)


def read_leaf(example: Example, leaf: Leaf) -> np.ndarray:
    """Return the values of numbers, (T, ...).

    Raises:
        SourceError: they are missing, or do not fit the description.
    """
    where, each = f"{example.where}: {leaf.path}", prod(leaf.shape)
    if leaf.encoding != "none":
        size = each * leaf.dtype.itemsize
        texts = [_plain(one, leaf.encoding, size) for one in example.strings(leaf.path)]
        if any(len(one) != size for one in texts):
            raise SourceError(f"{where} does not have {size} bytes a step; it is damaged")
        flat = np.frombuffer(b"".join(texts), leaf.dtype)
    else:
        flat = _cast(example.numbers(leaf.path), leaf.dtype, where)
    if len(flat) % each:
        raise SourceError(f"{where} has {len(flat)} numbers, expected {each} a step; it is damaged")
    return flat.reshape(-1, *leaf.shape)


def _plain(data: bytes, encoding: str, size: int) -> bytes:
    if encoding == "bytes":
        return data
    try:
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error:
        return b""


def _cast(values: np.ndarray, dtype: np.dtype, where: str) -> np.ndarray:
    """Return an example's numbers in the described type; uint64 is stored as the int64 of the same bits."""
    if (values.dtype.kind == "f") != (dtype.kind == "f"):
        raise SourceError(f"{where} holds {values.dtype}, the description says {dtype}; it is damaged")
    cast: Any = values.view(np.uint64) if dtype == np.uint64 else values.astype(dtype)
    if dtype.kind in "iub" and dtype != np.uint64 and (cast != values).any():
        raise SourceError(f"{where} has numbers beyond {dtype}; it is damaged")
    return np.asarray(cast)
