"""Find the files of a LeRobot data set, v3.0, v2.1 or v2.0, and check them against its description.

The layout is that of the LeRobotDataset sources. v2.1 has one Parquet file for each episode, described in JSON lines;
v2.0 differs from it in the statistics alone, which are not read here. v3.0 has many episodes in a file, described in
Parquet. Episodes that are missing or damaged are left out, with a note.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.json_data import JsonDict, JsonObject
from rlenv_formats.foreign import fill_pattern, read_mapping, read_text, whole_number
from rlenv_formats.parquet_columns import ArrowTable, RowGroups, column, concatenated_tables, integers

__all__ = ["LINES_BYTES", "Entry", "LeRobotFiles", "open_files", "place_values"]

VERSIONS = ("v3.0", "v2.1", "v2.0")
OURS = "rlenv_robot/"
"""Prefix of our columns in the description of episodes."""
_STAMPS = f"{OURS}stamp_ns"
LINES_BYTES = 1 << 28
"""Largest ``episodes.jsonl``: a hundred thousand episodes have about 20 MB."""


@dataclass(frozen=True)
class Entry:
    """The description of one episode.

    Attributes:
        index: the episode's number.
        length: its number of frames.
        tasks: the texts of its tasks.
        file: the file with its frames.
        ours: the columns that `rlenv_formats.lerobot.write` adds, by name; empty in other data sets.
        first: row at which the episode begins in its file, if the file holds all described episodes in order.
    """

    index: int
    length: int
    tasks: tuple[str, ...]
    file: Path
    ours: JsonObject = field(default_factory=dict)
    first: int = 0


@dataclass(frozen=True)
class LeRobotFiles:
    """A data set's description and its episodes in order.

    Attributes:
        root: the folder.
        info: ``meta/info.json``, with the features under the names of `names`.
        entries: the described episodes, in order of their numbers.
        notes: a sentence about each contradiction in the description.
        names: our name of a column -> its name in the files, if the two differ.
        undescribed: the columns that `episodes` met in files, and that ``info`` does not have.
    """

    root: Path
    info: JsonObject
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    undescribed: set[str] = field(default_factory=set, compare=False)

    @property
    def fps(self) -> float:
        """Frames per second."""
        return float(self.info["fps"])

    @property
    def indices(self) -> np.ndarray:
        """The episodes' numbers in increasing order, (E,)."""
        return np.array([entry.index for entry in self.entries], np.int64)

    def episodes(self, columns: Sequence[str]) -> Iterator[tuple[Entry, ArrowTable | SourceError]]:
        """Yield each episode with a pyarrow table of its existing columns, or with the error from reading it.

        If a file's episodes follow one another, as LeRobot writes them, only the row groups with described episodes are
        read, each once, and few rows are in memory at a time. Any other file is read as a whole.
        """
        self.undescribed.clear()
        for path, some in itertools.groupby(self.entries, lambda entry: entry.file):
            entries = list(some)
            try:
                content = _Content(path, entries, columns, self.names)
            except SourceError as error:
                yield from ((entry, error) for entry in entries)
                continue
            self.undescribed.update(content.names - self.info["features"].keys())
            with contextlib.closing(content):
                yield from ((entry, content.of(entry)) for entry in entries)


