"""The observation vectors of so101-reach have the documented contents, and its action vectors are legal."""

from __future__ import annotations

import numpy as np

from hal.robots.so101 import SO101
from rlenv_robot.policies.feedback import FeedbackPolicy, parameter_count
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.tasks.reach import Reach

VECTORS = ReachVectors()


def observations(count: int) -> dict[str, np.ndarray]:
    obs = Reach().observation.sample(np.random.default_rng(1), (count,))
    obs["joint_goal"] = np.clip(obs["joint_goal"], *SO101.commands["joint_target"].bounds)
    return obs


def test_actions_are_legal_near_the_goal_held_and_leave_the_gripper() -> None:
    obs = observations(50)
    parameters = np.random.default_rng(0).normal(size=parameter_count(VECTORS)) * 10
    action = FeedbackPolicy(parameters, VECTORS).act(obs)["joint_target"]
    for row in action:
        SO101.commands.validate({"joint_target": row})
    assert np.abs(action - obs["joint_goal"]).max() <= 0.1301
    np.testing.assert_array_equal(action[:, 5], obs["joint_goal"][:, 5])


def test_zeros_stay_where_they_are() -> None:
    obs = observations(4)
    np.testing.assert_array_equal(FeedbackPolicy.zeros(VECTORS).act(obs)["joint_target"], obs["joint_goal"])


def test_the_vector_vanishes_at_the_target_except_for_where_it_is() -> None:
    obs = observations(6)
    obs["gripper_position"] = obs["target_position"].copy()
    obs["joint_goal"] = obs["joint_position"].copy()
    vector = VECTORS.observe(obs)
    assert vector.shape == (6, VECTORS.size)
    np.testing.assert_allclose(vector[:, [0, 1, 2, 8, 9, 10, 11, 12]], 0, atol=1e-6)
