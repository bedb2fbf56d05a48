"""The journal of a sample pool: what came and what was learned, on the disk, so that a killed pool goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

import numpy as np

from hal.atomic_file import atomic_write
from hal.field import JsonDict
from rlenv_kaiwu.samples import PoolCounts, SamplePool

__all__ = ["SampleJournal"]

_LARGEST = 64 * 2**20
"""Bytes after which the journal is written anew, without the samples that are no longer needed."""


class SampleJournal:
    """A file to which a pool's changes are appended before they are answered; samples must be rows of numbers.

    A record is a line of JSON, and the bytes of its rows. What a kill has torn off at the end was never answered, so
    the workflow that sent it sends it again. Numbers only: nothing of the file is ever executed.

    Args:
        path: path of the file.
        largest: bytes after which it is written anew; at least four times as many as the samples that are needed.

    Attributes:
        progress: the newest counts of the run, as they were noted.
    """

    def __init__(self, path: Path, largest: int = _LARGEST) -> None:
        self.path, self._least, self._largest = path, largest, largest
        self._size = path.stat().st_size if path.is_file() else 0
        self.progress: JsonDict = {}

    @property
    def is_begun(self) -> bool:
        """Whether there are records."""
        return self._size > 0

    def inserted(self, source: str, number: int, rows: np.ndarray) -> None:
        """Note samples that the pool has taken."""
        self._append({"kind": "insert", "source": source, "first": number}, rows)

    def confirmed(self, number: int, pool: SamplePool) -> None:
        """Note a batch that the learner has confirmed; write a journal that has become large anew."""
        self._append({"kind": "confirm", "number": number})
        if self._size > self._largest:
            self.write(pool)

    def counted(self, progress: JsonDict) -> None:
        """Note the counts of the run."""
        self.progress = progress
        self._append({"kind": "progress", "progress": progress})

    def write(self, pool: SamplePool) -> None:
        """Write the journal anew, with the pool as it is now and the newest counts of the run."""
        rows = [np.asarray(row) for row in pool.contents()]
        counts = asdict(pool.counts) | {"sampled": pool.counts.sampled - pool.in_hand}  # those are drawn again
        head = {"kind": "pool", "newest": pool.newest, "confirmed": pool.confirmed, "counts": counts,
                "progress": self.progress}  # fmt: skip
        with atomic_write(self.path) as part:
            part.write_bytes(_record(head, np.stack(rows) if rows else None))
        self._size = self.path.stat().st_size
        self._largest = max(self._least, 4 * self._size)

    def replay(self, pool: SamplePool) -> None:
        """Bring an empty pool, and the counts of the run, to the state of the last whole record; cut off a torn one."""
        with self.path.open("r+b") as file:
            self._size = 0
            for head, rows in _records(file):
                self._size = file.tell()
                self._apply(pool, head, rows)
            file.truncate(self._size)

    def _apply(self, pool: SamplePool, head: JsonDict, rows: np.ndarray | None) -> None:
        self.progress = head.get("progress", self.progress)
        if head["kind"] == "pool":
            counts = PoolCounts(**head["counts"])
            pool.restore([] if rows is None else list(rows), head["newest"], head["confirmed"], counts)
        elif head["kind"] == "insert" and rows is not None:
            pool.replay(list(rows), head["source"], head["first"])
        elif head["kind"] == "confirm":
            pool.confirm(head["number"])

    def delete(self) -> None:
        """Delete the file. Calling it twice is allowed."""
        self.path.unlink(missing_ok=True)
        self._size = 0

    def _append(self, head: Mapping[str, object], rows: np.ndarray | None = None) -> None:
        record = _record(head, rows)
        with self.path.open("ab", buffering=0) as file:
            file.write(record)
        self._size += len(record)


def _records(file: BinaryIO) -> Iterator[tuple[JsonDict, np.ndarray | None]]:
    """Yield the whole records of a journal; the file is then at the end of the record."""
    while (line := file.readline()).endswith(b"\n"):
        head = json.loads(line)
        size, content = int(head["bytes"]), file.read(int(head["bytes"]))
        if len(content) < size:
            return
        yield head, np.frombuffer(content, head["dtype"]).reshape(head["shape"]) if size else None


def _record(head: Mapping[str, object], rows: np.ndarray | None) -> bytes:
    content = b"" if rows is None else np.ascontiguousarray(rows).tobytes()
    layout = {} if rows is None else {"dtype": rows.dtype.str, "shape": rows.shape}
    return json.dumps({**head, **layout, "bytes": len(content)}).encode() + b"\n" + content