class _Content:
    """The rows of one file, taken episode by episode.

    Args:
        path: the file.
        entries: the episodes that will be asked for, in this order.
        columns: names of the columns, in the data set's description.
        names: the files' name of a column by its name in the description, where the two differ.

    Raises:
        SourceError: the file can't be read.
    """

    def __init__(self, path: Path, entries: Sequence[Entry], columns: Sequence[str], names: Mapping[str, str]) -> None:
        self._path, self._ours = path, {stored: name for name, stored in names.items()}
        self._groups = RowGroups(path, [names.get(name, name) for name in columns])
        self.names = {self._ours.get(name, name) for name in self._groups.names}
        everything = range(len(self._groups.counts))
        chosen = self._described(entries)
        self._runs = self._runs_in(chosen)
        if len(chosen) < len(everything) and not all(self._runs.holds(entry) for entry in entries):
            chosen = everything  # the file holds other rows than the description says
            self._runs = self._runs_in(chosen)
        self._rows: Iterator[ArrowTable] = self._groups.batches(chosen)
        if not self._runs.rise:
            whole = self._groups.read()
            indices = self._indices(whole)
            order = np.argsort(indices, kind="stable")
            self._runs, self._rows = _Runs.of([indices[order]]), iter([whole.take(order)])
        self._held: list[ArrowTable] = []
        self._first = self._stop = 0  # rows that are held
        self._error: SourceError | None = None

    def of(self, entry: Entry) -> ArrowTable | SourceError:
        """Return the rows of an episode, or the error of reading them."""
        begin, stop = self._runs.span(entry.index)
        if stop - begin != entry.length:
            return SourceError(
                f"{self._path} holds {stop - begin} frames of episode {entry.index}, the data set's description says "
                f"{entry.length}; fetch the data set again"
            )
        try:
            return self._taken(begin, stop) if self._error is None else self._error
        except SourceError as error:
            self._error = error  # nothing that follows in the file can be read either
            return error

    def _taken(self, begin: int, stop: int) -> ArrowTable:
        """Return rows of the chosen groups, none of them before those that were returned last."""
        while self._stop < stop:
            table = next(self._rows, None)
            if table is None:
                raise SourceError(f"{self._path} ends after {self._stop} rows; fetch the data set again")
            self._held.append(table.rename_columns([self._ours.get(name, name) for name in table.column_names]))
            self._stop += table.num_rows
            self._drop(begin)
        self._drop(begin)
        whole = concatenated_tables(self._held)
        return whole.slice(begin - self._first, stop - begin)

    def _drop(self, begin: int) -> None:
        while self._held and self._first + self._held[0].num_rows <= begin:
            self._first += self._held.pop(0).num_rows

    def _described(self, entries: Sequence[Entry]) -> range | list[int]:
        """Return the row groups in which episodes lie, if the file holds just the described ones, in order."""
        stops = np.cumsum(self._groups.counts)
        needed = np.zeros(len(stops), bool)
        for entry in entries:
            first = int(np.searchsorted(stops, entry.first, "right"))
            needed[first : int(np.searchsorted(stops, entry.first + entry.length - 1, "right")) + 1] = True
        return np.flatnonzero(needed).tolist()

    def _runs_in(self, groups: Sequence[int]) -> _Runs:
        return _Runs.of(map(self._indices, self._groups.batches(groups, ["episode_index"])))

    def _indices(self, table: ArrowTable) -> np.ndarray:
        return column(table, "episode_index", np.int64, (), str(self._path))

    def close(self) -> None:
        """Close the file."""
        self._groups.close()


@dataclass(frozen=True)
class _Runs:
    """Runs of neighbouring rows of one episode.

    Attributes:
        indices: the episode's number of each run, (R,).
        bounds: the first row of each run, and the number of all rows, (R + 1,).
    """

    indices: np.ndarray
    bounds: np.ndarray

    @staticmethod
    def of(parts: Iterable[np.ndarray]) -> _Runs:
        """Return the runs of rows whose episodes' numbers come in parts."""
        indices, firsts, count = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
        for part in parts:
            begins = np.flatnonzero(np.diff(part, prepend=part[:1] - 1)) if len(part) else np.zeros(0, np.int64)
            indices.append(part[begins])
            firsts.append(begins + count)
            count += len(part)
        numbers, starts = np.concatenate(indices), np.concatenate(firsts)
        new = np.append(True, numbers[1:] != numbers[:-1])[: len(numbers)]
        return _Runs(numbers[new], np.append(starts[new], count))

    @property
    def rise(self) -> bool:
        """Whether the numbers rise, so that each episode is one run."""
        return bool((np.diff(self.indices) > 0).all())

    def span(self, index: int) -> tuple[int, int]:
        """Return the first row of an episode, and the row behind its last one, of runs that rise."""
        place = int(np.searchsorted(self.indices, index))
        if place == len(self.indices) or self.indices[place] != index:
            return 0, 0
        return int(self.bounds[place]), int(self.bounds[place + 1])

    def holds(self, entry: Entry) -> bool:
        """Return whether an episode is one run of the described length."""
        begin, stop = self.span(entry.index)
        return self.rise and stop - begin == entry.length


