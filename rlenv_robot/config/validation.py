"""Validate settings from users as dataclasses, with the file and key of every error.

The library is pydantic 2. Compared on the profile (two cores, Python 3.11, medians of five processes):

| | msgspec 0.22 | pydantic 2.14 |
|---|---|---|
| import | 21 ms | 56 ms |
| first profile read, schema included | 2 ms | 22 ms |
| a mistake is | a sentence with a path in it | type, place, value and limits, each on its own |
| unknown keys of a dataclass | ignored | refused |
| `additionalProperties` in the JSON schema | left out | false |

With msgspec, the parts of an error would have to be parsed out of its sentence, and unknown keys found by our own code;
therefore pydantic. It is imported when the first profile is read, and by nothing else: the dataclasses declare their
ranges with ``annotated_types``.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from annotated_types import Interval

from hal import ProfileError
from recorder.json_data import JsonDict
from rlenv_robot.config.section_options import attribute_texts

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

__all__ = ["describe_schema", "json_schema", "validate"]

_T = TypeVar("_T")

_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "an array",
    "dict_type": "a table",
}
"""pydantic's code of a wrong type -> the type that is wanted, in TOML's words."""

_RANGES = {
    "greater_than": "above {gt:g}",
    "greater_than_equal": "{ge:g} or above",
    "less_than": "below {lt:g}",
    "less_than_equal": "{le:g} or below",
}


def validate(kind: type[_T], data: Mapping[str, object], file: str) -> _T:
    """Convert JSON-like data to a dataclass.

    Types are strict (no text becomes a number; an integer may stand for a float), and unknown keys are refused.

    Args:
        kind: a dataclass with ``__pydantic_config__``; its fields may be dataclasses too.
        data: as parsed from TOML.
        file: the file of the data, for messages.

    Raises:
        ProfileError: the first error, with file and key.
    """
    from pydantic import ValidationError

    section: type = kind
    try:  # as JSON: only there do strict dataclasses take tables
        return typing.cast("_T", _adapter(section).validate_json(json.dumps(data, default=str)))
    except ValidationError as error:
        raise _mistake(kind, error.errors(include_url=False)[0], file) from None


@cache
def _adapter(kind: type) -> TypeAdapter[object]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _mistake(kind: type, error: ErrorDetails, file: str) -> ProfileError:
    place, value, code, limits = error["loc"], error["input"], error["type"], error.get("ctx", {})
    key = _dotted(place)
    if code == "value_error":  # of the dataclass itself: its message begins with the field's name
        field, _, problem = str(limits["error"]).partition(" ")
        return ProfileError(file, f"{key}.{field}" if key else field, problem)
    if code in ("unexpected_keyword_argument", "extra_forbidden"):
        section = _type_at(kind, place[:-1])
        if (removed := getattr(section, "removed", {}).get(place[-1])) is not None:
            return ProfileError(file, key, removed)
        fields = dataclasses.fields(section)
        allowed = [field.name for field in fields if not field.metadata.get("internal")]
        near = difflib.get_close_matches(str(place[-1]), allowed, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return ProfileError(file, key, f"is unknown; {hint}allowed are {', '.join(allowed)}")
    if code == "literal_error":
        choices = ", ".join(map(repr, typing.get_args(_type_at(kind, place))))
        return ProfileError(file, key, f"is {value!r}, allowed are {choices}")
    if code in _RANGES:
        allowed_range = _interval_at(kind, place) or _RANGES[code].format(**limits)
        return ProfileError(file, key, f"is {value!r}, it must be {allowed_range}")
    if code == "string_too_short":
        return ProfileError(file, key, "is empty, it must not be an empty string")
    if code == "missing":
        return ProfileError(file, key, "is missing")
    if code == "too_short":
        return ProfileError(file, key, "has too few entries")
    if code.startswith("dataclass"):
        return ProfileError(file, key, f"is {value!r}, it must be a table: [{key}]")
    type_text = _TYPES.get(code, error["msg"])
    return ProfileError(file, key, f"is {value!r} ({type(value).__name__}), it must be {type_text}")


def _dotted(place: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _interval_at(kind: type, place: tuple[int | str, ...]) -> str:
    """Return the range at a place as text, if it has two ends, else an empty text."""
    for limit in getattr(_type_at(kind, place), "__metadata__", ()):
        if isinstance(limit, Interval) and limit.ge is not None and limit.le is not None:
            return f"{limit.ge} to {limit.le}"
    return ""


def _type_at(kind: Any, place: tuple[int | str, ...]) -> Any:
    """Return the declared type at a place of nested dataclasses and mappings, with its annotations."""
    for part in place:
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            kind = typing.get_type_hints(kind, include_extras=True)[str(part)]
        else:
            kind = typing.get_args(kind)[-1]
    return kind


# -- The JSON schema, by which editors complete and check --------------------------------------------------------


def json_schema(kind: type) -> JsonDict:
    """Return the JSON schema of a dataclass, with descriptions from the ``Attributes:`` of its docstrings."""
    schema = _adapter(kind).json_schema()
    types = {section.__name__: section for section in _dataclasses_in(kind)}
    for name, part in [(kind.__name__, schema), *schema.get("$defs", {}).items()]:
        describe_schema(part, types[name])
    return schema


def describe_schema(schema: JsonDict, kind: type) -> None:
    """Add the docstring of a dataclass, and of each of its attributes, to its schema."""
    schema["description"] = (inspect.getdoc(kind) or "").partition("\n")[0]
    texts = attribute_texts(kind)
    for name, part in schema["properties"].items():
        part.pop("title", None)
        if name in texts:
            part["description"] = texts[name]


def _dataclasses_in(kind: object) -> Iterator[type]:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        yield kind
        for hint in typing.get_type_hints(kind).values():
            yield from _dataclasses_in(hint)
    else:
        for part in typing.get_args(kind):
            yield from _dataclasses_in(part)
