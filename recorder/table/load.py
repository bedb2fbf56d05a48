"""Make the table of one run or of many, from the caches beside their logs if they are up to date."""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hal import LogError, SourceError, SpecMismatch
from recorder.frame_layout import FrameLayout
from recorder.log.labels import label_notes, labelled
from recorder.names import LOG_NAME, TABLE_FOLDER
from recorder.read.reader import LogReader
from recorder.read.verify import claims_signature
from recorder.table.episodes import Segments, split_copy
from recorder.table.memory import RowSpool, concatenated
from recorder.table.proven import known_proof, prove, save_proof
from recorder.table.store import INDEX_NAME, RunIndex, StoredTable, TableCache, load_or_build, stamps_of
from recorder.table.table import StoredRows, Table

__all__ = ["build", "load_runs"]

_COPY_BYTES = 256 << 20
"""Size up to which the rows of several runs are copied together; larger rows are mapped one behind the other."""

_TRANSITIONS = ".rlenv-robot-transitions.npz"
"""The file of the transitions of a large table, in a folder of runs. It may be deleted at any time."""

_INDEXED = 32
"""Number of runs from which an index of all of them is kept."""


def build(run_folder: Path | str, cache: Path | None = None) -> Table:
    """Return the table of one run, from the cache beside its log if that is up to date.

    If the log has grown, only its new part is read. The table of a signed run comes from its log, which is verified
    first, and is kept in a folder of this user (`recorder.table.proven`).

    Args:
        run_folder: the folder with the ``log.mcap``, or that file.
        cache: a folder for the table; None for beside the log.

    Raises:
        LogError: there is no log, or it can't be read at all.
    """
    layout, run, cached = _built(run_folder, cache)
    return _table(layout, run, cached.stored().mapped() if isinstance(cached, TableCache) else cached)


def _built(run_folder: Path | str, cache: Path | None = None) -> tuple[FrameLayout, Path, TableCache | Segments]:
    reader = LogReader(run_folder)
    files, run = reader.files, reader.path.parent
    if claims_signature(run):
        return _built_signed(reader, run, cache)
    place = run / TABLE_FOLDER if cache is None else cache / f"{run.name}-{_digest(run)}"
    cached = load_or_build(files, reader.layout, place)
    if cached is not None:
        return reader.layout, run, cached
    return reader.layout, run, _built_anew(reader)


def _built_signed(reader: LogReader, run: Path, cache: Path | None) -> tuple[FrameLayout, Path, TableCache | Segments]:
    """Return the table of a run that claims a signature: one that is proven to be of the signed log, or one made again.

    Notes say where the log is not the signed one, and which annotations no signature covers.
    """
    files = reader.files
    earlier = known_proof(run, files, cache)
    proof = prove(run, files, cache) if earlier is None else earlier
    if isinstance(proof, str):
        built = _built_anew(reader)
        return reader.layout, run, built._replace(notes=((proof,) if proof else ()) + built.notes)
    cached = load_or_build(files, reader.layout, proof.place)
    if cached is None or not (earlier == proof or save_proof(proof, run, files)):
        built = _built_anew(reader)
        return reader.layout, run, built._replace(notes=(*proof.notes(run), *built.notes))
    return reader.layout, run, replace(cached, notes=[*proof.notes(run), *cached.notes])


def _built_anew(reader: LogReader) -> Segments:
    files = reader.files
    # Beside the log nothing can be written; on a machine that can only be read, nowhere.
    with suppress(OSError), tempfile.TemporaryDirectory(prefix="rlenv-robot-table-") as folder:
        built = load_or_build(files, reader.layout, Path(folder))
        if built is not None:
            return built.stored().mapped()
    segments = split_copy(reader.layout, reader.frames(), reader.episodes())
    return segments._replace(notes=reader.notes + segments.notes)


def _digest(run: Path) -> str:
    return f"{zlib.crc32(str(run.resolve()).encode()):08x}"


def _table(layout: FrameLayout, run: Path, segments: Segments) -> Table:
    infos = labelled(run, segments.episodes)  # on top of the cache: labels change while the log stays
    return Table(layout, *segments[:3], infos, origin=str(run), notes=(*segments.notes, *label_notes(run)))


def load_runs(
    path: Path | str, cache: Path | None = None, world: str | None = None, preferred: str | None = None
) -> Table:
    """Return one table of all runs in a folder, at any depth; a large table is mapped into memory.

    Between the runs of a large table there may be rows of zeros that belong to no episode. ``run`` in each episode's
    info is the run's folder. Unreadable runs are noted.

    Args:
        path: the folder.
        cache: a folder for the runs' tables; None for beside each log, or a temporary folder if that can't be written.
        world: world of the runs to load, such as ``so101-reach``; None loads all.
        preferred: world of the runs to load if the worlds have different layouts and ``world`` is None.

    Raises:
        SourceError: the folder has no run, none of this world, or none that can be read.
        SpecMismatch: runs have different layouts; the error names their worlds, or the differences within one world.
    """
    root = Path(path)
    logs = [root] if root.is_file() else sorted(root.rglob(LOG_NAME))
    if not logs:
        what = "holds no runs" if root.exists() else "does not exist"
        raise SourceError(f"{root} {what}; name a folder with a {LOG_NAME} in it, or a folder of such folders")
    index = RunIndex(_beside(root, cache, INDEX_NAME)) if len(logs) >= _INDEXED else None
    runs: list[_Run] = []
    notes = []
    for log in logs:
        try:
            runs.append(_opened(log, cache, index))
        except LogError as error:
            notes.append(str(error))
    if index is not None:
        index.save()
    if not runs:
        raise SourceError(f"no run in {root} can be read: " + "; ".join(notes))
    runs = _of_world(runs, root, world, preferred, notes)
    _check_layouts(runs)
    table, key = _joined(runs, str(root), notes), _key(runs)
    if key is None or (len(runs) > 1 and table.rows.nbytes <= _COPY_BYTES):  # these rows are a copy in memory
        return table
    if any(run.signed for run in runs):
        return table  # beside the runs anybody could change what is kept of them
    place = _beside(root.parent if root.is_file() else root, cache, _TRANSITIONS)
    return replace(table, stored=StoredRows(table.rows, place, key))


