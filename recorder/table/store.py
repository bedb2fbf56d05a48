"""Keep the table of a run on disk, beside its log, and continue it as the log grows. It may be deleted at any time.

``table/rows.bin`` has the packed rows one after another, ``table/episodes.json`` everything else. Rows of finished
episodes are final. Rows of the last episode are as recorded; they are corrected only in memory.

A table that a power cut or a bad disk has changed is made again from the log. ``episodes.json`` has a checksum of
itself and one of each block of rows. The rows are read and checked if the file is short or was changed since the table
was saved; so the decay of a large file without a write goes unnoticed until it is made again.

`RunIndex` repeats the tables of many runs in one file, so that opening a folder of thousands of runs reads one file. A
run's own table takes precedence: a run with files of other sizes or times than in the index is opened by itself.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hal import RobotError
from hal.atomic_file import atomic_write
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict, JsonObject
from recorder.names import file_stamps, files_of
from recorder.read.scan import Scan, edge
from recorder.table.episodes import Segments, Split, split_episodes
from recorder.table.memory import concatenated

__all__ = ["INDEX_NAME", "RunIndex", "StoredTable", "TableCache", "load_or_build", "stamps_of"]

INDEX_NAME = ".rlenv-robot-runs.json"
"""The index's file in a folder of runs. It may be deleted at any time."""
_INDEX_FORMAT = 1

_FORMAT = 3
_CHECKED_ROWS = 64 << 20
"""Bytes of rows up to which every opening checks them; a tenth of a second."""
_CHECK_BYTES = 1 << 20
"""Bytes of rows, at most, that one checksum stands for."""
_BLOCK = 64 << 20
"""Bytes of rows that are collected before they are written."""


@dataclass(frozen=True)
class StoredTable:
    """The table of one run with its rows in a file.

    Attributes:
        path: the file of rows.
        rows: the number of rows.
        segments: the episodes and notes, with an empty array in place of the rows.
        mends: index -> the row that replaces the stored one.
    """

    path: Path
    rows: int
    segments: Segments
    mends: Mapping[int, np.ndarray]

    def mapped(self) -> Segments:
        """Return the table's content; rows are mapped privately, so that corrections stay in memory."""
        rows = concatenated([(self.path, self.rows)], self.segments.rows.dtype)[0][: self.rows]
        for index, row in self.mends.items():
            rows[index] = row
        rows.setflags(write=False)
        return self.segments._replace(rows=rows)


