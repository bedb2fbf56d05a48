"""Read the messages of ROS bags as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hal import Field, SourceError
from rlenv_formats.bag_files import Bag, opened_bag
from rlenv_formats.bag_mapping import BagMapping, Source

__all__ = ["Stream", "read_streams", "with_shapes"]


@dataclass(frozen=True)
class Stream:
    """All values of one field.

    Attributes:
        stamps: times in increasing order, int64 nanoseconds (N,).
        values: (N, ...).
        missing: number of messages that the bag's description has, and its files have not.
    """

    stamps: np.ndarray
    values: np.ndarray
    missing: int = 0


def with_shapes(bags: Sequence[Bag], mapping: BagMapping) -> BagMapping:
    """Return a mapping whose fields without a declared shape have that of their first message.

    Raises:
        SourceError: a message lacks what the mapping names, or a bag can't be read.
    """
    shapes: dict[str, Source] = {source.field.name: source for source in mapping.sources if source.inferred}
    for bag in bags:
        open_ones = [source for source in shapes.values() if source.inferred]
        if open_ones:
            for source, message in _first_messages(bag, open_ones, mapping.typestore):
                shapes[source.field.name] = _with_shape(source, message)
    return mapping.with_sources(shapes)


def _first_messages(bag: Bag, sources: Sequence[Source], typestore: str) -> list[tuple[Source, Any]]:
    """Return each source's first message; those without one are left out."""
    found: dict[str, Any] = {}
    topics = {source.topic for source in sources}
    with opened_bag(bag, typestore) as reader:
        chosen = [one for one in reader.connections if one.topic in topics]
        for connection, _, data in reader.messages(chosen) if chosen else ():
            if connection.topic not in found:
                found[connection.topic] = reader.deserialize(data, connection.msgtype)
                if len(found) == len(topics):
                    break
    return [(source, found[source.topic]) for source in sources if source.topic in found]


def _with_shape(source: Source, message: Any) -> Source:
    """Return a source whose field has the shape of what a message holds; its elements are named after several paths."""
    values = [np.asarray(_at(message, path, source.topic)) for path in source.paths]
    size = sum(value.size for value in values)
    if len(values) == 1 and not values[0].ndim:
        return replace(source, inferred=False)
    if not size:
        raise SourceError(
            f"{source.field.name}: the first message of {source.topic} has no number at {', '.join(source.paths)}; "
            "give shape = [n]"
        )
    plain = source.field.to_dict() | {"shape": [size]}
    if size == len(values) and len(set(source.paths)) == size and not source.field.elements:
        plain["elements"] = list(source.paths)
    return replace(source, field=Field.from_dict(plain), inferred=False)


def read_streams(bag: Bag, mapping: BagMapping) -> list[Stream]:
    """Read one stream for each of the mapping's sources.

    Raises:
        SourceError: a topic is missing or has no messages, a message lacks what the mapping names, or the bag can't
            be read.
    """
    sources_of: dict[str, list[int]] = {}
    for number, source in enumerate(mapping.sources):
        sources_of.setdefault(source.topic, []).append(number)
    stamps: list[list[int]] = [[] for _ in mapping.sources]
    values: list[list[np.ndarray]] = [[] for _ in mapping.sources]
    try:
        with opened_bag(bag, mapping.typestore) as reader:
            chosen = [one for one in reader.connections if one.topic in sources_of]
            for connection, logged, data in reader.messages(chosen) if chosen else ():
                message = reader.deserialize(data, connection.msgtype)
                stamp = _stamp(message, connection.topic) if mapping.header else logged
                for number in sources_of[connection.topic]:
                    stamps[number].append(stamp)
                    values[number].append(_value(message, mapping.sources[number]))
            topics = sorted({connection.topic for connection in reader.connections})
            counts = Counter[str]()
            for connection in chosen:
                counts[connection.topic] += connection.msgcount
    except SourceError as error:
        raise SourceError(f"{bag.path}: {error}" if str(bag.path) not in str(error) else str(error)) from error
    for source, times in zip(mapping.sources, stamps, strict=True):
        if not times:
            raise SourceError(f"{bag.path} has no message of {source.topic}; it has {', '.join(topics)}")
    return [
        _stream(times, some, max(counts[source.topic] - len(times), 0))
        for source, times, some in zip(mapping.sources, stamps, values, strict=True)
    ]


def _stream(stamps: list[int], values: list[np.ndarray], missing: int) -> Stream:
    order = np.argsort(np.array(stamps, np.int64), kind="stable")
    return Stream(np.array(stamps, np.int64)[order], np.stack(values)[order], missing)


def _stamp(message: Any, topic: str) -> int:
    stamp = _at(message, "header.stamp", topic)
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def _at(message: Any, path: str, topic: str) -> Any:
    """Return the value at a dotted path; a number in the path is an index from 0."""
    value = message
    for part in path.split("."):
        try:
            value = value[int(part)] if part.isdigit() else getattr(value, part)
        except (AttributeError, IndexError, TypeError):
            members = (
                ", ".join(name for name in vars(value) if not name.startswith("_"))
                if hasattr(value, "__dict__")
                else ""
            )
            raise SourceError(
                f"a message of {topic} has no {path!r}: no {part!r} in {type(value).__name__}"
                + (f", which has {members}" if members else "")
            ) from None
    return value


def _value(message: Any, source: Source) -> np.ndarray:
    parts: Iterable[Any] = (_at(message, path, source.topic) for path in source.paths)
    try:
        flat = np.concatenate([np.atleast_1d(np.asarray(part)).ravel() for part in parts])
        if flat.dtype.kind not in "fiub":
            raise ValueError(f"{flat.dtype}, no numbers")
        if source.select:
            flat = flat[_places(message, source)]
        return flat.astype(source.field.numpy_dtype).reshape(source.field.shape)
    except (ValueError, TypeError, IndexError) as error:
        raise SourceError(
            f"{source.field.name} has shape {source.field.shape}, a message of {source.topic} does not fit: {error}; "
            "give its shape, or names and select"
        ) from None


def _places(message: Any, source: Source) -> list[int]:
    names = list(_at(message, source.names, source.topic))
    missing = [name for name in source.select if name not in names]
    if missing:
        raise SourceError(f"a message of {source.topic} has no {', '.join(missing)}, it names {', '.join(names)}")
    return [names.index(name) for name in source.select]
