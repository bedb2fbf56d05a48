"""Correlation and rank violation equal the published ones of another project's evaluation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from rlenv_sim2real.figures import plot_validity
from rlenv_sim2real.validity import PolicyScores, mean_maximum_rank_violation, pearson, validity

PUBLISHED = {
    "pick coke can": ((0.787, 0.857, 0.710, 0.567, 0.027, 0.170), (0.907, 0.853, 0.920, 0.760, 0.133, 0.293),
                      0.975, 0.031),
    "move near": ((0.779, 0.442, 0.354, 0.317, 0.050, 0.042), (0.733, 0.633, 0.583, 0.450, 0.017, 0.350), 0.856, 0.111),
    "open drawer": ((0.157, 0.601, 0.463, 0.296, 0.000, 0.009), (0.333, 0.815, 0.704, 0.519, 0.000, 0.148), 0.983, 0.0),
    "close drawer": ((0.343, 0.861, 0.667, 0.891, 0.278, 0.444), (0.630, 0.926, 0.889, 0.741, 0.000, 0.519),
                     0.771, 0.123),
    "apple in drawer": ((0.037, 0.065, 0.130, 0.213, 0.0, 0.0), (0.074, 0.185, 0.185, 0.407, 0.0, 0.0), 0.969, 0.0),
}  # fmt: skip
"""Success of six policies in simulation and on the robot, correlation and rank violation.

Source: SIMPLER (Li et al., "Evaluating Real-World Robot Manipulation Policies in Simulation", CoRL 2024), visual
matching on the Google robot: RT-2-X, RT-1 converged, at 15 %, RT-1-X, RT-1 at its beginning, Octo-Base.
"""


@pytest.mark.parametrize("task", PUBLISHED)
def test_the_figures_are_those_of_simpler(task: str) -> None:
    simulated, real, correlation, violation = PUBLISHED[task]
    assert pearson(simulated, real) == pytest.approx(correlation, abs=6e-4)
    assert mean_maximum_rank_violation(simulated, real) == pytest.approx(violation, abs=6e-4)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8))
def test_the_violation_is_that_of_the_definition(pairs: list[tuple[float, float]]) -> None:
    simulated, real = zip(*pairs, strict=True)
    worst = [
        max(abs(real[i] - real[j]) if (simulated[i] > simulated[j]) != (real[i] > real[j]) else 0.0
            for j in range(len(pairs)))
        for i in range(len(pairs))
    ]  # fmt: skip
    assert mean_maximum_rank_violation(simulated, real) == pytest.approx(np.mean(worst))
    assert mean_maximum_rank_violation(real, real) == 0
    correlation = pearson(simulated, real)
    assert math.isnan(correlation) or -1 - 1e-9 <= correlation <= 1 + 1e-9
    same = pearson(simulated, simulated)
    assert math.isnan(same) or same == pytest.approx(1)


def test_a_reversed_order_is_the_worst() -> None:
    assert pearson([0, 0.5, 1], [1, 0.5, 0]) == pytest.approx(-1)
    assert mean_maximum_rank_violation([0, 0.5, 1], [1, 0.5, 0]) == pytest.approx((1 + 0.5 + 1) / 3)


def test_intervals_narrow_with_episodes_and_hold_the_value(tmp_path) -> None:
    rng = np.random.default_rng(0)

    def scores(episodes: int) -> list[PolicyScores]:
        return [
            PolicyScores(f"{rate}", (rng.random(episodes) < rate).astype(float), (rng.random(episodes) < rate * 0.9))
            for rate in (0.1, 0.4, 0.6, 0.95)
        ]

    few, many = validity(scores(20)), validity(scores(500))
    for result in (few, many):
        low, high = result.pearson_interval
        assert low <= result.pearson <= high
    assert np.ptp(many.pearson_interval) < 0.5 * np.ptp(few.pearson_interval)
    assert many.pearson > 0.98
    pytest.importorskip("matplotlib")
    assert plot_validity(many, "success", tmp_path / "scores.png").stat().st_size > 5000


def test_scores_that_say_nothing_are_refused_or_unknown() -> None:
    assert math.isnan(pearson([1, 1, 1], [0, 0.5, 1]))
    with pytest.raises(SourceError, match="two or more"):
        pearson([1], [1])
    with pytest.raises(SourceError, match="not finite"):
        pearson([1, math.nan], [1, 0])
    with pytest.raises(SourceError, match="'b' has no episode"):
        validity([PolicyScores("a", np.ones(2), np.ones(2)), PolicyScores("b", np.ones(2), np.ones(0))])
    assert validity([PolicyScores(name, np.ones(2), np.ones(2)) for name in "ab"]).to_dict()["pearson"] is None