@dataclass
class TableCache:
    """A table on disk.

    Attributes:
        layout: the layout of the rows.
        path: the file of rows.
        rows: the number of rows.
        tail: the row where the last episode begins; all rows before it are final.
        bounds: (start, stop) of each final episode.
        episodes: the infos of the final episodes.
        notes: the notes on the final episodes.
        scan: the scan of the log so far.
        last: the last episode, its indices counted from ``tail``.
        sums: checksum of each block of rows as saved; while the table grows, only of final blocks.
    """

    layout: FrameLayout
    path: Path
    rows: int = 0
    tail: int = 0
    bounds: list[tuple[int, int]] = field(default_factory=list)
    episodes: list[JsonObject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scan: Scan = field(default_factory=Scan)
    last: Split | None = None
    sums: list[int] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The size of one row in bytes."""
        return self.layout.spec.row_dtype.itemsize

    def raw(self, start: int = 0, mode: Any = "r") -> np.ndarray:
        """Return the rows from ``start`` on, mapped into memory."""
        kind, count = self.layout.spec.row_dtype, self.rows - start
        return np.memmap(self.path, kind, mode, start * self.size, (count,)) if count else np.zeros(0, kind)

    def stored(self) -> StoredTable:
        """Return the stored table, with the corrections of its last episode."""
        bounds, episodes, notes = list(self.bounds), list(self.episodes), [*self.scan.notes(), *self.notes]
        if self.last is not None:
            pairs = zip(self.last.starts.tolist(), self.last.stops.tolist(), strict=True)
            bounds += [(self.tail + start, self.tail + stop) for start, stop in pairs]
            episodes += self.last.episodes
            notes += self.last.notes
        starts, stops = np.array(bounds, np.int64).reshape(-1, 2).T
        empty = np.zeros(0, self.layout.spec.row_dtype)
        segments = Segments(empty, starts.copy(), stops.copy(), tuple(episodes), tuple(notes))
        mends = {self.tail + index: row for index, row in (self.last.mends if self.last else {}).items()}
        return StoredTable(self.path, self.rows, segments, mends)

    # ---- growing ----

    def grow(self, files: Mapping[int, Path]) -> None:
        """Add the new part of the log. No other process may write the file meanwhile."""
        del self.sums[self.tail // self._rows_a_sum :]
        with self.path.open("r+b") as file:
            held: list[np.ndarray] = []
            waiting = 0
            for rows in self.scan.run(files, self.layout.spec.row_dtype):
                held.append(rows)
                waiting += rows.nbytes
                if waiting >= _BLOCK:
                    self._take(file, held)
                    held, waiting = [], 0
            self._take(file, held)
        self.last = split_episodes(self.layout, self.raw(self.tail), self.scan.episodes)

    def _take(self, file: BinaryIO, held: list[np.ndarray]) -> None:
        file.seek(self.rows * self.size)
        for rows in held:
            file.write(rows.data if rows.size else b"")
            self.rows += len(rows)
        file.flush()
        numbers = self.raw(self.tail)["episode"]
        if not len(numbers) or numbers[0] == numbers[-1]:
            return  # numbers never fall: all rows are of one episode
        final = int(np.flatnonzero(np.diff(numbers))[-1]) + 1
        split = split_episodes(self.layout, self.raw(self.tail)[:final], self.scan.episodes)
        for index, row in split.mends.items():
            file.seek((self.tail + index) * self.size)
            file.write(row.tobytes())
        file.flush()
        pairs = zip(split.starts.tolist(), split.stops.tolist(), strict=True)
        self.bounds += [(self.tail + start, self.tail + stop) for start, stop in pairs]
        self.episodes += split.episodes
        self.notes += split.notes
        self.tail += final

    # ---- storing ----

    def save(self, folder: Path, files: JsonObject) -> None:
        """Write everything except the rows, atomically."""
        descriptor = os.open(self.path, os.O_RDWR)
        try:
            os.fsync(descriptor)  # the rows are on the disk before the index that speaks of them
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        self.sums += self._sums(len(self.sums))
        index = {
            "stamp": [status.st_size, status.st_mtime_ns], "sums": self.sums, "files": files,
            "layout": self.layout.to_dict(), "rows": self.rows, "tail": self.tail, "bounds": self.bounds,
            "episodes": self.episodes, "notes": self.notes, "scan": self.scan.to_dict(),
        }  # fmt: skip
        body = json.dumps(index)
        with atomic_write(folder / "episodes.json") as part:
            part.write_text(f"{_FORMAT} {zlib.crc32(body.encode())}\n{body}\n", encoding="utf-8")

    @property
    def _rows_a_sum(self) -> int:
        """The number of rows that one checksum stands for."""
        return max(1, _CHECK_BYTES // self.size)

    def _sums(self, first: int = 0) -> list[int]:
        """Return the checksum of each block of rows from the ``first`` on; the last block may be shorter."""
        rows, count = self.raw(), self._rows_a_sum
        return [zlib.crc32(rows[start : start + count].data) for start in range(first * count, self.rows, count)]

    @staticmethod
    def load(folder: Path) -> tuple[TableCache, JsonObject] | None:
        """Return a saved table and the stamps of the log's files; None if there is none, or it is unusable."""
        try:
            head, _, body = (folder / "episodes.json").read_text(encoding="utf-8").partition("\n")
            if head != f"{_FORMAT} {zlib.crc32(body.rstrip().encode())}":
                return None
            index = json.loads(body)
            layout, path = FrameLayout.from_dict(index["layout"]), folder / "rows.bin"
            bounds = [(int(start), int(stop)) for start, stop in index["bounds"]]
            scan = Scan.from_dict(index["scan"])
            table = TableCache(
                layout, path, index["rows"], index["tail"], bounds, index["episodes"], index["notes"], scan
            )
            status, table.sums = path.stat(), index["sums"]
            if status.st_size < table.rows * table.size:
                return None
            changed = [status.st_size, status.st_mtime_ns] != index["stamp"]
            if (changed or table.rows * table.size <= _CHECKED_ROWS) and table._sums() != table.sums:
                return None
            table.last = split_episodes(layout, table.raw(table.tail), scan.episodes)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RobotError):
            return None  # whatever is wrong, the table can be made again
        return table, index["files"]


