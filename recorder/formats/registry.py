"""The formats by name: what a table can be written as, and what can be read into one. Imported on use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hal import RobotError, SourceError
from recorder.table.table import Table

__all__ = ["FILMED", "WRITTEN", "read_any", "recognised", "sets_in", "writers"]

WRITTEN = ("parquet", "lerobot", "minari", "robomimic")
"""Names of the formats that can be written; see `WRITERS`."""

WRITERS = {
    "parquet": "recorder.formats.parquet",
    "lerobot": "recorder.formats.lerobot.write",
    "minari": "recorder.formats.minari.dataset",
    "robomimic": "recorder.formats.robomimic",
}
"""Name -> the module with ``write_<name>(table, path)``."""

FILMED = ("lerobot", "minari", "robomimic")
"""Those that hold pictures; their function takes a `recorder.formats.images.Filming` as a third argument."""

READERS = {
    "lerobot": "recorder.formats.lerobot.read",
    "parquet": "recorder.formats.parquet",
    "minari": "recorder.formats.minari.dataset",
    "robomimic": "recorder.formats.robomimic",
    "bags": "recorder.formats.bags.read",
}
"""Name -> the module with ``is_<name>(path)`` and ``load_<name>(path)``, in the order in which a path is tried."""

_MARKS = ("meta/info.json", "data/metadata.json", "frames.parquet")
"""A file of every data set of LeRobot, Minari and our Parquet, below its root."""

Writer = Callable[..., list[str]]


def writers() -> dict[str, Writer]:
    """Name -> a function that writes a table to a path that is not there yet: ``write(table, path)``.

    It returns what the format has lost, a sentence each, and raises `hal.SourceError` where the table doesn't fit,
    the path is taken, or an extra is missing (naming it). The format's module is imported when it is called.
    """
    return {name: partial(_call, WRITERS[name], f"write_{name}") for name in WRITTEN}


def _call(module: str, function: str, *arguments: Any) -> Any:
    return getattr(import_module(module), function)(*arguments)


def read_any(path: Path) -> Table | None:
    """The table in a folder or file of another project's format; None if it looks like none of them.

    Raises:
        SourceError: it looks like one but can't be read.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    name = recognised(path)
    table: Table | None = None if name is None else _call(READERS[name], f"load_{name}", path)
    return table


def recognised(path: Path) -> str | None:
    """The name of the format that lies at a path, of `READERS`; None if it looks like none of them."""
    return next((name for name, module in READERS.items() if _call(module, f"is_{name}", path)), None)


def sets_in(folder: Path) -> list[Path]:
    """Data sets of other projects in a folder or below it, in order of their names; none within another one."""
    from recorder.formats.bags.read import FIELDS
    from recorder.formats.robomimic import SUFFIXES

    marked = {found.parents[mark.count("/")] for mark in _MARKS for found in folder.rglob(mark)}
    for bag in (found.parent for found in folder.rglob("metadata.yaml")):
        shared = not (bag / FIELDS).exists() and (bag.parent / FIELDS).exists()  # one file for a folder of bags
        marked.add(bag.parent if shared else bag)
    marked |= {found for suffix in SUFFIXES for found in folder.rglob(f"*{suffix}")}
    sets: list[Path] = []
    for path in sorted(marked):
        if not any(path.is_relative_to(one) for one in sets) and _looks_like_one(path):
            sets.append(path)
    return sets


def _looks_like_one(path: Path) -> bool:
    try:
        return recognised(path) is not None
    except RobotError:  # without what reads it one can't tell
        return True
