"""Select episodes of a table, and join tables of equal rows into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hal import SourceError, SpecMismatch
from recorder.table.memory import RowSpool
from recorder.table.table import ImageOpener, ImageSource, Table

__all__ = ["joined", "subset"]

_BLOCK = 1 << 18
"""Rows that are copied at once."""


def subset(table: Table, episodes: Sequence[int]) -> Table:
    """Return a table with some episodes of another, sharing its rows.

    Args:
        table: any table.
        episodes: indices of the episodes, in the new order.

    Raises:
        SourceError: the table has no such episode.
    """
    count = len(table.starts)
    wrong = [number for number in episodes if not 0 <= number < count]
    if wrong:
        raise SourceError(f"there is no episode {wrong[0]}, {table.origin} has 0 to {count - 1}")
    chosen = np.asarray(episodes, np.int64)
    infos = tuple(table.episodes[number] for number in chosen.tolist())
    return replace(table, starts=table.starts[chosen], stops=table.stops[chosen], episodes=infos)


def joined(tables: Sequence[Table], origin: str) -> Table:
    """Return one table of the episodes of several, in order; ``set`` in an episode's info is its table's origin.

    Args:
        tables: at least one table, all with the same layout of rows.
        origin: origin of the new table.

    Raises:
        SpecMismatch: two tables have different rows; the error lists the differences.
    """
    first = tables[0]
    for other in tables[1:]:
        if difference := first.layout.spec.difference(other.layout.spec):
            raise SpecMismatch(
                f"{first.origin} and {other.origin} hold different rows; open them one by one", difference
            )
    spool = RowSpool(first.layout.spec.row_dtype)
    starts, stops, infos = [], [], []
    for table in tables:
        for start, stop, info in zip(table.starts.tolist(), table.stops.tolist(), table.episodes, strict=True):
            starts.append(spool.count)
            for begin in range(start, stop, _BLOCK):
                spool.add(np.array(table.rows[begin : min(begin + _BLOCK, stop)]))
            stops.append(spool.count)
            where = table.origin if table.open_images is not None else info.get("run", table.origin)
            infos.append({"set": str(where), **info})
    return Table(
        layout=first.layout,
        rows=spool.rows(),
        starts=np.array(starts, np.int64),
        stops=np.array(stops, np.int64),
        episodes=tuple(infos),
        origin=origin,
        notes=tuple(f"{table.origin}: {note}" for table in tables for note in table.notes),
        open_images=_Openers({table.origin: table.open_images for table in tables if table.open_images}),
    )


class _Openers:
    """Opens the images of each of several data sets by its own opener."""

    def __init__(self, openers: Mapping[str, ImageOpener]) -> None:
        self._openers = openers

    def __call__(self, path: Path) -> ImageSource | None:
        opener = self._openers.get(str(path))
        if opener is None:
            raise SourceError(f"the images of {path} belong to none of the data sets that were joined")
        return opener(path)
