"""Collect the subjects of this set, and give clocks to robots that do not stand still between two calls."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

    def sleep(self, nanoseconds: int) -> None:
        time.sleep(nanoseconds * 1e-9)


class VirtualClock:
    """A clock that only sleeping moves, for tests."""

    def __init__(self) -> None:
        self.ns = 5_000_000_000

    def now(self) -> int:
        return self.ns

    def sleep(self, nanoseconds: int) -> None:
        self.ns += nanoseconds


CLOCKS: list[Callable[[], WallClock | VirtualClock]] = [WallClock]
"""What gives the next robot its time: the last entry."""


class DeviceClock:
    """The clock of a robot whose drives sample at a fixed rate: a step ends one period after the last one.

    A process that wakes too late gets the sample of the right time, as long as it is less than three periods late.
    """

    def __init__(self, hz: float) -> None:
        self.wall = CLOCKS[-1]()
        self.period_ns, self.t, self.stepping = round(1e9 / hz), self.wall.now(), 0

    def now(self) -> int:
        """Return the time, nanoseconds; within `period` that of the newest sample."""
        if not self.stepping:
            self.t = max(self.t, self.wall.now())
        return self.t

    @contextmanager
    def period(self) -> Iterator[None]:
        """Let time go on by `wait` alone."""
        if self.wall.now() > self.t + 3 * self.period_ns:
            self.now()
        self.stepping += 1
        try:
            yield
        finally:
            self.stepping -= 1

    def wait(self) -> None:
        """Wait for the next sample."""
        due, wall = self.t + self.period_ns, self.wall.now()
        self.t = wall if wall > due + 3 * self.period_ns else due
        self.wall.sleep(max(due - wall, 0))
