"""Convert between specs and Minari's spaces in JSON (minari/serialization.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from hal.field import DTYPES
from recorder.formats.runs import field_name, field_names
from recorder.json_data import JsonDict, JsonObject
from rlenv_formats.foreign import shape_of
from rlenv_formats.stored_images import is_image_shape

__all__ = ["IMAGES", "Leaf", "leaves_of", "space_of"]

IMAGES = "images"
"""Name of the ``Dict`` of camera images among the observations that this project writes."""
_WIDER = {"bool": "uint8", "float16": "float32"}
_SMALLEST = 32
"""Smallest height and width at which Minari takes an array of bytes for an image."""


@dataclass(frozen=True)
class Leaf:
    """One array of a space, and the field that it becomes.

    Attributes:
        path: the array's path below ``observations`` or ``actions``; empty if the array is the whole space.
        field: the field; None if a frame row can't hold it.
        image: the image's shape if the array is an image, otherwise empty.
    """

    path: tuple[str, ...]
    field: Field | None
    image: tuple[int, ...] = ()

    @property
    def camera(self) -> str:
        """The name of the camera that took the images."""
        return field_name("_".join(self.path[1:] if self.path[:1] == (IMAGES,) else self.path) or "image")


def space_of(spec: Spec, images: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType({})) -> str:
    """Convert a spec to a space in JSON: the space of a single field, or a ``Dict`` of several.

    Args:
        spec: the fields.
        images: name of a further ``Dict`` -> name of an image -> its shape.
    """
    parts = {field.name: _space(field) for field in spec}
    for group, shapes in images.items():
        parts[group] = {"type": "Dict", "subspaces": {name: _bytes(shape) for name, shape in shapes.items()}}
    return json.dumps(parts[spec.names[0]] if len(parts) == 1 else {"type": "Dict", "subspaces": parts})


def _bytes(shape: tuple[int, ...]) -> JsonDict:
    low, high = np.zeros(shape, int), np.full(shape, 255)  # Gymnasium needs a bound for each pixel
    return {"type": "Box", "dtype": "uint8", "shape": list(shape), "low": low.tolist(), "high": high.tolist()}


def _space(field: Field) -> JsonDict:
    low, high = (bound.astype(object) for bound in field.bounds)
    whole = field.numpy_dtype.kind != "f"
    if whole and field.shape == () and -(2**62) < int(low) <= int(high) < 2**62 and int(high) - int(low) < 2**31:
        return {"type": "Discrete", "dtype": "int64", "start": int(low), "n": int(high) - int(low) + 1}
    if not whole:  # a field's bounds are finite; an open side is infinite in a space
        low = np.where(np.isneginf(_spread(field, field.low)), -np.inf, field.bounds[0])
        high = np.where(np.isposinf(_spread(field, field.high)), np.inf, field.bounds[1])
    return {
        "type": "Box",
        "dtype": field.dtype,
        "shape": list(field.shape),
        "low": np.asarray(low).tolist(),
        "high": np.asarray(high).tolist(),
    }


def _spread(field: Field, bound: Any) -> np.ndarray:
    return np.broadcast_to(np.reshape(bound, field.shape if np.ndim(bound) else ()), field.shape)


def leaves_of(text: str, name: str, where: str) -> list[Leaf]:
    """List the arrays of a space.

    Args:
        text: the space in JSON.
        name: the field's name, if the space is one array.
        where: the file and key of the space, for messages.

    Raises:
        SourceError: the text is not a space.
    """
    try:
        arrays = list(_walk(json.loads(text), ()))
        names = field_names(".".join(path) or name for path, _ in arrays)
        return [
            Leaf(path, _field(names[".".join(path) or name], space) if _fits(space) else None, _image_shape(space))
            for path, space in arrays
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise SourceError(f"{where}: not a space: {error!r:.200}") from error


def _walk(space: JsonObject, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], JsonObject]]:
    if space["type"] == "Dict":
        for key, part in space["subspaces"].items():
            yield from _walk(part, (*path, key))
    elif space["type"] == "Tuple":
        for number, part in enumerate(space["subspaces"]):
            yield from _walk(part, (*path, f"_index_{number}"))
    else:
        yield path, space


def _fits(space: JsonObject) -> bool:
    """Return whether a space is an array of numbers, and no image."""
    if space["type"] != "Box":
        return space["type"] in ("Discrete", "MultiDiscrete", "MultiBinary")
    bytes_of_image = (
        space["dtype"] == "uint8" and len(space["shape"]) in (2, 3) and min(space["shape"][:2]) >= _SMALLEST
    )
    return not bytes_of_image and not _image_shape(space) and _WIDER.get(space["dtype"], space["dtype"]) in DTYPES


def _image_shape(space: JsonObject) -> tuple[int, ...]:
    """Return the shape of the image that an array of a space is; empty if it is none."""
    if space["type"] != "Box" or space["dtype"] != "uint8":
        return ()
    shape = shape_of(space["shape"], "an array of bytes")
    return shape if is_image_shape(shape, _SMALLEST) else ()


def _field(name: str, space: JsonObject) -> Field:
    kind, meaning = space["type"], "as in the Minari data set"
    shape_of(np.atleast_1d(space["n"]).tolist() if kind == "MultiBinary" else space.get("shape", []), name)
    if kind == "Discrete":
        start = int(space["start"])
        return Field(name, (), "int64", start, start + int(space["n"]) - 1, meaning=meaning)
    if kind == "MultiBinary":
        shape = np.atleast_1d(space["n"]).tolist()
        return Field(name, tuple(shape), "int8", 0, 1, meaning=meaning)
    if kind == "MultiDiscrete":
        count = np.asarray(space["nvec"])
        first = np.asarray(space.get("start", np.zeros_like(count)))
        last = first + count - 1
        return Field(name, count.shape, "int64", tuple(first.ravel()), tuple(last.ravel()), meaning=meaning)
    low, high = (tuple(np.ravel(space[side]).tolist()) for side in ("low", "high"))
    dtype = str(_WIDER.get(space["dtype"], space["dtype"]))
    return Field(name, tuple(space["shape"]), dtype, low, high, meaning=meaning)
