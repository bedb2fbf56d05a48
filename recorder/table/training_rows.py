"""Pack rows with only what a training batch needs, so that a batch is one gather of neighbouring rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hal.frame_layout import BEHAVIOUR_PREFIX, EXTRA_PREFIX, reward_field
from recorder.table.transitions import Transitions

__all__ = ["Pairs", "TrainingRows"]

_LARGEST = 1 << 30
"""Bytes up to which the training rows are a copy in memory; above, frame rows are gathered from the table."""

_CHUNK = 1 << 18
_WORD = 8
_PAIR = np.array([0, 1])

_FLAGS = ("done", "terminated", "truncated")


class Pairs(NamedTuple):
    """Transitions with their rows; all views or arrays of shape (B, ...).

    Attributes:
        before, after: structured rows at which the transitions begin and end.
        episode, done, terminated, truncated, intervention: int32.
    """

    before: np.ndarray
    after: np.ndarray
    episode: np.ndarray
    done: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    intervention: np.ndarray


class TrainingRows:
    """Gathers the pairs of rows of transitions.

    Up to a gigabyte, the rows are packed into a contiguous copy: observation, action, rewards and flags, each at
    a multiple of its element size, the whole at a multiple of 8 bytes, so that views of fields can be shared with
    any tensor library. Beyond a gigabyte the rows are read from the table, which may be mapped from disk, and nothing
    is held in memory that grows with them.

    Args:
        transitions: all transitions of a table.
        largest: bytes up to which a copy is made.
    """

    def __init__(self, transitions: Transitions, largest: int = _LARGEST) -> None:
        self._transitions = transitions
        dtype = _training_dtype(transitions)
        self.packed = len(transitions.table.rows) * dtype.itemsize <= largest
        rows = _pack(transitions, dtype) if self.packed else np.asarray(transitions.table.rows)
        self._dtype = rows.dtype
        self._blocks = rows.view(f"V{rows.dtype.itemsize}")

    def pairs(self, index: np.ndarray, numbers: np.ndarray | None = None) -> Pairs:
        """Return the transitions at positions, (B,).

        Args:
            index: the positions.
            numbers: the result of `numbers` for these positions, if the caller has it.
        """
        if numbers is None:
            numbers = self.numbers(index)
        taken = self._blocks.take(numbers, mode="clip").view(self._dtype).reshape(-1, 2)
        before, after = taken[:, 0], taken[:, 1]
        if self.packed:
            return Pairs(before, after, after["episode"], after["done"], after["terminated"], after["truncated"],
                         after["intervention"])  # fmt: skip
        _, episode, done, terminated, truncated = self._transitions.places(index)
        return Pairs(before, after, episode, done, terminated, truncated, after["intervention"].astype(np.int32))

    def numbers(self, index: np.ndarray) -> np.ndarray:
        """Return the numbers of the rows of the transitions at positions, begin and end alternating: (2 B,)."""
        both: np.ndarray = np.add(self._transitions.row(index)[:, None], _PAIR)
        return both.reshape(-1)

    def rows(self, numbers: np.ndarray) -> np.ndarray:
        """Return the structured rows with the given numbers, of any shape."""
        return self._blocks.take(numbers, mode="clip").view(self._dtype)


def _training_dtype(transitions: Transitions) -> np.dtype:
    """Sort the fields by falling element size, as in a frame row, and pad the row to whole words."""
    layout = transitions.table.layout
    groups = (("observation", layout.observation), ("action", layout.action),
              (EXTRA_PREFIX, layout.extra), (BEHAVIOUR_PREFIX, layout.behaviour))  # fmt: skip
    fields: list[tuple[str, np.dtype, tuple[int, ...]]]
    fields = [(f"{prefix}_{one.name}", one.numpy_dtype, one.shape) for prefix, spec in groups for one in spec]
    fields += [(reward_field(agent), np.dtype("<f8"), ()) for agent in (tuple(layout.agents) or ("",))]
    fields += [("log_probability", np.dtype("<f8"), ())]
    turn = ("agent",) if layout.turns else ()
    fields += [(name, np.dtype("<i4"), ()) for name in ("frame_no", "episode", *_FLAGS, "intervention", *turn)]
    fields.sort(key=lambda field: -field[1].alignment)
    fill = -np.dtype(fields).itemsize % _WORD
    return np.dtype([*fields, ("fill", "V1", (fill,))] if fill else fields)


def _pack(transitions: Transitions, dtype: np.dtype) -> np.ndarray:
    source, stretches = transitions.table.rows, transitions.stretches
    rows = np.zeros(len(source), dtype)
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
