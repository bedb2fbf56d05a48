"""What a check must know of a whole data set before it can say what is odd in one episode."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from hal import Field
from recorder.table import Table

__all__ = ["Known", "element_of", "group_of", "runs_of", "values_of"]


class Known:
    """What only the whole data set tells: its period, and how far values range.

    Args:
        table: that is checked.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.spec = table.layout.spec

    def episodes(self) -> Iterator[np.ndarray]:
        """The rows of one episode after another: between runs that are chained lie rows that mean nothing."""
        for start, stop in zip(self.table.starts, self.table.stops, strict=True):
            yield self.table.rows[start:stop]

    @cached_property
    def period_s(self) -> float | None:
        """Median time between frames; None if the data have no clock."""
        steps = np.concatenate([np.zeros(0, np.int64), *(np.diff(rows["stamp_ns"]) for rows in self.episodes())])
        steps = steps[steps > 0]
        return float(np.median(steps)) / 1e9 if len(steps) else None

    @cached_property
    def steps(self) -> float:
        """Median length of an episode."""
        return float(np.median(self.table.stops - self.table.starts - 1)) if len(self.table.starts) else 0.0

    @cached_property
    def spread(self) -> dict[str, np.ndarray]:
        """Field -> highest minus lowest of each element, shape (n,), finite values only."""
        return {name: np.maximum(high - low, 0) for name, (low, high) in self.extremes.items()}  # 0: none is finite

    @cached_property
    def extremes(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Field of a float type -> lowest and highest of each element, each of shape (n,)."""
        groups = ("observation", "sensor", "action", "applied")
        fields = [each for each in self.spec if each.numpy_dtype.kind == "f" and group_of(each) in groups]
        found = {each.name: (np.full(each.size, np.inf), np.full(each.size, -np.inf)) for each in fields}
        for rows in self.episodes():
            for each in fields:
                flat, (low, high) = values_of(rows, each), found[each.name]
                finite = np.isfinite(flat)
                np.minimum(low, np.min(flat, 0, where=finite, initial=np.inf), out=low)
                np.maximum(high, np.max(flat, 0, where=finite, initial=-np.inf), out=high)
        return found

    @cached_property
    def measured(self) -> list[Field]:
        """What a device measured: sensors where there are any, else what is observed and moves in some episode.

        An observation that stands still in every episode, and differs from one to the next, is a goal.
        """
        group = "sensor" if len(self.table.layout.sensors) else "observation"
        fields = [field for field in self.spec if field.name in self.spread and group_of(field) == group]
        return fields if group == "sensor" else [field for field in fields if self._moves(field)]

    def _moves(self, field: Field) -> bool:
        return any((rows[field.name][1:] != rows[field.name][:1]).any() for rows in self.episodes())

    @cached_property
    def command(self) -> Field | None:
        """What it was told: applied where recorded, else asked for."""
        for group in ("applied", "action"):
            for field in self.spec:
                if field.name in self.spread and group_of(field) == group:
                    return field
        return None


def group_of(field: Field) -> str:
    """``observation``, ``action``, ``applied`` or ``sensor``; of the other fields whatever their names begin with."""
    return field.name.split("_", 1)[0]


def values_of(rows: np.ndarray, field: Field) -> np.ndarray:
    """A field's values, shape (T, n)."""
    return np.asarray(rows[field.name]).reshape(len(rows), -1)


def element_of(field: Field, index: int) -> str:
    """A field's name with that of one of its elements."""
    if field.size == 1:
        return field.name
    names = field.elements if len(field.elements) == field.size else ()
    return f"{field.name}[{names[index] if names else index}]"


def runs_of(flags: np.ndarray) -> np.ndarray:
    """Where flags are true in a row: shape (k, 2), first and one past the last."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], 1)
