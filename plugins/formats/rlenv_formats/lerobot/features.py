"""Map LeRobot's features to fields: the columns of observation and action, and the names of their elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec, SpecError
from hal.field import DTYPES
from recorder.formats.runs import field_name
from recorder.json_data import JsonObject
from rlenv_formats.foreign import shape_of

__all__ = [
    "BOOKKEEPING", "INTERVENTION", "LOG_PROBABILITY", "PREFIX", "Feature", "Features", "camera_of", "sort_features",
]  # fmt: skip

PREFIX = "observation.images."
"""Prefix of a camera's name in LeRobot data sets, which our camera names omit."""

BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
NEXT = ("next.reward", "next.done", "next.truncated", "next.success")
INTERVENTION = "complementary_info.is_intervention"
LOG_PROBABILITY = "complementary_info.log_probability"


@dataclass(frozen=True)
class Feature:
    """A column, or a part of one, and the field that it becomes.

    Attributes:
        column: the column's name.
        field: the field.
        width: number of the column's elements; 0 if the whole column is the field.
        start: index of the field's first element in the column.
    """

    column: str
    field: Field
    width: int = 0
    start: int = 0

    @property
    def stored(self) -> tuple[str, tuple[int, ...]]:
        """Type and shape of the column's values."""
        return ("float32", (self.width,)) if self.width else (self.field.dtype, self.field.shape)

    def values(self, stored: np.ndarray) -> np.ndarray:
        """Return the field's values from the column's, with any leading axes."""
        if not self.width:
            return stored
        part = stored[..., self.start : self.start + self.field.size]
        part = part.reshape(*stored.shape[:-1], *self.field.shape)
        return np.asarray(part.astype(self.field.numpy_dtype))


def camera_of(field: Field) -> str:
    """Return the camera of an image field: the field's name without the suffix ``_image``."""
    return field.name.removesuffix("_image") or field.name


@dataclass(frozen=True)
class Features:
    """The columns of a data set, by their use.

    Attributes:
        observation: features of the observation, in the order of the description.
        action: features of the action, in the order of the description.
        pictures: features of images that are observation fields, which follow the other fields; also in ``videos``.
        reserved: the existing columns with a fixed meaning, such as ``next.reward``.
        videos: features that are images.
        ignored: columns that a frame row can't hold.
    """

    observation: tuple[Feature, ...]
    pictures: tuple[Feature, ...]
    action: tuple[Feature, ...]
    reserved: tuple[str, ...]
    videos: tuple[str, ...]
    ignored: tuple[str, ...]

    @property
    def columns(self) -> list[str]:
        """The names of all columns to read."""
        read = dict.fromkeys(feature.column for feature in (*self.observation, *self.action))
        return [*BOOKKEEPING, *self.reserved, *read]

    @property
    def specs(self) -> tuple[Spec, Spec]:
        """The specs of observation and action."""
        parts = (("observation", (*self.observation, *self.pictures)), ("action", self.action))
        first, second = (Spec(name, tuple(feature.field for feature in part)) for name, part in parts)
        return first, second


def sort_features(features: Mapping[str, JsonObject], where: str) -> Features:
    """Sort the ``features`` of an ``info.json``.

    ``observation.state`` becomes the observation ``state``; ``action`` becomes the action ``target``, and ``action.x``
    the action ``x``. Images become camera images, or an observation field if the description names one.

    Raises:
        SourceError: there is no action, or no numeric observation and no observation field.
    """
    observation, pictures, action, videos, ignored = [], [], [], [], []
    reserved = tuple(name for name in (*NEXT, INTERVENTION, LOG_PROBABILITY) if name in features)
    for name, description in features.items():
        if description.get("dtype") in ("video", "image"):
            videos.append(name)
            pictures += [Feature(name, field) for field in _fields(name, description, where)]
        elif name in BOOKKEEPING or name in reserved:
            continue
        elif description.get("dtype") not in (*DTYPES, "bool"):
            ignored.append(name)
        elif name.startswith("observation."):
            observation += _parts(name, name.removeprefix("observation."), description, where)
        elif name == "action" or name.startswith("action."):
            action += _parts(name, name.removeprefix("action").lstrip(".") or "target", description, where)
        else:
            ignored.append(name)
    if not action or not (observation or pictures):
        raise SourceError(
            f"{where}: features must have action and observation.* in numbers, got {', '.join(features)}; "
            "name those that stand for them: columns={'action': 'actions', 'observation.state': 'state'}"
        )
    return Features(tuple(observation), tuple(pictures), tuple(action), reserved, tuple(videos), tuple(ignored))


def _parts(column: str, name: str, description: JsonObject, where: str) -> list[Feature]:
    """Return one feature, or one for each field in a vector that `rlenv_formats.lerobot.write` wrote."""
    whole, fields = _feature(column, name, description, where), _fields(column, description, where)
    if not fields:
        return [whole]
    starts = [0, *accumulate(field.size for field in fields)]
    if starts[-1] != whole.field.size:
        raise SourceError(f"{where}: feature {column!r} has {whole.field.size} elements, its fields {starts[-1]}")
    return [Feature(column, field, starts[-1], start) for field, start in zip(fields, starts, strict=False)]


def _fields(column: str, description: JsonObject, where: str) -> list[Field]:
    """Return the fields that `rlenv_formats.lerobot.write` names in a description; none in another's."""
    try:
        return [Field.from_dict(plain) for plain in description.get("fields") or ()]
    except (SpecError, TypeError) as error:
        raise SourceError(f"{where}: feature {column!r}: its fields can't be read: {error}") from error


def _feature(column: str, name: str, description: JsonObject, where: str) -> Feature:
    shape = shape_of(description.get("shape"), f"{where}: feature {column!r}")
    dtype = "uint8" if description["dtype"] == "bool" else str(description["dtype"])
    names = tuple(_flat(description.get("names")))
    named = shape and len(names) == shape[-1] and prod(shape) == len(names)
    elements = names if named and all(isinstance(one, str) for one in names) else ()
    return Feature(column, Field(field_name(name), shape, dtype, meaning=f"LeRobot's {column}", elements=elements))


def _flat(names: Any) -> Iterable[str]:
    """Yield the names in a list, a list of lists, or a mapping of a group's name to a list."""
    if isinstance(names, str):
        yield names
    elif isinstance(names, Mapping):
        values = list(names.values())
        yield from _flat(values if any(isinstance(value, list) for value in values) else list(names))
    elif isinstance(names, Iterable):
        for name in names:
            yield from _flat(name)
