"""Which layout a folder of recorded data has, and the table in it."""

from __future__ import annotations

from pathlib import Path

from hal import SourceError
from recorder.disk import LOG_NAME
from recorder.formats.lerobot import is_lerobot, load_lerobot
from recorder.table import Table, load_runs

__all__ = ["read_folder"]

_KNOWN = f"{LOG_NAME} in it or below it (our runs), meta/info.json (LeRobot 2.1 or 3.0)"
_LISTED = 8


def read_folder(folder: Path) -> Table:
    """Recognise the layout and read it.

    Raises:
        SourceError: the folder is missing or holds no known layout.
    """
    if not folder.exists():
        raise SourceError(f"{folder} does not exist; wanted is a folder of recorded data with {_KNOWN}")
    if not folder.is_dir():
        raise SourceError(f"{folder} is a file; give the folder that it lies in, with {_KNOWN}")
    if is_lerobot(folder):
        return load_lerobot(folder)
    if next(folder.rglob(LOG_NAME), None) is not None:
        return load_runs(folder)
    there = sorted(child.name for child in folder.iterdir())
    listed = ", ".join(there[:_LISTED]) + (", ..." if len(there) > _LISTED else "")
    raise SourceError(f"{folder} holds no data that can be read; looked for {_KNOWN}; found {listed or 'nothing'}")
