"""Evaluations of models and policies on recorded data, against figures made by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_curate.statistics import _whole_edges
from rlenv_robot.source import SourceData
from tests.rlenv_robot.data.test_statistics import figures, two_walks, walk

Named = Mapping[str, np.ndarray]


# -- models ------------------------------------------------------------------------------------------------


def exact(observation: Named, action: Named) -> dict[str, np.ndarray]:
    return {"x": observation["x"] + action["u"]}


def biased(observation: Named, action: Named) -> dict[str, np.ndarray]:
    return {"x": observation["x"] + action["u"] + 0.1}


@pytest.mark.requirement("R6.2", "B.2.2.3-4")
def test_the_error_of_a_model_grows_open_loop() -> None:
    data = SourceData(two_walks())
    assert figures(data, {"kind": "model_error", "model": exact})["rms"]["x"] == pytest.approx([0.0])
    found = figures(data, {"kind": "model_error", "model": biased, "horizon": 3, "episodes": [1]})
    assert found["rms"]["x"] == pytest.approx([0.1, 0.2, 0.3])
    assert found["starts"] == 4
    assert found["unchanged"]["x"][0] > 0.5
    with pytest.raises(SourceError, match="take a smaller horizon"):
        data.statistics({"kind": "model_error", "model": exact, "horizon": 7})
    with pytest.raises(SourceError, match=r"\(3,\) for 'x', expected shape \(10, 2\)"):
        data.statistics({"kind": "model_error", "model": lambda observation, action: {"x": np.zeros(3)}})
    with pytest.raises(SourceError, match="model returned nothing for 'x'"):
        data.statistics({"kind": "model_error", "model": lambda observation, action: {}})


@pytest.mark.requirement("R6.2", "A.2-2", "B.2.2.3-4")
def test_a_policy_earns_inside_a_model() -> None:
    def policy(observation: Named) -> dict[str, np.ndarray]:
        return {"u": np.ones_like(observation["x"])}

    def reward(observation: Named, action: Named, following: Named) -> np.ndarray:
        return following["x"][:, 0]

    request = {"kind": "model_return", "model": exact, "agent": policy, "reward": reward, "horizon": 3}
    found = figures(SourceData(two_walks(), discount=0.5), request)
    assert found["returns"] == pytest.approx([1 + 0.5 * 2 + 0.25 * 3] * 2)
    with pytest.raises(SourceError, match="reward returned shape"):
        SourceData(two_walks()).statistics({**request, "reward": lambda *_: 1.0})
    with pytest.raises(SourceError, match="agent returned nothing for 'u'"):
        SourceData(two_walks()).statistics({**request, "agent": lambda observation: {}})


# -- off-policy evaluation ---------------------------------------------------------------------------------

LEFT, RIGHT = 0.3, 0.8
"""Chance of action 1 under the recorded policy and under the one that is judged."""


def coins(count: int, horizon: int) -> Table:
    """Action 1 pays 1; every possible episode as often as the recorded policy plays it, out of ``count``."""
    episodes, rewards = [], []
    for taken in itertools.product((0, 1), repeat=horizon):
        chance = math.prod(LEFT if one else 1 - LEFT for one in taken)
        for _ in range(round(chance * count)):
            episodes.append(np.array([[one, 0] for one in taken], float))
            rewards.append([float(one) for one in taken])
    table = walk(episodes, rewards)
    table.rows["log_probability"] = np.log(np.where(table.rows["action_u"][:, 0] == 1, LEFT, 1 - LEFT))
    return table


def right(observation: Named, action: Named) -> np.ndarray:
    return np.log(np.where(action["u"][:, 0] == 1, RIGHT, 1 - RIGHT))


@pytest.mark.requirement("R6.2", "B.2.2.1-4", "B.2.2.3-1")
def test_off_policy_evaluation_is_exact_where_every_episode_is_there_as_often_as_it_should() -> None:
    data = SourceData(coins(1000, 3), discount=0.5)
    found = figures(data, {"kind": "off_policy", "log_probability": right})
    truth = RIGHT * (1 + 0.5 + 0.25)
    assert found["per_decision"] == pytest.approx(truth)
    assert found["self_normalised"] == pytest.approx(truth)
    assert found["behaviour"] == pytest.approx(LEFT * 1.75)
    # E[rho]^2 / E[rho^2] of one toss, to the power of three tosses, times the number of episodes.
    one = 1 / (RIGHT**2 / LEFT + (1 - RIGHT) ** 2 / (1 - LEFT))
    assert found["effective_sample_size"] == pytest.approx(1000 * one**3)
    assert 0 < found["standard_error"] < 0.3


@pytest.mark.requirement("R6.2")
def test_the_recorded_policy_is_worth_what_it_earned() -> None:
    data = SourceData(coins(100, 2))
    same = {"kind": "off_policy", "log_probability": lambda o, a: np.log(np.where(a["u"][:, 0] == 1, LEFT, 1 - LEFT))}
    found = figures(data, same)
    assert found["per_decision"] == found["self_normalised"] == pytest.approx(found["behaviour"])
    assert found["effective_sample_size"] == pytest.approx(found["episodes"])


@pytest.mark.requirement("R6.2")
def test_a_policy_that_never_does_what_was_recorded_is_no_number_that_lies() -> None:
    request = {"kind": "off_policy", "log_probability": lambda o, a: np.full(len(a["u"]), -np.inf)}
    found = figures(SourceData(coins(100, 2)), request)
    assert (found["effective_sample_size"], found["self_normalised"], found["per_decision"]) == (0.0, 0.0, 0.0)


@pytest.mark.requirement("R6.2")
def test_off_policy_evaluation_refuses_what_it_cannot_know() -> None:
    request: dict[str, Any] = {"kind": "off_policy", "log_probability": right}
    with pytest.raises(SourceError, match=r"10 of 10 steps .* log_probability"):
        SourceData(two_walks()).statistics(request)
    broken = coins(1000, 3)
    broken.rows["frame_no"][broken.starts[1] + 1] = 5
    with pytest.raises(SourceError, match=r"frames are missing in \[1\]"):
        SourceData(broken).statistics(request)
    with pytest.raises(SourceError, match=r"returned shape \(\)"):
        SourceData(coins(100, 2)).statistics({**request, "log_probability": lambda o, a: 0.0})
    bare = coins(100, 2)
    bare.rows["reward"] = np.nan
    with pytest.raises(SourceError, match="off-policy evaluation needs rewards"):
        SourceData(bare).statistics(request)


@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({"kind": "off_policy"}, "option 'log_probability' is missing"),
        ({"kind": "model_return", "model": exact}, "option 'agent' is missing, it needs model, agent, reward"),
        ({"kind": "model_error", "model": 3}, "a function of observation and action"),
    ],
)
def test_an_evaluation_without_its_options_says_why(extra_info: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        SourceData(two_walks()).statistics(extra_info)


# -- histograms and advantages -------------------------------------------------------------------------------


@pytest.mark.requirement("R3.6")
def test_a_histogram_counts_every_element() -> None:
    table = two_walks()
    found = figures(SourceData(table), {"kind": "histogram", "field": "action.u", "bins": 5})
    acted = table.rows["action_u"][table.rows["acted"] == 1]
    for element in range(2):
        counts, edges = np.histogram(acted[:, element], 5)
        assert found["counts"][element] == counts.tolist()
        np.testing.assert_allclose(found["edges"][element], edges)
    assert sum(figures(SourceData(table), {"kind": "histogram", "field": "reward"})["counts"][0]) == 10


@given(st.lists(st.integers(-40, 40), min_size=1, max_size=30), st.integers(1, 12))
def test_bins_of_whole_numbers_hold_equally_many_of_them(drawn: list[int], bins: int) -> None:
    edges = _whole_edges(np.array(drawn, float), bins)
    held = [[n for n in range(-600, 600) if low < n < high] for low, high in itertools.pairwise(edges)]
    assert len({len(whole) for whole in held}) == 1, "no edge is a whole number, and the bins are equal"
    assert np.histogram(drawn, edges)[0].sum() == len(drawn), "every value is in a bin"
    if max(drawn) - min(drawn) < bins:
        assert len(held[0]) == 1


def test_a_histogram_of_a_whole_number_has_its_values() -> None:
    table = two_walks()
    layout = FrameLayout(Spec("observation", (Field("n", (), "int32", 0, 9),)), table.layout.action)
    rows = layout.spec.rows(len(table.rows))
    for name in set(rows.dtype.names) & set(table.rows.dtype.names):
        rows[name] = table.rows[name]
    rows["observation_n"] = np.arange(len(rows)) % 3
    data = SourceData(replace(table, rows=rows, layout=layout))
    found = figures(data, {"kind": "histogram", "field": "observation.n"})
    assert found["edges"][0][:4] == [-0.5, 0.5, 1.5, 2.5]
    assert sum(found["counts"][0][:3]) == 10


@pytest.mark.requirement("R6.2", "B.2.2.1-4")
def test_advantages_and_their_baseline() -> None:
    found = figures(SourceData(two_walks(), discount=1.0), {"kind": "advantage"})
    # Returns to go 4 3 2 1 and 12 10 8 6 4 2; only the first four steps have two episodes.
    each = [-4, -3.5, -3, -2.5, 4, 3.5, 3, 2.5, 0, 0]
    assert found["mean"] == pytest.approx(np.mean(each))
    assert found["std"] == pytest.approx(np.std(each))
    assert "same step" in found["baseline"]


@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({"kind": "histogram"}, "option 'field' is missing"),
        ({"kind": "histogram", "field": "action.v"}, "allowed are observation.x, action.u, reward"),
    ],
)
def test_a_histogram_that_cannot_be_made_says_why(extra_info: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        SourceData(two_walks()).statistics(extra_info)
