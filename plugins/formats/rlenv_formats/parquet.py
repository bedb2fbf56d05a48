"""Write and read a table as plain Parquet without loss, one column per field, for DuckDB, Polars, Spark and Ray Data.

The folder holds ``frames/`` with a row for each frame, in files small enough to distribute among workers, and
``episodes.json`` (the layout of the rows, and each episode's beginning, end and info). ``episode`` is unique across
runs, so that grouping by it separates episodes; ``run`` and ``run_episode`` say where an episode was recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal import Field, RobotError, SourceError
from recorder.formats.images import cameras_of
from recorder.formats.registry import Format
from recorder.formats.runs import left_out, uneven
from recorder.frame_layout import FrameLayout
from recorder.json_data import to_json
from recorder.table.memory import RowSpool
from recorder.table.table import Table
from rlenv_formats.atomic_write import atomic_write
from rlenv_formats.card import NAME, card_text
from rlenv_formats.foreign import read_mapping, read_text
from rlenv_formats.parquet_columns import TEXT, Column, column, parquet_groups, writer

__all__ = ["PARQUET", "is_parquet", "load_parquet", "write_parquet"]

FRAMES, EPISODES = "frames", "episodes.json"
FORMAT = 2
_OLD_FRAMES = "frames.parquet"
"""The only file of frames in format 1, in which ``episode`` was the number within the run."""
_ROWS = 100_000
"""Rows in a row group; few, so that writing needs little memory and reading can skip groups."""
_INDEX_BYTES = 1 << 30
"""Largest index of episodes that is read, bytes; enough for millions of episodes."""
_FILE_BYTES = 256 << 20
"""Uncompressed bytes of rows after which the next file begins."""


_LOAD = """
import duckdb

duckdb.sql("select episode, count(*) from 'FOLDER/frames/*.parquet' group by episode")

import rlenv_robot

rlenv_robot.open_source("FOLDER")
"""


def is_parquet(path: Path | str) -> bool:
    """Return whether a folder looks like one that `write_parquet` made."""
    root = Path(path)
    return (root / EPISODES).is_file() and ((root / FRAMES).is_dir() or (root / _OLD_FRAMES).is_file())


def write_parquet(table: Table, path: Path | str) -> list[str]:
    """Write a table as Parquet.

    Every field of a row becomes a column of its type; an array becomes a fixed-size list in C order. Unit and meaning
    are in the column's metadata.

    Args:
        table: the table to write.
        path: the folder, which must not exist yet.

    Returns:
        A sentence about each thing that was lost. Only images are lost: they stay in the logs.

    Raises:
        SourceError: pyarrow is not installed, or the folder exists or can't be written.
    """
    stops = np.cumsum(table.stops - table.starts)
    with atomic_write(path, folder=True) as part:
        _write_frames(table, part / FRAMES)
        index = {
            "format": FORMAT,
            "layout": table.layout.to_dict(),
            "rows": int(stops[-1]) if len(stops) else 0,
            "bounds": np.stack([stops - (table.stops - table.starts), stops], 1).tolist(),
            "episodes": [dict(info) for info in table.episodes],
            "notes": list(table.notes),
        }
        (part / EPISODES).write_text(to_json(index, "what is known of the episodes"))
        cameras = cameras_of(table)
        notes = [f"images stay in the logs, where they are found as long as those lie there: {', '.join(cameras)}"]
        notes = notes if cameras else []
        (part / NAME).write_text(card_text(table, "Parquet", _LOAD, notes, (), f"{FRAMES}/*.parquet"), encoding="utf-8")
    return notes


def _write_frames(table: Table, folder: Path) -> None:
    """Write the rows of the episodes, and no others, in files of about `_FILE_BYTES`."""
    folder.mkdir()
    spec = table.layout.spec
    columns = [Column("run", TEXT), Column("run_episode", spec["episode"].dtype), *(_column(field) for field in spec)]
    count = max(1, min(_ROWS, _FILE_BYTES // spec.row_dtype.itemsize))
    groups_a_file = max(1, _FILE_BYTES // (count * spec.row_dtype.itemsize))
    groups = _groups(table, count)
    for number in itertools.count():
        taken = list(itertools.islice(groups, 1))
        if not taken and number:
            return
        with writer(folder / f"part-{number:05d}.parquet", columns) as file:
            for rows, runs, episodes in itertools.chain(taken, itertools.islice(groups, groups_a_file - 1)):
                own = rows["episode"].copy()
                rows["episode"] = episodes
                file.write({**spec.view(rows), "run": runs, "run_episode": own})


def _groups(table: Table, count: int) -> Iterator[tuple[np.ndarray, list[str], np.ndarray]]:
    """Yield copies of ``count`` rows of episodes, the last fewer, with the run and the number of each row's episode."""
    held: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    waiting = 0
    for number, (start, stop) in enumerate(zip(table.starts.tolist(), table.stops.tolist(), strict=True)):
        while start < stop:
            rows = table.rows[start : min(stop, start + count - waiting)]
            held.append(rows)
            numbers.append(np.full(len(rows), number))
            start, waiting = start + len(rows), waiting + len(rows)
            if waiting == count:
                yield _group(table, held, numbers)
                held, numbers, waiting = [], [], 0
    if held:
        yield _group(table, held, numbers)


def _group(table: Table, held: list[np.ndarray], numbers: list[np.ndarray]) -> tuple[np.ndarray, list[str], np.ndarray]:
    episodes = np.concatenate(numbers)
    runs = [str(table.episodes[number].get("run", table.origin)) for number in episodes.tolist()]
    return np.concatenate(held), runs, episodes


def _column(field: Field) -> Column:
    about = {"unit": field.unit, "meaning": field.meaning, "shape": str(list(field.shape))}
    return Column(field.name, field.dtype, field.size if field.shape else None, about)


