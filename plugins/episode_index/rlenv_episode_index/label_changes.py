"""Find the episodes whose labels changed since the index took them up, and change these alone in the index."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from hal import LogError
from recorder.json_data import JsonDict, JsonObject, parse_lines
from recorder.log.labels import corrections, label_files, labels_of
from rlenv_robot.data.episode_records import SqlRow, label_record, sql_row

__all__ = ["LabelChange", "apply_labels", "label_change", "label_state", "recorded_values", "same_labels"]

_KEYS = ("verdict", "success", "source", "expert", "note", "tags")
_COLUMNS = ("source", "expert", "success", "verdict", "tags", "note")

_FEW = 1000
"""Changed episodes up to which their lines are searched, which is faster than to read all lines."""


class LabelChange(NamedTuple):
    """A change of the files of labels.

    Attributes:
        state: the new state, see `label_state`.
        numbers: the episodes whose labels may differ; None if any may.
        labels: `recorder.log.labels.read_labels`, of these episodes at least.
    """

    state: str
    numbers: frozenset[int] | None
    labels: dict[int, JsonDict]


def label_state(path: Path) -> str:
    """Return a text by which `same_labels` and `label_change` see later what has changed in the labels of a set.

    Raises:
        LogError: a file can't be read.
    """
    return _state([(file, *_read(file)) for file in label_files(path)])


def same_labels(path: Path, state: str) -> bool:
    """Return whether no file of labels has changed since its state was taken."""
    stats = [(str(file), file.stat()) for file in label_files(path)]
    return [entry[:3] for entry in json.loads(state)] == [
        [name, status.st_size, status.st_mtime_ns] for name, status in stats
    ]


def label_change(path: Path, state: str) -> LabelChange:
    """Return what changed since a state was taken.

    Files of labels only grow: where the earlier content is still there by its digest, the episodes of the lines behind
    it are those that changed. Otherwise any episode may have changed.

    Raises:
        LogError: a file can't be read.
    """
    files = [(file, *_read(file)) for file in label_files(path)]
    before = {name: (size, digests[0] if digests else "") for name, size, _, *digests in json.loads(state)}
    added, grown = [], True
    for file, content, _ in files:
        size, digest = before.pop(str(file), (0, _digest(b"")))
        grown = grown and _digest(content[:size]) == digest
        added.append(content[content.rfind(b"\n", 0, size) + 1 :])  # the last line may have been written in part
    if before or not grown:
        return LabelChange(_state(files), None, labels_of(_entries(content for _, content, _ in files)))
    numbers = frozenset(_numbers(added))
    lines = [content if len(numbers) > _FEW else _lines_of(numbers, content) for _, content, _ in files]
    return LabelChange(_state(files), numbers, labels_of(_entries(lines)))


def _read(file: Path) -> tuple[bytes, int]:
    """Return the content of a file and the time of its last change, ns; what is added meanwhile is left out."""
    try:
        status = file.stat()
        return file.read_bytes()[: status.st_size], status.st_mtime_ns
    except OSError as error:
        raise LogError(f"{file} can't be read: {error}") from error


def _state(files: Iterable[tuple[Path, bytes, int]]) -> str:
    return json.dumps([[str(file), len(content), time_ns, _digest(content)] for file, content, time_ns in files])


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _entries(contents: Iterable[bytes]) -> list[JsonDict]:
    return [entry for content in contents for entry in parse_lines(content)]


def _numbers(contents: Iterable[bytes]) -> set[int]:
    """Return the numbers of the episodes that lines name."""
    numbers = set()
    for entry in _entries(contents):
        try:
            numbers.add(int(entry["episode"]))
        except (ValueError, KeyError, TypeError, OverflowError):
            continue  # a line without a number labels nothing
    return numbers


def _lines_of(numbers: Collection[int], content: bytes) -> bytes:
    """Return the lines of a file that name one of some episodes, and perhaps others."""
    if not numbers:
        return b""
    choices = "|".join(map(str, numbers))
    pattern = re.compile(rf'"episode"\s*:\s*"?\s*(?:{choices})\b'.encode())
    lines, behind = [], 0
    for match in pattern.finditer(content):
        if match.start() >= behind:
            behind = content.find(b"\n", match.end()) + 1 or len(content)
            lines.append(content[content.rfind(b"\n", 0, match.start()) + 1 : behind])
    return b"".join(lines)


# -- in the index ----------------------------------------------------------------------------------------------------


def recorded_values(info: JsonObject) -> str:
    """Return what an episode's info has of the values that labels replace, as the index keeps it."""
    return json.dumps({key: info[key] for key in _KEYS if info.get(key) is not None}, default=str)


def apply_labels(
    connection: sqlite3.Connection, set_id: int, change: LabelChange, infos: Callable[[], dict[str, JsonDict]]
) -> None:
    """Change the episodes of a set in the index whose columns differ by a change of labels.

    Args:
        connection: the index, in a transaction.
        set_id: the set.
        change: what changed.
        infos: returns mark -> the columns that labels can change, for episodes of which the index does not know what
            was recorded: those of a run that had labels when it was first read.

    Raises:
        RobotError: ``infos`` can't be read.
    """
    names = ", ".join(f'"{column}"' for column in _COLUMNS)
    where = "WHERE set_id = ?"
    if change.numbers is not None and len(change.numbers) <= _FEW:  # SQLite itself would look at the whole set
        where = f"INDEXED BY stored_episode {where} AND episode IN ({', '.join(map(str, sorted(change.numbers)))})"
    statement = f"SELECT position, episode, mark, recorded, {names} FROM main.stored {where}"
    by_mark: dict[str, JsonDict] | None = None
    changed: list[SqlRow] = []
    for position, number, mark, recorded, *present in connection.execute(statement, (set_id,)).fetchall():
        if recorded is not None:
            info = json.loads(recorded)
            record = label_record({**info, **corrections(info, change.labels.get(number, {}))})
        else:
            by_mark = infos() if by_mark is None else by_mark
            if mark not in by_mark:
                continue
            record = by_mark[mark]
        values = sql_row(record, _COLUMNS)
        if values != tuple(present):
            changed.append((*values, set_id, position))
    assigned = ", ".join(f'"{column}" = ?' for column in _COLUMNS)
    connection.executemany(f"UPDATE main.stored SET {assigned} WHERE set_id = ? AND position = ?", changed)
    connection.execute("UPDATE main.sets SET labels = ? WHERE id = ?", (change.state, set_id))
