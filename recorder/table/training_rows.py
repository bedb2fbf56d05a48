"""Pack rows with only the fields of a training batch, so that a batch is one gather of neighbouring rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from recorder.frame_layout import BEHAVIOUR_PREFIX, EXTRA_PREFIX, MASK_PREFIX, reward_field
from recorder.table.memory import expect_random_reads, mapped_array
from recorder.table.transitions import Transitions

__all__ = ["Flags", "TrainingRows"]

_LARGEST = 1 << 30
"""Bytes up to which the training rows are a copy; above, frame rows are gathered from the table."""
_IN_MEMORY = 256 << 20
"""Bytes up to which that copy is in memory, where draws are fastest; above, it is in a file that is mapped."""

_CHUNK = 1 << 18

_PADDED = 4
"""Largest number of actions, for each transition, in the copy in which chunks are contiguous."""
_WIDTHS = 2
"""Widths of chunks for which such a copy is kept."""

_FLAGS = ("done", "terminated", "truncated")


class Flags(NamedTuple):
    """Episodes and last flags of some transitions; int32 of shape (B,) each."""

    episode: np.ndarray
    done: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


class TrainingRows:
    """Gather the pairs of rows of transitions.

    Up to a gigabyte, the rows are packed into a contiguous copy of observation, action, rewards and flags. Each field
    and the whole row are at multiples of their element sizes, so that views of fields can be shared with any tensor
    library. A copy of more than 256 MiB lies in a mapped file. Beyond a gigabyte the rows are read from the table,
    which may be mapped from disk, and no memory grows with their number.

    Args:
        transitions: all transitions of a table.
        largest: bytes up to which a copy is made; None for a gigabyte.
    """

    def __init__(self, transitions: Transitions, largest: int | None = None) -> None:
        self._transitions = transitions
        dtype = _training_dtype(transitions)
        size = len(transitions.table.rows) * dtype.itemsize
        rows = _pack(transitions, dtype) if size <= (_LARGEST if largest is None else largest) else None
        self.packed = rows is not None
        if rows is None:
            rows = np.asarray(transitions.table.rows)
            expect_random_reads(rows)
        self._dtype = rows.dtype
        self._blocks = rows.view(f"V{rows.dtype.itemsize}")
        self._chunks: dict[int, tuple[np.dtype, np.ndarray, np.ndarray] | None] = {}

    def numbers(self, index: np.ndarray) -> np.ndarray:
        """Return the indices of the rows at which the transitions at positions, (B,), begin and end: (B, 2)."""
        numbers = np.empty((len(index), 2), np.int64)
        numbers[:, 0] = row = self._transitions.row(index)
        np.add(row, 1, out=numbers[:, 1])  # a sum of (B, 1) and (2,) takes twice as long
        return numbers

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the structured rows at the given indices, of any shape."""
        return self._blocks.take(numbers, mode="clip").view(self._dtype)

    def flags(self, index: np.ndarray, ends: np.ndarray) -> Flags:
        """Return episode and flags of transitions.

        Args:
            index: (B,), the positions of the transitions.
            ends: (B,), the rows at which they end, as `rows` returned them.
        """
        if self.packed:
            return Flags(ends["episode"], ends["done"], ends["terminated"], ends["truncated"])
        _, *flags = self._transitions.places(index)
        return Flags(*flags)

    def chunks(self, index: np.ndarray, stops: np.ndarray, width: int) -> np.ndarray:
        """Return structured rows with the actions of transitions that follow one another, (B, ``width``).

        Packed rows have a copy of the actions in which each such chunk is contiguous.

        Args:
            index: (B,) positions of the first transitions.
            stops: (B,) positions behind the last ones; beyond these, the last action is repeated.
            width: number of actions.
        """
        if width not in self._chunks:
            if len(self._chunks) >= _WIDTHS:
                self._chunks.pop(next(iter(self._chunks)))
            self._chunks[width] = self._contiguous(width)
        contiguous = self._chunks[width]
        if contiguous is None:
            inside = np.minimum(index[:, None] + np.arange(width), stops[:, None] - 1)
            return self.rows(self._transitions.row(inside) + 1)
        kind, pieces, starts = contiguous
        return np.asarray(pieces[starts.take(index)].view(kind).reshape(-1, width))

    def _contiguous(self, width: int) -> tuple[np.dtype, np.ndarray, np.ndarray] | None:
        """Return the type of an action, all chunks of a width, which overlap in memory, and that of each transition.

        Behind each run of transitions its last action is repeated ``width - 1`` times.

        Returns:
            None if the rows are not packed, or the repeated actions would be several times as many as the others.
        """
        action, count = self._transitions.table.layout.action, len(self._transitions)
        runs = self._transitions.stretches.runs
        padded = count + (len(runs) - 1) * (width - 1)
        if not self.packed or not len(action) or padded > _PADDED * count:
            return None
        kind = _aligned([(f"action_{one.name}", one.numpy_dtype, one.shape) for one in action])
        behind = np.repeat(np.arange(len(runs) - 1) * (width - 1), np.diff(runs))  # repeated ones before a transition
        starts = np.arange(count) + behind
        numbers = np.zeros(padded, np.int64)
        numbers[starts] = 1
        numbers = np.cumsum(numbers) - 1
        actions = np.zeros(padded, kind)
        for begin in range(0, padded, _CHUNK):
            rows = self.rows(self._transitions.row(numbers[begin : begin + _CHUNK]) + 1)
            for name in kind.names or ():
                if name != "fill":
                    actions[name][begin : begin + _CHUNK] = rows[name]
        pieces: np.ndarray = np.ndarray(
            (padded - width + 1,), f"V{width * kind.itemsize}", actions, 0, (kind.itemsize,)
        )
        return kind, pieces, starts.astype(np.int32 if padded <= np.iinfo(np.int32).max else np.int64)


