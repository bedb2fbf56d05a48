"""Read ROS 2 bags (MCAP or SQLite). A TOML file beside them maps topics to fields and cameras.

There is one row for each period. Row k holds the latest value of each observation at its time, and the latest value of
each action before its time, which was in force until then. A value that is too old splits the episode; no value is
invented. Without actions the rows hold only observations. `rosbags` is imported on use.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec, SpecError
from recorder.formats.registry import Format
from recorder.formats.runs import field_name, rows_of, table_of
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict, JsonObject
from recorder.names import LOG_NAME
from recorder.table.table import Table, no_images
from rlenv_formats.bag_images import BagImages, OpenBag
from rlenv_formats.foreign import check_file
from rlenv_formats.remote.mirror import fetch_below

__all__ = [
    "BAGS", "EXAMPLE", "FIELDS", "BagMapping", "Source", "Stream", "is_bag", "is_bags", "load_bags", "read_mapping",
    "read_streams", "topics_of",
]  # fmt: skip

EXAMPLE = """\
rate_hz = 20            # rows a second
max_age_s = 0.1         # largest age of a value in a row; a field may have its own
clock = "log"           # the time of recording; "header": the stamp in the message

[observation.joint_position]
topic = "/joint_states"
path = "position"       # the place of the numbers in a message; several are concatenated
names = "name"          # the place of their names, for select
select = ["pan", "lift"]
unit = "rad"

[action.joint_target]   # optional
topic = "/command"
path = ["pose.position.x", "pose.position.y"]
shape = [2]

