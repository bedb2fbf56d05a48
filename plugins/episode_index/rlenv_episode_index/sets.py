"""Find the runs and data sets below a path, notice later whether there may be others, and read them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from hal import SourceError
from recorder.formats.registry import Format, format_of, recognised, sets_in
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import labelled
from recorder.names import LOG_NAME
from recorder.table.table import Table
from rlenv_episode_index.database import STORED
from rlenv_episode_index.label_changes import recorded_values
from rlenv_robot.data.episode_records import SqlRow, episode_records, info_record, sql_row
from rlenv_robot.data.folder import read_folder
from rlenv_robot.robot_models import find_robot_model

__all__ = [
    "RUN",
    "SELECTION_SUFFIX",
    "FoundSet",
    "described",
    "episode_marks",
    "find_sets",
    "folder_times",
    "format_options",
    "read_set",
    "reads_some",
]

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


def reads_some(data_format: str) -> bool:
    """Return whether a format can read some episodes of a set by their numbers."""
    return data_format != RUN and "episodes" in format_of(data_format).options


def format_options(data_format: Format, reading: JsonObject) -> JsonDict:
    """Return those of the options of reading that a format has, with the robot that a name stands for.

    Raises:
        ValueError: the robot is unknown.
    """
    options = {name: value for name, value in reading.items() if name in data_format.options and value is not None}
    if isinstance(options.get("robot"), str):
        options["robot"] = find_robot_model(options["robot"])
    return options


def read_set(found: FoundSet, reading: JsonObject, numbers: Sequence[int] | None = None, labels: bool = True) -> Table:
    """Return the table of a run or a data set.

    Args:
        found: the run or data set.
        reading: options of reading, as `rlenv_robot.open_source` takes them; a format takes those that it has.
        numbers: numbers of the episodes to read, where the format can read some (`reads_some`); None for all.
        labels: whether labels count; those of runs always do.

    Raises:
        SourceError, LogError: it can't be read.
    """
    if found.format == RUN:
        return read_folder(Path(found.path))
    data_format = format_of(found.format)
    some = numbers if reads_some(found.format) else None
    return data_format.read(Path(found.path), labels=labels, episodes=some, **format_options(data_format, reading))


def described(found: FoundSet, reading: JsonObject) -> Iterator[SqlRow]:
    """Yield mark, recorded values of the labels' columns, whether rows were read, and `STORED` of each episode."""
    path = Path(found.path)
    if found.format == RUN:
        table = read_set(found, reading, labels=False)
        records = episode_records(table, costly=("robot",))
        for mark, info, record in zip(episode_marks(table.episodes), table.episodes, records, strict=True):
            recorded = None if "labelled" in info else recorded_values(info)  # what a label replaced is not known
            yield mark, recorded, 0, *sql_row(record, STORED)
        return
    data_format = format_of(found.format)
    if data_format.describe is None:
        table = read_set(found, reading, labels=False)
        infos: Sequence[JsonObject] = table.episodes
        given = labelled(path, infos)
        records = episode_records(replace(table, episodes=given), found.format)
    else:
        infos = data_format.describe(path, **format_options(data_format, reading))
        given = labelled(path, infos)
        records = [info_record(info, found.path, found.format, number) for number, info in enumerate(given)]
    has_rows = int(data_format.describe is None)
    for mark, info, record in zip(episode_marks(infos), infos, records, strict=True):
        yield mark, recorded_values(info), has_rows, *sql_row(record, STORED)


def episode_marks(infos: Sequence[JsonObject]) -> list[str]:
    """Return what identifies each episode in its set: its number, and its part's where it has several."""
    marks: list[str] = []
    seen: dict[int, int] = {}
    for position, info in enumerate(infos):
        number = int(info.get("episode", position))
        part = seen[number] = seen.get(number, -1) + 1
        marks.append(f"{number}.{part}" if part else str(number))
    return marks
