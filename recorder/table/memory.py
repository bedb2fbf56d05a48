"""Provide memory for large arrays: mapped files of rows, spools of rows on disk, and reused buffers.

Two parts replace something simpler, and were kept because of these measurements (processor time, medians):

- A list of ``np.memmap`` and a gather from each, in place of `concatenated`: a batch of 256 pairs of rows takes 65 %
  longer for 2 files, 124 % for 10 and 436 % for 100.
- A new array for each batch, in place of `BufferPool`: a batch of 64 images of 640 x 480 takes 85 % longer.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO

import numpy as np

from hal import SourceError
from hal.atomic_file import allocate
from recorder.json_data import JsonDict

__all__ = [
    "BufferPool", "RowSpool", "chosen_scratch", "concatenated", "expect_random_reads", "mapped_array", "scratch_folder",
]  # fmt: skip

_FIXED, _NORESERVE = 0x10, 0x4000
"""MAP_FIXED and MAP_NORESERVE, the same on all of Linux. Without the latter, a private mapping of more bytes than the
machine has memory is refused, though only corrected pages will ever be copied."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class _Addresses:
    """A range of addresses, given back when no array refers to it any more."""

    def __init__(self, size: int, kind: np.dtype, count: int) -> None:
        self.size = size
        self.start = self._map(0, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        weakref.finalize(self, _LIBC.munmap, self.start, size)
        self.__array_interface__: JsonDict = {
            "version": 3, "data": (self.start, False), "shape": (count,), "typestr": f"|V{kind.itemsize}",
        }  # fmt: skip

    def put(self, at: int, path: Path, size: int) -> None:
        """Map the first bytes of a file privately: what is written to them in memory does not reach the file."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self._map(self.start + at, size, mmap.MAP_PRIVATE | _FIXED, descriptor)
        finally:
            os.close(descriptor)

    def _map(self, address: int, size: int, flags: int, descriptor: int) -> int:
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        got = _LIBC.mmap(address or None, size, protection, flags | _NORESERVE, descriptor, 0)
        if got is None or got == ctypes.c_void_p(-1).value:
            reason = os.strerror(ctypes.get_errno())
            raise SourceError(f"{size} bytes of rows can't be mapped into memory: {reason}; load fewer runs at once")
        return int(got)


def concatenated(parts: Sequence[tuple[Path, int]], kind: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Map the rows of all files into one array, without copying them.

    A file can only be mapped at a page border. So each file begins at the next address that is a page border and a
    whole number of rows from the beginning. The rows in between are zeros of no episode; they cost no memory.

    Args:
        parts: file and number of rows each; the rows are the file's first bytes.
        kind: the rows' type.

    Returns:
        Rows, shape (R,), writable in memory only; and (len(parts),) int64, the index of each file's first row.

    Raises:
        SourceError: the system has no addresses left.
    """
    step = math.lcm(kind.itemsize, mmap.PAGESIZE)
    sizes = [count * kind.itemsize for _, count in parts]
    spans = [-(-size // step) * step for size in sizes]
    starts = np.cumsum([0, *spans])
    addresses = _Addresses(max(int(starts[-1]), step), kind, int(starts[-1]) // kind.itemsize)
    for (path, _), size, start in zip(parts, sizes, starts.tolist(), strict=False):
        if size:
            addresses.put(start, path, size)
    return np.asarray(addresses).view(kind), starts[:-1] // kind.itemsize


def expect_random_reads(rows: np.ndarray) -> None:
    """Tell the system that rows of a mapped file will be read in random order, so that it does not read ahead.

    Otherwise each row that is not cached costs reading 128 kB.
    """
    begin = rows.__array_interface__["data"][0] // mmap.PAGESIZE * mmap.PAGESIZE
    _LIBC.madvise(begin, rows.__array_interface__["data"][0] + rows.nbytes - begin, mmap.MADV_RANDOM)


# -- rows that are collected block by block --------------------------------------------------------------------


_IN_MEMORY = 64 << 20
"""Bytes of rows up to which they are kept in memory."""

_BUFFER_BYTES = 4 << 20
"""Bytes of rows that are copied together before they are written, or kept."""

_scratch: ContextVar[Path | None] = ContextVar("scratch", default=None)


@contextmanager
def scratch_folder(folder: Path | None) -> Iterator[None]:
    """Put the files of spools made inside the block into this folder; None keeps the present folder."""
    token = _scratch.set(folder if folder is not None else _scratch.get())
    try:
        yield
    finally:
        _scratch.reset(token)


def chosen_scratch() -> Path | None:
    """Return the folder that `scratch_folder` chose, if any."""
    return _scratch.get()


def mapped_array(dtype: np.dtype, count: int) -> np.ndarray | None:
    """Return zeros, (count,), in an unnamed file, so that the system can reclaim their memory.

    The result is None if the disk has no room for them.
    """
    folder = _scratch.get()
    size = max(count * dtype.itemsize, 1)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(prefix="rlenv-robot-rows-", dir=folder) as file:
            allocate(file.fileno(), size)  # a later lack of room would end the process
            return np.frombuffer(mmap.mmap(file.fileno(), size), dtype, count)
    except OSError:
        return None


class RowSpool:
    """Collect rows of one type block by block; beyond 64 MiB they lie in an unnamed file.

    The file vanishes with the last array that refers to it, even if the process is killed.

    Args:
        dtype: dtype of the rows.
        in_memory: bytes up to which no file is made; None for 64 MiB.
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
        """Append a copy of rows, (n,): keeping many small arrays would fragment the memory.

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
        """Return all rows, (count,), read-only and mapped if they lie in a file. Don't add rows afterwards."""
        if self._file is None:
            parts, self._buffers = self._parts(), []
            return np.concatenate(parts).view(self._dtype) if parts else np.zeros(0, self._dtype)
        self._write()
        with self._file as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)


# -- buffers that are used again --------------------------------------------------------------------------------

_SPARE = 3
"""Unused blocks to keep: one batch that is learned from, one that is ready, one that is being made."""


class _Lease:
    """Stands between a block and the arrays that refer to it: it goes when the last of them goes."""

    def __init__(self, block: np.ndarray, shape: tuple[int, ...]) -> None:
        self.__array_interface__: JsonDict = {
            "version": 3, "data": (block.ctypes.data, False), "shape": shape, "typestr": "|u1",
        }  # fmt: skip


class BufferPool:
    """Provide arrays of bytes to any number of threads, and reuse their memory.

    New memory costs more than copying into it, because the system clears every page. So a block is reused once neither
    its array nor a view of it exists.

    Args:
        spare: the largest number of unused blocks that are kept.
    """

    def __init__(self, spare: int = _SPARE) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=spare)  # its methods need no lock; the oldest block makes way

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of uint8 of this shape with arbitrary content."""
        size = math.prod(shape)
        block = self._fitting(size)
        if block is None:
            block = np.empty(max(size, 1), np.uint8)
        lease = _Lease(block, shape)
        weakref.finalize(lease, self._free.append, block).atexit = False
        return np.asarray(lease)

    def _fitting(self, size: int) -> np.ndarray | None:
        for _ in range(len(self._free)):
            try:
                block = self._free.popleft()
            except IndexError:  # another thread was quicker
                return None
            if size <= block.nbytes <= 2 * size:
                return block
            self._free.append(block)
        return None
