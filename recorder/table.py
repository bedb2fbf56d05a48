"""Packed frame rows and an episode index: what training reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError, SourceError, SpecMismatch
from recorder import cache
from recorder.disk import LOG_NAME
from recorder.frames import FrameLayout
from recorder.labels import labelled
from recorder.reader import LogReader
from recorder.segments import cut

__all__ = ["Table", "build", "load_runs"]


@dataclass(frozen=True)
class Table:
    """All frames of a data set, episode after episode.

    Attributes:
        layout: what a row is made of; ``layout.spec.row_dtype`` is the rows' dtype.
        rows: shape (R,), structured, perhaps memory-mapped; read-only by convention.
        starts, stops: shape (E,), int64: episode e is ``rows[starts[e]:stops[e]]``, T + 1 frames.
        episodes: one mapping of plain data an episode: ``env_id``, ``goal`` (name -> list), ``seed``, ``task``,
            ``policy``, ``source`` (expert, random, ...), ``end`` (why it ended), ``verdict``, ... where known.
        origin: where it came from, for messages.
        notes: what was lost or repaired on the way here, a sentence each.
    """

    layout: FrameLayout
    rows: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    episodes: tuple[Mapping[str, Any], ...]
    origin: str = "memory"
    notes: tuple[str, ...] = ()


def build(run_folder: Path | str) -> Table:
    """The table of one run, from its cache beside the log if that is of this very log, else from the log.

    Args:
        run_folder: with the ``log.mcap``, or that file.

    Raises:
        LogError: there is no log, or it can't be read at all.
    """
    reader = LogReader(run_folder)
    log = reader.path
    before = cache.stamp(log)
    kept = cache.load(log)
    if kept is None:
        segments = cut(reader.layout, reader.frames(), reader.episodes())
        segments = segments._replace(notes=reader.notes + segments.notes)
        if cache.store(log, before, reader.layout, segments):
            kept = cache.load(log)
        kept = kept or (reader.layout, segments)
    layout, segments = kept
    infos = labelled(log.parent, segments.episodes)  # on top of the cache: what people say changes while the log stays
    return Table(layout, *segments[:3], infos, origin=str(log.parent), notes=segments.notes)


def load_runs(path: Path | str) -> Table:
    """One table of all runs in a folder, at any depth; a single run's stays mapped into memory.

    Each episode's info says its ``run``, the run's folder. Runs that can't be read at all are noted.

    Raises:
        SourceError: there is no run, or none that can be read.
        SpecMismatch: two runs have different layouts; lists what differs.
    """
    root = Path(path)
    logs = [root] if root.is_file() else sorted(root.rglob(LOG_NAME))
    if not logs:
        what = "holds no runs" if root.exists() else "does not exist"
        raise SourceError(f"{root} {what}; wanted a folder with a {LOG_NAME} in it, or with such folders")
    tables, notes = [], []
    for log in logs:
        try:
            tables.append(build(log))
        except LogError as error:
            notes.append(str(error))
    if not tables:
        raise SourceError(f"no run in {root} can be read: " + "; ".join(notes))
    return _joined(tables, str(root), notes)


def _joined(tables: Sequence[Table], origin: str, notes: list[str]) -> Table:
    first = tables[0]
    for table in tables[1:]:
        difference = first.layout.spec.difference(table.layout.spec)
        if difference:
            raise SpecMismatch(
                f"{first.origin} and {table.origin} hold different rows; load them one by one", difference
            )
    offsets = np.cumsum([0] + [len(table.rows) for table in tables])[:-1]
    return Table(
        layout=first.layout,
        rows=first.rows if len(tables) == 1 else np.concatenate([table.rows for table in tables]),
        starts=np.concatenate([table.starts + offset for table, offset in zip(tables, offsets, strict=True)]),
        stops=np.concatenate([table.stops + offset for table, offset in zip(tables, offsets, strict=True)]),
        episodes=tuple({**info, "run": table.origin} for table in tables for info in table.episodes),
        origin=origin,
        notes=(*notes, *(f"{table.origin}: {note}" for table in tables for note in table.notes)),
    )
