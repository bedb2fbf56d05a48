"""Map the topics of ROS bags to fields and cameras, by a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hal import Field, SourceError, Spec, SpecError
from recorder.formats.runs import field_name
from recorder.json_data import JsonDict, JsonObject

__all__ = ["EXAMPLE", "FIELDS", "BagMapping", "Source", "read_mapping"]

FIELDS = "fields.toml"
"""Name of the mapping's file in the opened folder."""

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
shape = [2]             # optional: the first message decides

[reward]                # optional
topic = "/score"
path = "data"
"""

_FIELD = ("shape", "dtype", "low", "high", "unit", "meaning", "elements")
_SOURCE = ("topic", "path", "names", "select", "max_age_s")
_TOP = ("rate_hz", "max_age_s", "clock", "typestore", "observation", "action", "reward", "images")


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
        inferred: whether no shape was given, so that the first message decides.
    """

    field: Field
    topic: str
    paths: tuple[str, ...]
    names: str
    select: tuple[str, ...]
    max_age_ns: int
    inferred: bool = False


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

    def with_sources(self, sources: Mapping[str, Source]) -> BagMapping:
        """Return this mapping with other sources, by the names of their fields."""

        def changed(part: tuple[Source, ...]) -> tuple[Source, ...]:
            return tuple(sources.get(source.field.name, source) for source in part)

        return replace(self, observation=changed(self.observation), action=changed(self.action))

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
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
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
    names, inferred = str(about.get("names", "")), "shape" not in plain
    return Source(field, str(about["topic"]), paths, names, select, round(max_age * 1e9), inferred)


def _only(section: JsonObject, allowed: tuple[str, ...], where: str) -> None:
    unknown = [key for key in section if key not in allowed]
    if unknown:
        raise SourceError(f"{where}: {', '.join(unknown)} is unknown, allowed are {', '.join(allowed)}")


def _number(section: JsonObject, key: str, default: float | None, where: str) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SourceError(f"{where}: {key} is {value!r}, expected a number above 0")
    return float(value)
