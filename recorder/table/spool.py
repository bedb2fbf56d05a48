"""Collect the rows of a table without holding them all in memory."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

import numpy as np

from hal import SourceError

__all__ = ["RowSpool", "chosen_scratch", "mapped_array", "scratch_folder"]

_IN_MEMORY = 64 << 20
"""Bytes of rows up to which they are kept in memory."""

_BUFFER_BYTES = 4 << 20
"""Bytes of rows that are copied together before they are written, or kept."""

_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


@contextmanager
def scratch_folder(folder: Path | None) -> Iterator[None]:
    """Let spools that are made inside the block lie in this folder; None keeps the system's folder for such files."""
    token = _scratch.set(folder if folder is not None else _scratch.get())
    try:
        yield
    finally:
        _scratch.reset(token)


def chosen_scratch() -> Path | None:
    """Return the folder that `scratch_folder` chose, if any."""
    return _scratch.get()


def mapped_array(dtype: np.dtype, count: int) -> np.ndarray | None:
    """Return zeros, (count,), that lie in a file without a name, so that the system can take their memory back.

    None is returned where the disk has no room for them.
    """
    folder = _scratch.get()
    size = max(count * dtype.itemsize, 1)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix="rlenv-robot-rows-", dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a later lack of room would end the process
            return np.frombuffer(mmap.mmap(file.fileno(), size), dtype, count)
    except OSError:
        return None


class RowSpool:
    """Rows of one type that are added block by block. Beyond 64 MiB they lie in a file without a name.

    The file vanishes with the last array that refers to it, also if the process is killed.

    Args:
        dtype: of the rows.
        in_memory: bytes up to which no file is made; None: 64 MiB.
    """

    def __init__(self, dtype: np.dtype, in_memory: int | None = None) -> None:
        self._dtype, self._in_memory = dtype, _IN_MEMORY if in_memory is None else in_memory
        self._kind = np.dtype(f"V{dtype.itemsize}")  # copied as a whole, not field by field
        self._size = max(min(_BUFFER_BYTES, self._in_memory // 4) // dtype.itemsize, 1)
        self._buffers: list[np.ndarray] = []
        self._filled = 0  # rows in the last buffer
        self._file: IO[bytes] | None = None
        self.count = 0

    def add(self, rows: np.ndarray) -> None:
        """Append rows, (n,). They are copied: many small arrays that are kept would leave holes in the memory.

        Raises:
            SourceError: the disk is full.
        """
        self.count += len(rows)
        left = np.ascontiguousarray(rows, self._dtype).view(self._kind)
        while len(left):
            if not self._buffers or self._filled == len(self._buffers[-1]):
                self._next_buffer()
            buffer = self._buffers[-1]
            taken = left[: len(buffer) - self._filled]
            buffer[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
            left = left[len(taken) :]

    def _next_buffer(self) -> None:
        """Begin a new buffer, or the old one again after it was written to the file."""
        if self._file is not None or (len(self._buffers) + 1) * self._size * self._kind.itemsize > self._in_memory:
            self._write()
        if self._file is None or not self._buffers:
            self._buffers.append(np.empty(self._size, self._kind))
        self._filled = 0

    def _write(self) -> None:
        folder = _scratch.get()
        try:
            if self._file is None:
                if folder is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(prefix="rlenv-robot-rows-", dir=folder)  # noqa: SIM115
            for rows in self._parts():
                self._file.write(rows.view(np.uint8).data)
            self._file.flush()
        except OSError as error:
            raise SourceError(
                f"{self.count * self._dtype.itemsize} bytes of rows can't be written to "
                f"{folder or tempfile.gettempdir()}: {error}; name a folder on a larger disk: open_source(..., cache=)"
            ) from error
        self._buffers, self._filled = self._buffers[:1], 0

    def _parts(self) -> list[np.ndarray]:
        """Return the rows that are in memory, buffer by buffer."""
        return [*self._buffers[:-1], self._buffers[-1][: self._filled]] if self._buffers else []

    def rows(self) -> np.ndarray:
        """Return all rows, (count,); mapped from the file, read-only, where there is one. Add no more after that."""
        if self._file is None:
            parts, self._buffers = self._parts(), []
            return np.concatenate(parts).view(self._dtype) if parts else np.zeros(0, self._dtype)
        self._write()
        with self._file as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)
