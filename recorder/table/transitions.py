"""Find the transitions of a table: the pairs of neighbouring frame rows that a learner may use.

Finding them reads all rows, which takes minutes if the rows are larger than memory. So the transitions of a large table
are kept in a file beside it, with the sizes and times of the files of rows; it may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hal.atomic_file import atomic_write
from hal.spec import Spec
from recorder.frame_layout import reward_field
from recorder.read.npz import read_npz
from recorder.table.table import Table

__all__ = ["Places", "Stretches", "TransitionIndex", "Transitions", "columns"]

_BLOCK = 1 << 20
"""Transitions that are looked at in one go."""

_FACTS = np.dtype([
    ("row", "<i8"), ("stop", "<i8"), ("reward", "<f8"), ("log_probability", "<f8"),
    ("episode", "<i4"), ("frame_no", "<i4"), ("done", "<i4"), ("terminated", "<i4"),
    ("truncated", "<i4"), ("intervention", "<i4"),
])  # fmt: skip
"""The facts of a transition, 56 bytes; computed on request."""


def columns(rows: np.ndarray, spec: Spec, prefix: str) -> dict[str, np.ndarray]:
    """Return the fields of one group (``observation``, ``action``, ...) of frame rows, as contiguous arrays.

    The arrays are contiguous because a row's length need not be a multiple of an element's, and tensor libraries refuse
    to share such memory.

    Args:
        rows: frame rows of any leading shape.
        spec: the group's fields, without the prefix.
        prefix: the group's name.

    Returns:
        Name -> array of the leading shape followed by the field's; a copy wherever it would not be contiguous.
    """
    return {name: np.ascontiguousarray(rows[f"{prefix}_{name}"]) for name in spec.names}


@dataclass(frozen=True)
class Transitions:
    """All transitions of a table, episode after episode; position p is a number from 0 to N - 1.

    A transition is a pair of neighbouring rows of one episode: an action led to the second row, and its frame number is
    that of the first row plus 1. So no transition crosses the border of an episode, a refused action makes none, and
    lost frames of a log do not count as one step. If the data ends without a flag, the last transition is done and
    truncated: the state after it is unknown, so a value must be bootstrapped.

    Attributes:
        table: the table.
        stretches: the unbroken runs of transitions in the table.
        first: (E,) int64, the first position of each episode.
        last: (E,) int64, the position behind the last one of each episode.
    """

    table: Table
    stretches: Stretches
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(table: Table) -> Transitions:
        """Find the transitions of a table."""
        stretches = _stretches_of(table)
        counts = np.bincount(stretches.episode, np.diff(stretches.first), minlength=len(table.starts)).astype(np.int64)
        last = np.cumsum(counts)
        return Transitions(table, stretches, last - counts, last)

    def __len__(self) -> int:
        return self.stretches.transitions

    def places(self, positions: np.ndarray) -> Places:
        """Return rows, episodes and flags of the transitions at the positions, (B,) int64."""
        return self._finder.places(positions)

    def row(self, positions: np.ndarray) -> np.ndarray:
        """Return the indices of the rows at which the transitions at the positions begin, (B,) int64."""
        return self._finder.rows(positions)

    def spans(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return first and stop position of the unbroken run of transitions around each position; (B,) int64 each."""
        return self._finder.spans(positions)

    def episodes(self, positions: np.ndarray) -> np.ndarray:
        """Return the episodes of the transitions at the positions, (B,) int32."""
        return self._finder.episodes(positions)

    def stops(self, positions: np.ndarray) -> np.ndarray:
        """Return the stop position of the unbroken run of transitions around each position; (B,) int64."""
        return self._finder.stops(positions)

    @cached_property
    def _finder(self) -> TransitionIndex:
        return TransitionIndex(self.stretches)

    @cached_property
    def facts(self) -> np.ndarray:
        """The facts of each transition, structured, (N,).

        ``row`` of the observation (the next one is ``row + 1``); ``stop``, the position after the last
        transition that follows without a break; ``reward`` (several agents: their sum); ``log_probability``;
        ``episode``; ``frame_no`` of the observation; ``done``, ``terminated``, ``truncated``, ``intervention``,
        each 0 or 1.
        """
        rows, stretches = self.table.rows, self.stretches
        facts = np.zeros(len(self), _FACTS)
        lengths = np.diff(stretches.first)
        row = facts["row"] = np.repeat(stretches.row - stretches.first[:-1], lengths) + np.arange(len(self))
        facts["episode"] = np.repeat(stretches.episode, lengths)
        facts["frame_no"] = rows["frame_no"][row]
        for name in ("log_probability", "intervention"):
            facts[name] = rows[name][row + 1]
        for name in ("done", "terminated", "truncated"):
            facts[name][stretches.first[1:] - 1] = getattr(stretches, name)
        facts["reward"] = sum(self.rewards.values())
        after = np.flatnonzero(facts["done"]) + 1
        facts["stop"] = np.repeat(after, np.diff(after, prepend=0))
        return facts

    @cached_property
    def rewards(self) -> dict[str, np.ndarray]:
        """Agent -> its rewards, (N,) float64; a single reward is under the empty name."""
        stretches = self.stretches
        row = np.repeat(stretches.row - stretches.first[:-1], np.diff(stretches.first)) + np.arange(1, len(self) + 1)
        agents = tuple(self.table.layout.agents) or ("",)
        return {agent: self.table.rows[reward_field(agent)][row].astype(float) for agent in agents}

    def rewards_at(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return agent -> rewards of the transitions at positions of any shape, float64; as `rewards`."""
        if len(self) <= _LISTED:
            return {agent: reward.take(positions) for agent, reward in self.rewards.items()}
        numbers = self.row(positions) + 1  # nothing is kept that grows with the table
        agents = tuple(self.table.layout.agents) or ("",)
        return {agent: self.table.rows[reward_field(agent)][numbers].astype(float) for agent in agents}

    def reward_blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the rewards (several agents: their sums) of about a million transitions at a time, and their episodes.

        Only whole unbroken runs of transitions come in one block.
        """
        stops, begin = self.stretches.runs[1:], 0
        while begin < len(self):
            end = int(stops[min(int(np.searchsorted(stops, begin + _BLOCK)), len(stops) - 1)])
            positions = np.arange(begin, end)
            yield sum(self.rewards_at(positions).values(), np.zeros(end - begin)), self._finder.episodes(positions)
            begin = end

    @cached_property
    def returns(self) -> np.ndarray:
        """The undiscounted sum of each episode's rewards, (E,); NaN if one is unknown."""
        total = np.zeros(len(self.first))
        for reward, episode in self.reward_blocks():
            total[episode[0] : episode[-1] + 1] += np.bincount(episode - episode[0], reward)
        return total

    @cached_property
    def unrewarded(self) -> np.ndarray:
        """Whether a reward of the episode is NaN or infinite, (E,) bool."""
        if np.isfinite(self.returns).all():
            return np.zeros(len(self.first), bool)
        unknown = np.zeros(len(self.first), bool)
        for reward, episode in self.reward_blocks():
            unknown[episode[~np.isfinite(reward)]] = True
        return unknown

    @property
    def lengths(self) -> np.ndarray:
        """The number of transitions of each episode, (E,)."""
        return np.asarray(self.last - self.first)

    @cached_property
    def lost(self) -> np.ndarray:
        """The number of executed actions without a transition, because the frame before them is missing, (E,)."""
        acted = np.zeros(len(self.first))
        for begin, end in _episode_groups(self.table):
            row, episode = _rows_of_episodes(self.table, begin, end)
            acted[begin:end] = np.bincount(episode - begin, self.table.rows["acted"][row] == 1, end - begin)
        return np.asarray(acted.astype(np.int64) - self.lengths)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the frame rows at which the transitions begin."""
        return self._take(self.row(positions))

    def next_rows(self, positions: np.ndarray, field: str | None = None) -> np.ndarray:
        """Return the frame rows at which the transitions end, with action, reward and flags; or one field of these."""
        numbers = self.row(positions) + 1
        return self._take(numbers) if field is None else np.asarray(self.table.rows[field][numbers])

    def _take(self, numbers: np.ndarray) -> np.ndarray:
        # Ten times as fast as indexing, for structured rows.
        return np.asarray(self.table.rows).take(numbers)


# ---- the places of positions ----


_LISTED = 1 << 22
"""Number of transitions up to which the row of each is listed, which is faster than a search."""

_GUIDE_BITS = 7
"""The guide holds the stretch of every 128th position, from which a search takes a step or two."""


class Places(NamedTuple):
    """The facts of transitions that need no reading of rows; each of shape (B,).

    Attributes:
        row: int64, of the observation; the next one is ``row + 1``.
        episode: int32.
        done: int32.
        terminated: int32.
        truncated: int32.
    """

    row: np.ndarray
    episode: np.ndarray
    done: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class TransitionIndex:
    """Find rows and episodes of positions, with a few array look-ups each.

    Args:
        stretches: the unbroken runs of transitions, at least one.
    """

    def __init__(self, stretches: Stretches) -> None:
        self._stretches = stretches
        count = stretches.transitions
        marks = np.arange(0, max(count, 1), 1 << _GUIDE_BITS)
        self._shift = stretches.row - stretches.first[:-1]
        ends = np.flatnonzero(stretches.done)  # the last stretch of each run without an end
        run = np.searchsorted(ends, np.arange(len(stretches.row)))
        self._begins = stretches.first[np.where(run > 0, ends[run - 1] + 1, 0)] if len(ends) else stretches.first[:0]
        self._stops = stretches.first[ends[run] + 1] if len(ends) else stretches.first[:0]
        self._rows: np.ndarray | None = None
        self._listed: np.ndarray | None = None
        if count <= _LISTED:
            lengths, last = np.diff(stretches.first), int(self._shift[-1]) + count if count else 0
            kind = np.int32 if last <= np.iinfo(np.int32).max else np.int64  # half as large, so in a cache more often
            self._rows = (np.repeat(self._shift, lengths) + np.arange(count)).astype(kind)
            self._listed = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        self._guide = (np.searchsorted(stretches.first, marks, side="right") - 1).astype(np.int32)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows at which the transitions at the positions begin, (B,) int64."""
        if self._rows is not None:
            return np.asarray(self._rows.take(positions), np.int64)
        return np.asarray(self._shift.take(self._numbers(positions)) + positions)

    def places(self, positions: np.ndarray) -> Places:
        """Return the facts of the transitions at the positions, (B,) int64."""
        stretches, number = self._stretches, self._numbers(positions)
        last = stretches.first.take(number + 1) - 1 == positions
        row = self._shift.take(number) + positions
        flags = (flag.take(number) * last for flag in (stretches.done, stretches.terminated, stretches.truncated))
        return Places(row, stretches.episode.take(number), *flags)

    def spans(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return first and stop position of the unbroken run of transitions around each position; (B,) int64 each."""
        number = self._numbers(positions)
        return self._begins.take(number), self._stops.take(number)

    def episodes(self, positions: np.ndarray) -> np.ndarray:
        """Return the episodes of positions, (B,) int32."""
        return np.asarray(self._stretches.episode.take(self._numbers(positions)))

    def stops(self, positions: np.ndarray) -> np.ndarray:
        """Return only the stop positions of `spans`."""
        return np.asarray(self._stops.take(self._numbers(positions)))

    def _numbers(self, positions: np.ndarray) -> np.ndarray:
        """Return the stretches that hold the positions."""
        if self._listed is not None:
            return np.asarray(self._listed.take(positions))
        number = self._guide.take(positions >> _GUIDE_BITS)
        after = self._stretches.first.take(number + 1)
        while (behind := after <= positions).any():
            number += behind
            after = self._stretches.first.take(number + 1)
        return np.asarray(number)


# -- stretches: unbroken runs of transitions -------------------------------------------------------------------


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
        episode: (S,) int32.
        done: (S,) int32, the flag of its last transition.
        terminated: (S,) int32, the flag of its last transition.
        truncated: (S,) int32, the flag of its last transition.
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
        parts = [_of_episodes(table, begin, end) for begin, end in _episode_groups(table)]
        lengths, *rest = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _NONE
        return Stretches(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), *rest)

    @property
    def runs(self) -> np.ndarray:
        """Borders, (K + 1,) int64, of transitions without an end between: ``runs[k]`` to below ``runs[k + 1]``."""
        return np.append(0, self.first[np.flatnonzero(self.done) + 1])

    @property
    def transitions(self) -> int:
        """The number of transitions."""
        return int(self.first[-1])


def _stretches_of(table: Table) -> Stretches:
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


def _episode_groups(table: Table) -> Iterator[tuple[int, int]]:
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
    row, episode = _rows_of_episodes(table, begin, end, 1)
    acted = table.rows["acted"][row + 1] == 1
    row, episode = row[acted], episode[acted]
    frame_no = table.rows["frame_no"]
    real = frame_no[row + 1].astype(np.int64) == frame_no[row].astype(np.int64) + 1
    return row[real], episode[real]


def _rows_of_episodes(table: Table, begin: int, end: int, without: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows of some episodes, each without its last ones, and their episodes."""
    starts = table.starts[begin:end]
    counts = np.maximum(table.stops[begin:end] - starts - without, 0)
    before = np.cumsum(counts) - counts
    row = np.arange(counts.sum(), dtype=np.int64) + np.repeat(starts - before, counts)
    return row, np.repeat(np.arange(begin, end), counts)
