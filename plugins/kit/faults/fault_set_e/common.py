"""Collect the subjects of this set and write its manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1]
NOTHING: MappingProxyType[str, Any] = MappingProxyType({})
"""No options: the default of the standard's functions."""


class Entry(NamedTuple):
    """One subject; ``base`` is the correct class that a fault was made from."""

    id: str
    part: str
    good: bool
    statement: str
    rule: str
    what: str
    make: Callable[..., Any]
    base: type


ENTRIES: dict[str, Entry] = {}


def _add(cls: type, part: str, good: bool, statement: str, rule: str) -> type:
    name = f"e{part[0]}_" + re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", cls.__name__).lower()
    assert name not in ENTRIES, name
    what = " ".join((cls.__doc__ or "").split()).rstrip(".")
    ENTRIES[name] = Entry(name, part, good, statement, rule, what, cls, cls.__bases__[0])
    return cls


def fault(part: str, statement: str, rule: str) -> Callable[[type], type]:
    """Register a faulty class: ``rule`` is the sentence that it breaks, its docstring the fault."""
    return lambda cls: _add(cls, part, False, statement, rule)


def good(part: str) -> Callable[[type], type]:
    """Register a correct class."""
    return lambda cls: _add(cls, part, True, "contract", "")


def write_manifest(part: str) -> str:
    """Return the manifest of one part as JSON, one subject a line."""
    lines = []
    for entry in ENTRIES.values():
        if entry.part == part:
            line = {"id": entry.id, "part": part, "factory": f"{part}_e.py:{entry.id}", "good": entry.good,
                    "what": entry.what, "statement": entry.statement, "rule": entry.rule}  # fmt: skip
            lines.append(" " + json.dumps(line, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]\n"
