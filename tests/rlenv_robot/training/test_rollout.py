"""Episodes of a policy are judged: what they earned, and how steady the joint targets were."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

import rlenv_robot
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.training.rollout import evaluate, population_returns, run_episode


class Buzz:
    """Moves the goals to and fro by 0.02 rad at every other step."""

    def __init__(self) -> None:
        self.sign = 1.0

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.sign = -self.sign
        return {"joint_target": observation["joint_goal"] + np.float32(0.02 * self.sign)}


class Steady:
    """Leaves the goals where they are."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"joint_target": observation["joint_goal"]}


def test_outcomes_have_the_limit_cycle_in_degrees() -> None:
    with rlenv_robot.make_vector("so101-reach", 3, autoreset="disabled") as envs:
        buzzing = [outcome.limit_cycle_deg for outcome in evaluate(envs, Buzz(), 0)]
        steady = [outcome.limit_cycle_deg for outcome in evaluate(envs, Steady(), 0)]
    np.testing.assert_allclose(buzzing, math.degrees(0.01), rtol=0.15)
    assert steady == [0, 0, 0]


def test_an_episode_has_the_limit_cycle_that_a_batch_has() -> None:
    with rlenv_robot.make("so101-reach") as env:
        *_, outcome = run_episode(env, Buzz(), {"seed": 0})  # type: ignore[arg-type]
    assert outcome is not None
    assert outcome.limit_cycle_deg == pytest.approx(math.degrees(0.01), rel=0.15)


def test_a_world_without_joint_targets_has_none() -> None:
    class Pass:
        """Passes, which is the last move."""

        def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {"move": np.asarray(361)}

    with rlenv_robot.make("go") as env:
        *_, outcome = run_episode(env, Pass(), {"seed": 0})  # type: ignore[arg-type]
    assert outcome is not None
    assert math.isnan(outcome.limit_cycle_deg)


def test_unsteady_targets_cost_what_the_recipe_says() -> None:
    """Of two candidates one turns its targets round at every step: it feeds back the gap to the target it just set."""
    vectors = ReachVectors()
    start = FeedbackPolicy.zeros(vectors, "so101-reach")
    still, jumpy = start.parameters, start.parameters.copy()
    direct = np.zeros((vectors.size, vectors.action_size))
    direct[8, 0] = -8.0  # from how far the pan is behind its goal to its goal: overcorrected
    direct[0, 0] = 1.0
    jumpy[-direct.size - vectors.action_size : -vectors.action_size] = direct.ravel()
    population = start.with_parameters(np.stack([still, jumpy]))
    with rlenv_robot.make_vector("so101-reach", 4, autoreset="disabled", streams=np.array([0, 1, 0, 1])) as envs:
        free, dear, dearer = (population_returns(envs, population, 5, 30, price) for price in (0.0, 0.1, 0.2))
    assert dear[0] == free[0]
    assert dear[1] < free[1] - 1
    assert free[1] - dearer[1] == pytest.approx(2 * (free[1] - dear[1]))
