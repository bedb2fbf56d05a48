"""Sets of positions as runs, against plain sets."""

from __future__ import annotations

import tracemalloc

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from recorder.table.selection import Selection, within

SETS = st.sets(st.integers(0, 60), min_size=1, max_size=40)


def of(chosen: set[int]) -> Selection:
    return Selection.of(np.array(sorted(chosen)))


@given(SETS, SETS)
def test_a_selection_is_the_set_of_its_positions(one: set[int], other: set[int]) -> None:
    selection = of(one)
    assert len(selection) == len(one)
    assert np.asarray(selection).tolist() == sorted(one)
    assert [position for block in selection.blocks(3) for position in block.tolist()] == sorted(one)
    places, inside = selection.places(np.arange(62))
    assert inside is not None
    assert set(np.flatnonzero(inside).tolist()) == one
    np.testing.assert_array_equal(selection.take(places[inside]), np.flatnonzero(inside))
    assert selection.places(np.array(sorted(one)))[1] is None
    assert np.asarray(selection & of(other)).tolist() == sorted(one & other)


@given(SETS, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), min_size=1, max_size=20))
def test_touched_runs_have_a_position_of_the_set(chosen: set[int], runs: list[tuple[int, int]]) -> None:
    first = np.array([run[0] for run in runs])
    stop = first + np.array([run[1] for run in runs])
    wanted = [not chosen.isdisjoint(range(a, b)) for a, b in zip(first, stop, strict=True)]
    assert of(chosen).touched(first, stop).tolist() == wanted


def test_a_billion_positions_take_no_memory() -> None:
    tracemalloc.start()
    try:
        selection = Selection.everything(10**9) & Selection(np.array([5, 10**8]), np.array([7, 10**9]))
        drawn = selection.take(np.array([0, 1, 2, len(selection) - 1]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert drawn.tolist() == [5, 6, 10**8, 10**9 - 1]
    assert peak < 1 << 16


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(0, 40))
@example([0, 39], 40)
@example([-1], 40)
@example([40], 40)
def test_within_is_what_a_plain_comparison_says(numbers: list[int], count: int) -> None:
    assert within(np.array(numbers, np.int64), count) == all(0 <= number < count for number in numbers)
