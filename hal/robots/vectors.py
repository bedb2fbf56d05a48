"""Compute with short vectors along the last axis of arrays, at a low cost for a single vector.

All functions take arrays with any leading axes. Their result for one vector equals, bit for bit, their result for the
same vector as a row of many. For a single vector they compute with NumPy scalars, which ``values[..., 2]`` would not
give; their arithmetic costs a tenth of that of arrays of a few numbers.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import cast

import numpy as np

__all__ = [
    "all_of", "any_of", "as_number", "bounded", "choose", "component", "components", "distance", "from_components",
    "larger", "length", "squared_distance", "squared_length",
]  # fmt: skip

_ONE, _ZERO = (cast("np.ndarray", np.float64(number)) for number in (1, 0))


def component(vectors: np.ndarray, index: int) -> np.ndarray:
    """Return one number of each vector; shape (..., n) to (...), a NumPy scalar for a single vector."""
    return vectors.T[index].T


def components(vectors: np.ndarray) -> list[np.ndarray]:
    """Return all numbers of each vector as `component` does: a list of n arrays of shape (...)."""
    rows = vectors.T
    return [rows[index].T for index in range(len(rows))]


def from_components(first: np.ndarray, *others: np.ndarray | float) -> np.ndarray:
    """Make vectors from their numbers: n arrays of shape (...) to a new one of shape (..., n) and the first one's type.

    Args:
        first: the first number of each vector, shape (...).
        others: the other numbers, broadcast against the first.
    """
    size = 1 + len(others)
    if first.ndim == 0:
        return np.array((first, *others), first.dtype)
    vectors = np.empty_like(first, shape=(*first.shape, size))
    vectors[..., 0] = first
    for index in range(1, size):
        vectors[..., index] = others[index - 1]
    return vectors


def squared_length(vectors: np.ndarray) -> np.ndarray:
    """Return the sum of the squares of up to 7 numbers of each vector; shape (..., n) to (...)."""
    rows = vectors.T
    total = rows[0] * rows[0]
    for index in range(1, len(rows)):
        row = rows[index]
        total += row * row
    return total.T


def length(vectors: np.ndarray) -> np.ndarray:
    """Return the lengths of vectors of up to 7 numbers; shape (..., n) to (...)."""
    return np.sqrt(squared_length(vectors))


def distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the distance between points of up to 7 numbers, broadcast against each other; shape (..., n) to (...)."""
    return np.sqrt(squared_distance(one, other))


def squared_distance(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the square of `distance`; shape (..., n) to (...)."""
    if one.ndim > 1 or other.ndim > 1:
        return squared_length(one - other)
    gap = one[0] - other[0]
    total: np.ndarray = gap * gap
    for index in range(1, len(one)):
        gap = one[index] - other[index]
        total += gap * gap
    return total


def choose(condition: np.ndarray, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return ``numpy.where``, in a tenth of its time for a single condition.

    Args:
        condition: bool, shape (...).
        one: the values where the condition holds, shape (...).
        other: the values elsewhere, of the same type and shape.
    """
    if condition.ndim == 0:
        return one if condition else other
    return np.where(condition, one, other)


def larger(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return ``numpy.maximum``, NaN included, in a tenth of its time for single numbers; all of shape (...)."""
    if one.ndim == other.ndim == 0:
        return one if one >= other or np.isnan(one) else other
    return np.maximum(one, other)


def as_number(condition: np.ndarray) -> np.ndarray:
    """Return 1 where a condition holds and 0 elsewhere; float64, shape (...)."""
    return choose(condition, _ONE, _ZERO)


def bounded(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return ``numpy.clip``, NaN included, in a tenth of its time for a single number; shape (...)."""
    if values.ndim == 0:
        bound = low if values < low else high if values > high else None
        return values if bound is None else cast("np.ndarray", values.dtype.type(bound))
    return np.minimum(np.maximum(values, low), high)


def all_of(conditions: Iterable[np.ndarray]) -> np.ndarray:
    """Return whether all conditions hold; the conditions and the result are bool of shape (...)."""
    return functools.reduce(operator.and_, conditions)


def any_of(conditions: Iterable[np.ndarray]) -> np.ndarray:
    """Return whether any condition holds; the conditions and the result are bool of shape (...)."""
    return functools.reduce(operator.or_, conditions)
