"""Find the unbroken runs of transitions in a table; of a large table they are kept in a file beside it.

Finding them reads all rows, which takes minutes where these are larger than memory. The file repeats the sizes and
times of the files of rows; it may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from hal.atomic_file import atomic_write
from recorder.read.npz import read_npz
from recorder.table.table import Table

__all__ = ["Stretches", "episode_groups", "rows_of_episodes", "stretches_of"]

_CHUNK = 1 << 20
"""Rows that are looked at in one go, if they are small."""
_CHUNK_BYTES = 128 << 20
"""Bytes of rows that are looked at in one go: field after field is read, and only the first from the disk."""
_KEPT = 1 << 20
"""Rows from which the stretches are kept in a file."""


class Stretches(NamedTuple):
    """The S unbroken runs of transitions, called stretches; only the last transition of a stretch can be done.

    Attributes:
        first: (S + 1,) int64: stretch s has the positions ``first[s]`` up to, not including, ``first[s + 1]``.
        row: (S,) int64, the row of its first transition.
        episode, done, terminated, truncated: (S,) int32; the flags are of its last transition.
    """

    first: np.ndarray
    row: np.ndarray
    episode: np.ndarray
    done: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @staticmethod
    def of(table: Table) -> Stretches:
        """Find the stretches of a table, by reading three fields of all its rows."""
        parts = [_of_episodes(table, begin, end) for begin, end in episode_groups(table)]
        lengths, *rest = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _NONE
        return Stretches(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), *rest)

    @property
    def runs(self) -> np.ndarray:
        """(K + 1,) int64: the transitions ``runs[k]`` to ``runs[k + 1]``, excluded, follow without an end."""
        return np.append(0, self.first[np.flatnonzero(self.done) + 1])

    @property
    def transitions(self) -> int:
        """The number of transitions."""
        return int(self.first[-1])


def stretches_of(table: Table) -> Stretches:
    """Return the stretches of a table, from the file in which they were kept if that is up to date."""
    stored = table.stored
    if stored is None or stored.rows is not table.rows or len(table.rows) < _KEPT:
        return Stretches.of(table)
    key = f"{stored.key} {zlib.crc32(table.starts.tobytes())} {zlib.crc32(table.stops.tobytes())}"
    try:
        with stored.place.open("rb") as file:
            arrays = read_npz(file)
            if str(arrays["key"]) == key:
                return Stretches(*(arrays[name] for name in Stretches._fields))
            if not str(arrays["key"]).startswith(stored.key):
                raise ValueError("of other rows")
            return Stretches.of(table)  # the file is of all episodes, the table has some of them
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error):
        pass  # whatever is wrong with the file, it can be made again
    stretches = Stretches.of(table)
    with contextlib.suppress(OSError):
        stored.place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(stored.place) as part, part.open("wb") as file:
            np.savez(file, key=np.array(key), **stretches._asdict())
    return stretches


_NONE: tuple[np.ndarray, ...] = (
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    *[np.zeros(0, np.int32) for _ in range(4)],
)


def episode_groups(table: Table) -> Iterator[tuple[int, int]]:
    """Yield ranges of episodes (begin, end) with about `_CHUNK` rows, or `_CHUNK_BYTES`, each."""
    most = max(min(_CHUNK, _CHUNK_BYTES // table.rows.dtype.itemsize), 1)
    filled = np.cumsum(np.maximum(table.stops - table.starts, 0))
    begin = 0
    while begin < len(filled):
        before = filled[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(filled, before + most, side="right")))
        yield begin, end
        begin = end


def _of_episodes(table: Table, begin: int, end: int) -> tuple[np.ndarray, ...]:
    """Return the lengths and the fields of the stretches of some episodes."""
    row, episode = _pairs(table, begin, end)
    if not len(row):
        return _NONE
    rows = table.rows
    # A refused action keeps the frame number, so the next transition follows without a break.
    follows = rows["frame_no"][row[1:]] == rows["frame_no"][row[:-1] + 1]
    terminated = rows["terminated"][row + 1] != 0
    done = np.ones(len(row), bool)
    done[:-1] = (episode[1:] != episode[:-1]) | ~follows
    done |= terminated | (rows["truncated"][row + 1] != 0)
    lasts = np.flatnonzero(np.append(done[:-1] | (row[1:] != row[:-1] + 1), True))
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    ends, over = done[lasts], terminated[lasts]
    flags = [flag.astype(np.int32) for flag in (ends, over, ends & ~over)]
    return lasts - firsts + 1, row[firsts], episode[firsts].astype(np.int32), *flags


def _pairs(table: Table, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first rows of the transitions of some episodes, and their episodes."""
    row, episode = rows_of_episodes(table, begin, end, 1)
    acted = table.rows["acted"][row + 1] == 1
    row, episode = row[acted], episode[acted]
    frame_no = table.rows["frame_no"]
    real = frame_no[row + 1].astype(np.int64) == frame_no[row].astype(np.int64) + 1
    return row[real], episode[real]


def rows_of_episodes(table: Table, begin: int, end: int, without: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows of some episodes, each without its last ones, and their episodes."""
    starts = table.starts[begin:end]
    counts = np.maximum(table.stops[begin:end] - starts - without, 0)
    before = np.cumsum(counts) - counts
    row = np.arange(counts.sum(), dtype=np.int64) + np.repeat(starts - before, counts)
    return row, np.repeat(np.arange(begin, end), counts)
