"""Chances that change: drawn in proportion, whichever way they are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.table.sampler import WIDTH, PrioritizedSampler, SumTree


def chances_of(values: np.ndarray) -> PrioritizedSampler:
    return PrioritizedSampler(len(values), lambda begin, end: values[begin:end])


SKEWED = np.where(np.arange(2000) == 1234, 500.0, 0.5)
EVEN = np.linspace(0.5, 1.0, 50)


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize("values", [EVEN, SKEWED], ids=["rejection", "tree"])
def test_draws_follow_the_chances(values: np.ndarray) -> None:
    drawn = chances_of(values).draw(np.random.default_rng(0), 200_000)[0]
    share = np.bincount(drawn, minlength=len(values)) / 200_000
    expected = values / values.sum()
    error = np.sqrt(expected * (1 - expected) / 200_000)
    assert (np.abs(share - expected) < 5 * error).all()


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize("values", [EVEN, SKEWED], ids=["rejection", "tree"])
def test_a_change_counts_from_the_next_draw_on(values: np.ndarray) -> None:
    chances, rng = chances_of(values.copy()), np.random.default_rng(0)
    chances.draw(rng, 10)  # whatever is made for drawing is there now
    chances.update(np.array([3, 3, 7]), np.array([1.0, values.sum() * 2, values.sum()]))
    share = np.bincount(chances.draw(rng, 50_000)[0], minlength=len(values)) / 50_000
    fresh = values.copy()
    fresh[[3, 7]] = values.sum() * 2, values.sum()
    assert share[3] == pytest.approx((fresh / fresh.sum())[3], abs=0.012)
    assert share[7] == pytest.approx((fresh / fresh.sum())[7], abs=0.012)


def test_the_lowest_chance_is_found_again_after_it_rose() -> None:
    chances = chances_of(np.array([0.001, 1.0]))
    assert chances.lowest == pytest.approx(0.001)
    for _ in range(1100):
        chances.update(np.array([0]), np.array([0.5]))
    assert chances.lowest == 0.5


def test_it_goes_from_search_to_rejection_and_back() -> None:
    rng, chances = np.random.default_rng(0), chances_of(np.ones(1000))
    chances.update(np.array([5]), np.array([1e6]))
    assert np.mean(chances.draw(rng, 1000)[0] == 5) > 0.99
    for _ in range(1100):
        chances.update(np.array([5]), np.array([1.0]))
    share = np.bincount(chances.draw(rng, 100_000)[0], minlength=1000) / 100_000
    assert np.abs(share - 1e-3).max() < 6e-4


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=300), st.integers(0, 1000))
@settings(max_examples=50)
def test_the_tree_finds_what_a_plain_search_finds(values: list[float], seed: int) -> None:
    rows = np.zeros((-(-len(values) // WIDTH), WIDTH), np.float32)
    rows.reshape(-1)[: len(values)] = values
    points = np.random.default_rng(seed).random(100)
    sums = np.cumsum(rows.reshape(-1).astype(float))
    expected = np.searchsorted(sums, points * sums[-1], side="right")
    found = SumTree(rows).draw(points)
    # At a border between two, either may be found: sums are added up in another order.
    near = np.abs(sums[np.minimum(found, expected)] - points * sums[-1]) < 1e-9 * sums[-1]
    assert ((found == expected) | near).all()


def test_a_tree_of_several_levels_stays_right_under_changes() -> None:
    rng = np.random.default_rng(1)
    rows = rng.random((20_000, WIDTH)).astype(np.float32)
    tree = SumTree(rows)
    for _ in range(5):
        index = rng.integers(0, rows.size, 500)
        rows.reshape(-1)[index] = rng.random(500)
        tree.refresh(index)
    points = rng.random(3000)
    sums = np.cumsum(rows.reshape(-1), dtype=float)
    found = tree.draw(points)
    assert np.abs(found - np.searchsorted(sums, points * sums[-1], side="right")).max() <= 1
