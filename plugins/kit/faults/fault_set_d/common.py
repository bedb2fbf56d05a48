"""Collect the subjects of this set, and give clocks to robots that do not stand still between two calls."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1]
NOTHING: MappingProxyType[str, Any] = MappingProxyType({})
"""No options: the default of the standard's functions."""
PREFIX = {"robot": "dr", "source": "ds"}


class Entry(NamedTuple):
    """One subject: ``section`` names the script of the test that tells it from its original, ``base``."""

    id: str
    part: str
    good: bool
    statement: str
    rule: str
    section: str
    what: str
    make: Callable[[], Any]
    base: type


ENTRIES: dict[str, Entry] = {}


def _add(cls: type, part: str, good: bool, statement: str, rule: str, section: str) -> type:
    name = PREFIX[part] + "_" + re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", cls.__name__).lower()
    assert name not in ENTRIES, name
    what = (cls.__doc__ or "").rstrip(".")
    ENTRIES[name] = Entry(name, part, good, statement, rule, section, what, cls, cls.__bases__[0])
    return cls


def _fault(part: str, statement: str, rule: str, section: str) -> Callable[[type], type]:
    """Register a faulty class. ``rule`` is the sentence that it breaks, in few words; the docstring is its fault."""
    return lambda cls: _add(cls, part, False, statement, rule, section)


def robot_good(cls: type) -> type:
    """Register a correct robot."""
    return _add(cls, "robot", True, "robot", "", "")


def source_good(cls: type) -> type:
    """Register correct source data."""
    return _add(cls, "source", True, "contract", "", "")


robot_fault, source_fault = partial(_fault, "robot"), partial(_fault, "source")


def write_manifest(part: str) -> str:
    """Return the manifest of one part as JSON, one subject a line."""
    lines = []
    for entry in ENTRIES.values():
        if entry.part == part:
            line = {"id": entry.id, "part": part, "factory": f"{part}_d.py:{entry.id}", "good": entry.good,
                    "what": entry.what, "statement": entry.statement, "rule": entry.rule}  # fmt: skip
            lines.append(" " + json.dumps(line, ensure_ascii=False))
    return "[\n" + ",\n".join(lines) + "\n]\n"


class WallClock:
    """This machine's monotonic clock."""

    def now(self) -> int:
        return time.monotonic_ns()

    def seconds(self) -> float:
        return self.now() * 1e-9

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))


class VirtualClock(WallClock):
    """A clock that only sleeping moves, for tests."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def now(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += max(round(seconds * 1e9), 0)


CLOCKS: list[Callable[[], WallClock]] = [WallClock]
"""The clock that the next robot gets: the last entry."""


def new_clock() -> WallClock:
    return CLOCKS[-1]()