def place_values(index: int, chunk: int, file: int, size: int) -> JsonDict:
    """Return the values for a path pattern, under the names of v3.0 and of v2.1, since some data sets mix the two.

    Args:
        index: the episode's number.
        chunk: chunk number in v3.0; in v2.1, the episode's chunk.
        file: file number in v3.0; in v2.1, the episode's number.
        size: number of episodes in a chunk in v2.1.
    """
    return {"chunk_index": chunk, "file_index": file, "episode_chunk": index // size, "episode_index": index}


def open_files(
    root: Path, columns: Mapping[str, str] | None = None, episodes: Sequence[int] | None = None
) -> LeRobotFiles:
    """Read the description of a data set.

    Args:
        root: the folder with ``meta`` and ``data``.
        columns: LeRobot's name of a feature -> its name in this data set, if the two differ.
        episodes: numbers of the episodes to read; None reads all.

    Raises:
        SourceError: the folder is not a data set, has another version, or contains nothing readable.
    """
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise SourceError(f"{root} is not a LeRobot data set: {path} is missing")
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
    for text in read_text(path, LINES_BYTES).split("\n"):  # a text may hold what `splitlines` takes for a line break
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
    places: dict[tuple[int, int], Path] = {}  # most sets have few files, and a path is slow to make
    by_episode = "{episode_" in str(info["data_path"])
    for file in files:
        for line in _lines(file, required + ours):
            index, length, chunk, number = (
                whole_number(line.get(key), f"{file}: {key} of an episode", key == "length")
                for key in ("episode_index", "length", "data/chunk_index", "data/file_index")
            )
            place = None if by_episode else places.get((chunk, number))
            if place is None:
                values = place_values(index, chunk, number, info["chunks_size"])
                place = places[chunk, number] = fill_pattern(root, info["data_path"], where, values)
            own_columns = {key.removeprefix(OURS): line[key] for key in ours if line.get(key) is not None}
            entries.append(Entry(index, length, _texts(line.get("tasks")), place, own_columns))
    return entries


def _lines(file: Path, columns: Sequence[str]) -> Iterator[JsonDict]:
    """Yield the description of each episode; the stamps of its frames are an array, not a list."""
    with contextlib.closing(RowGroups(file, columns)) as groups:
        for table in groups.batches(range(len(groups.counts))):
            stamps = table.column(_STAMPS) if _STAMPS in table.column_names else None
            plain = table if stamps is None else table.drop_columns([_STAMPS])
            for number, line in enumerate(plain.to_pylist()):
                yield line if stamps is None else line | {_STAMPS: integers(stamps[number])}


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
    rows: Counter[Path] = Counter()
    placed = []
    for _, entry in sorted(by_index.items()):
        placed.append(replace(entry, first=rows[entry.file]))
        rows[entry.file] += entry.length
    return tuple(placed), notes


def _chosen(root: Path, entries: tuple[Entry, ...], episodes: Sequence[int]) -> tuple[Entry, ...]:
    chosen = set(episodes)
    if unknown := chosen - {entry.index for entry in entries}:
        raise SourceError(f"{root} has no episode {min(unknown)}, it has {entries[0].index} to {entries[-1].index}")
    return tuple(entry for entry in entries if entry.index in chosen)
