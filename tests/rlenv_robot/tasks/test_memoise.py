from __future__ import annotations

import numpy as np

from rlenv_robot.tasks.memoise import LARGEST, memoise_by_identity


def test_the_last_arrays_are_not_computed_again_and_others_are() -> None:
    asked: list[np.ndarray] = []

    def double(array: np.ndarray) -> np.ndarray:
        asked.append(array)
        return 2 * array

    remembered = memoise_by_identity(double, 2)
    first, second, third = (np.full(3, number, float) for number in range(3))
    results = [remembered(array) for array in (first, second, first, second)]
    assert len(asked) == 2
    assert results[0] is results[2]
    np.testing.assert_array_equal(remembered(third), 2 * third)
    remembered(first)
    assert len(asked) == 4, "two arrays are kept, and the first was the oldest"


def test_what_may_change_in_place_or_is_large_is_computed_each_time() -> None:
    remembered = memoise_by_identity(lambda array: array + 1)
    buffer = np.zeros((2, 3))
    view = buffer[0]
    assert remembered(view)[0] == 1
    buffer += 1
    assert remembered(view)[0] == 2, "as a batch on a device writes its readings"
    large = np.zeros(LARGEST + 1)
    assert remembered(large) is not remembered(large)


def test_all_arrays_of_a_call_count() -> None:
    remembered = memoise_by_identity(lambda one, other: one - other)
    one, other = np.ones(3), np.full(3, 2.0)
    assert remembered(one, other) is remembered(one, other)
    np.testing.assert_array_equal(remembered(one, one), np.zeros(3))
    np.testing.assert_array_equal(remembered(other, one), np.ones(3))
    buffer = np.zeros((2, 3))
    assert remembered(one, buffer[0]) is not remembered(one, buffer[0]), "a view may be overwritten"