[reward]                # optional
topic = "/score"
path = "data"
"""

_FIELD = ("shape", "dtype", "low", "high", "unit", "meaning", "elements")
_SOURCE = ("topic", "path", "names", "select", "max_age_s")
_TOP = ("rate_hz", "max_age_s", "clock", "typestore", "observation", "action", "reward", "images")
_FILES = (".mcap", ".db3")


@dataclass(frozen=True)
class Source:
    """The source of a field's values.

    Attributes:
        field: the field.
        topic: the topic of the messages.
        paths: dotted paths to the numbers in a message.
        names: path to the names of the numbers; empty if ``select`` is empty.
        select: names of the numbers to take, in this order; empty for all.
        max_age_ns: the largest age of a value when a row is made.
    """

    field: Field
    topic: str
    paths: tuple[str, ...]
    names: str
    select: tuple[str, ...]
    max_age_ns: int


@dataclass(frozen=True)
class BagMapping:
    """The sources of rows.

    Attributes:
        period_ns: time between two rows.
        header: whether to use the stamp in a message's header instead of the time of recording.
        typestore: the message definitions for bags that contain none, such as ``ros2_humble``.
        observation: the sources of the observation's fields, in order.
        action: the sources of the action's fields, in order.
        reward: the reward's source; None if there is none.
        images: camera -> topic of its images.
    """

    period_ns: int
    header: bool
    typestore: str
    observation: tuple[Source, ...]
    action: tuple[Source, ...]
    reward: Source | None
    images: dict[str, str]

    @property
    def sources(self) -> tuple[Source, ...]:
        """All sources: observation, action, reward."""
        return (*self.observation, *self.action, *((self.reward,) if self.reward else ()))

    @property
    def specs(self) -> tuple[Spec, Spec]:
        """The specs of observation and action."""
        observation, action = (tuple(source.field for source in part) for part in (self.observation, self.action))
        return Spec("observation", observation), Spec("action", action)


def read_mapping(path: Path) -> BagMapping:
    """Read the mapping from a file.

    Raises:
        SourceError: the file is missing or not TOML, or a key is missing, unknown or wrong.
    """
    try:
        text = tomllib.loads(path.read_text())
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise SourceError(f"{path} is not TOML: {error}") from error
    _only(text, _TOP, str(path))
    rate = _number(text, "rate_hz", None, str(path))
    age = _number(text, "max_age_s", 2 / rate, str(path))
    clock = text.get("clock", "log")
    if clock not in ("log", "header"):
        raise SourceError(f"{path}: clock is {clock!r}, allowed are 'log' and 'header'")
    parts = {}
    for part in ("observation", "action"):
        value = text.get(part, {} if part == "action" else None)
        if not isinstance(value, dict) or (not value and part == "observation"):
            raise SourceError(f"{path}: there is no [{part}.<field>]; expected, for example:\n{EXAMPLE}")
        parts[part] = tuple(_source(name, about, age, f"{path}: {part}.{name}") for name, about in value.items())
    reward = None
    if "reward" in text:
        reward = _source("reward", {"dtype": "float64", **text["reward"]}, age, f"{path}: reward")
        if reward.field.shape:
            raise SourceError(f"{path}: reward has shape {reward.field.shape}, expected one number")
    store = str(text.get("typestore", "ros2_humble"))
    images = _cameras(text.get("images", {}), str(path))
    return BagMapping(
        round(1e9 / rate), clock == "header", store, parts["observation"], parts["action"], reward, images
    )


def _cameras(section: Any, where: str) -> dict[str, str]:
    """Return camera -> topic."""
    if not isinstance(section, dict):
        raise SourceError(f"{where}: images is {section!r:.60}, expected [images.<camera>] with a topic")
    for camera, about in section.items():
        if not isinstance(about, dict) or list(about) != ["topic"] or not isinstance(about["topic"], str):
            raise SourceError(f"{where}: images.{camera} is {about!r:.60}, expected only a topic")
        if camera != field_name(camera):
            raise SourceError(
                f"{where}: images.{camera}: name the camera in small letters, such as {field_name(camera)}"
            )
    topics = [about["topic"] for about in section.values()]
    if len(set(topics)) < len(topics):
        raise SourceError(f"{where}: two cameras have the same topic")
    return {camera: about["topic"] for camera, about in section.items()}


def _source(name: str, about: Any, age: float, where: str) -> Source:
    if not isinstance(about, dict):
        raise SourceError(f"{where} is {about!r}, expected a table with topic and path")
    _only(about, (*_FIELD, *_SOURCE), where)
    for key in ("topic", "path"):
        if not about.get(key):
            raise SourceError(f"{where}: {key} is missing")
    select = tuple(about.get("select", ()))
    if bool(select) != ("names" in about):
        raise SourceError(f"{where}: select and names go together: which elements, and where their names are")
    paths = (about["path"],) if isinstance(about["path"], str) else tuple(about["path"])
    plain: JsonDict = {key: about[key] for key in _FIELD if key in about}
    if select:
        plain = {"shape": [len(select)], "elements": list(select), **plain}
    try:
        field = Field.from_dict({"name": name, **plain})
    except SpecError as error:
        raise SourceError(f"{where}: {error}") from error
    max_age = _number(about, "max_age_s", age, where)
    return Source(field, str(about["topic"]), paths, str(about.get("names", "")), select, round(max_age * 1e9))


def _only(section: JsonObject, allowed: tuple[str, ...], where: str) -> None:
    unknown = [key for key in section if key not in allowed]
    if unknown:
        raise SourceError(f"{where}: {', '.join(unknown)} is unknown, allowed are {', '.join(allowed)}")


def _number(section: JsonObject, key: str, default: float | None, where: str) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SourceError(f"{where}: {key} is {value!r}, expected a number above 0")
    return float(value)


# -- Messages as arrays --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stream:
    """All values of one field: increasing ``stamps``, int64 nanoseconds (N,), and ``values`` (N, ...)."""

    stamps: np.ndarray
    values: np.ndarray


def is_bag(path: Path) -> bool:
    """Return whether a path is a ROS 2 bag or a file of one. A log of this project is not a bag."""
    if path.is_file():
        return path.suffix in _FILES and not (path.parent / LOG_NAME).is_file()
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
        stores = ", ".join(one.value for one in Stores)
        raise SourceError(f"typestore is {typestore!r}, allowed are {stores}") from None
    fetch_below(path)
    return AnyReader([path if path.is_dir() else check_file(path)], default_typestore=store)


def _open_bag(path: Path, typestore: str, header: bool) -> OpenBag:
    """Open a bag for its images; the caller closes the reader."""
    reader = _opened(path, typestore)
    try:
        reader.open()
    except Exception as error:  # the library raises many kinds
        raise SourceError(f"{path} can't be read: {error!r:.300}") from error
    return OpenBag(reader, header)


def topics_of(path: Path, typestore: str = "ros2_humble") -> dict[str, str]:
    """Return the message type of each topic, topic -> type.

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
    sources_of: dict[str, list[int]] = {}
    for number, source in enumerate(mapping.sources):
        sources_of.setdefault(source.topic, []).append(number)
    stamps: list[list[int]] = [[] for _ in mapping.sources]
    values: list[list[np.ndarray]] = [[] for _ in mapping.sources]
    try:
        with _opened(path, mapping.typestore) as reader:
            for connection, logged, data in reader.messages([c for c in reader.connections if c.topic in sources_of]):
                message = reader.deserialize(data, connection.msgtype)
                stamp = _stamp(message, connection.topic) if mapping.header else logged
                for number in sources_of[connection.topic]:
                    stamps[number].append(stamp)
                    values[number].append(_value(message, mapping.sources[number]))
            topics = sorted({connection.topic for connection in reader.connections})
    except SourceError as error:
        raise SourceError(f"{path}: {error}") from error
    except Exception as error:  # the library raises many kinds
        raise SourceError(f"{path} can't be read: {error!r}") from error
    for source, times in zip(mapping.sources, stamps, strict=True):
        if not times:
            raise SourceError(f"{path} has no message of {source.topic}; it has {', '.join(topics)}")
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
            f"{source.field.name} has shape {source.field.shape}, a message of {source.topic} does not fit: {error}"
        ) from None


