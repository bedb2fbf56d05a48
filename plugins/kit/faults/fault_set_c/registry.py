"""Register the subjects of the set, and write its manifests."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

Level = Literal["obvious", "ordinary", "subtle", "correct"]
_Class = TypeVar("_Class", bound=type)


@dataclass(frozen=True)
class Entry:
    """One subject, as in the manifest; ``original`` is the correct class of a fault, ``make`` builds the subject."""

    id: str
    part: str
    good: bool
    what: str
    statement: str
    level: Level
    style: str
    subject: Any
    original: Any

    def manifest(self) -> dict[str, object]:
        return {
            "id": self.id, "part": self.part, "factory": f"{self.part}_c.py:{self.id}", "good": self.good,
            "what": self.what, "statement": self.statement, "level": self.level, "style": self.style,
        }  # fmt: skip


ENTRIES: dict[str, Entry] = {}

MODULES = {
    "environment": ("tank", "orbit", "bets", "nim", "maze", "couriers", "quiz", "lamp", "cart", "good"),
    "vector": ("buoys", "lanterns", "relay", "words", "slides", "good"),
}
"""Part -> the ends of the names of its modules, in the order of the manifest."""


def original(of: _Class) -> _Class:
    """Mark a correct class, with which the faults that derive from it are compared."""
    of.original = of  # type: ignore[attr-defined]
    return of


def fault(statement: str, level: Level, what: str) -> Callable[[_Class], _Class]:
    """Register a faulty subject.

    Args:
        statement: the id of the statement that it breaks, or ``contract`` for a documented rule of the project.
        level: how hard it is to see.
        what: the fault in one line.
    """
    return lambda of: _register(of, False, statement, level, what)


def good(statement: str, what: str) -> Callable[[_Class], _Class]:
    """Register a correct subject, with the statement that allows what is unusual in it."""
    return lambda of: _register(of, True, statement, "correct", what)


def _register(of, is_good: bool, statement: str, level: Level, what: str):
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", of.__name__).lower()
    if name in ENTRIES:
        raise ValueError(f"{name} is registered twice")
    base = of if is_good else of.original
    ENTRIES[name] = Entry(name, of.part, is_good, what, statement, level, of.style, of, base)
    return of


def entries(part: str) -> list[Entry]:
    """Return the entries of a part, in their order."""
    for module in MODULES[part]:
        importlib.import_module(f"{__package__}.{'env' if part == 'environment' else 'batch'}_{module}")
    return [entry for entry in ENTRIES.values() if entry.part == part]


def factories(part: str) -> dict[str, Callable[..., Any]]:
    """Return the factories of a part by the ids of its entries."""
    return {entry.id: entry.subject.make for entry in entries(part)}


def manifest(part: str) -> str:
    """Return the manifest of a part as text."""
    return json.dumps([entry.manifest() for entry in entries(part)], indent=1, ensure_ascii=False) + "\n"


def write_manifests() -> None:
    """Write the manifests of both parts."""
    for part in ("environment", "vector"):
        (Path(__file__).parents[1] / f"{part}_c.json").write_text(manifest(part), encoding="utf-8")
