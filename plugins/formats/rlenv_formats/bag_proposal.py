"""Propose the mapping of a bag's topics, as a text for the user to edit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.formats.runs import field_names
from rlenv_formats.bag_files import Bag, bags_at, opened_bag
from rlenv_formats.bag_images import TYPES

__all__ = ["proposed_mapping"]

_ACTION = re.compile(r"cmd|command|goal|target|setpoint|action|desired|reference|control", re.IGNORECASE)
_ASIDE = ("/rosout", "/rosout_agg", "/parameter_events", "/diagnostics", "/tf", "/tf_static", "/clock")
_MOST = 64
"""Most numbers in a proposed field."""
_RATES = (1.0, 100.0)


@dataclass(frozen=True)
class _Topic:
    """A topic, its first message and the number of its messages a second."""

    name: str
    kind: str
    message: Any
    count: int
    rate_hz: float


def proposed_mapping(path: Path, typestore: str = "ros2_humble") -> str:
    """Return a mapping of all topics of a bag that hold numbers or images; the others are comments.

    Args:
        path: a bag, or a folder of bags, of which the first is read.
        typestore: the message definitions for bags that contain none.

    Raises:
        SourceError: there is no bag, it can't be read, or no topic holds numbers.
    """
    bags = bags_at(path, typestore)
    if not bags:
        raise SourceError(f"{path} holds no ROS bag")
    topics = _topics(bags[0], typestore)
    chosen = [topic for topic in topics if topic.count > 1 and topic.name not in _ASIDE]
    cameras = [topic for topic in chosen if topic.kind in TYPES]
    fields = [(topic, found) for topic in chosen if topic not in cameras and (found := list(_fields(topic)))]
    if not fields:
        raise SourceError(f"{path} has no topic of numbers, it has {', '.join(topic.name for topic in topics)}")
    used = {topic.name for topic in cameras} | {topic.name for topic, _ in fields}
    actions = [(t, f) for t, f in fields if _ACTION.search(t.name)]
    observations = [(t, f) for t, f in fields if not _ACTION.search(t.name)] or actions
    actions = [] if observations is actions else actions
    rate = min(max(min(topic.rate_hz for topic, _ in observations), _RATES[0]), _RATES[1])
    lines = [
        f"rate_hz = {rate:.3g}   # rows a second; the slowest observation sets it, change it as you like",
        'clock = "log"       # the time of recording; "header": the stamp in the message',
        *([f'typestore = "{typestore}"'] if typestore != "ros2_humble" else []),
        *_sections("observation", observations, rate),
        *_sections("action", actions, rate),
    ]
    names = field_names(topic.name.removesuffix("/compressed") for topic in cameras)
    for topic, name in zip(cameras, names.values(), strict=True):
        lines += ["", f"[images.{name}]", f"topic = {json.dumps(topic.name)}"]
    lines += ["", *(f"# {t.name} ({t.kind}): {t.count} messages, not mapped" for t in topics if t.name not in used)]
    return "\n".join(lines).rstrip() + "\n"


def _topics(bag: Bag, typestore: str) -> list[_Topic]:
    firsts: dict[str, tuple[str, Any]] = {}
    times: dict[str, list[int]] = {}
    with opened_bag(bag, typestore) as reader:
        for connection, stamp, data in reader.messages(reader.connections) if reader.connections else ():
            if connection.topic not in firsts:
                firsts[connection.topic] = connection.msgtype, reader.deserialize(data, connection.msgtype)
            first, _, count = times.get(connection.topic, (stamp, stamp, 0))
            times[connection.topic] = [first, stamp, count + 1]
    return [
        _Topic(name, kind, message, count, (count - 1) / max((last - first) / 1e9, 1e-9) if count > 1 else 0.0)
        for name, (kind, message) in sorted(firsts.items())
        for first, last, count in [times[name]]
    ]


def _fields(topic: _Topic) -> Iterator[tuple[str, list[str]]]:
    """Yield the suffix of a field's name, and the lines that say where its numbers are."""
    scalars: list[tuple[str, np.ndarray]] = []
    arrays: list[tuple[str, np.ndarray]] = []
    for path, value in _leaves(topic.message, ""):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or array.size > _MOST:
            continue
        (arrays if array.ndim else scalars).append((path, array))
    names = getattr(topic.message, "name", None)
    labelled = isinstance(names, list) and all(isinstance(one, str) for one in names) and len(set(names)) == len(names)
    if scalars:
        paths = [path for path, _ in scalars]
        kind = np.result_type(*(value.dtype for _, value in scalars))
        yield "", [f"path = {json.dumps(paths if len(paths) > 1 else paths[0])}", *_dtype(kind)]
    for path, array in arrays:
        if not array.size:
            continue
        about = [f"path = {json.dumps(path)}"]
        if labelled and len(names or ()) == array.size:
            about += ['names = "name"', f"select = {json.dumps(names)}"]
        else:
            about.append(f"shape = [{array.size}]")
        yield path, [*about, *_dtype(array.dtype)]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the path and value of each number and each array in a message; stamps and covariances are left out."""
    for name in getattr(value, "__dataclass_fields__", {}):
        if name in ("header", "__msgtype__", "stamp") or "covariance" in name or name.isupper():
            continue
        inner, below = getattr(value, name), f"{path}.{name}".lstrip(".")
        if hasattr(inner, "__dataclass_fields__"):
            yield from _leaves(inner, below)
        elif isinstance(inner, int | float | np.ndarray):
            yield below, inner


def _dtype(kind: np.dtype) -> list[str]:
    """Return the line that keeps numbers exact which do not fit into float32."""
    return ['dtype = "float64"'] if kind.itemsize > 4 or (kind.kind in "iu" and kind.itemsize > 2) else []


def _sections(part: str, fields: list[tuple[_Topic, list[tuple[str, list[str]]]]], rate: float) -> Iterator[str]:
    texts = {(topic.name, suffix): f"{topic.name}_{suffix}" for topic, found in fields for suffix, _ in found}
    names = field_names(texts.values())
    for topic, found in fields:
        age = max(2 / rate, 3 / topic.rate_hz)
        for suffix, lines in found:
            yield ""
            yield f"[{part}.{names[texts[topic.name, suffix]]}]   # {topic.kind}, {topic.rate_hz:.3g} Hz"
            yield f"topic = {json.dumps(topic.name)}"
            yield from lines
            yield f"max_age_s = {age:.3g}"