def _places(message: Any, source: Source) -> list[int]:
    names = list(_at(message, source.names, source.topic))
    missing = [name for name in source.select if name not in names]
    if missing:
        raise SourceError(f"a message of {source.topic} has no {', '.join(missing)}, it names {', '.join(names)}")
    return [names.index(name) for name in source.select]


# -- Bags as tables ------------------------------------------------------------------------------------------


FIELDS = "fields.toml"
"""Name of the mapping's file in the opened folder."""


def is_bags(path: Path | str) -> bool:
    """Return whether a path is a ROS 2 bag, a file of one, or a folder of bags, or of such files with a mapping."""
    root = Path(path)
    return any(bag == root or bag.is_dir() or (root / FIELDS).is_file() for bag in _bags(root))


def _bags(root: Path) -> list[Path]:
    if is_bag(root):
        return [root]
    return sorted(child for child in root.iterdir() if is_bag(child)) if root.is_dir() else []


def _mapping_file(root: Path) -> Path:
    """Return the file with the mapping of the bags at a path: of a file's own name, or ``fields.toml`` beside it."""
    if root.is_dir():
        return root / FIELDS
    beside = root.with_suffix(".toml")
    return beside if beside.is_file() else root.parent / FIELDS


def load_bags(path: Path | str, mapping: Path | str | None = None) -> Table:
    """Read bags. Each bag becomes one episode, or several where values are too old.

    Args:
        path: a bag, one ``.mcap`` or ``.db3`` file, or a folder of bags.
        mapping: the file that maps the topics to fields (see `rlenv_formats.bags.EXAMPLE`); by default ``fields.toml``
            in ``path`` or beside a single file, or a ``.toml`` file with that file's name.

    Raises:
        SourceError: there is no bag or no mapping, the two do not match, no row results, or rosbags is not installed.
    """
    root = Path(path)
    bags = _bags(root)
    if not bags:
        raise SourceError(f"{root} holds no ROS 2 bag: there is no metadata.yaml in it or one folder below")
    file = _mapping_file(root) if mapping is None else Path(mapping)
    if not file.is_file():
        topics = ", ".join(f"{topic} ({kind})" for topic, kind in topics_of(bags[0]).items())
        raise SourceError(
            f"{file} is missing; it maps topics to fields, and the bag has {topics}; docs/formats.md shows such a file"
            f"\n\n{EXAMPLE}"
        )
    bag_mapping = read_mapping(file)
    observation, action = bag_mapping.specs
    layout = FrameLayout(observation, action)
    episodes: list[np.ndarray] = []
    infos: list[JsonDict] = []
    notes: list[str] = [] if bag_mapping.action else ["no action is mapped: the rows hold observations alone"]
    bag_of: list[int] = []
    for place, bag in enumerate(bags):
        pieces, tossed = _episodes(read_streams(bag, bag_mapping), bag_mapping)
        if tossed:
            notes.append(f"{bag.name}: {tossed} of its frames are left out, a value was too old or missing there")
        for number, (ticks, values) in enumerate(pieces):
            episodes.append(_rows(layout, len(episodes), ticks, values, bag_mapping))
            bag_of.append(place)
            end = "end of recording" if number == len(pieces) - 1 else "gap"
            infos.append({"episode": len(infos), "bag": bag.name, "part": number, "end": end})
    if not episodes:
        raise SourceError(f"{root}: no two frames in a row have all their values; {'; '.join(notes)}")
    opener = partial(_open_images, bags=bags, bag_of=bag_of, mapping=bag_mapping) if bag_mapping.images else no_images
    return table_of(layout, episodes, infos, str(root), notes, opener)


