"""The learned arm: known dynamics are found again, and it stands where a simulation stands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import SourceError
from hal.robots.so101 import HOME, SO101
from rlenv_robot.policies.feedback import FeedbackPolicy, parameter_count
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.arm_model import LearnedBatch, fit, open_loop_error
from rlenv_robot.training.rollout import population_returns
from rlenv_robot.vector.env import VectorEnvironment

LAG = 0.3
SAG = np.array([0.0, 0.04, 0.06, 0.03, 0.0, 0.0])


def trajectory(seed: int, steps: int = 60) -> Any:
    """An arm that closes 30 % of the gap to its goal each period, and hangs below it by a constant."""
    rng = np.random.default_rng(seed)
    position, goal = [np.asarray(HOME, float)], [np.asarray(HOME, float)]
    for _ in range(steps):
        goal.append(goal[-1] + rng.uniform(-0.1, 0.1, 6))
        position.append(position[-1] + LAG * (goal[-1] - SAG - position[-1]))
    p, g = np.array(position), np.array(goal)
    return {
        "steps_set": {
            "frame_no": np.arange(steps),
            "observation": {"joint_position": p[:-1], "joint_goal": g[:-1]},
            "next_observation": {"joint_position": p[1:], "joint_goal": g[1:]},
        }
    }


@pytest.mark.requirement("R6.2")
def test_known_dynamics_are_found_again() -> None:
    model = fit([trajectory(seed) for seed in range(10)])
    error, unchanged = open_loop_error(model, [trajectory(100), trajectory(101)])
    assert error.shape == unchanged.shape == (59,)
    assert error[-1] < 0.3 < 5 < unchanged[-1]  # degrees


def test_a_learned_arm_sags_where_the_recorded_one_did() -> None:
    arms = LearnedBatch(fit([trajectory(seed) for seed in range(10)]), 8)
    robot_state = arms.reset(None, None, None)
    sag = np.asarray(HOME) - robot_state.sensors["joint_position"]
    np.testing.assert_allclose(sag, np.broadcast_to(SAG, sag.shape), atol=0.01)
    assert not arms.broken.any()


def test_it_takes_the_place_of_a_simulation() -> None:
    arms = LearnedBatch(fit([trajectory(seed) for seed in range(6)]), 6)
    with VectorEnvironment(arms, Reach(steps=5), autoreset="disabled", streams=np.tile([0, 1, 2], 2)) as envs:
        population = FeedbackPolicy(np.zeros((2, parameter_count(ReachVectors()))), ReachVectors())
        returns = population_returns(envs, population, seed=4, steps=5)
    assert returns.shape == (2,)
    assert np.isfinite(returns).all()
    with pytest.raises(ValueError, match="begin together"):
        arms.reset(np.array([1]), None, None)
    assert arms.spec == SO101


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(SourceError, match="no trajectory"):
        fit([])
