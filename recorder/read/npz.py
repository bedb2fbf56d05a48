"""Read NumPy's ``.npz`` files within a budget: no array takes memory that its file does not justify."""

from __future__ import annotations

import math
import os
import zipfile
from typing import IO

import numpy as np

__all__ = ["BudgetError", "read_npz"]

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class BudgetError(ValueError):
    """The arrays are larger than allowed.

    Args:
        size: size of the arrays, bytes.
        most: largest size allowed, bytes.
    """

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"its arrays have {size} bytes, allowed are {most}")
        self.size, self.most = size, most


def read_npz(file: IO[bytes], most: int | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name, after checking their declared sizes before allocating memory.

    Args:
        file: a file on a disk, open for reading.
        most: largest size of all arrays, bytes; None for the size of the file, which then can't be compressed.

    Raises:
        BudgetError: the arrays are larger.
        OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile: the file is damaged, or not of this kind.
    """
    most = os.fstat(file.fileno()).st_size if most is None else most
    total = 0
    with zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            with archive.open(entry) as member:
                version = np.lib.format.read_magic(member)
                if version not in _HEADERS:
                    raise ValueError(f"{entry.filename} is of version {version} of NumPy's format, known are 1 and 2")
                shape, _, kind = _HEADERS[version](member)
            size = math.prod(shape) * kind.itemsize
            if size > entry.file_size:
                raise ValueError(f"{entry.filename} says that it has {size} bytes, it has {entry.file_size}")
            total += entry.file_size
        if total > most:
            raise BudgetError(total, most)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
