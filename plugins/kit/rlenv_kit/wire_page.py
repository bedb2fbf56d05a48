"""Describe a robot's rows on the wire, byte by byte, as Markdown, HTML or JSON Schema (docs/wire.md)."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hal.field import Field, JsonDict
from hal.robot import RobotSpec
from hal.spec import Spec
from real.protocol.messages import VERSION
from real.protocol.rows import RowCodec

__all__ = ["FORMATS", "RowElement", "row_elements", "wire_page"]

FORMATS = ("markdown", "html", "json")
"""Formats of `wire_page`; json is a JSON Schema (draft 2020-12)."""

_LISTED = 64
"""Fields with more elements are one line of a table."""

_HEAD = ("bytes", "field", "element", "type", "unit", "range", "meaning")


class RowElement(NamedTuple):
    """One number of a row, or a whole field of many numbers.

    Attributes:
        offset: offset of its first byte in the frame.
        size: size in bytes.
        field: the field to which it belongs.
        place: index in the field, in C order; None for a whole field.
    """

    offset: int
    size: int
    field: Field
    place: int | None


class _Table(NamedTuple):
    title: str
    text: str
    lines: Sequence[Sequence[str]]


def row_elements(spec: Spec, start: int = 0) -> Iterator[RowElement]:
    """Yield the elements of a spec's row in the order of their bytes.

    Args:
        spec: the spec of the row.
        start: offset of the row in its frame, bytes.
    """
    for name, _, dtype, at in sorted(RowCodec(spec).fields, key=lambda field: field[3]):
        field = spec[name]
        if field.size > _LISTED:
            yield RowElement(start + at, field.size * dtype.itemsize, field, None)
            continue
        for index in range(field.size):
            yield RowElement(start + at + index * dtype.itemsize, dtype.itemsize, field, index)


def wire_page(spec: RobotSpec, kind: str = "markdown") -> str:
    """Return the rows of a robot with offsets, types, units and ranges, and the digest of its description.

    Args:
        spec: the robot's description as clients see it.
        kind: one of `FORMATS`.

    Raises:
        ValueError: the format is unknown.
    """
    if kind not in FORMATS:
        raise ValueError(f"format is {kind!r}, allowed are {', '.join(FORMATS)}")
    if kind == "json":
        return json.dumps(_schema(spec), indent=1, ensure_ascii=False) + "\n"
    title = f"{spec.name} on the wire"
    text = (
        f"Version {VERSION} of the wire; {spec.rate_hz:g} commands a second. The digest for HELLO is {spec.digest}. "
        "Numbers are little-endian; a row has no padding. The order of the bytes is that of these tables and differs "
        "from the order of the fields in the description. docs/wire.md describes the messages."
    )
    tables = _tables(spec)
    return _html(title, text, tables) if kind == "html" else _markdown(title, text, tables)


def _tables(spec: RobotSpec) -> list[_Table]:
    commands, sensors = RowCodec(spec.commands).size, RowCodec(spec.sensors).size
    state = f"sensors row, {sensors} bytes, then applied row, {commands} bytes; together the first frame of a READING"
    return [
        _Table("STEP: command row", f"{commands} bytes.", [*map(_line, row_elements(spec.commands))]),
        _Table("READING: sensors row", f"The {state}.", [*map(_line, row_elements(spec.sensors))]),
        _Table(
            "READING: applied row",
            "Values that the actuators received, after all limits, laid out as the command row.",
            [*map(_line, row_elements(spec.commands, sensors))],
        ),
    ]


def _line(element: RowElement) -> Sequence[str]:
    offset, size, field, index = element
    low, high = (bound.ravel() for bound in field.bounds)
    lowest, highest = (low.min(), high.max()) if index is None else (low[index], high[index])
    return (
        f"{offset} to {offset + size - 1}", field.name, _element_name(field, index), field.dtype, field.unit,
        _range(field, lowest, highest), field.meaning,
    )  # fmt: skip


def _element_name(field: Field, index: int | None) -> str:
    if index is None:
        return f"all {field.size}, C order of {list(field.shape)}"
    if not field.shape:
        return ""
    place = [int(number) for number in np.unravel_index(index, field.shape)]
    label = f" {field.elements[place[-1]]}" if field.elements else ""
    return f"{place}{label}"


def _range(field: Field, low: np.generic, high: np.generic) -> str:
    if field.numpy_dtype.kind != "f":
        return f"{int(low)} to {int(high)}"
    limits = np.finfo(field.dtype)
    ends = ("" if low == limits.min else f"from {low:.7g}", "" if high == limits.max else f"to {high:.7g}")
    return " ".join(filter(None, ends)) or "any finite number"


def _markdown(title: str, text: str, tables: Sequence[_Table]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    parts = [f"# {title}", text]
    for table in tables:
        lines = [line(_HEAD), "|" + "---|" * len(_HEAD), *map(line, table.lines)]
        parts += [f"## {table.title}", table.text, "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _html(title: str, text: str, tables: Sequence[_Table]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    parts = [
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title></head>',
        f"<body>\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(text)}</p>",
    ]
    for table in tables:
        rows = "\n".join([line(_HEAD, "th"), *(line(cells, "td") for cells in table.lines)])
        parts.append(
            f"<h2>{html.escape(table.title)}</h2>\n<p>{html.escape(table.text)}</p>\n<table>\n{rows}\n</table>"
        )
    return "\n".join([*parts, "</body>\n</html>"]) + "\n"


# -- JSON Schema: of the values by field; where they lie in the row is in keys that begin with x- -------------


def _schema(spec: RobotSpec) -> JsonDict:
    sensors = RowCodec(spec.sensors).size
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{spec.name} on the wire",
        "x-wire-version": VERSION,
        "x-digest": spec.digest,
        "x-rate-hz": spec.rate_hz,
        "type": "object",
        "properties": {
            "command": _row_schema(spec.commands, 0),
            "sensors": _row_schema(spec.sensors, 0),
            "applied": _row_schema(spec.commands, sensors),
        },
        "additionalProperties": False,
    }


def _row_schema(spec: Spec, start: int) -> JsonDict:
    codec = RowCodec(spec)
    return {
        "type": "object",
        "x-offset": start,
        "x-bytes": codec.size,
        "properties": {name: _field_schema(spec[name], start + at) for name, _, _, at in codec.fields},
        "required": list(spec.names),
        "additionalProperties": False,
    }


def _field_schema(field: Field, offset: int) -> JsonDict:
    low, high = field.bounds
    about = {
        "description": field.meaning, "x-offset": offset, "x-type": field.dtype, "x-byte-order": "little",
        "x-unit": field.unit, "x-elements": list(field.elements), "x-shape": list(field.shape),
    }  # fmt: skip
    return {**about, **_value_schema(field, low, high)}


def _value_schema(field: Field, low: np.ndarray, high: np.ndarray) -> dict[str, Any]:
    """Return the schema of a value, or of a part of one, with these bounds."""
    if not low.shape:
        kind = "number" if field.numpy_dtype.kind == "f" else "integer"
        return {"type": kind, "minimum": low.item(), "maximum": high.item()}
    parts = [_value_schema(field, *bounds) for bounds in zip(low, high, strict=True)]
    same = all(part == parts[0] for part in parts)
    items: dict[str, Any] = {"items": parts[0]} if same else {"prefixItems": parts, "items": False}
    return {"type": "array", "minItems": len(parts), "maxItems": len(parts), **items}
