"""One vector and the rows of many give the same bits, and those of NumPy's own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from hal.robots import vectors

SHAPES = st.sampled_from([(), (1,), (5,), (2, 3)])
NUMBERS = {
    np.float32: st.floats(-1e6, 1e6, width=32) | st.just(np.nan), np.float64: st.floats(-1e6, 1e6) | st.just(np.nan),
}  # fmt: skip
FUNCTIONS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, b: vectors.component(a, -1), lambda a, b: a[..., -1]),
    (lambda a, b: np.stack(vectors.components(a), -1), lambda a, b: a),
    (lambda a, b: vectors.from_components(*vectors.components(a)), lambda a, b: a),
    (lambda a, b: vectors.squared_length(a), lambda a, b: np.add.reduce(np.square(a), axis=-1)),
    (lambda a, b: vectors.length(a), lambda a, b: np.sqrt(np.add.reduce(np.square(a), axis=-1))),
    (vectors.squared_distance, lambda a, b: np.add.reduce(np.square(a - b), axis=-1)),
    (vectors.distance, lambda a, b: np.sqrt(np.add.reduce(np.square(a - b), axis=-1))),
    (lambda a, b: vectors.choose(first(a) > first(b), first(a), first(b)),
     lambda a, b: np.where(a[..., 0] > b[..., 0], a[..., 0], b[..., 0])),
    (lambda a, b: vectors.larger(first(a), first(b)), lambda a, b: np.maximum(a[..., 0], b[..., 0])),
    (lambda a, b: vectors.bounded(first(a), -1.5, 2.5), lambda a, b: np.clip(a[..., 0], -1.5, 2.5)),
    (lambda a, b: vectors.as_number(first(a) > 0), lambda a, b: (a[..., 0] > 0).astype(np.float64)),
    (lambda a, b: vectors.all_of([one > 0 for one in vectors.components(a)]), lambda a, b: (a > 0).all(axis=-1)),
    (lambda a, b: vectors.any_of([one > 0 for one in vectors.components(a)]), lambda a, b: (a > 0).any(axis=-1)),
]  # fmt: skip


def first(values: np.ndarray) -> np.ndarray:
    return vectors.component(values, 0)


@pytest.mark.parametrize("functions", FUNCTIONS, ids=range(len(FUNCTIONS)))
@given(data=st.data())
def test_the_bits_are_those_of_numpy_with_any_leading_axes(
    functions: tuple[Callable[..., Any], Callable[..., Any]], data: st.DataObject
) -> None:
    ours, numpys = functions
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    shape = (*data.draw(SHAPES), data.draw(st.integers(1, 7)))
    one, other = (data.draw(nps.arrays(dtype, shape, elements=NUMBERS[dtype])) for _ in range(2))
    with np.errstate(over="ignore"):
        told, expected = ours(one, other), np.asarray(numpys(one, other))
    assert (told.dtype, told.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(told, expected)
    for row in np.ndindex(shape[:-1]):
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(ours(one[row].copy(), other[row].copy()), told[row])


def test_points_are_broadcast_against_each_other() -> None:
    rows, point = np.arange(24.0).reshape(4, 2, 3), np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(
        vectors.distance(rows, point), vectors.distance(rows, np.broadcast_to(point, (4, 2, 3)))
    )
    np.testing.assert_array_equal(vectors.distance(rows, rows[0])[0], np.zeros(2))


def test_numbers_of_python_are_parts_of_vectors() -> None:
    for lead in ((), (3,)):
        made = vectors.from_components(np.ones(lead, np.float32)[()], 0.5, np.float32(2))
        assert made.dtype == np.float32
        np.testing.assert_array_equal(made, np.broadcast_to([1.0, 0.5, 2.0], (*lead, 3)))
