"""Check the table that the reader of a format returns, before anything is computed from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hal import SourceError
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table

__all__ = ["checked_table"]

_LOOKED_AT = 10_000
"""Rows that are searched for NaN: rows may lie in a file that is larger than the memory."""


def checked_table(table: object, origin: str) -> Table:
    """Return a table if its parts fit together; a note says what its rows lack.

    Args:
        table: what a reader returned.
        origin: path and format, for messages.

    Raises:
        SourceError: it is no `Table`, its rows are not those of its layout, its starts, stops and episodes differ in
            number, or an episode lies outside the rows.
    """
    if not isinstance(table, Table):
        raise SourceError(f"{origin} returned a {type(table).__name__}, expected a Table; rlenv_robot.table makes one")
    if not isinstance(table.layout, FrameLayout):
        raise SourceError(f"{origin}: layout is a {type(table.layout).__name__}, expected a FrameLayout")
    rows, starts, stops = table.rows, np.asarray(table.starts), np.asarray(table.stops)
    expected = table.layout.spec.row_dtype
    if getattr(rows, "ndim", 0) != 1 or rows.dtype != expected:
        raise SourceError(f"{origin}: rows are not (R,) of the dtype table.layout.spec.row_dtype")
    if not starts.ndim == stops.ndim == 1 or not len(starts) == len(stops) == len(table.episodes):
        raise SourceError(
            f"{origin}: starts, stops and episodes must have one entry for each episode, they have "
            f"{starts.size}, {stops.size} and {len(table.episodes)}"
        )
    if not len(starts):
        raise SourceError(f"{origin}: the table has no episode")
    wrong = np.flatnonzero((starts < 0) | (stops < starts) | (stops > len(rows)))
    if len(wrong):
        first = int(wrong[0])
        raise SourceError(
            f"{origin}: episode {first} is rows[{starts[first]}:{stops[first]}], which is not within the "
            f"{len(rows)} rows"
        )
    return replace(table, notes=(*table.notes, *_lacking(table)))


def _lacking(table: Table) -> list[str]:
    """Return a sentence for each thing that a table should have and does not."""
    rows, notes = table.rows[:_LOOKED_AT], []
    for field in table.layout.observation:
        values = rows[f"observation_{field.name}"]
        if values.dtype.kind == "f" and np.isnan(values).any():
            notes.append(f"observation {field.name!r} is NaN in some rows")
    stops = np.asarray(table.stops)
    last = table.rows[stops[stops > table.starts] - 1]
    open_ended = int(np.count_nonzero((last["terminated"] == 0) & (last["truncated"] == 0)))
    if open_ended:
        notes.append(f"{open_ended} episodes have no end flag in their last row; they count as truncated there")
    return notes
