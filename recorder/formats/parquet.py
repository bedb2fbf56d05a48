"""Write and read a table as plain Parquet without loss: a column for each field, for DuckDB, Polars, Spark, Ray Data.

The folder holds ``frames/`` with a row for each frame, in files of a size that workers can share, and ``episodes.json``
(the layout of the rows, where each episode begins and ends, and what is known of it). ``episode`` counts through all
runs, so that grouping by it separates episodes; ``run`` and ``run_episode`` say where an episode was recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hal import Field, RobotError, SourceError
from hal.frame_layout import FrameLayout
from recorder.formats.atomic_write import atomic_write
from recorder.formats.foreign import read_mapping, read_text
from recorder.formats.images import cameras_of
from recorder.formats.parquet_columns import TEXT, Column, column, parquet_groups, writer
from recorder.formats.registry import Format
from recorder.json_data import to_json
from recorder.table.spool import RowSpool
from recorder.table.table import Table

__all__ = ["PARQUET", "is_parquet", "load_parquet", "write_parquet"]

FRAMES, EPISODES = "frames", "episodes.json"
FORMAT = 2
_OLD_FRAMES = "frames.parquet"
"""The only file of frames in format 1, whose ``episode`` was the run's own number."""
_ROWS = 100_000
"""Rows in a row group: few enough that writing needs little memory and reading can skip groups."""
_INDEX_BYTES = 1 << 30
"""Largest index of episodes that is read: of some million episodes."""
_FILE_BYTES = 256 << 20
"""Bytes of rows, uncompressed, after which the next file begins."""


def is_parquet(path: Path | str) -> bool:
    """Return whether a folder looks like one that `write_parquet` made."""
    root = Path(path)
    return (root / EPISODES).is_file() and ((root / FRAMES).is_dir() or (root / _OLD_FRAMES).is_file())


def write_parquet(table: Table, path: Path | str) -> list[str]:
    """Write a table as Parquet.

    Every field of a row is a column of its own type; an array is a fixed-size list, in C order. Unit and meaning
    are in the column's metadata.

    Args:
        table: the table to write.
        path: the folder, which must not exist yet.

    Returns:
        What was lost, a sentence each: images stay in the logs, nothing else is lost.

    Raises:
        SourceError: pyarrow is missing, or the folder exists or can't be written.
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
    return (
        [f"images stay in the logs, where they are found as long as those lie there: {', '.join(cameras)}"]
        if (cameras)
        else []
    )


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
    """Read what `write_parquet` wrote.

    Raises:
        SourceError: the data are of another kind, incomplete or damaged; or pyarrow is missing.
    """
    root = Path(path)
    try:
        index = read_mapping(root / EPISODES, read_text(root / EPISODES, _INDEX_BYTES))
        if index["format"] not in (1, FORMAT):
            raise SourceError(f"{root / EPISODES} has format {index['format']}, this software reads 1 and {FORMAT}")
        layout = FrameLayout.from_dict(index["layout"])
        bounds = np.array(index["bounds"], np.int64).reshape(-1, 2)
        episodes, notes, count = tuple(index["episodes"]), tuple(index["notes"]), int(index["rows"])
    except SourceError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RobotError) as error:
        raise SourceError(f"{root / EPISODES} can't be read ({error!r}); write the data anew") from error
    files = [root / _OLD_FRAMES] if index["format"] == 1 else sorted((root / FRAMES).glob("part-*.parquet"))
    inside_rows = bounds.size == 0 or (
        bounds.min() >= 0 and bounds.max() <= count and (bounds[:, 0] <= bounds[:, 1]).all()
    )
    counted = index["format"] != 1
    inside_rows = inside_rows and not (counted and np.diff(bounds).sum() != count)
    spool, names = RowSpool(layout.spec.row_dtype), [field.name for field in layout.spec]
    stored = {name: "run_episode" if name == "episode" and counted else name for name in names}
    for file in files:
        for part in parquet_groups(file, [*stored.values(), *(["episode"] if counted else [])]):
            if counted:
                numbers = column(part, "episode", np.int64, (), str(file))
                inside_rows &= _are_of(numbers, spool.count, bounds)
            rows = layout.spec.rows(part.num_rows)
            for field in layout.spec:
                rows[field.name] = column(part, stored[field.name], field.numpy_dtype, field.shape, str(file))
            spool.add(rows)
    if spool.count != count or len(episodes) != len(bounds) or not inside_rows:
        raise SourceError(
            f"{root}: its frames have {spool.count} rows, {EPISODES} says {count} and {len(bounds)} episodes; "
            "they are of two data sets, write it anew"
        )
    return Table(layout, spool.rows(), bounds[:, 0].copy(), bounds[:, 1].copy(), episodes, str(root), notes)


def _are_of(episodes: np.ndarray, first: int, bounds: np.ndarray) -> bool:
    """Return whether each row, from the ``first`` on, lies within the bounds of the episode whose number it has."""
    rows = np.arange(first, first + len(episodes))
    if ((episodes < 0) | (episodes >= len(bounds))).any():
        return False
    return bool(((bounds[episodes, 0] <= rows) & (rows < bounds[episodes, 1])).all())


PARQUET = Format(
    "parquet", is_parquet, load_parquet, write_parquet, holds_texts=True,
    candidates=lambda folder: (mark.parent for mark in folder.rglob(EPISODES) if is_parquet(mark.parent)),
)  # fmt: skip
