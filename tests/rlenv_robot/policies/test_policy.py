"""Policies that draw their actions: what they tell is recorded, and serves off-policy evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Field, Spec
from rlenv_robot.cli.main import main
from rlenv_robot.policies.policy import Draw, RandomPolicy, StochasticPolicy
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.rollout import run_episode

pytestmark = pytest.mark.requirement("R6.2")


class Gaussian:
    """Draw around the present goal, with a deviation that grows."""

    behaviour = Spec("gaussian", (Field("mean", (6,), "float64"), Field("std", (6,), "float64", 0, 1)))

    def __init__(self) -> None:
        self.rng, self.std, self.drawn = np.random.default_rng(0), 0.001, list[Draw]()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"joint_target": observation["joint_goal"]}

    def draw(self, observation: Mapping[str, np.ndarray]) -> Draw:
        mean, self.std = observation["joint_goal"].astype(float), self.std * 1.1
        action = np.clip(self.rng.normal(mean, self.std), -1.6, 1.6).astype(np.float32)
        density = -0.5 * np.square((action - mean) / self.std) - math.log(self.std * math.sqrt(2 * math.pi))
        behaviour = {"mean": mean, "std": np.full(6, self.std)}
        self.drawn.append(Draw({"joint_target": action}, float(density.sum()), behaviour))
        return self.drawn[-1]


def test_a_gaussians_mean_and_deviation_are_read_back_and_give_its_log_probability(tmp_path: Path) -> None:
    policy = Gaussian()
    assert isinstance(policy, StochasticPolicy)
    with rr.make(Reach(steps=12), record=tmp_path, behaviour=policy.behaviour) as env:
        *_, outcome = run_episode(env, policy, {"seed": 1})
    assert outcome is not None
    source = rr.open_source(tmp_path)
    assert source.table.layout.behaviour == policy.behaviour
    steps: Any = source.sample_trajectories(1)[0]["steps_set"]
    extra, action = steps["extra_info"], steps["action"]["joint_target"]
    mean, std = extra["behaviour"]["mean"], extra["behaviour"]["std"]
    np.testing.assert_array_equal(mean, [one.behaviour["mean"] for one in policy.drawn])
    np.testing.assert_array_equal(std, [one.behaviour["std"] for one in policy.drawn])
    density = (-0.5 * np.square((action - mean) / std) - np.log(std * math.sqrt(2 * math.pi))).sum(axis=1)
    np.testing.assert_allclose(extra["log_probability"], density, rtol=1e-9)


def test_random_actions_know_their_density_and_evaluate_another_policy(tmp_path: Path) -> None:
    spec = Spec("mixed", (Field("push", (2,), "float64", (-1, 0), (1, 4)), Field("gear", (), "int8", 1, 3)))
    policy = RandomPolicy(0)
    policy.check(Spec("seen"), spec)
    assert policy.draw({}).log_probability == pytest.approx(-math.log(2 * 4 * 3))
    texts = RandomPolicy(0)
    texts.check(Spec("seen"), Spec("said", (Field("word", (), "text", characters=3),)))
    assert math.isnan(texts.draw({}).log_probability)
    assert main(["run", "so101-reach", "--policy", "random", "--episodes", "2", "--record", str(tmp_path)]) == 0
    source = rr.open_source(tmp_path)
    low, high = Reach().action["joint_target"].bounds
    density = -float(np.log(high.astype(float) - low.astype(float)).sum())
    np.testing.assert_allclose(source.transitions.facts["log_probability"], density)

    def same(seen: Any, action: Any) -> np.ndarray:
        return np.full(len(action["joint_target"]), density)

    pytest.importorskip("rlenv_curate", reason="the plug-in rlenv_curate is not installed")
    told: Any = source.statistics({"kind": "off_policy", "log_probability": same})
    rewards = [source.transitions.facts["reward"][first:last] for first, last in
               zip(source.transitions.first, source.transitions.last, strict=True)]  # fmt: skip
    expected = np.mean([np.sum(one * 0.99 ** np.arange(len(one))) for one in rewards])
    assert told["per_decision"] == pytest.approx(expected), "ratios of 1 leave the discounted returns as they are"
