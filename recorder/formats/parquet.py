"""Write and read a table as plain Parquet without loss: a column for each field, for DuckDB, Polars, pandas, Spark.

The folder holds ``frames.parquet`` (a row for each frame) and ``episodes.json`` (the layout of the rows, where each
episode begins and ends, and what is known of it).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hal import Field, RobotError, SourceError
from hal.frame_layout import FrameLayout
from recorder.formats.atomic_write import atomic_write
from recorder.formats.images import cameras_of
from recorder.formats.parquet_columns import Column, column, read_parquet, writer
from recorder.formats.registry import Format
from recorder.json_data import JsonDict, to_json
from recorder.table.table import Table

__all__ = ["PARQUET", "is_parquet", "load_parquet", "write_parquet"]

FRAMES, EPISODES = "frames.parquet", "episodes.json"
FORMAT = 1
_ROWS = 100_000
"""Rows in a row group: few enough that writing needs little memory and reading can skip groups."""


def is_parquet(path: Path | str) -> bool:
    """Return whether a folder looks like one that `write_parquet` made."""
    return (Path(path) / FRAMES).is_file() and (Path(path) / EPISODES).is_file()


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
    spec = table.layout.spec
    with atomic_write(path, folder=True) as part:
        with writer(part / FRAMES, [_column(field) for field in spec]) as file:
            for start in range(0, len(table.rows), _ROWS):
                file.write(spec.view(np.asarray(table.rows[start : start + _ROWS])))
        index = {
            "format": FORMAT,
            "layout": table.layout.to_dict(),
            "rows": len(table.rows),
            "bounds": np.stack([table.starts, table.stops], 1).tolist(),
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
        index: JsonDict = json.loads((root / EPISODES).read_text())
        if index["format"] != FORMAT:
            raise SourceError(f"{root / EPISODES} has format {index['format']}, this software reads {FORMAT}")
        layout = FrameLayout.from_dict(index["layout"])
        bounds = np.array(index["bounds"], np.int64).reshape(-1, 2)
        episodes, notes, count = tuple(index["episodes"]), tuple(index["notes"]), int(index["rows"])
    except SourceError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RobotError) as error:
        raise SourceError(f"{root / EPISODES} can't be read ({error!r}); write the data anew") from error
    frames = read_parquet(root / FRAMES)
    inside = bounds.size == 0 or (bounds.min() >= 0 and bounds.max() <= count)
    if frames.num_rows != count or len(episodes) != len(bounds) or not inside:
        raise SourceError(
            f"{root}: {FRAMES} has {frames.num_rows} rows, {EPISODES} says {count} and {len(bounds)} episodes; "
            "they are of two data sets, write it anew"
        )
    rows = layout.spec.rows(count)
    for field in layout.spec:
        rows[field.name] = column(frames, field.name, field.dtype, field.shape, str(root / FRAMES))
    return Table(layout, rows, bounds[:, 0].copy(), bounds[:, 1].copy(), episodes, str(root), notes)


PARQUET = Format(
    "parquet", is_parquet, load_parquet, write_parquet,
    candidates=lambda folder: (mark.parent for mark in folder.rglob(FRAMES)),
)  # fmt: skip
