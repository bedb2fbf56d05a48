"""Doubly robust and fitted-Q evaluation, on problems whose values are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData

Named = Mapping[str, np.ndarray]
LAYOUT = FrameLayout(Spec("o", (Field("x", (), "float64"),)), Spec("a", (Field("u", (), "float64"),)))
LEFT, RIGHT, STEPS = 0.3, 0.8, 4


def coins(episodes: int, seed: int) -> SourceData:
    """x counts the steps; action 1 pays x + 1, played with chance LEFT; four steps, then terminated."""
    rng = np.random.default_rng(seed)
    rows = LAYOUT.spec.rows(episodes * (STEPS + 1))
    starts = np.arange(episodes) * (STEPS + 1)
    frame = np.tile(np.arange(STEPS + 1), episodes)
    taken = (rng.random(len(rows)) < LEFT).astype(float)
    rows["frame_no"], rows["acted"], rows["terminated"] = frame, frame > 0, frame == STEPS
    rows["observation_x"], rows["action_u"], rows["reward"] = frame, taken, taken * frame
    rows["log_probability"] = np.log(np.where(taken == 1, LEFT, 1 - LEFT))
    return SourceData(Table(LAYOUT, rows, starts, starts + STEPS + 1, ({},) * episodes, "the coins"), discount=0.9)


def chance(observation: Named, action: Named) -> np.ndarray:
    return np.log(np.where(action["u"] == 1, RIGHT, 1 - RIGHT))


def playing(seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return lambda observation: {"u": (rng.random(len(observation["x"])) < RIGHT).astype(float)}


def exact_features(observation: Named, action: Named) -> np.ndarray:
    """One number for each step and action: any value function of this problem."""
    step, taken = np.eye(STEPS)[np.minimum(observation["x"], STEPS - 1).astype(int)], action["u"][:, None]
    return np.concatenate([step * taken, step * (1 - taken)], axis=1)


TRUTH = sum(0.9**t * RIGHT * (t + 1) for t in range(STEPS))


def figures(data: SourceData, extra_info: dict[str, Any]) -> dict[str, Any]:
    found = data.statistics(extra_info)
    assert found is not None
    json.dumps(found)
    return found


@pytest.mark.requirement("R6.2", "A.2-2", "B.2.2-1")
def test_fitted_q_finds_the_value_of_a_policy_that_did_not_play() -> None:
    found = figures(coins(4000, 0), {"kind": "fitted_q", "agent": playing(), "features": exact_features})
    assert found["value"] == pytest.approx(TRUTH, rel=0.03)
    assert found["residual"] < 1e-6
    assert found["model"] == "linear"
    always = figures(
        coins(4000, 0),
        {"kind": "fitted_q", "agent": lambda o: {"u": np.ones(len(o["x"]))}, "features": exact_features},
    )
    assert always["value"] == pytest.approx(TRUTH / RIGHT, rel=1e-3)
    assert always["bellman_rms"] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.requirement("R6.2")
def test_the_default_features_serve_a_smooth_problem() -> None:
    rng = np.random.default_rng(0)
    rows = LAYOUT.spec.rows(2000)
    starts = np.arange(1000) * 2
    place, move = rng.uniform(-1, 1, 1000), rng.uniform(-1, 1, 1000)
    rows["observation_x"][0::2], rows["observation_x"][1::2], rows["action_u"][1::2] = place, place + move, move
    rows["frame_no"][1::2] = rows["acted"][1::2] = rows["terminated"][1::2] = 1
    rows["reward"][1::2] = -np.square(place + move)  # one step; the best action is -x
    data = SourceData(Table(LAYOUT, rows, starts, starts + 2, ({},) * 1000, "one step"))
    found = figures(data, {"kind": "fitted_q", "agent": lambda o: {"u": -o["x"]}})
    assert found["value"] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize("good", [True, False])
def test_doubly_robust_is_right_whatever_the_model_and_sharper_with_a_good_one(good: bool) -> None:
    features = exact_features if good else lambda o, a: np.stack([np.ones(len(o["x"])), np.sin(9 * o["x"])], axis=1)
    request = {"kind": "off_policy", "log_probability": chance, "agent": playing(), "features": features}
    found = figures(coins(6000, 1), request)
    assert found["doubly_robust"] == pytest.approx(TRUTH, abs=4 * found["doubly_robust_error"])
    if good:
        assert found["doubly_robust_error"] < 0.7 * found["standard_error"]


@pytest.mark.requirement("R6.2")
def test_without_a_policy_that_acts_there_is_no_doubly_robust_figure() -> None:
    assert "doubly_robust" not in figures(coins(50, 0), {"kind": "off_policy", "log_probability": chance})


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({}, "option 'agent' is missing"),
        ({"agent": lambda o: 1}, "agent returned a int, expected a mapping"),
        ({"agent": lambda o: {}}, "agent returned None for 'u'"),
        ({"agent": playing(), "features": lambda o, a: np.ones(3)}, r"features returned shape \(3,\)"),
        ({"agent": playing(), "features": lambda o, a: np.full((len(o["x"]), 1), np.nan)}, "finite numbers"),
        ({"agent": lambda o: {"u": 50 + o["x"]}, "features": lambda o, a: (1 + a["u"])[:, None]}, "diverged"),
    ],
)
def test_an_evaluation_that_cannot_be_made_says_why(extra_info: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        coins(50, 0).statistics({"kind": "fitted_q", **extra_info})
