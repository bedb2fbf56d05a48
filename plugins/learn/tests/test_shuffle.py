"""Random orders without a list, against what an order is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv_learn.shuffle import Shuffle


@given(st.integers(1, 3000), st.integers(0, 9), st.sampled_from([0, 1 << 20]))
def test_everything_comes_once(count: int, seed: int, listed: int) -> None:
    order = Shuffle(count, seed, listed)
    parts = [order.at(begin, min(begin + 700, count)) for begin in range(0, count, 700)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))


@pytest.mark.parametrize("listed", [0, 1 << 20])
def test_each_seed_has_an_order_of_its_own_and_neighbours_are_far_apart(listed: int) -> None:
    count = 100_000
    orders = [Shuffle(count, (3, epoch), listed).at(0, count) for epoch in range(3)]
    for one, other in pairwise(orders):
        assert (one == other).mean() < 1e-3
        # Of independent places the distance is a third of the count on average; 0.001 is three standard deviations.
        assert np.abs(np.diff(one)).mean() / count == pytest.approx(1 / 3, abs=2e-3)
        assert abs(np.corrcoef(one, np.arange(count))[0, 1]) < 0.02


def test_a_trillion_takes_no_memory() -> None:
    drawn = Shuffle(10**12, 0).at(10**11, 10**11 + 1000)
    assert len(set(drawn.tolist())) == 1000
    assert drawn.min() >= 0
    assert drawn.max() < 10**12