def _key(runs: Sequence[_Run]) -> str | None:
    """Return a string that changes as soon as a run's file of rows does; None if not all runs have such a file."""
    digest = hashlib.sha256()
    for run in runs:
        if not isinstance(run.table, StoredTable):
            return None
        status = run.table.path.stat()
        mends = [(index, row.tobytes()) for index, row in run.table.mends.items()]
        digest.update(repr((str(run.table.path), run.table.rows, status.st_size, status.st_mtime_ns, mends)).encode())
    return digest.hexdigest()


def _beside(root: Path, cache: Path | None, name: str) -> Path:
    """Return the path of a file that belongs to all runs in a folder."""
    return root / name if cache is None else cache / f"{root.name}-{_digest(root)}{name}"


class _Run(NamedTuple):
    """One run: the layout of its rows, its folder, its table in a file or in memory, and if it claims a signature."""

    layout: FrameLayout
    folder: Path
    table: StoredTable | Segments
    signed: bool

    @property
    def world(self) -> str:
        """The name of the task or the world, as the first episode has it; empty if it has none."""
        episodes = (self.table.segments if isinstance(self.table, StoredTable) else self.table).episodes
        info = episodes[0] if episodes else {}
        return str(info.get("task") or info.get("world") or "")

    def whole(self) -> Table:
        segments = self.table
        if isinstance(segments, StoredTable):
            segments = segments.mapped()
        return _table(self.layout, self.folder, segments)


def _opened(log: Path, cache: Path | None, index: RunIndex | None) -> _Run:
    signed = claims_signature(log.parent)
    if signed:
        index = None  # it lies beside the runs, where others may write
    indexed = None if index is None else index.get(log)
    if indexed is not None:
        return _Run(indexed[0], log.parent, indexed[1], signed)
    stamps = stamps_of(log) if index is not None else {}
    layout, folder, table = _built(log, cache)
    if not isinstance(table, TableCache):
        return _Run(layout, folder, table, signed)
    run = table.stored()
    if index is not None:
        index.put(log, layout, run, stamps)
    return _Run(layout, folder, run, signed)


def _of_world(runs: list[_Run], root: Path, world: str | None, preferred: str | None, notes: list[str]) -> list[_Run]:
    """Return the runs of one world, with a note on the others; all runs if no world is named and their layouts agree.

    Raises:
        SourceError: no run is of the world.
        SpecMismatch: no world is named, and the layouts of several worlds differ.
    """
    if world is None and len({run.layout.spec.digest for run in runs}) == 1:
        return runs
    worlds = Counter(run.world for run in runs)
    listed = ", ".join(f"{name or 'unnamed'} ({count})" for name, count in worlds.most_common())
    chosen = world if world is not None else preferred if preferred in worlds else None
    if world is not None and world not in worlds:
        raise SourceError(f"{root} holds no run of {world!r}; it holds runs of {listed}")
    if chosen is not None:
        if len(worlds) > 1:
            notes.append(f"{root} holds runs of {listed}; those of {chosen} are used")
        return [run for run in runs if run.world == chosen]
    if len(worlds) > 1:
        raise SpecMismatch(f"{root} holds runs of several worlds; name one (world=, --world)", [listed])
    return runs


def _check_layouts(runs: Sequence[_Run]) -> None:
    first, origin = runs[0].layout, runs[0].folder
    for layout, run, *_ in runs[1:]:
        if layout is first:
            continue
        difference = first.spec.difference(layout.spec)
        if difference:
            raise SpecMismatch(f"{origin} and {run} hold different rows; load them separately", difference)


def _joined(runs: Sequence[_Run], origin: str, notes: list[str]) -> Table:
    layout, kind = runs[0].layout, runs[0].layout.spec.row_dtype
    filed = [run for run in runs if isinstance(run.table, StoredTable)]
    large = sum(run.table.rows for run in filed if isinstance(run.table, StoredTable)) * kind.itemsize > _COPY_BYTES
    if len(runs) > 1 and large and len(filed) == len(runs):
        rows, offsets, tables = _chained(runs, kind)
    else:
        tables = [run.whole() for run in runs]
        rows = tables[0].rows if len(tables) == 1 else _copied(tables, kind)
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


def _copied(tables: Sequence[Table], kind: np.dtype) -> np.ndarray:
    spool = RowSpool(kind)
    for table in tables:
        spool.add(table.rows)
    return spool.rows()


def _chained(runs: Sequence[_Run], kind: np.dtype) -> tuple[np.ndarray, np.ndarray, list[Table]]:
    filed = [(run, run.table) for run in runs if isinstance(run.table, StoredTable)]
    rows, offsets = concatenated([(table.path, table.rows) for _, table in filed], kind)
    for (_, table), offset in zip(filed, offsets.tolist(), strict=True):
        for index, row in table.mends.items():
            rows[offset + index] = row
    rows.setflags(write=False)
    return rows, offsets, [_table(run.layout, run.folder, table.segments) for run, table in filed]