def _training_dtype(transitions: Transitions) -> np.dtype:
    """Return the type of a packed row."""
    layout = transitions.table.layout
    groups = (
        ("observation", layout.observation), ("action", layout.action), (EXTRA_PREFIX, layout.extra),
        (BEHAVIOUR_PREFIX, layout.behaviour), (MASK_PREFIX, layout.masks),
    )  # fmt: skip
    fields: list[tuple[str, np.dtype, tuple[int, ...]]]
    fields = [(f"{prefix}_{one.name}", one.numpy_dtype, one.shape) for prefix, spec in groups for one in spec]
    fields += [(reward_field(agent), np.dtype("<f8"), ()) for agent in (tuple(layout.agents) or ("",))]
    fields += [("log_probability", np.dtype("<f8"), ())]
    optional = (*(("agent",) if layout.turns else ()), *(("answers",) if layout.answers else ()))
    fields += [(name, np.dtype("<i4"), ()) for name in ("frame_no", "episode", *_FLAGS, "intervention", *optional)]
    return _aligned(fields)


def _aligned(fields: list[tuple[str, np.dtype, tuple[int, ...]]]) -> np.dtype:
    """Return a type of these fields by falling alignment, a multiple of each, so that views can be shared."""
    fields = sorted(fields, key=lambda field: -field[1].alignment)
    fill = -np.dtype(fields).itemsize % max((kind.alignment for _, kind, _ in fields), default=1)
    return np.dtype([*fields, ("fill", "V1", (fill,))] if fill else fields)


def _pack(transitions: Transitions, dtype: np.dtype) -> np.ndarray | None:
    """Return the packed rows, or None if a file for them has no room on the disk."""
    source, stretches = transitions.table.rows, transitions.stretches
    in_memory = len(source) * dtype.itemsize <= _IN_MEMORY
    rows = np.zeros(len(source), dtype) if in_memory else mapped_array(dtype, len(source))
    if rows is None:
        return None
    for begin in range(0, len(source), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        for name in set(dtype.names or ()) - {"episode", "fill", *_FLAGS}:
            rows[name][part] = source[name][part]
    for number, (start, stop) in enumerate(zip(transitions.table.starts, transitions.table.stops, strict=True)):
        rows["episode"][start:stop] = number
    ends = stretches.row + np.diff(stretches.first)
    for name in _FLAGS:
        rows[name][ends] = getattr(stretches, name)
    return rows
