"""Remember the tables of many runs in one file, so that opening a folder of thousands of runs reads one file.

Each run's own cache (`recorder.table.cache`) stays what counts: the index repeats its content, with the sizes and times
of the files that it was made of. A run with other sizes or times is opened by itself again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.atomic_file import atomic_write
from hal.frame_layout import FrameLayout
from recorder.json_data import JsonDict, JsonObject
from recorder.names import file_stamps, files_of
from recorder.table.cache import TableCache
from recorder.table.episodes import Segments
from recorder.table.memory import concatenated

__all__ = ["INDEX_NAME", "IndexedRun", "RunIndex", "stamps_of"]

INDEX_NAME = ".rlenv-robot-runs.json"
"""The index's file in a folder of runs. It may be deleted at any time."""
_FORMAT = 1


@dataclass(frozen=True)
class IndexedRun:
    """The table of one run.

    Attributes:
        path: the file of rows.
        rows: the number of rows.
        segments: the episodes and notes, without the rows.
        mends: index -> the row that belongs there in place of the stored one.
    """

    path: Path
    rows: int
    segments: Segments
    mends: Mapping[int, np.ndarray]

    def mapped(self, kind: np.dtype) -> np.ndarray:
        """Return the rows, mapped privately: corrections stay in memory."""
        rows = concatenated([(self.path, self.rows)], kind)[0][: self.rows]
        for index, row in self.mends.items():
            rows[index] = row
        rows.setflags(write=False)
        return rows

    @staticmethod
    def of(table: TableCache) -> IndexedRun:
        """Return the content of a run's own cache."""
        empty = np.zeros(0, table.layout.spec.row_dtype)
        return IndexedRun(table.path, table.rows, table.described(empty), table.mends)


def stamps_of(log: Path) -> JsonDict:
    """Return size and time of change of a run's log files.

    Raises:
        OSError: a file is missing.
    """
    return dict(file_stamps(files_of(log)))


def _stamp_of(rows: Path) -> list[int]:
    status = rows.stat()
    return [status.st_size, status.st_mtime_ns]


class RunIndex:
    """The tables of the runs in a folder, by the path of the run's log.

    Args:
        path: the index's file; an unreadable or damaged one counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._layouts: dict[str, FrameLayout] = {}
        self._runs: dict[str, JsonObject] = {}
        self._seen: set[str] = set()
        self._changed = False
        try:
            head, _, body = path.read_text(encoding="utf-8").partition("\n")
            if head == f"{_FORMAT} {zlib.crc32(body.encode())}":
                index = json.loads(body)
                self._layouts = {key: FrameLayout.from_dict(about) for key, about in index["layouts"].items()}
                self._runs = index["runs"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RobotError):
            pass  # whatever is wrong, the index can be made again

    def get(self, log: Path) -> tuple[FrameLayout, IndexedRun] | None:
        """Return the table of a run, or None if it is not known or has changed."""
        name = os.path.abspath(log)
        known = self._runs.get(name)
        if known is None:
            return None
        try:
            rows, layout = Path(known["path"]), self._layouts[known["layout"]]
            if stamps_of(log) != known["stamps"] or _stamp_of(rows) != known["stamp"]:
                return None
            bounds, kind = np.array(known["bounds"], np.int64).reshape(-1, 2), layout.spec.row_dtype
            mends = {
                int(index): np.frombuffer(base64.b64decode(row), kind).reshape(())
                for index, row in known["mends"].items()
            }
            segments = Segments(
                np.zeros(0, kind),
                bounds[:, 0].copy(),
                bounds[:, 1].copy(),
                tuple(known["episodes"]),
                tuple(known["notes"]),
            )
            self._seen.add(name)
            return layout, IndexedRun(rows, known["rows"], segments, mends)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, log: Path, layout: FrameLayout, run: IndexedRun, stamps: JsonDict) -> None:
        """Remember the table of a run.

        Args:
            log: the run's first log file.
            layout: the layout of its rows.
            run: its table.
            stamps: `stamps_of` the log before the table was made.
        """
        segments, name = run.segments, os.path.abspath(log)
        try:
            stamp = _stamp_of(run.path)
        except OSError:
            return
        self._layouts.setdefault(layout.spec.digest, layout)
        self._runs[name] = {
            "path": os.path.abspath(run.path), "rows": run.rows, "stamps": stamps, "stamp": stamp,
            "layout": layout.spec.digest, "bounds": np.stack([segments.starts, segments.stops], 1).tolist(),
            "episodes": list(segments.episodes), "notes": list(segments.notes),
            "mends": {str(index): base64.b64encode(row.tobytes()).decode() for index, row in run.mends.items()},
        }  # fmt: skip
        self._seen.add(name)
        self._changed = True

    def save(self) -> None:
        """Write the index if it has changed; where nothing can be written, it is made again by each opening."""
        if not self._changed:
            return
        runs = {name: run for name, run in self._runs.items() if name in self._seen}
        body = json.dumps({"layouts": {key: layout.to_dict() for key, layout in self._layouts.items()}, "runs": runs})
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self._path) as part:
                part.write_text(f"{_FORMAT} {zlib.crc32(body.encode())}\n{body}", encoding="utf-8")