def load_or_build(files: Mapping[int, Path], layout: FrameLayout, folder: Path) -> TableCache | None:
    """Return the table of a log, made or continued if necessary; None if nothing can be written in its folder.

    Args:
        files: the log's files, by number.
        layout: the layout of the rows.
        folder: the folder of the table.

    Raises:
        LogError: the log can't be read.
    """
    cached = TableCache.load(folder)
    if cached is not None and cached[1] == file_stamps(files):
        return cached[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            return _renewed(folder, files, layout)
    except OSError:
        return None


def _renewed(folder: Path, files: Mapping[int, Path], layout: FrameLayout) -> TableCache:
    now, cached = file_stamps(files), TableCache.load(folder)  # again: another process may have done it meanwhile
    if cached is not None and cached[0].layout.spec.digest == layout.spec.digest and _continues(*cached, files):
        table = cached[0]
        table.grow(files)
    else:
        (folder / "episodes.json").unlink(missing_ok=True)
        with atomic_write(folder / "rows.bin") as part:  # a process that has the old file mapped keeps it
            part.touch()
        table = TableCache(layout, folder / "rows.bin")
        table.grow(files)
    table.save(folder, now)
    return table


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process in at a time; the lock ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _continues(table: TableCache, before: JsonObject, files: Mapping[int, Path]) -> bool:
    """Return whether the log is the one that was read, perhaps with more at its end."""
    now = file_stamps(files)
    numbers = sorted(int(number) for number in before)
    if not numbers or [int(number) for number in now][: len(numbers)] != numbers:
        return False
    *closed, last = (str(number) for number in numbers)
    if any(now[number] != before[number] for number in closed):
        return False
    state = table.scan.files.get(int(last))
    if now[last] == before[last]:
        return True
    return now[last][0] > before[last][0] and state is not None and state.edge == edge(files[int(last)], state.whole)


# -- the tables of many runs in one file -----------------------------------------------------------------------


def stamps_of(log: Path) -> JsonDict:
    """Return size and time of change of a run's log files.

    Raises:
        OSError: a file is missing.
    """
    return dict(file_stamps(files_of(log)))


def _stamp_of(rows: Path) -> list[int]:
    status = rows.stat()
    return [status.st_size, status.st_mtime_ns]


class RunIndex:
    """The tables of the runs in a folder, by the path of the run's log.

    Args:
        path: the index's file; an unreadable or damaged one counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._layouts: dict[str, FrameLayout] = {}
        self._runs: dict[str, JsonObject] = {}
        self._seen: set[str] = set()
        self._changed = False
        try:
            head, _, body = path.read_text(encoding="utf-8").partition("\n")
            if head == f"{_INDEX_FORMAT} {zlib.crc32(body.encode())}":
                index = json.loads(body)
                self._layouts = {key: FrameLayout.from_dict(about) for key, about in index["layouts"].items()}
                self._runs = index["runs"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RobotError):
            pass  # whatever is wrong, the index can be made again

    def get(self, log: Path) -> tuple[FrameLayout, StoredTable] | None:
        """Return the table of a run, or None if the run is unknown or has changed."""
        name = os.path.abspath(log)
        entry = self._runs.get(name)
        if entry is None:
            return None
        try:
            rows, layout = Path(entry["path"]), self._layouts[entry["layout"]]
            if stamps_of(log) != entry["stamps"] or _stamp_of(rows) != entry["stamp"]:
                return None
            bounds, kind = np.array(entry["bounds"], np.int64).reshape(-1, 2), layout.spec.row_dtype
            mends = {
                int(index): np.frombuffer(base64.b64decode(row), kind).reshape(())
                for index, row in entry["mends"].items()
            }
            segments = Segments(
                np.zeros(0, kind),
                bounds[:, 0].copy(),
                bounds[:, 1].copy(),
                tuple(entry["episodes"]),
                tuple(entry["notes"]),
            )
            self._seen.add(name)
            return layout, StoredTable(rows, entry["rows"], segments, mends)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, log: Path, layout: FrameLayout, run: StoredTable, stamps: JsonDict) -> None:
        """Put the table of a run into the index.

        Args:
            log: the run's first log file.
            layout: the layout of its rows.
            run: its table.
            stamps: `stamps_of` of the log before the table was made.
        """
        segments, name = run.segments, os.path.abspath(log)
        try:
            stamp = _stamp_of(run.path)
        except OSError:
            return
        self._layouts.setdefault(layout.spec.digest, layout)
        self._runs[name] = {
            "path": os.path.abspath(run.path), "rows": run.rows, "stamps": stamps, "stamp": stamp,
            "layout": layout.spec.digest, "bounds": np.stack([segments.starts, segments.stops], 1).tolist(),
            "episodes": list(segments.episodes), "notes": list(segments.notes),
            "mends": {str(index): base64.b64encode(row.tobytes()).decode() for index, row in run.mends.items()},
        }  # fmt: skip
        self._seen.add(name)
        self._changed = True

    def save(self) -> None:
        """Write the index if it has changed; if it can't be written, each opening makes it again."""
        if not self._changed:
            return
        runs = {name: run for name, run in self._runs.items() if name in self._seen}
        body = json.dumps({"layouts": {key: layout.to_dict() for key, layout in self._layouts.items()}, "runs": runs})
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._path) as part:
                part.write_text(f"{_INDEX_FORMAT} {zlib.crc32(body.encode())}\n{body}", encoding="utf-8")
