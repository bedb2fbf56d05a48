"""The design document of Tianshou, item by item, over our environments and logs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from recorder.table.table import Table
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("tianshou", reason="tianshou is not installed")
    import torch
    from tianshou.algorithm import DQN, PPO, TD3BC
    from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
    from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.modelfree.td3 import TD3
    from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Batch, Collector, PrioritizedReplayBuffer, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OfflineTrainerParams, OffPolicyTrainerParams, OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import (
        ContinuousActorDeterministic,
        ContinuousActorProbabilistic,
        ContinuousCritic,
    )
    from tianshou.utils.torch_utils import policy_within_training_step
    from torch.distributions import Independent, Normal

    from rlenv_bridges.tianshou import to_replay_buffer, to_tianshou

pytestmark = pytest.mark.filterwarnings("ignore")
OPTIM = AdamOptimizerFactory(lr=1e-3)
KEYS = {"obs", "act", "rew", "done", "obs_next", "info", "policy"}


def test_a_buffer_of_a_log_keeps_the_seven_keys_and_info_by_transition(table: Table) -> None:
    buffer = to_replay_buffer(table)
    batch, index = buffer.sample(0)  # size 0: everything, as an on-policy method wants it
    assert KEYS - {"policy"} <= set(batch.get_keys())
    assert index.tolist() == list(range(8))
    assert batch.info.episode.tolist() == [0] * 4 + [1] * 3 + [2]
    assert batch.info.frame_no[:2].tolist() == [1, 2]
    assert np.isnan(batch.info.log_probability).all()
    assert [part.rew.shape for part in batch.split(3, shuffle=False, merge_last=False)] == [(3,), (3,), (2,)]


@pytest.mark.parametrize("alpha", [None, 0.6])
def test_a_buffer_stacks_frames_within_an_episode(table: Table, alpha: float | None) -> None:
    single, stacked = to_replay_buffer(table), to_replay_buffer(table, stack=3, alpha=alpha)
    assert isinstance(stacked, PrioritizedReplayBuffer) == (alpha is not None)
    batch = stacked[np.array([3, 4])]
    assert batch.obs.shape == (2, 3, 3)
    np.testing.assert_array_equal(batch.obs[0], single.obs[[1, 2, 3]])
    np.testing.assert_array_equal(batch.obs[1], single.obs[[4, 4, 4]])  # the first of its episode


def _envs(num: int = 4, steps: int = 8) -> Any:
    envs = rr.make_vector("so101-reach", num, seed=0, steps=steps, autoreset="disabled")
    return to_tianshou(envs, flat_for(task("so101-reach")))


def _td3(kind: type = TD3) -> Any:
    torch.manual_seed(0)
    flat = flat_for(task("so101-reach"))
    space = _envs(1).action_space[0]
    body = Net(state_shape=(flat.size,), hidden_sizes=[16])
    both = Net(state_shape=(flat.size,), action_shape=(flat.action_size,), hidden_sizes=[16], concat=True)
    actor = ContinuousActorDeterministic(preprocess_net=body, action_shape=(flat.action_size,))
    policy = ContinuousDeterministicPolicy(actor=actor, action_space=space, action_scaling=False)
    return kind(
        policy=policy, policy_optim=OPTIM, critic=ContinuousCritic(preprocess_net=both), critic_optim=OPTIM,
        critic2_optim=OPTIM, n_step_return_horizon=2, **({"alpha": 2.5} if kind is TD3BC else {}),
    ) if kind is TD3 else kind(
        policy=policy, policy_optim=OPTIM, critic=ContinuousCritic(preprocess_net=both), critic_optim=OPTIM
    )  # fmt: skip


def test_a_collector_collects_at_least_so_many_steps_or_episodes_with_the_infos() -> None:
    envs = _envs()
    collector = Collector(_td3(), envs, VectorReplayBuffer(400, 4))
    collector.reset()
    assert collector.collect(n_step=30).n_collected_steps >= 30
    assert collector.collect(n_episode=5).n_collected_episodes >= 5
    batch, _ = collector.buffer.sample(16)
    assert set(batch.info.env_id.tolist()) <= {0, 1, 2, 3}
    everything, _ = collector.buffer.sample(0)
    assert everything.info.distance_mm[everything.done].min() > 0  # the task's figure, where an episode ended
    collector.close()


def test_the_off_policy_trainer_runs_over_our_batch() -> None:
    collector = Collector(_td3(), _envs(), VectorReplayBuffer(2000, 4))
    test_collector = Collector(collector.policy, _envs(2), VectorReplayBuffer(100, 2))
    result = _td3().run_training(
        OffPolicyTrainerParams(
            training_collector=collector, test_collector=test_collector, max_epochs=2, epoch_num_steps=64,
            collection_step_num_env_steps=16, batch_size=16, update_step_num_gradient_steps_per_sample=0.25,
            test_step_num_episodes=2, training_fn=None,
        )
    )  # fmt: skip
    assert result.train_step >= 128
    assert result.update_step > 0
    assert np.isfinite(result.best_reward)


def test_the_on_policy_trainer_runs_over_our_batch() -> None:
    torch.manual_seed(0)
    flat, envs = flat_for(task("so101-reach")), _envs()
    nets = [Net(state_shape=(flat.size,), hidden_sizes=[16]) for _ in range(2)]
    actor = ContinuousActorProbabilistic(preprocess_net=nets[0], action_shape=(flat.action_size,), unbounded=True)
    policy = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda pair: Independent(Normal(*pair), 1), action_space=envs.action_space[0],
        action_scaling=False,
    )  # fmt: skip
    ppo = PPO(policy=policy, critic=ContinuousCritic(preprocess_net=nets[1]), optim=OPTIM)
    result = ppo.run_training(
        OnPolicyTrainerParams(
            training_collector=Collector(ppo, envs, VectorReplayBuffer(256, 4)),
            test_collector=Collector(ppo, _envs(2), VectorReplayBuffer(100, 2)), max_epochs=2, epoch_num_steps=64,
            collection_step_num_env_steps=32, update_step_num_repetitions=2, batch_size=16, test_step_num_episodes=2,
        )
    )  # fmt: skip
    assert result.train_step >= 128
    assert result.update_step > 0


def test_the_offline_trainer_runs_over_a_log(tmp_path: Any) -> None:
    env = rr.make("so101-reach", record=tmp_path, steps=20)
    rng = np.random.default_rng(0)
    for episode in range(4):
        table = env.reset({"seed": episode})
        while not table["truncated"]:
            act = {"joint_target": table["observation"]["joint_goal"] + rng.uniform(-0.02, 0.02, 6).astype(np.float32)}
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": act}
            table, _ = env.step(request, {"log_probability": -1.5})
    env.close()
    buffer = to_replay_buffer(rr.open_source(tmp_path), flat=flat_for(task("so101-reach")))
    assert len(buffer) > 60
    assert set(buffer.info.log_probability.tolist()) == {-1.5}
    result = _td3(TD3BC).run_training(
        OfflineTrainerParams(buffer=buffer, max_epochs=1, epoch_num_steps=20, batch_size=16)
    )
    assert result.update_step == 20


def _dqn(observed: int, actions: Any) -> Any:
    model = Net(state_shape=(observed,), action_shape=int(actions.n), hidden_sizes=[16])
    policy = DiscreteQLearningPolicy(model=model, action_space=actions, eps_training=0.5)
    return DQN(policy=policy, optim=OPTIM)


def test_the_policy_manager_plays_go_with_two_policies_and_a_mask() -> None:
    pytest.importorskip("pettingzoo")
    from rlenv_bridges.tianshou_agents import to_tianshou_agents

    torch.manual_seed(0)
    env = to_tianshou_agents(rr.make("go", size=5))
    observed, actions = env.observation_space["observation"].shape[0], env.action_space
    manager = MultiAgentOffPolicyAlgorithm(algorithms=[_dqn(observed, actions) for _ in env.agents], env=env)
    envs = DummyVectorEnv([lambda: to_tianshou_agents(rr.make("go", size=5)) for _ in range(2)])
    collector = Collector(manager, envs, VectorReplayBuffer(500, 2))
    collector.reset()
    collector.collect(n_step=60)
    batch, _ = collector.buffer.sample(0)
    assert batch.obs.mask.shape[1] == int(actions.n)
    assert batch.obs.mask[np.arange(len(batch)), batch.act].all()  # no illegal move was chosen
    assert set(batch.obs.agent_id.tolist()) == {"black", "white"}
    before = [weight.clone() for weight in manager.policy.parameters()]
    with policy_within_training_step(manager.policy):
        manager.update(collector.buffer, 16)
    changed = [not torch.equal(old, new) for old, new in zip(before, manager.policy.parameters(), strict=True)]
    assert sum(changed) > len(changed) // 2  # both players' networks have learned
    observed_batch = Batch(obs=batch.obs[:2], info={})
    assert manager.policy(observed_batch).act.shape == (2,)
    collector.close()
    env.close()


def test_the_policy_manager_moves_both_arms() -> None:
    pytest.importorskip("pettingzoo")
    from rlenv_bridges.tianshou_agents import to_tianshou_agents

    env = to_tianshou_agents(rr.make("so101-pair-lift"))
    obs, _ = env.reset(seed=0)
    space = env.action_space
    for turn in range(6):
        assert obs["agent_id"] == env.agents[turn % 2]
        assert obs["obs"].shape == env.observation_space.shape
        obs, rewards, *_ = env.step(np.zeros(space.shape, np.float32))
    assert len(rewards) == 2
    env.close()
