"""The formats by name: what a table can be written as, and what can be read into one. Imported on use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hal import SourceError
from recorder.table import Table

__all__ = ["FILMED", "WRITTEN", "read_any", "writers"]

WRITTEN = ("parquet", "lerobot", "minari", "robomimic")
"""Names of the formats that can be written; each a module here with ``write_<name>(table, path)``."""

FILMED = ("lerobot", "minari", "robomimic")
"""Those that hold pictures; their function takes a `recorder.formats.pictures.Filming` as a third argument."""

READ = ("lerobot", "parquet", "minari", "robomimic", "bags")
"""Names of the formats that can be read, in the order in which a path is tried; each a module here with
``is_<name>(path)`` and ``load_<name>(path)``."""

Writer = Callable[..., list[str]]


def writers() -> dict[str, Writer]:
    """Name -> a function that writes a table to a path that is not there yet: ``write(table, path)``.

    It returns what the format has lost, a sentence each, and raises `hal.SourceError` where the table doesn't fit,
    the path is taken, or an extra is missing (naming it). The format's module is imported when it is called.
    """
    return {name: partial(_call, name, f"write_{name}") for name in WRITTEN}


def _call(module: str, function: str, *arguments: Any) -> Any:
    return getattr(import_module(f"recorder.formats.{module}"), function)(*arguments)


def read_any(path: Path) -> Table | None:
    """The table in a folder or file of another project's format; None if it looks like none of them.

    Raises:
        SourceError: it looks like one but can't be read.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    name = next((name for name in READ if _call(name, f"is_{name}", path)), None)
    table: Table | None = None if name is None else _call(name, f"load_{name}", path)
    return table
