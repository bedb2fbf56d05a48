"""Recognise the layout of recorded data, and read its table."""

from __future__ import annotations

from pathlib import Path

from hal import SourceError
from recorder.formats.registry import read_any
from recorder.names import LOG_NAME
from recorder.table.load import load_runs
from recorder.table.table import Table

__all__ = ["read_folder"]

_KNOWN = (
    f"{LOG_NAME} in it or below it (our runs), meta/info.json (LeRobot 2.1 or 3.0), data/metadata.json (Minari), "
    "frames/ with episodes.json (our Parquet), metadata.yaml (a ROS 2 bag, with fields.toml), or robomimic's file, "
    "ending in .hdf5"
)
_LISTED = 8


def read_folder(folder: Path, **options: object) -> Table:
    """Recognise the layout and read it.

    Args:
        folder: with the data; robomimic's, and one log of ours, are single files.
        options: of the data's format, such as ``units`` and ``calibration`` of a LeRobot data set; None is not given.

    Raises:
        SourceError: the folder is missing or holds no known layout, or its format has no such option.
    """
    if not folder.exists():
        raise SourceError(f"{folder} does not exist; expected a folder of recorded data with {_KNOWN}")
    table = read_any(folder, **options)
    if table is not None:
        return table
    if folder.is_file() and folder.name != LOG_NAME:
        raise SourceError(f"{folder} is a file of no known kind; give the folder that it lies in, with {_KNOWN}")
    if folder.is_file() or next(folder.rglob(LOG_NAME), None) is not None:
        if given := sorted(name for name, value in options.items() if value is not None):
            raise SourceError(f"{folder} holds our own runs, whose units are recorded; leave {', '.join(given)} out")
        return load_runs(folder)
    there = sorted(child.name for child in folder.iterdir())
    listed = ", ".join(there[:_LISTED]) + (", ..." if len(there) > _LISTED else "")
    raise SourceError(f"{folder} holds no data that can be read; looked for {_KNOWN}; found {listed or 'nothing'}")
