"""Many files of packed rows as one array without copying: mapped into one stretch of addresses, one behind the other.

Files can only be mapped at borders of pages, so each begins at the next address that is such a border and a whole
number of rows from the beginning. The rows in between are zeros and belong to no episode; they cost no memory.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError

__all__ = ["concatenated"]

_FIXED = 0x10  # MAP_FIXED, the same on all of Linux
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class _Addresses:
    """A stretch of addresses, given back when no array looks at it any more."""

    def __init__(self, size: int, kind: np.dtype, count: int) -> None:
        self.size = size
        self.start = self._map(0, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        weakref.finalize(self, _LIBC.munmap, self.start, size)
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "data": (self.start, False), "shape": (count,), "typestr": f"|V{kind.itemsize}",
        }  # fmt: skip

    def put(self, at: int, path: Path, size: int) -> None:
        """Map the first bytes of a file: private, so that nothing done to them in memory reaches it."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self._map(self.start + at, size, mmap.MAP_PRIVATE | _FIXED, descriptor)
        finally:
            os.close(descriptor)

    def _map(self, address: int, size: int, flags: int, descriptor: int) -> int:
        got = _LIBC.mmap(address or None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
        if got is None or got == ctypes.c_void_p(-1).value:
            reason = os.strerror(ctypes.get_errno())
            raise SourceError(f"{size} bytes of rows can't be mapped into memory: {reason}; load fewer runs at once")
        return int(got)


def concatenated(parts: Sequence[tuple[Path, int]], kind: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The rows of all files, and where each file's begin.

    Args:
        parts: file and number of rows each; its rows are its first bytes.
        kind: of a row.

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
