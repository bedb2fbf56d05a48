"""The search itself, on problems whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from hal import RobotError
from rlenv_robot.training.evolution import SearchSettings, search

pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")


def test_it_climbs_a_hill_and_stops_after_its_generations() -> None:
    goal = np.linspace(-1, 1, 8)
    settings = SearchSettings(population=16, seconds=60, generations=120, seed=3)
    history = list(search(np.zeros(8), lambda rows, _: -np.square(rows - goal).sum(axis=1), settings))
    assert [generation.number for generation in history] == list(range(120))
    assert np.abs(history[-1].mean - goal).max() < 1e-2
    assert history[-1].median > history[0].median


def test_equal_seeds_search_alike_and_every_candidate_is_scored_once() -> None:
    settings = SearchSettings(population=6, seconds=60, generations=3, seed=1)
    runs = []
    for _ in range(2):
        obs: list[np.ndarray] = []

        def score(rows: np.ndarray, number: int, obs: list[np.ndarray] = obs) -> np.ndarray:
            assert rows.shape == (6, 4)
            assert number == len(obs)
            obs.append(rows)
            return -np.square(rows).sum(axis=1)

        list(search(np.ones(4), score, settings))
        runs.append(np.array(obs))
    np.testing.assert_array_equal(runs[0], runs[1])


def test_no_generation_begins_after_its_time() -> None:
    settings = SearchSettings(population=4, seconds=1e-9, generations=50)
    (only,) = search(np.zeros(2), lambda rows, _: rows.sum(axis=1), settings)
    assert only.share == 1


def test_each_generation_says_how_much_of_the_search_is_done() -> None:
    settings = SearchSettings(population=4, generations=4)
    shares = [generation.share for generation in search(np.zeros(2), lambda rows, _: rows.sum(axis=1), settings)]
    assert shares == [0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("generations", [2, 50])
def test_a_reward_that_never_varies_is_refused(generations: int) -> None:
    settings = SearchSettings(population=4, seconds=60, generations=generations)
    with pytest.raises(RobotError, match="no direction"):
        list(search(np.zeros(2), lambda rows, _: np.zeros(len(rows)), settings))
