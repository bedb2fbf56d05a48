"""Describe episodes by plain records with the same columns for every data set, for conditions, lists and indexes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from hal import LogError
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import is_success, tags_of
from recorder.names import LOG_NAME
from recorder.read.reader import LogReader
from recorder.table.digest import episode_digests
from recorder.table.table import Table
from recorder.table.transitions import Transitions

__all__ = [
    "COLUMNS", "COSTLY", "SqlRow", "episode_records", "from_sql", "info_record", "is_expert", "label_record", "sql_row",
]  # fmt: skip

COLUMNS: Mapping[str, str] = {
    "path": "TEXT", "format": "TEXT", "episode": "INTEGER", "steps": "INTEGER", "seconds": "REAL", "began": "TEXT",
    "task": "TEXT", "task_text": "TEXT", "robot": "TEXT", "env": "TEXT", "run": "TEXT", "policy": "TEXT",
    "source": "TEXT", "expert": "INTEGER", "success": "INTEGER", "verdict": "TEXT", "tags": "TEXT", "note": "TEXT",
    "end_reason": "TEXT", "return": "REAL", "digest": "TEXT",
}  # fmt: skip
"""Column of a record -> its SQL type.

=========== =======================================================================================================
path        absolute path of the run or data set
format      the format's name; ``run`` for this project's runs
episode     the episode's number in it
steps       frames after the first one
seconds     from the first to the last frame by the robot's clock
began       time of the first frame, ISO 8601 in UTC, such as ``2026-11-21T03:24:37Z``, where a wall clock was recorded
task        name of the task
task_text   the task in words, where the data set has them, else its name; several are joined by ``; ``
robot       name of the robot
env         number of the environment, of a batch
run         name of the run or data set, or of the run that the episode was copied from
policy      as recorded
source      as recorded or labelled
expert      1 where an expert demonstrated the episode, else 0
success     1 for success, 0 for failure (`recorder.log.labels.is_success`)
verdict     a person's verdict
tags        a list of texts; for conditions ``,one,two,``
note        a person's note
end_reason  why the episode ended
return      undiscounted sum of the rewards
digest      `recorder.table.digest.episode_digest`
=========== =======================================================================================================

A value that is not known is None (NULL in conditions).
"""

SqlRow: TypeAlias = tuple[Any, ...]
"""Values as SQLite has them: numbers, texts and None."""

COSTLY = ("robot", "return", "digest")
"""Columns whose values cost time, since rows or logs are read for them."""


def episode_records(table: Table, data_format: str | None = None, costly: Collection[str] = COSTLY) -> list[JsonDict]:
    """Return the record of each episode of a table, column -> value.

    Args:
        table: any table.
        data_format: the name of its format; None for ``run`` where the episodes lie in runs of this project.
        costly: which of the columns `COSTLY` to fill; the others are None.
    """
    transitions = Transitions.of(table) if "return" in costly else None
    records, paths = [], dict[str, str]()
    for number, info in enumerate(table.episodes):
        start, stop = int(table.starts[number]), int(table.stops[number])
        place = table.place(number) if data_format is None or "set" in info else table.origin
        if place not in paths:
            paths[place] = str(Path(place).resolve())
        path = paths[place]
        is_run = data_format is None and (Path(path) / LOG_NAME).is_file()
        record = info_record(info, path, "run" if is_run else data_format or "", number)
        record |= {"steps": max(stop - start - 1, 0), **_times(table.rows, start, stop)}
        if record["robot"] is None and is_run and "robot" in costly:
            record["robot"] = _robot(path)
        if transitions is not None:
            value = float(transitions.returns[number])
            record["return"] = value if math.isfinite(value) else None
        records.append(record)
    if "digest" in costly:
        for record, digest in zip(records, episode_digests(table), strict=True):
            record["digest"] = digest
    return records


def info_record(info: JsonObject, path: str, data_format: str, number: int) -> JsonDict:
    """Return the record of an episode as far as its info tells it, without its rows.

    Args:
        info: the episode's info in a `recorder.table.table.Table`.
        path: the path of its run or data set.
        data_format: the name of its format.
        number: its index in the table, which counts if the info has no number.
    """
    tasks = info.get("tasks") or info.get("instruction") or info.get("task_text")
    task = _name(info.get("task", info.get("world")))
    text = "; ".join(map(str, tasks)) if isinstance(tasks, list) else tasks
    origin = info.get("copied_from")
    run = origin.get("run", path) if isinstance(origin, dict) else path
    length, fps = info.get("length"), info.get("fps")
    steps = max(length - 1, 0) if type(length) is int else None
    return {
        "path": path, "format": data_format, "episode": int(info.get("episode", number)), "steps": steps,
        "seconds": round(steps / fps, 3) if steps is not None and fps else None, "began": None,
        "task": task, "task_text": _name(text or task), "robot": _name(info.get("robot")),
        "env": _name(info.get("env_id")), "run": _last_part(run), "policy": _name(info.get("policy")),
        **label_record(info), "end_reason": _name(info.get("end")), "return": None, "digest": None,
    }  # fmt: skip


def label_record(info: JsonObject) -> JsonDict:
    """Return the columns of a record that labels can change."""
    success, expert = is_success(info), is_expert(info)
    return {
        "source": _name(info.get("source")),
        "expert": None if expert is None else int(expert),
        "success": None if success is None else int(success),
        "verdict": _name(info.get("verdict")),
        "tags": tags_of(info),
        "note": _name(info.get("note")),
    }


def is_expert(record: JsonObject) -> bool | None:
    """Return whether an expert demonstrated an episode; None if its record doesn't contain that."""
    if record.get("expert") is not None:
        return bool(record["expert"])
    return None if record.get("source") is None else record["source"] == "expert"


def _name(value: Any) -> str | None:
    """Return a name as text; of a mapping its ``name``."""
    if value is None or type(value) is str:
        return value
    return str(value.get("name")) if isinstance(value, dict) else str(value)


def _last_part(path: object) -> str:
    return str(path).rstrip("/").rpartition("/")[2]


@lru_cache(maxsize=4096)
def _robot(run: str) -> str | None:
    """Return the robot's name that the log of a run has."""
    try:
        spec = LogReader(run).metadata.get("robot_spec")
    except LogError:
        return None
    return _name(spec)


def _times(rows: np.ndarray, start: int, stop: int) -> JsonDict:
    if stop <= start:
        return {"seconds": None, "began": None}
    first, last = rows[start], rows[stop - 1]
    wall = int(first["wall_ns"]) if "wall_ns" in (rows.dtype.names or ()) else 0
    return {
        "seconds": round((int(last["stamp_ns"]) - int(first["stamp_ns"])) / 1e9, 3),
        "began": _iso(wall) if wall > 0 else None,
    }


def _iso(wall_ns: int) -> str | None:
    try:
        return datetime.fromtimestamp(wall_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return None  # a clock that was never set


def from_sql(column: str, value: Any) -> Any:
    """Return a value of a condition's column as a record has it."""
    if column == "tags":
        return [tag for tag in (value or "").split(",") if tag]
    return value


def sql_row(record: JsonObject, columns: Sequence[str]) -> SqlRow:
    """Return some columns of a record as conditions have them."""
    tags = record.get("tags")
    joined = f",{','.join(tags)}," if tags else None
    return tuple([joined if column == "tags" else record[column] for column in columns])
