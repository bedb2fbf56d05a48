"""Find the files of a LeRobot data set, v3.0 and v2.1, and check them against their description.

Layout: the LeRobotDataset sources. v2.1 has a Parquet file for each episode, described in JSON lines; v3.0 has many
episodes in a file, described in Parquet. Episodes that are missing or damaged are left out, with a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.formats.foreign import fill_pattern, read_mapping, read_text, whole_number
from recorder.formats.parquet_columns import ArrowTable, column, read_parquet
from recorder.json_data import JsonDict, JsonObject

__all__ = ["Entry", "LeRobotFiles", "open_files", "place_values"]

VERSIONS = ("v3.0", "v2.1")
OURS = "rlenv_robot/"
"""Beginning of the names of our own columns in the description of episodes."""
_LINES_BYTES = 1 << 28
"""Largest ``episodes.jsonl``: a hundred thousand episodes have about 20 MB."""


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
    """A data set's description and its episodes in order.

    Attributes:
        root: the folder.
        info: ``meta/info.json``, with the features under the names of `names`.
        entries: the described episodes, by rising number.
        notes: where the description contradicts itself, a sentence each.
        names: our name of a column -> its name in the files, where the two differ.
    """

    root: Path
    info: JsonObject
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def fps(self) -> float:
        """Frames per second."""
        return float(self.info["fps"])

    @property
    def indices(self) -> np.ndarray:
        """The episodes' numbers, rising, (E,)."""
        return np.array([entry.index for entry in self.entries], np.int64)

    def episodes(self, columns: Sequence[str]) -> Iterator[tuple[Entry, ArrowTable | SourceError]]:
        """Yield each episode with its rows (a pyarrow table of the existing columns), or with the error of reading it.

        A file is read once, whatever the number of its episodes, and one file's rows are in memory at a time.
        """
        path, content = Path(), None
        for entry in self.entries:
            if entry.file != path or content is None:
                path, content = entry.file, None  # the old rows go before the new ones come
                content = self._content(path, columns)
            yield entry, content if isinstance(content, SourceError) else content.of(entry)

    def _content(self, path: Path, columns: Sequence[str]) -> _Content | SourceError:
        try:
            table = read_parquet(path, [self.names.get(name, name) for name in columns])
            ours = {stored: name for name, stored in self.names.items()}
            table = table.rename_columns([ours.get(name, name) for name in table.column_names])
            return _Content(path, table)
        except SourceError as error:
            return error


class _Content:
    """The rows of one file, sorted by episode."""

    def __init__(self, path: Path, table: ArrowTable) -> None:
        indices = column(table, "episode_index", np.int64, (), str(path))
        if (np.diff(indices) < 0).any():
            order = np.argsort(indices, kind="stable")
            table, indices = table.take(order), indices[order]
        self._path, self._table, self._indices = path, table, indices

    def of(self, entry: Entry) -> ArrowTable | SourceError:
        begin, end = np.searchsorted(self._indices, [entry.index, entry.index + 1]).tolist()
        if end - begin != entry.length:
            return SourceError(
                f"{self._path} holds {end - begin} frames of episode {entry.index}, the data set's description says "
                f"{entry.length}; fetch the data set again"
            )
        return self._table.slice(begin, end - begin)


