"""Find the runs and data sets below a path, and notice later whether there may be others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hal import SourceError
from recorder.formats.registry import recognised, sets_in
from recorder.names import LOG_NAME

__all__ = ["RUN", "SELECTION_SUFFIX", "FoundSet", "find_sets", "folder_times"]

RUN = "run"
"""The format's name for this project's runs."""
SELECTION_SUFFIX = ".selection.json"
"""End of the names of saved selections, which are no data sets of their own."""


class FoundSet(NamedTuple):
    """A run or a data set: its absolute path, and its format's name."""

    path: str
    format: str


def find_sets(root: Path) -> tuple[list[FoundSet], dict[str, int]]:
    """Return the runs and data sets at or below a path, sorted, and the times of the folders that hold them.

    The times are those of `folder_times`. While they stay the same there is no other data set.

    Raises:
        SourceError: the path does not exist.
    """
    if not root.exists():
        raise SourceError(f"{root} does not exist; name a run, a data set, or a folder of them")
    whole = Path(os.path.abspath(root))
    if whole.is_file():
        found = [FoundSet(str(whole.parent), RUN)] if whole.name == LOG_NAME else _recognised([whole])
        return found, {}
    times = folder_times({str(whole): 0})
    runs = [FoundSet(str(log.parent), RUN) for log in whole.rglob(LOG_NAME)]
    found = runs if recognised(whole) is not None and runs else sorted({*runs, *_recognised(sets_in(whole))})
    inside = {one.path for one in found}
    for folder, names, _ in os.walk(whole):
        if folder in inside:
            names.clear()
        else:
            names[:] = [name for name in names if not name.startswith(".") and os.path.join(folder, name) not in inside]
            times |= folder_times({os.path.join(folder, name): 0 for name in names})
    return found, times if str(whole) not in inside else {}


def folder_times(folders: Mapping[str, int]) -> dict[str, int]:
    """Return the time of the last change of each folder, ns; 0 for a folder that does not exist."""
    times = {}
    for folder in folders:
        try:
            times[folder] = os.stat(folder).st_mtime_ns
        except OSError:
            times[folder] = 0
    return times


def _recognised(paths: list[Path]) -> list[FoundSet]:
    formats = [(path, recognised(path)) for path in paths if not path.name.endswith(SELECTION_SUFFIX)]
    return [FoundSet(str(path), found.name) for path, found in formats if found is not None]
