"""Read the messages of a ROS 2 bag as arrays. `rosbags` is imported only here, on use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.formats.bags.mapping import BagMapping, Source

__all__ = ["Stream", "is_bag", "read_streams", "topics_of"]


@dataclass(frozen=True)
class Stream:
    """All values of one field: ``stamps`` (N,) int64, nanoseconds, rising; ``values`` (N, ...)."""

    stamps: np.ndarray
    values: np.ndarray


def is_bag(path: Path) -> bool:
    """Return whether a folder is a ROS 2 bag."""
    about = path / "metadata.yaml"
    return about.is_file() and "rosbag2_bagfile_information" in about.read_text(errors="replace")


def _opened(path: Path, typestore: str) -> Any:
    try:
        from rosbags.highlevel import AnyReader
        from rosbags.typesys import Stores, get_typestore
    except ImportError:
        raise SourceError(f"{path} needs rosbags: pip install 'rlenv-robot[bags]'") from None
    try:
        store = get_typestore(Stores(typestore))
    except ValueError:
        known = ", ".join(one.value for one in Stores)
        raise SourceError(f"typestore is {typestore!r}, allowed are {known}") from None
    return AnyReader([path], default_typestore=store)


def topics_of(path: Path, typestore: str = "ros2_humble") -> dict[str, str]:
    """Return topic -> type of its messages.

    Raises:
        SourceError: the bag can't be read, or rosbags is missing.
    """
    try:
        with _opened(path, typestore) as reader:
            return {connection.topic: connection.msgtype for connection in reader.connections}
    except SourceError:
        raise
    except Exception as error:  # the library raises many kinds
        raise SourceError(f"{path} can't be read: {error!r}") from error


def read_streams(path: Path, mapping: BagMapping) -> list[Stream]:
    """Read one stream for each of the mapping's sources.

    Raises:
        SourceError: a topic is missing or has no messages, a message lacks what the mapping names, or the bag can't
            be read.
    """
    wanted: dict[str, list[int]] = {}
    for number, source in enumerate(mapping.sources):
        wanted.setdefault(source.topic, []).append(number)
    stamps: list[list[int]] = [[] for _ in mapping.sources]
    values: list[list[np.ndarray]] = [[] for _ in mapping.sources]
    try:
        with _opened(path, mapping.typestore) as reader:
            for connection, logged, data in reader.messages([c for c in reader.connections if c.topic in wanted]):
                message = reader.deserialize(data, connection.msgtype)
                stamp = _stamp(message, connection.topic) if mapping.header else logged
                for number in wanted[connection.topic]:
                    stamps[number].append(stamp)
                    values[number].append(_value(message, mapping.sources[number]))
            known = sorted({connection.topic for connection in reader.connections})
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from error
    except Exception as error:  # the library raises many kinds
        raise SourceError(f"{path} can't be read: {error!r}") from error
    for source, found in zip(mapping.sources, stamps, strict=True):
        if not found:
            raise SourceError(f"{path} has no message of {source.topic}; it has {', '.join(known)}")
    return [_stream(*both) for both in zip(stamps, values, strict=True)]


def _stream(stamps: list[int], values: list[np.ndarray]) -> Stream:
    order = np.argsort(np.array(stamps, np.int64), kind="stable")
    return Stream(np.array(stamps, np.int64)[order], np.stack(values)[order])


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
            there = (
                ", ".join(name for name in vars(value) if not name.startswith("_"))
                if hasattr(value, "__dict__")
                else ""
            )
            raise SourceError(
                f"a message of {topic} has no {path!r}: no {part!r} in {type(value).__name__}"
                + (f", which has {there}" if there else "")
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
            f"{source.field.name} has shape {source.field.shape}, a message of {source.topic} does not fit: {error}"
        ) from None


def _places(message: Any, source: Source) -> list[int]:
    names = list(_at(message, source.names, source.topic))
    missing = [name for name in source.select if name not in names]
    if missing:
        raise SourceError(f"a message of {source.topic} has no {', '.join(missing)}, it names {', '.join(names)}")
    return [names.index(name) for name in source.select]
