"""Ids of Gymnasium work with the calls of CleanRL's scripts, TorchRL and checkers, with and without goals."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")

import gymnasium

import rlenv_robot as rr
from rlenv_robot.adapters.goals import GymnasiumGoalEnv, to_gymnasium_goal
from rlenv_robot.adapters.gymnasium_version import check_version
from rlenv_robot.tasks.cube import PickPlace, Push

PAGE = Path(__file__).parents[3] / "docs" / "gymnasium.md"
GOALS = ("so101-reach", "so101-push", "so101-pick-place")


def test_the_page_lists_every_id() -> None:
    code = "import gymnasium, rlenv_robot; print(*[i for i in gymnasium.registry if i.startswith('rlenv_robot/')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed = re.findall(r"`(rlenv_robot/[\w.-]+)`", PAGE.read_text(encoding="utf-8"))
    assert sorted(set(listed)) == sorted(done.stdout.split())


def _made_as_by_ppo(index: int) -> Any:
    def thunk() -> Any:
        env = gymnasium.make("rlenv_robot/so101-reach-flat-v0")
        env = gymnasium.wrappers.FlattenObservation(env)
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        env = gymnasium.wrappers.ClipAction(env)
        env = gymnasium.wrappers.NormalizeObservation(env)
        env = gymnasium.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
        env = gymnasium.wrappers.NormalizeReward(env, gamma=0.99)
        return gymnasium.wrappers.TransformReward(env, lambda reward: np.clip(reward, -10, 10))

    return thunk


def test_the_calls_of_a_ppo_script() -> None:
    """PPO draws from a normal distribution, which the script clips by a wrapper."""
    envs = gymnasium.vector.SyncVectorEnv([_made_as_by_ppo(index) for index in range(2)])
    assert isinstance(envs.single_action_space, gymnasium.spaces.Box), "only continuous action space is supported"
    size = int(np.array(envs.single_observation_space.shape).prod())
    assert np.prod(envs.single_action_space.shape) == 6
    observations, _ = envs.reset(seed=1)
    assert observations.shape == (2, size)
    rng, lengths = np.random.default_rng(0), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(130):
            actions = rng.normal(size=(2, 6)).astype(np.float32) * 2
            observations, rewards, _, _, infos = envs.step(actions)
            assert np.isfinite(observations).all()
            assert np.isfinite(rewards).all()
            if "episode" in infos:
                lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert lengths
    assert max(lengths) == 60
    envs.close()


def test_the_calls_of_a_sac_script() -> None:
    def thunk() -> Any:
        env = gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("rlenv_robot/so101-reach-flat-v0"))
        env.action_space.seed(1)
        return env

    envs = gymnasium.vector.SyncVectorEnv([thunk])
    assert isinstance(envs.single_action_space, gymnasium.spaces.Box), "only continuous action space is supported"
    assert np.isfinite(envs.single_action_space.high).all()
    scale = (envs.single_action_space.high - envs.single_action_space.low) / 2.0
    assert scale.tolist() == [1.0] * 6
    envs.single_observation_space.dtype = np.float32
    envs.reset(seed=1)
    lengths = []
    for _ in range(70):
        actions = np.array([envs.single_action_space.sample() for _ in range(envs.num_envs)])
        observations, rewards, _, _, infos = envs.step(actions)
        assert (observations.dtype, rewards.shape) == (np.float32, (1,))
        lengths += infos["episode"]["l"][infos["_episode"]].tolist() if "episode" in infos else []
    assert lengths
    envs.close()


@pytest.mark.parametrize("make", ["make", "make_vec"])
def test_an_unknown_setting_is_refused_as_an_unknown_keyword(make: str) -> None:
    """TorchRL tries ``frameskip``, and takes it back where a TypeError has these words."""
    with pytest.raises(
        TypeError, match="got an unexpected keyword argument 'frameskip': so101-reach's setting"
    ) as told:
        getattr(gymnasium, make)("rlenv_robot/so101-reach-v0", frameskip=1)
    assert isinstance(told.value, ValueError)


def test_a_single_number_is_a_vector_of_one_in_one_environment_and_in_many() -> None:
    env = gymnasium.make("rlenv_robot/so101-errand-v0")
    envs = gymnasium.make_vec("rlenv_robot/so101-errand-v0", num_envs=2)
    observation, _ = env.reset(seed=1)
    many, _ = envs.reset(seed=1)
    numbers = [field.name for field in rr.make("so101-errand").observation if not field.shape]
    assert numbers
    for name in numbers:
        assert env.observation_space[name].shape == observation[name].shape == (1,)
        assert many[name].shape == (2, 1)
        assert many[name][0] == observation[name]
    assert env.observation_space.contains(observation)
    assert envs.observation_space.contains(many)


@pytest.mark.parametrize("name", GOALS)
def test_goals_pass_gymnasiums_check_and_rewards_are_those_of_the_goals(name: str) -> None:
    from gymnasium.utils.env_checker import check_env

    env: Any = gymnasium.make(f"rlenv_robot/{name}-goal-v0").unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_env(env, skip_render_check=True)
    observation, _ = env.reset(seed=3)
    seen, rewards, infos = [], [], []
    for _ in range(40):
        observation, reward, _, _, info = env.step(env.action_space.sample())
        seen.append(observation)
        rewards.append(reward)
        infos.append(info)
        assert info["is_success"] == bool(reward)
    achieved, desired = (np.stack([one[key] for one in seen]) for key in ("achieved_goal", "desired_goal"))
    np.testing.assert_array_equal(env.compute_reward(achieved, desired, infos), rewards)
    np.testing.assert_array_equal(env.compute_reward(achieved, achieved, infos), np.ones(40))
    assert env.compute_reward(achieved[0], achieved[0] + 0.1, {}) == 0.0
    assert not np.array_equal(achieved[0], achieved[-1]) or name != "so101-reach"
    env.close()


def test_no_goal_is_hidden_in_the_vector_of_the_observation() -> None:
    env = to_gymnasium_goal(rr.make("so101-reach"))
    one, _ = env.reset(seed=3, options={"goal": {"target_position": [0.2, 0.1, 0.2]}})
    other, _ = env.reset(seed=3, options={"goal": {"target_position": [0.3, -0.1, 0.1]}})
    np.testing.assert_array_equal(one["observation"], other["observation"])
    np.testing.assert_allclose(one["desired_goal"], [0.2, 0.1, 0.2], rtol=1e-6)
    env.close()


def test_a_success_that_is_more_than_a_goal_is_refused() -> None:
    with pytest.raises(ValueError, match="give release=False"):
        GymnasiumGoalEnv(rr.make(PickPlace()))
    with pytest.raises(TypeError, match="has no goals that readings can reach"):
        GymnasiumGoalEnv(rr.make("go"))
    gap = np.float32([0, 0, 0.019])
    assert Push().is_reached({"target_position": gap}, {"target_position": 0 * gap})
    assert not Push().is_reached({"target_position": 2 * gap}, {"target_position": 0 * gap})


@pytest.mark.parametrize("version", ["0.26.3", "0.29.1", "1.0.0", "1.0.0a2"])
def test_an_old_gymnasium_is_named_with_the_version_that_is_needed(version: str) -> None:
    with pytest.raises(ImportError, match=re.escape(f"gymnasium 1.1 or later, and {version} is installed")):
        check_version(version)


def test_this_gymnasium_is_new_enough() -> None:
    check_version(gymnasium.__version__)
    check_version("1.10.0rc1")


@pytest.mark.process
def test_the_version_is_named_where_an_old_gymnasium_lacks_a_part() -> None:
    code = (
        "import gymnasium, gymnasium.vector as vector; del vector.AutoresetMode; gymnasium.__version__ = '0.29.1'; "
        "import rlenv_robot as rr; rr.to_gymnasium_vector(rr.make_vector('so101-reach', 1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "a batch needs gymnasium 1.1 or later, and 0.29.1 is installed" in done.stderr
