"""Functions of a reading's arrays that a step asks for several times: reward, end and observation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

__all__ = ["LARGEST", "Remembered"]

LARGEST = 1 << 16

_Result = TypeVar("_Result")


class Remembered(Generic[_Result]):
    """A function of arrays that returns the same result again for the arrays that it had last.

    Arrays are compared by identity, so they must not be changed, and neither must the results: a caller that hands one
    on copies it. Readings are new arrays in every step. Results for a view, for an array of another library or for one
    of over `LARGEST` elements are not kept: the former may be overwritten in place, the latter hold much memory.

    Args:
        function: takes arrays, at least one.
        number: of the last calls whose results are kept.
    """

    def __init__(self, function: Callable[..., _Result], number: int = 1) -> None:
        self._function, self._number = function, number
        self._kept: tuple[tuple[tuple[np.ndarray, ...], _Result], ...] = ()

    def __call__(self, *arrays: np.ndarray) -> _Result:
        """Return the function's result."""
        for known, result in self._kept:  # one tuple, so that another thread never sees half of a change
            if known[0] is arrays[0] and all(map(operator.is_, known, arrays)):
                return result
        result = self._function(*arrays)
        for array in arrays:
            if array.__class__ is not np.ndarray or array.base is not None or array.size > LARGEST:
                return result
        self._kept = ((arrays, result), *self._kept[: self._number - 1])
        return result
