"""Collect the subjects of a set and write its manifests."""

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


class Register:
    """The subjects of one set.

    Args:
        letter: the set's letter, the first of all its ids.
    """

    def __init__(self, letter: str) -> None:
        self.letter, self.entries = letter, dict[str, Entry]()

    def _add(self, cls: type, part: str, good: bool, statement: str, rule: str) -> type:
        name = f"{self.letter}{part[0]}_" + re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", cls.__name__).lower()
        assert name not in self.entries, name
        what = " ".join((cls.__doc__ or "").split()).rstrip(".")
        self.entries[name] = Entry(name, part, good, statement, rule, what, cls, cls.__bases__[0])
        return cls

    def fault(self, part: str, statement: str, rule: str) -> Callable[[type], type]:
        """Register a faulty class: ``rule`` is the sentence that it breaks, its docstring the fault."""
        return lambda cls: self._add(cls, part, False, statement, rule)

    def good(self, part: str) -> Callable[[type], type]:
        """Register a correct class."""
        return lambda cls: self._add(cls, part, True, "contract", "")

    def factories(self, part: str) -> dict[str, Callable[..., Any]]:
        """Return the factories of one part by their ids."""
        return {entry.id: entry.make for entry in self.entries.values() if entry.part == part}

    def write_manifest(self, part: str) -> str:
        """Return the manifest of one part as JSON, one subject a line."""
        lines = []
        for entry in self.entries.values():
            if entry.part == part:
                factory = f"{part}_{self.letter}.py:{entry.id}"
                line = {"id": entry.id, "part": part, "factory": factory, "good": entry.good, "what": entry.what,
                        "statement": entry.statement, "rule": entry.rule}  # fmt: skip
                lines.append(" " + json.dumps(line, ensure_ascii=False))
        return "[\n" + ",\n".join(lines) + "\n]\n"


_SET_E = Register("e")
ENTRIES, fault, good, write_manifest = _SET_E.entries, _SET_E.fault, _SET_E.good, _SET_E.write_manifest
