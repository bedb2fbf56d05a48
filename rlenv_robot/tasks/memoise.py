"""Memoise functions of a state's arrays that one step calls several times: for reward, end and observation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Generic, TypeVar

import numpy as np

__all__ = ["LARGEST", "memoise_by_identity"]

LARGEST = 1 << 16
"""Largest number of elements of an array for which results are stored."""

_Result = TypeVar("_Result")


class memoise_by_identity(Generic[_Result]):
    """Wrap or decorate a function so that it returns the stored result for arrays of a recent call.

    Arrays are compared by identity, since the arrays of a state are new in every step. Neither they nor the results may
    be changed: a caller that passes a result on copies it. No result is stored for a view, which may be overwritten in
    place, for an array of another library, or for an array with over `LARGEST` elements.

    Args:
        function: takes at least one array.
        number: number of recent calls with stored results.
    """

    def __init__(self, function: Callable[..., _Result], number: int = 1) -> None:
        self._function, self._number = function, number
        self._stored: tuple[tuple[tuple[np.ndarray, ...], _Result], ...] = ()

    def __call__(self, *arrays: np.ndarray) -> _Result:
        """Return the function's result."""
        for stored, result in self._stored:  # one tuple, so that another thread never sees half of a change
            if stored[0] is arrays[0] and all(map(operator.is_, stored, arrays)):
                return result
        result = self._function(*arrays)
        for array in arrays:
            if array.__class__ is not np.ndarray or array.base is not None or array.size > LARGEST:
                return result
        self._stored = ((arrays, result), *self._stored[: self._number - 1])
        return result
