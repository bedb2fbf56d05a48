"""The journal of a sample pool: samples and confirmations on disk, from which a killed pool continues."""

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
"""Bytes after which the journal is rewritten without the samples that are no longer needed."""


class SampleJournal:
    """A file to which a pool's changes are appended before the pool replies. Samples must be rows of numbers.

    A record is a line of JSON and the bytes of its rows. The pool never replied to a record that a kill left
    incomplete, so the workflow sends it again. The file holds only numbers, and nothing in it is executed.

    Args:
        path: the journal's file.
        largest: bytes after which the file is rewritten; at least four times the size of the needed samples.

    Attributes:
        progress: the newest recorded counts of the run.
    """

    def __init__(self, path: Path, largest: int = _LARGEST) -> None:
        self.path, self._least, self._largest = path, largest, largest
        self._size = path.stat().st_size if path.is_file() else 0
        self.progress: JsonDict = {}

    @property
    def is_begun(self) -> bool:
        """Whether the journal has records."""
        return self._size > 0

    def inserted(self, source: str, number: int, rows: np.ndarray) -> None:
        """Record samples that the pool has taken."""
        self._append({"kind": "insert", "source": source, "first": number}, rows)

    def confirmed(self, number: int, pool: SamplePool) -> None:
        """Record a batch that the learner has confirmed, and rewrite the journal if it has become large."""
        self._append({"kind": "confirm", "number": number})
        if self._size > self._largest:
            self.write(pool)

    def counted(self, progress: JsonDict) -> None:
        """Record the counts of the run."""
        self.progress = progress
        self._append({"kind": "progress", "progress": progress})

    def write(self, pool: SamplePool) -> None:
        """Rewrite the journal with the current content of the pool and the newest counts of the run."""
        rows = [np.asarray(row) for row in pool.contents()]
        counts = asdict(pool.counts) | {"sampled": pool.counts.sampled - pool.in_hand}  # those are drawn again
        head = {"kind": "pool", "newest": pool.newest, "confirmed": pool.confirmed, "counts": counts,
                "progress": self.progress}  # fmt: skip
        with atomic_write(self.path) as part:
            part.write_bytes(_record(head, np.stack(rows) if rows else None))
        self._size = self.path.stat().st_size
        self._largest = max(self._least, 4 * self._size)

    def replay(self, pool: SamplePool) -> None:
        """Restore an empty pool and the run's counts to the last complete record, and remove an incomplete one."""
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
        """Delete the file. Safe to call more than once."""
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
