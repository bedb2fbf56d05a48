"""Memory for large arrays that is used again once nobody looks at it."""

from __future__ import annotations

import math
import weakref
from collections import deque
from typing import Any

import numpy as np

__all__ = ["BufferPool"]

_KEPT = 3
"""Blocks that wait to be used again: a batch that is learned from, one that is ready, one that is being made."""


class _Lease:
    """Stands between a block and the arrays that look at it: it goes when the last of them goes."""

    def __init__(self, block: np.ndarray, shape: tuple[int, ...]) -> None:
        self.__array_interface__: dict[str, Any] = {
            "version": 3, "data": (block.ctypes.data, False), "shape": shape, "typestr": "|u1",
        }  # fmt: skip


class BufferPool:
    """Hands out arrays of bytes, for any number of threads.

    Fresh memory costs more than what is copied into it: the system clears every page of it. So the memory of an array
    that was handed out is kept, and handed out again when neither that array nor any view of it is left.

    Args:
        kept: blocks that are kept at most while they are not in use.
    """

    def __init__(self, kept: int = _KEPT) -> None:
        self._free: deque[np.ndarray] = deque(maxlen=kept)  # its methods need no lock; the oldest one makes way

    def take(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array of uint8 with any content."""
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
