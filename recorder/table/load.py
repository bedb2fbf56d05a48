"""Make the table of one run or of many, from the caches beside their logs where they are up to date."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hal import LogError, SourceError, SpecMismatch
from hal.frame_layout import FrameLayout
from recorder.log.labels import labelled
from recorder.names import LOG_NAME
from recorder.read.reader import LogReader
from recorder.table.cache import TableCache, load_or_build
from recorder.table.episodes import Segments, split_copy
from recorder.table.memory import concatenated
from recorder.table.table import Table

__all__ = ["build", "load_runs"]

_COPY_BYTES = 256 << 20
"""Size up to which the rows of several runs are copied together; larger rows are mapped one behind the other."""


def build(run_folder: Path | str) -> Table:
    """Return the table of one run, from the cache beside its log if that is up to date.

    If the log has grown, only its new part is read.

    Args:
        run_folder: the folder with the ``log.mcap``, or that file.

    Raises:
        LogError: there is no log, or it can't be read at all.
    """
    layout, run, cached = _built(run_folder)
    return _table(layout, run, cached.segments() if isinstance(cached, TableCache) else cached)


def _built(run_folder: Path | str) -> tuple[FrameLayout, Path, TableCache | Segments]:
    reader = LogReader(run_folder)
    cached = load_or_build(reader.files, reader.layout)
    if cached is not None:
        return reader.layout, reader.path.parent, cached
    segments = split_copy(reader.layout, reader.frames(), reader.episodes())
    return reader.layout, reader.path.parent, segments._replace(notes=reader.notes + segments.notes)


def _table(layout: FrameLayout, run: Path, segments: Segments) -> Table:
    infos = labelled(run, segments.episodes)  # on top of the cache: labels change while the log stays
    return Table(layout, *segments[:3], infos, origin=str(run), notes=segments.notes)


def load_runs(path: Path | str) -> Table:
    """Return one table of all runs in a folder, at any depth; a large table is mapped into memory.

    Between the runs of a large table there may be rows of zeros that belong to no episode. ``run`` in each episode's
    info is the run's folder. Runs that can't be read at all are noted.

    Raises:
        SourceError: there is no run, or none that can be read.
        SpecMismatch: two runs have different layouts; the error lists the differences.
    """
    root = Path(path)
    logs = [root] if root.is_file() else sorted(root.rglob(LOG_NAME))
    if not logs:
        what = "holds no runs" if root.exists() else "does not exist"
        raise SourceError(f"{root} {what}; name a folder with a {LOG_NAME} in it, or a folder of such folders")
    runs, notes = [], []
    for log in logs:
        try:
            runs.append(_built(log))
        except LogError as error:
            notes.append(str(error))
    if not runs:
        raise SourceError(f"no run in {root} can be read: " + "; ".join(notes))
    _check_layouts(runs)
    return _joined(runs, str(root), notes)


_Run = tuple[FrameLayout, Path, TableCache | Segments]


def _check_layouts(runs: Sequence[_Run]) -> None:
    first, origin, _ = runs[0]
    for layout, run, _ in runs[1:]:
        difference = first.spec.difference(layout.spec)
        if difference:
            raise SpecMismatch(f"{origin} and {run} hold different rows; load them separately", difference)


def _joined(runs: Sequence[_Run], origin: str, notes: list[str]) -> Table:
    layout, kind = runs[0][0], runs[0][0].spec.row_dtype
    large = sum(cached.rows for *_, cached in runs if isinstance(cached, TableCache)) * kind.itemsize > _COPY_BYTES
    if len(runs) > 1 and large and all(isinstance(cached, TableCache) for *_, cached in runs):
        rows, offsets, tables = _chained(runs, kind)
    else:
        tables = [
            _table(run_layout, run, rows.segments() if isinstance(rows, TableCache) else rows)
            for run_layout, run, rows in runs
        ]
        rows = tables[0].rows if len(tables) == 1 else np.concatenate([table.rows for table in tables])
        offsets = np.cumsum([0] + [len(table.rows) for table in tables])[:-1]
    return Table(
        layout=layout,
        rows=rows,
        starts=np.concatenate([table.starts + offset for table, offset in zip(tables, offsets, strict=True)]),
        stops=np.concatenate([table.stops + offset for table, offset in zip(tables, offsets, strict=True)]),
        episodes=tuple({**info, "run": table.origin} for table in tables for info in table.episodes),
        origin=origin,
        notes=(*notes, *(f"{table.origin}: {note}" for table in tables for note in table.notes)),
    )


def _chained(runs: Sequence[_Run], kind: np.dtype) -> tuple[np.ndarray, np.ndarray, list[Table]]:
    cached_runs = [(layout, run, cached) for layout, run, cached in runs if isinstance(cached, TableCache)]
    rows, offsets = concatenated([(cached.path, cached.rows) for *_, cached in cached_runs], kind)
    for (*_, cached), offset in zip(cached_runs, offsets.tolist(), strict=True):
        for index, row in cached.mends.items():
            rows[offset + index] = row
    rows.setflags(write=False)
    return rows, offsets, [_table(layout, run, cached.described(rows[:0])) for layout, run, cached in cached_runs]