def load_parquet(path: Path | str) -> Table:
    """Read a table that `write_parquet` wrote. Episodes in damaged or missing files are left out, with a note.

    Raises:
        SourceError: the folder has another format, contains nothing readable, or pyarrow is not installed.
    """
    root = Path(path)
    try:
        index = read_mapping(root / EPISODES, read_text(root / EPISODES, _INDEX_BYTES))
        if index["format"] not in (1, FORMAT):
            raise SourceError(f"{root / EPISODES} has format {index['format']}, this software reads 1 and {FORMAT}")
        layout = FrameLayout.from_dict(index["layout"])
        bounds = np.array(index["bounds"], np.int64).reshape(-1, 2)
        episodes, notes, count = tuple(index["episodes"]), tuple(index["notes"]), int(index["rows"])
        if not all(isinstance(info, dict) for info in episodes) or not all(isinstance(note, str) for note in notes):
            raise TypeError("episodes are no mappings, or notes no texts")
    except SourceError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RobotError) as error:
        raise SourceError(f"{root / EPISODES} can't be read ({error!r}); write the data anew") from error
    notes = (*notes, *(note for note in uneven(episodes) if note not in notes))
    if index["format"] == 1:
        frames = _read_frames([root / _OLD_FRAMES], layout, "episode", len(bounds))
        if frames.damaged:
            raise SourceError(frames.damaged[0])
    else:
        frames = _read_frames(sorted((root / FRAMES).glob("part-*.parquet")), layout, "run_episode", len(bounds))
    if len(episodes) != len(bounds) or not _within(bounds, count) or frames.count > count:
        raise SourceError(_of_two(root, frames.count, count, len(bounds)))
    if index["format"] == 1:
        if frames.count < count:
            raise SourceError(_of_two(root, frames.count, count, len(bounds)))
        return Table(layout, frames.rows, bounds[:, 0].copy(), bounds[:, 1].copy(), episodes, str(root), notes)
    lengths = bounds[:, 1] - bounds[:, 0]
    follow = bool((np.cumsum(lengths) == bounds[:, 1]).all()) and int(lengths.sum()) == count
    if not frames.in_order or not follow or (frames.lengths > lengths).any():
        raise SourceError(_of_two(root, frames.count, count, len(bounds)))
    if frames.count == count and not frames.damaged:
        return Table(layout, frames.rows, bounds[:, 0].copy(), bounds[:, 1].copy(), episodes, str(root), notes)
    whole = np.flatnonzero((frames.lengths == lengths) & (lengths > 0))
    reason = frames.damaged[0] if frames.damaged else f"a file in {root / FRAMES} is missing"
    lost = left_out(root, [reason] * (len(bounds) - len(whole)), len(whole))
    starts = frames.starts[whole]
    kept = tuple(episodes[number] for number in whole.tolist())
    return Table(layout, frames.rows, starts, starts + lengths[whole], kept, str(root), (*lost, *notes))


def _within(bounds: np.ndarray, count: int) -> bool:
    if not bounds.size:
        return True
    return bool(bounds.min() >= 0 and bounds.max() <= count and (bounds[:, 0] <= bounds[:, 1]).all())


def _of_two(root: Path, found: int, count: int, episodes: int) -> str:
    return (
        f"{root}: its frames have {found} rows, {EPISODES} says {count} and {episodes} episodes; "
        "they are of two data sets, write it anew"
    )


@dataclass(frozen=True)
class _Frames:
    """Rows as they were read, in order.

    Attributes:
        rows: (R,), structured.
        starts: (E,), the first row of each episode, counted through all runs.
        lengths: (E,), the number of rows of each episode.
        in_order: whether each row has the number of an episode, and these rise.
        damaged: the errors of the files that could not be read.
    """

    rows: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    in_order: bool
    damaged: list[str]

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.rows)


def _read_frames(files: Sequence[Path], layout: FrameLayout, own: str, episodes: int) -> _Frames:
    """Read the rows of all files that are whole.

    Args:
        files: in order.
        layout: layout of the rows.
        own: the column with the number of an episode in its run; ``episode`` is its number among all.
        episodes: the number of episodes.
    """
    spool, damaged = RowSpool(layout.spec.row_dtype), []
    starts, lengths, last, in_order = np.zeros(episodes, np.int64), np.zeros(episodes, np.int64), 0, True
    stored = {field.name: own if field.name == "episode" else field.name for field in layout.spec}
    for file in files:
        try:
            for part in parquet_groups(file, list(dict.fromkeys([*stored.values(), "episode"]))):
                rows = layout.spec.rows(part.num_rows)
                for field in layout.spec:
                    rows[field.name] = column(part, stored[field.name], field.numpy_dtype, field.shape, str(file))
                numbers = column(part, "episode", np.int64, (), str(file))
                in_order &= not len(numbers) or (
                    bool((np.diff(numbers) >= 0).all()) and last <= int(numbers[0]) and int(numbers[-1]) < episodes
                )
                if in_order and len(numbers):
                    found, first, counts = np.unique(numbers, return_index=True, return_counts=True)
                    starts[found] = np.where(lengths[found] == 0, spool.count + first, starts[found])
                    lengths[found] += counts
                    last = int(numbers[-1])
                spool.add(rows)
        except SourceError as error:
            damaged.append(str(error))
    return _Frames(spool.rows(), starts, lengths, in_order, damaged)


PARQUET = Format(
    "parquet", is_parquet, load_parquet, write_parquet, holds_texts=True,
    looks="frames/ with episodes.json (our Parquet)",
    candidates=lambda folder: (mark.parent for mark in folder.rglob(EPISODES) if is_parquet(mark.parent)),
)  # fmt: skip
