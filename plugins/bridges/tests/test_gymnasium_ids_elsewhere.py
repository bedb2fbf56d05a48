"""The ids pass Stable-Baselines3's check, with and without goals, and TorchRL makes them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")

import gymnasium

import rlenv_robot  # noqa: F401  (registers the ids)

IDS = ("go", "so101-errand", "so101-reach", "so101-reach-flat", "so101-reach-goal", "so101-push-goal", "go2-walk-flat")


@pytest.mark.parametrize("name", IDS)
def test_the_check_of_stable_baselines3_passes(name: str) -> None:
    checker: Any = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable-baselines3 is not installed"
    )
    env = gymnasium.make(f"rlenv_robot/{name}-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on shapes; failures are exceptions
        checker.check_env(env.unwrapped)
    env.close()


def test_hindsight_replay_gets_the_rewards_of_the_goals_that_it_puts_in() -> None:
    sb3: Any = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")
    env = gymnasium.make("rlenv_robot/so101-reach-goal-v0", tolerance_m=0.05)
    model = sb3.SAC(
        "MultiInputPolicy", env, replay_buffer_class=sb3.HerReplayBuffer, learning_starts=130, train_freq=20, seed=1,
        device="cpu",
    )  # fmt: skip
    model.learn(200)
    batch = model.replay_buffer.sample(500)
    goals = (batch.next_observations[key].numpy() for key in ("achieved_goal", "desired_goal"))
    rewards = batch.rewards.numpy().ravel()
    np.testing.assert_array_equal(rewards, env.unwrapped.compute_reward(*goals, {}))
    assert 0.1 < rewards.mean() < 1, "hindsight makes goals that were reached"
    env.close()


@pytest.mark.parametrize("name", ["so101-reach", "so101-reach-flat", "so101-reach-goal"])
def test_torchrl_makes_an_environment_by_its_id(name: str) -> None:
    torchrl: Any = pytest.importorskip("torchrl.envs", reason="TorchRL is not installed")
    from torchrl.envs.utils import check_env_specs

    env = torchrl.GymEnv(f"rlenv_robot/{name}-v0")
    check_env_specs(env)
    assert env.rollout(3).shape == (3,)
    env.close()
