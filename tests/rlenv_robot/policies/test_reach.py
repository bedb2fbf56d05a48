"""The policy: shapes, populations, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal import RobotError
from hal.robots.so101 import SO101
from rlenv_robot.policies.reach import INPUTS, PARAMETERS, ReachPolicy, features, save_arrays
from rlenv_robot.tasks.reach import Reach

RNG = np.random.default_rng(0)


def observations(*leading: int) -> dict[str, np.ndarray]:
    return Reach().observation.sample(np.random.default_rng(1), leading)


def test_a_population_acts_as_its_members_do_one_by_one() -> None:
    population = RNG.normal(size=(3, PARAMETERS))
    obs = observations(3, 5)
    together = ReachPolicy(population).act(obs)["joint_target"]
    for member in range(3):
        alone = ReachPolicy(population[member])
        np.testing.assert_allclose(
            together[member], alone.act({k: v[member] for k, v in obs.items()})["joint_target"], atol=1e-6
        )
        one = alone.act({k: v[member, 2] for k, v in obs.items()})["joint_target"]
        np.testing.assert_allclose(together[member, 2], one, atol=1e-6)


def test_actions_are_legal_near_the_goal_held_and_leave_the_gripper() -> None:
    obs = observations(50)
    low, high = SO101.commands["joint_target"].bounds
    obs["joint_goal"] = np.clip(obs["joint_goal"], low, high)
    action = ReachPolicy(RNG.normal(size=PARAMETERS) * 10).act(obs)["joint_target"]
    for row in action:
        SO101.commands.validate({"joint_target": row})
    assert np.abs(action - obs["joint_goal"]).max() <= 0.1301
    np.testing.assert_array_equal(action[:, 5], obs["joint_goal"][:, 5])


def test_zeros_stay_where_they_are() -> None:
    obs = observations(4)
    low, high = SO101.commands["joint_target"].bounds
    obs["joint_goal"] = np.clip(obs["joint_goal"], low, high)
    np.testing.assert_array_equal(ReachPolicy(np.zeros(PARAMETERS)).act(obs)["joint_target"], obs["joint_goal"])


def test_features_vanish_at_the_target_except_for_where_it_is() -> None:
    obs = observations(6)
    obs["gripper_position"] = obs["target_position"].copy()
    obs["joint_goal"] = obs["joint_position"].copy()
    found = features(obs)
    assert found.shape == (6, INPUTS)
    np.testing.assert_allclose(found[:, [0, 1, 2, 8, 9, 10, 11, 12]], 0, atol=1e-6)


def test_a_file_gives_the_policy_back(tmp_path: Path) -> None:
    policy = ReachPolicy(RNG.normal(size=PARAMETERS))
    policy.save(tmp_path / "p.npz", {"trained": "here"})
    np.testing.assert_array_equal(ReachPolicy.load(tmp_path / "p.npz").parameters, policy.parameters)


def test_files_that_are_no_such_policy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RobotError, match="no such policy file"):
        ReachPolicy.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(RobotError, match="not a policy file"):
        ReachPolicy.load(tmp_path / "text.npz")
    save_arrays(tmp_path / "other.npz", "walker", {"parameters": np.zeros(3)}, {})
    with pytest.raises(RobotError, match="'walker'"):
        ReachPolicy.load(tmp_path / "other.npz")
    np.savez(tmp_path / "object.npz", header=np.array([{"kind": "x"}], dtype=object))
    with pytest.raises(RobotError, match="not a policy file"):
        ReachPolicy.load(tmp_path / "object.npz")  # would need code to be run
    with pytest.raises(ValueError, match="parameters are given"):
        ReachPolicy(np.zeros(3))
