"""The table of a run on disk, beside its log: made from it, thrown away and made again at will."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError
from recorder.frames import FrameLayout
from recorder.segments import Segments

__all__ = ["FOLDER", "load", "stamp", "store"]

FOLDER = "table"
_FORMAT = 1


def stamp(log: Path) -> dict[str, int]:
    """What tells whether a log changed: its size and its time of change."""
    status = log.stat()
    return {"format": _FORMAT, "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def load(log: Path) -> tuple[FrameLayout, Segments] | None:
    """The table that was stored for this very log, its rows mapped into memory; None if there is none."""
    folder = log.parent / FOLDER
    try:
        index: dict[str, Any] = json.loads((folder / "episodes.json").read_text())
        if index["log"] != stamp(log):
            return None
        layout = FrameLayout.from_plain(index["layout"])
        rows = np.load(folder / "rows.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError, RobotError):
        return None  # whatever is wrong with it, it can be made again
    if rows.dtype != layout.spec.row_dtype or len(rows) != index["rows"]:
        return None
    bounds = np.array(index["bounds"], np.int64).reshape(-1, 2)
    starts, stops = bounds[:, 0].copy(), bounds[:, 1].copy()
    return layout, Segments(rows, starts, stops, tuple(index["episodes"]), tuple(index["notes"]))


def store(log: Path, of: dict[str, int], layout: FrameLayout, segments: Segments) -> bool:
    """Keep a table; it appears whole or not at all.

    Args:
        log: whose table it is.
        of: the log's `stamp` before it was read.
        layout: of the rows.
        segments: rows and episodes.

    Returns:
        Whether it was kept: a folder that can't be written is no error, only slower the next time.
    """
    index = {
        "log": of,
        "layout": layout.to_plain(),
        "rows": len(segments.rows),
        "bounds": np.stack([segments.starts, segments.stops], 1).tolist(),
        "episodes": list(segments.episodes),
        "notes": list(segments.notes),
    }
    folder = log.parent / FOLDER
    try:
        fresh = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=log.parent))
    except OSError:
        return False
    try:
        np.save(fresh / "rows.npy", segments.rows, allow_pickle=False)
        (fresh / "episodes.json").write_text(json.dumps(index))
        fresh.chmod(0o755)  # mkdtemp keeps others out, a run's table is as open as its log
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(fresh, folder)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        return False
    return True
