"""Collect the rows of a table without holding them all in memory."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

import numpy as np

from hal import SourceError

__all__ = ["RowSpool", "scratch_folder"]

_IN_MEMORY = 256 << 20
"""Bytes of rows up to which they are kept in memory."""

_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


@contextmanager
def scratch_folder(folder: Path | None) -> Iterator[None]:
    """Let spools that are made inside the block lie in this folder; None keeps the system's folder for such files."""
    token = _scratch.set(folder if folder is not None else _scratch.get())
    try:
        yield
    finally:
        _scratch.reset(token)


class RowSpool:
    """Rows of one type that are added block by block. Beyond 256 MiB they lie in a file without a name.

    The file vanishes with the last array that refers to it, also if the process is killed.

    Args:
        dtype: of the rows.
        in_memory: bytes up to which no file is made; None: 256 MiB.
    """

    def __init__(self, dtype: np.dtype, in_memory: int | None = None) -> None:
        self._dtype, self._in_memory = dtype, _IN_MEMORY if in_memory is None else in_memory
        self._blocks: list[np.ndarray] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self.count = 0

    def add(self, rows: np.ndarray) -> None:
        """Append rows, (n,).

        Raises:
            SourceError: the disk is full.
        """
        self.count += len(rows)
        self._blocks.append(rows)
        self._bytes += rows.nbytes
        if self._bytes > self._in_memory or (self._file is not None and self._bytes > self._in_memory // 4):
            self._write()

    def _write(self) -> None:
        folder = _scratch.get()
        try:
            if self._file is None:
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(prefix="rlenv-robot-rows-", dir=folder)  # noqa: SIM115
            for rows in self._blocks:
                self._file.write(np.ascontiguousarray(rows).view(np.uint8).data)
            self._file.flush()
        except OSError as error:
            raise SourceError(
                f"{self.count * self._dtype.itemsize} bytes of rows can't be written to "
                f"{folder or tempfile.gettempdir()}: {error}; name a folder on a larger disk: open_source(..., cache=)"
            ) from error
        self._blocks, self._bytes = [], 0

    def rows(self) -> np.ndarray:
        """Return all rows, (count,); mapped from the file, read-only, where there is one. Add no more after that."""
        if self._file is None:
            return np.concatenate(self._blocks) if self._blocks else np.zeros(0, self._dtype)
        self._write()
        with self._file as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)
