"""Find the files of a LeRobot data set, v3.0 and v2.1, and check them against their description.

Layout: the LeRobotDataset sources. v2.1 has a Parquet file for each episode, described in JSON lines; v3.0 has many
episodes in a file, described in Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from recorder.formats.parquet_columns import column, read_parquet
from recorder.json_data import JsonDict, JsonObject

__all__ = ["Entry", "LeRobotFiles", "open_files"]

VERSIONS = ("v3.0", "v2.1")
OURS = "rlenv_robot/"
"""Beginning of the names of our own columns in the description of episodes."""


@dataclass(frozen=True)
class Entry:
    """The description of one episode.

    Attributes:
        index, length, tasks: the episode's number, its number of frames, its tasks' texts.
        file: the file with its frames.
        ours: our own columns, which `recorder.formats.lerobot.write` adds, by name; empty in others' data sets.
    """

    index: int
    length: int
    tasks: tuple[str, ...]
    file: Path
    ours: JsonObject = field(default_factory=dict)


@dataclass(frozen=True)
class LeRobotFiles:
    """A data set's description and its episodes in order."""

    root: Path
    info: JsonObject
    entries: tuple[Entry, ...]

    def episodes(self, columns: list[str]) -> Iterator[tuple[Entry, Any]]:
        """Yield each episode with its rows (a pyarrow table of the existing columns).

        Raises:
            SourceError: a file is missing or damaged, or its number of rows contradicts the description.
        """
        path, table, indices = Path(), None, np.zeros(0)
        for entry in self.entries:
            if entry.file != path:
                path, table = entry.file, read_parquet(entry.file, columns)
                indices = column(table, "episode_index", np.int64, (), str(path))
            here = np.flatnonzero(indices == entry.index)
            if len(here) != entry.length:
                raise SourceError(
                    f"{path} holds {len(here)} frames of episode {entry.index}, the data set's description says "
                    f"{entry.length}; fetch the data set again"
                )
            assert table is not None
            yield entry, table.take(here)


def open_files(root: Path) -> LeRobotFiles:
    """Read the description of a data set.

    Raises:
        SourceError: the folder is no data set, of another version, or contradicts itself.
    """
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise SourceError(f"{root} is no LeRobot data set: {path} is missing")
    info = _json(path, path.read_text())
    version = info.get("codebase_version")
    if version not in VERSIONS:
        raise SourceError(
            f"{path}: codebase_version is {version!r}, supported are {', '.join(VERSIONS)}; "
            "convert it with LeRobot's own script"
        )
    for key in ("features", "data_path", "total_episodes", "total_frames", "fps"):
        if key not in info:
            raise SourceError(f"{path}: {key} is missing")
    entries = _entries_v3(root, info) if version == "v3.0" else _entries_v2(root, info)
    _check_totals(path, info, entries)
    return LeRobotFiles(root, info, entries)


def _json(path: Path, text: str) -> JsonDict:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SourceError(f"{path} is not JSON: {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise SourceError(f"{path} holds a {type(value).__name__}, expected a mapping")
    return value


def _entries_v2(root: Path, info: JsonObject) -> tuple[Entry, ...]:
    path = root / "meta" / "episodes.jsonl"
    if not path.is_file():
        raise SourceError(f"{path} is missing; the data set is incomplete, fetch it again")
    lines = [_json(path, line) for line in path.read_text().splitlines() if line.strip()]
    size = int(info.get("chunks_size", 1000))
    entries = []
    for line in lines:
        try:
            index, length = int(line["episode_index"]), int(line["length"])
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"{path}: an episode without {error}") from error
        name = info["data_path"].format(episode_chunk=index // size, episode_index=index)
        entries.append(Entry(index, length, tuple(line.get("tasks", ())), root / name))
    return tuple(sorted(entries, key=lambda entry: entry.index))


def _entries_v3(root: Path, info: JsonObject) -> tuple[Entry, ...]:
    files = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    if not files:
        raise SourceError(f"{root / 'meta' / 'episodes'} holds no chunk-*/file-*.parquet; fetch the data set again")
    required = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    ours = [
        f"{OURS}{name}" for name in ("info", "stamp_ns", "last/timestamp", *(f"last/{key}" for key in info["features"]))
    ]
    entries = []
    for file in files:
        for line in read_parquet(file, required + ours).to_pylist():
            missing = [key for key in required if line.get(key) is None and key != "tasks"]
            if missing:
                raise SourceError(f"{file}: an episode without {', '.join(missing)}; fetch the data set again")
            name = info["data_path"].format(chunk_index=line["data/chunk_index"], file_index=line["data/file_index"])
            tasks = tuple(line.get("tasks") or ())
            own_columns = {key.removeprefix(OURS): line[key] for key in ours if line.get(key) is not None}
            entries.append(Entry(line["episode_index"], line["length"], tasks, root / name, own_columns))
    return tuple(sorted(entries, key=lambda entry: entry.index))


def _check_totals(path: Path, info: JsonObject, entries: tuple[Entry, ...]) -> None:
    counted = {"total_episodes": len(entries), "total_frames": sum(entry.length for entry in entries)}
    for key, count in counted.items():
        if int(info[key]) != count:
            raise SourceError(
                f"{path}: {key} is {info[key]}, the episodes' own description gives {count}; fetch the data set again"
            )
    for entry, index in zip(entries, range(len(entries)), strict=True):
        if entry.index != index or entry.length < 1:
            raise SourceError(
                f"{path.parent}: episode {index} is missing, twice there, or empty (found {entry.index} "
                f"with {entry.length} frames); fetch the data set again"
            )