def place_values(index: int, chunk: int, file: int, size: int) -> JsonDict:
    """Return what a path pattern may name: v3.0's and v2.1's names alike, since some data sets mix them.

    Args:
        index: the episode's number.
        chunk, file: of v3.0; for v2.1, the episode's chunk and number.
        size: episodes in a chunk of v2.1.
    """
    return {"chunk_index": chunk, "file_index": file, "episode_chunk": index // size, "episode_index": index}


def open_files(
    root: Path, columns: Mapping[str, str] | None = None, episodes: Sequence[int] | None = None
) -> LeRobotFiles:
    """Read the description of a data set.

    Args:
        root: the folder with ``meta`` and ``data``.
        columns: LeRobot's name of a feature -> its name in this data set, where they differ.
        episodes: numbers of the episodes to read; None reads all.

    Raises:
        SourceError: the folder is no data set, of another version, or nothing in it can be read.
    """
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise SourceError(f"{root} is no LeRobot data set: {path} is missing")
    info = read_mapping(path)
    _check_info(path, info)
    info["features"] = _renamed(path, info["features"], columns or {})
    described = _entries_v3(root, info) if info["codebase_version"] == "v3.0" else _entries_v2(root, info)
    notes = _totals(info, described)
    entries, more = _distinct(described)
    if episodes is not None:
        entries = _chosen(root, entries, episodes)
    if not entries:
        raise SourceError(f"{root} describes no episode; fetch the data set again")
    return LeRobotFiles(root, info, entries, (*notes, *more), dict(columns or {}))


def _check_info(path: Path, info: JsonDict) -> None:
    version = info.get("codebase_version")
    if version not in VERSIONS:
        raise SourceError(
            f"{path}: codebase_version is {version!r:.60}, supported are {', '.join(VERSIONS)}; "
            "convert it with LeRobot's own script"
        )
    for key in ("features", "data_path", "fps"):
        if key not in info:
            raise SourceError(f"{path}: {key} is missing")
    fps = info["fps"]
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not (math.isfinite(fps) and 1e-6 < fps < 1e6):
        raise SourceError(f"{path}: fps is {fps!r:.60}, expected a number above 0")
    features = info["features"]
    if not isinstance(features, dict) or not all(isinstance(about, dict) for about in features.values()):
        raise SourceError(f"{path}: features is {features!r:.60}, expected a mapping from a name to a mapping")
    info["chunks_size"] = whole_number(info.get("chunks_size", 1000), f"{path}: chunks_size", 1)


def _renamed(path: Path, features: JsonDict, columns: Mapping[str, str]) -> JsonDict:
    """Return the features under LeRobot's names."""
    missing = [stored for stored in columns.values() if stored not in features]
    if missing:
        raise SourceError(
            f"{path}: columns names {', '.join(map(repr, missing))}, the data set has {', '.join(features)}"
        )
    ours = {stored: name for name, stored in columns.items()}
    return {ours.get(name, name): about for name, about in features.items() if name in ours or name not in columns}


def _entries_v2(root: Path, info: JsonObject) -> list[Entry]:
    path = root / "meta" / "episodes.jsonl"
    size, entries = info["chunks_size"], []
    for text in read_text(path, _LINES_BYTES).splitlines():
        if not text.strip():
            continue
        line = read_mapping(path, text)
        index = whole_number(line.get("episode_index"), f"{path}: an episode_index")
        length = whole_number(line.get("length"), f"{path}: the length of episode {index}", 1)
        values = place_values(index, index // size, index, size)
        file = fill_pattern(root, info["data_path"], f"{root / 'meta' / 'info.json'}: data_path", values)
        entries.append(Entry(index, length, _texts(line.get("tasks")), file))
    return entries


def _texts(value: object) -> tuple[str, ...]:
    some = value if isinstance(value, list) else [value]
    return tuple(str(one) for one in some if one is not None)


def _entries_v3(root: Path, info: JsonObject) -> list[Entry]:
    files = sorted((root / "meta" / "episodes").glob("chunk-*/file-*.parquet"))
    if not files:
        raise SourceError(f"{root / 'meta' / 'episodes'} holds no chunk-*/file-*.parquet; fetch the data set again")
    required = ["episode_index", "length", "tasks", "data/chunk_index", "data/file_index"]
    ours = [
        f"{OURS}{name}" for name in ("info", "stamp_ns", "last/timestamp", *(f"last/{key}" for key in info["features"]))
    ]
    where, entries = f"{root / 'meta' / 'info.json'}: data_path", []
    for file in files:
        for line in read_parquet(file, required + ours).to_pylist():
            index, length, chunk, number = (
                whole_number(line.get(key), f"{file}: {key} of an episode", key == "length")
                for key in ("episode_index", "length", "data/chunk_index", "data/file_index")
            )
            place = fill_pattern(
                root, info["data_path"], where, place_values(index, chunk, number, info["chunks_size"])
            )
            own_columns = {key.removeprefix(OURS): line[key] for key in ours if line.get(key) is not None}
            entries.append(Entry(index, length, _texts(line.get("tasks")), place, own_columns))
    return entries


def _totals(info: JsonObject, entries: Sequence[Entry]) -> list[str]:
    counted = {"total_episodes": len(entries), "total_frames": sum(entry.length for entry in entries)}
    return [
        f"meta/info.json says {key} {info[key]!r:.60}, but {count} of them are described; the others are missing"
        for key, count in counted.items()
        if key in info and info[key] != count
    ]


def _distinct(entries: Sequence[Entry]) -> tuple[tuple[Entry, ...], list[str]]:
    """Return the episodes by rising number, each number once, and notes on the others."""
    by_index: dict[int, Entry] = {}
    for entry in entries:
        by_index.setdefault(entry.index, entry)
    twice = len(entries) - len(by_index)
    notes = [f"{twice} episodes are described twice; their later descriptions are left out"] if twice else []
    last = max(by_index, default=-1)
    if missing := last + 1 - len(by_index):
        notes.append(f"{missing} of the episodes 0 to {last} are missing in the description")
    return tuple(by_index[index] for index in sorted(by_index)), notes


def _chosen(root: Path, entries: tuple[Entry, ...], episodes: Sequence[int]) -> tuple[Entry, ...]:
    wanted = set(episodes)
    if unknown := wanted - {entry.index for entry in entries}:
        raise SourceError(f"{root} has no episode {min(unknown)}, it has {entries[0].index} to {entries[-1].index}")
    return tuple(entry for entry in entries if entry.index in wanted)
