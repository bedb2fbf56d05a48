"""Functions of a reading's array that a step asks for several times: reward, end and observation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["LARGEST", "Remembered"]

LARGEST = 1 << 16


class Remembered:
    """A function of one array that returns the same result again for the array that it had last.

    Arrays are compared by identity, so they must not be changed, and neither must the results: a caller that hands one
    on copies it. Readings are new arrays in every step. Results for a view, for an array of another library or for one
    of over `LARGEST` elements are not kept: the former may be overwritten in place, the latter hold much memory.

    Args:
        function: takes an array.
        number: of the last arrays whose results are kept.
    """

    def __init__(self, function: Callable[[np.ndarray], np.ndarray], number: int = 1) -> None:
        self._function, self._number = function, number
        self._kept: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """Return the function's result."""
        for known, result in self._kept:  # one tuple, so that another thread never sees half of a change
            if known is array:
                return result
        result = self._function(array)
        if array.__class__ is np.ndarray and array.base is None and array.size <= LARGEST:
            self._kept = ((array, result), *self._kept[: self._number - 1])
        return result
