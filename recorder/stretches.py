"""Where the transitions of a table lie: unbroken runs of rows, a few numbers each, whatever the table's size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from recorder.table import Table

__all__ = ["Places", "Stretches", "TransitionIndex"]

_CHUNK = 1 << 20
"""Rows that are looked at in one go."""

_LISTED = 1 << 22
"""Transitions up to which the row of each is listed, which is faster than to search for it."""

_GUIDE_BITS = 7
"""The guide remembers the stretch of every 128th position, from where a search takes a step or two."""


class Places(NamedTuple):
    """What is known of transitions without reading their rows; each of shape (B,).

    Attributes:
        row: int64, of the observation; the next one is ``row + 1``.
        episode, done, terminated, truncated: int32.
    """

    row: np.ndarray
    episode: np.ndarray
    done: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class Stretches(NamedTuple):
    """Runs of neighbouring transitions; only a stretch's last transition can be done. S of them.

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
        """Find them; which neighbours make a transition is said in `recorder.transitions.Transitions`."""
        parts = [_of_episodes(table, begin, end) for begin, end in _groups(table)]
        lengths, *rest = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _NONE
        return Stretches(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), *rest)

    @property
    def transitions(self) -> int:
        """Number of transitions."""
        return int(self.first[-1])


class TransitionIndex:
    """Finds positions in stretches, in the time of a few array look-ups.

    Args:
        stretches: at least one.
    """

    def __init__(self, stretches: Stretches) -> None:
        self._stretches = stretches
        count = stretches.transitions
        marks = np.arange(0, max(count, 1), 1 << _GUIDE_BITS)
        self._shift = stretches.row - stretches.first[:-1]
        self._ends = np.flatnonzero(stretches.done)
        self._rows: np.ndarray | None = None
        if count <= _LISTED:
            self._rows = np.repeat(self._shift, np.diff(stretches.first)) + np.arange(count)
        self._guide = (np.searchsorted(stretches.first, marks, side="right") - 1).astype(np.int32)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """The rows of the observations of the transitions at the positions, (B,) int64."""
        if self._rows is not None:
            return np.asarray(self._rows.take(positions))
        number = self._numbers(positions)[0]
        return np.asarray(self._shift.take(number) + positions)

    def places(self, positions: np.ndarray) -> Places:
        """What is known of the transitions at the positions, (B,) int64."""
        found = self._stretches
        number, after = self._numbers(positions)
        last = after - 1 == positions
        row = self._shift.take(number) + positions
        flags = (flag.take(number) * last for flag in (found.done, found.terminated, found.truncated))
        return Places(row, found.episode.take(number), *flags)

    def spans(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and stop position of the transitions that follow one another around each; (B,) int64 each."""
        number = self._numbers(positions)[0]
        group = np.searchsorted(self._ends, number)
        first = np.where(group > 0, self._ends[group - 1] + 1, 0)
        return self._stretches.first[first], self._stretches.first[self._ends[group] + 1]

    def _numbers(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The stretches that the positions are in, and the positions after these stretches."""
        number = self._guide.take(positions >> _GUIDE_BITS)
        after = self._stretches.first.take(number + 1)
        while (behind := after <= positions).any():
            number += behind
            after = self._stretches.first.take(number + 1)
        return number, after


_NONE: tuple[np.ndarray, ...] = (
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    *[np.zeros(0, np.int32) for _ in range(4)],
)


def _groups(table: Table) -> Iterator[tuple[int, int]]:
    """Episodes from, to, so that a group has about a chunk of rows."""
    filled = np.cumsum(np.maximum(table.stops - table.starts, 0))
    begin = 0
    while begin < len(filled):
        before = filled[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(filled, before + _CHUNK, side="right")))
        yield begin, end
        begin = end


def _of_episodes(table: Table, begin: int, end: int) -> tuple[np.ndarray, ...]:
    """Lengths and the fields of the stretches of some episodes."""
    row, episode = _pairs(table, begin, end)
    if not len(row):
        return _NONE
    rows = table.rows
    # Over a refused action the frame number stays, so the next transition still follows on.
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
    """First rows of the transitions of some episodes, and their episodes."""
    starts, counts = table.starts[begin:end], np.maximum(table.stops[begin:end] - table.starts[begin:end] - 1, 0)
    before = np.cumsum(counts) - counts
    row = np.arange(counts.sum(), dtype=np.int64) + np.repeat(starts - before, counts)
    episode = np.repeat(np.arange(begin, end), counts)
    acted = table.rows["acted"][row + 1] == 1
    row, episode = row[acted], episode[acted]
    frame_no = table.rows["frame_no"]
    real = frame_no[row + 1].astype(np.int64) == frame_no[row].astype(np.int64) + 1
    return row[real], episode[real]