def _open_images(path: Path, bags: Sequence[Path], bag_of: Sequence[int], mapping: BagMapping) -> BagImages:
    openers = [partial(_open_bag, bag, mapping.typestore, mapping.header) for bag in bags]
    return BagImages(str(path), openers, np.array(bag_of, np.int64), mapping.images)


_Piece = tuple[np.ndarray, list[np.ndarray]]


def _episodes(streams: list[Stream], mapping: BagMapping) -> tuple[list[_Piece], int]:
    """Return the times of rows and each source's values there, run by run; and the number of rows in no run."""
    sources, observations = mapping.sources, len(mapping.observation)
    begin = max(int(stream.stamps[0]) for stream in streams[:observations])
    stop = max(int(stream.stamps[-1]) for stream in streams[:observations])
    ticks = np.arange(begin, stop + 1, mapping.period_ns, dtype=np.int64)
    picked = [
        _latest(stream, source, ticks, before=n >= observations)
        for n, (stream, source) in enumerate(zip(streams, sources, strict=True))
    ]
    observed = np.logical_and.reduce([fresh for _, fresh in picked[:observations]])
    acted = np.ones(len(ticks), bool)
    for _, fresh in picked[observations : observations + len(mapping.action)]:
        acted &= fresh
    linked = observed[:-1] & observed[1:] & acted[1:]  # whether a step leads from each row to the next
    edges = np.flatnonzero(np.diff(np.concatenate([[0], linked.astype(np.int8), [0]])))
    pieces = [
        (
            ticks[first : last + 1],
            [stream.values[index[first : last + 1]] for stream, (index, _) in zip(streams, picked, strict=True)],
        )
        for first, last in zip(edges[::2], edges[1::2], strict=True)
    ]
    if mapping.reward:
        fresh = picked[-1][1]
        for (first, last), (_, values) in zip(zip(edges[::2], edges[1::2], strict=True), pieces, strict=True):
            values[-1] = np.where(fresh[first : last + 1], values[-1], np.nan)
    return pieces, len(ticks) - sum(len(times) for times, _ in pieces)


def _latest(stream: Stream, source: Source, ticks: np.ndarray, before: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the latest value at (or before) each time, and whether it exists and is not too old."""
    place = np.searchsorted(stream.stamps, ticks, "left" if before else "right") - 1
    index = np.maximum(place, 0)
    return index, (place >= 0) & (ticks - stream.stamps[index] <= source.max_age_ns)


def _rows(
    layout: FrameLayout, number: int, ticks: np.ndarray, values: list[np.ndarray], mapping: BagMapping
) -> np.ndarray:
    observations, acted = len(mapping.observation), len(mapping.action)
    observation = {source.field.name: value for source, value in zip(mapping.observation, values, strict=False)}
    action = {
        source.field.name: value[1:]
        for source, value in zip(mapping.action, values[observations : observations + acted], strict=True)
    }
    reward = values[-1][1:] if mapping.reward else np.full(len(ticks) - 1, np.nan)
    rows = rows_of(layout, number, observation, action, reward, (False, True), ticks)
    rows["wall_ns"] = ticks
    return rows


def _candidates(folder: Path) -> Iterator[Path]:
    """Yield bags below a folder, or their common parent if that holds the mapping for all of them."""
    for bag in (mark.parent for mark in folder.rglob("metadata.yaml")):
        shared = not (bag / FIELDS).exists() and (bag.parent / FIELDS).exists()
        yield bag.parent if shared else bag
    for file in (path for suffix in _FILES for path in folder.rglob(f"*{suffix}")):
        if is_bag(file) and not is_bag(file.parent):
            yield file.parent if (file.parent / FIELDS).exists() else file


BAGS = Format("bags", is_bags, load_bags, candidates=_candidates, looks="metadata.yaml (a ROS 2 bag, with fields.toml)")
