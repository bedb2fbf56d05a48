from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tianshou = pytest.importorskip("tianshou", reason="tianshou is not installed")
    from tianshou.data import Collector, VectorReplayBuffer

    from rlenv_robot.adapters.tianshou_vector import TianshouVectorEnv, to_tianshou

import rlenv_robot
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.adapters.gymnasium_vector import to_gymnasium_vector
from rlenv_robot.registry import task

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
NUM = 4


def _envs(steps: int = 5, num: int = NUM) -> TianshouVectorEnv:
    envs = rlenv_robot.make_vector("so101-reach", num, seed=3, steps=steps, autoreset="disabled")
    return to_tianshou(envs, flat_for(task("so101-reach")))


def _policy() -> Any:
    import torch
    from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorDeterministic

    torch.manual_seed(0)
    envs = _envs()
    space, obs = envs.action_space[0], envs.observation_space[0]
    actor = ContinuousActorDeterministic(
        preprocess_net=Net(state_shape=obs.shape, hidden_sizes=[8]), action_shape=space.shape
    )
    envs.close()
    return ContinuousDeterministicPolicy(actor=actor, action_space=space, action_scaling=False)


def test_a_collector_fills_a_vector_buffer_with_what_the_batch_gives() -> None:
    envs, policy = _envs(), _policy()
    buffer = VectorReplayBuffer(NUM * 20, NUM)
    collector = Collector(policy, envs, buffer)
    collector.reset(gym_reset_kwargs={"seed": 3})
    found = collector.collect(n_step=NUM * 12)
    assert (found.n_collected_steps, found.n_collected_episodes) == (NUM * 12, NUM * 2)
    assert found.lens.tolist() == [5] * NUM * 2
    mine = to_gymnasium_vector(
        rlenv_robot.make_vector("so101-reach", NUM, seed=3, steps=5), flat=flat_for(task("so101-reach"))
    )
    observation, _ = mine.reset(seed=3)
    rows = [buffer.buffers[env].sample(0)[0] for env in range(NUM)]
    for step in range(12):
        for env in range(NUM):
            np.testing.assert_array_equal(rows[env].obs[step], observation[env])
        actions = np.stack([rows[env].act[step] for env in range(NUM)])
        observation, rewards, _, truncated, info = mine.step(actions)
        for env in range(NUM):
            assert rows[env].rew[step] == rewards[env]
            assert rows[env].truncated[step] == truncated[env] == (step % 5 == 4)
            after = info["final_obs"][env] if truncated[env] else observation[env]
            np.testing.assert_array_equal(rows[env].obs_next[step], after)
    collector.close()
    mine.close()


def test_whole_episodes_of_fewer_than_all() -> None:
    envs = _envs()
    collector = Collector(_policy(), envs, VectorReplayBuffer(NUM * 20, NUM))
    collector.reset()
    assert collector.collect(n_episode=4).n_collected_episodes == 4
    assert collector.collect(n_episode=6).lens.tolist() == [5] * 6
    collector.close()


def test_a_step_of_some_leaves_the_others() -> None:
    envs = _envs()
    first, infos = envs.reset(seed=0)
    assert len(infos) == NUM
    moved, rewards, terminated, truncated, infos = envs.step(np.full((2, 6), 0.5), np.array([1, 3]))
    assert moved.shape == (2, first.shape[1])
    assert rewards.shape == terminated.shape == truncated.shape == (2,)
    assert [info["env_id"] for info in infos] == [1, 3]
    everyone, *_ = envs.step(np.zeros((NUM, 6)))
    assert everyone.shape == first.shape
    envs.close()
    envs.close()


def test_what_it_can_not_do_it_says() -> None:
    flat = flat_for(task("so101-reach"))
    with pytest.raises(ValueError, match="make it with 'disabled'"):
        to_tianshou(rlenv_robot.make_vector("so101-reach", 2), flat)
    envs = _envs()
    with pytest.raises(AttributeError, match="'gain' is unknown"):
        envs.get_env_attr("gain")
    with pytest.raises(AttributeError, match="can't be set"):
        envs.set_env_attr("gain", 1)
    with pytest.raises(NotImplementedError, match="draws no images"):
        envs.render()
    with pytest.raises(ValueError, match="'goal' is unknown"):
        envs.reset(goal=1)
    with pytest.raises(ValueError, match="give one number"):
        envs.seed([1, 2])
    envs.close()
