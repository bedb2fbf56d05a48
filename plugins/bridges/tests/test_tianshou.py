from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import IllegalAction
from recorder.formats.runs import runs_of
from recorder.table.table import Table
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.adapters.gymnasium import OutOfRange, flat_spaces
from rlenv_robot.adapters.gymnasium_vector import to_gymnasium_vector
from rlenv_robot.registry import task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    tianshou = pytest.importorskip("tianshou", reason="tianshou is not installed")
    from tianshou.data import Collector, VectorReplayBuffer

    from rlenv_bridges.tianshou import TianshouVectorEnv, to_tianshou

pytestmark = pytest.mark.filterwarnings("ignore")
NUM = 4


def buffer_of(table: Table, **options: Any) -> Any:
    from rlenv_bridges.tianshou import to_replay_buffer

    return to_replay_buffer(table, **options)


def test_every_transition_value_by_value(table: Table) -> None:
    buffer = buffer_of(table)
    runs, _ = runs_of(table)
    assert len(buffer) == buffer.maxsize == 8
    index = 0
    for run in runs:
        for step in range(len(run)):
            item = buffer[index]
            for got, row in ((item.obs, run.observed[step]), (item.obs_next, run.observed[step + 1])):
                np.testing.assert_array_equal(got, [*row["observation_place"], row["observation_speed"]])
            np.testing.assert_array_equal(item.act, run.came["action_push"][step])
            last = step == len(run) - 1
            assert (item.rew, item.terminated, item.truncated, item.done) == (
                run.came["reward"][step], last and run.terminated, last and run.truncated, last,
            )  # fmt: skip
            index += 1


def test_episodes_stay_apart(table: Table) -> None:
    buffer = buffer_of(table)
    assert buffer.next(np.arange(8)).tolist() == [1, 2, 3, 3, 5, 6, 6, 7]
    assert buffer.prev(np.arange(8)).tolist() == [0, 0, 1, 2, 4, 4, 5, 7]
    assert buffer.unfinished_index().tolist() == []
    batch, index = buffer.sample(0)  # all of them, in order
    np.testing.assert_array_equal(batch.rew, buffer.rew)
    assert index.tolist() == list(range(8))


def test_returns_over_n_steps(table: Table) -> None:
    from tianshou.algorithm.algorithm_base import Algorithm
    from tianshou.data import Batch

    buffer = buffer_of(table)
    index = np.arange(8)
    batch = Algorithm.compute_nstep_return(
        buffer[index], buffer, index, lambda b, i: __import__("torch").full((len(i), 1), 100.0), 0.5, 3
    )
    assert isinstance(batch, Batch)
    wanted = [0 + 0.5 + 0.5 + 12.5, 1 + 1 + 0.75 + 12.5, 2 + 1.5 + 25, 3 + 50, 10 + 5.5 + 3, 11 + 6, 12, 20 + 50]
    np.testing.assert_allclose(np.ravel(batch.returns), wanted)


def test_fields_and_priorities(table: Table) -> None:
    buffer = buffer_of(table, vector=False, alpha=0.6, beta=0.4)
    assert buffer.obs.place.shape == (8, 2)
    assert buffer.obs_next.speed.shape == (8,)
    batch, _ = buffer.sample(4)
    np.testing.assert_allclose(batch.weight, 1.0)


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


@pytest.mark.requirement("R1.2")
def test_values_beyond_one_are_refused_or_cut_off_as_asked() -> None:
    def after(action: float, out_of_range: OutOfRange = "refuse") -> tuple[np.ndarray, ...]:
        made = rlenv_robot.make_vector("so101-reach", NUM, seed=3, steps=5, autoreset="disabled")
        envs = to_tianshou(made, flat_for(task("so101-reach")), out_of_range)
        first, _ = envs.reset(seed=1)
        steps = [envs.step(np.full((NUM, 6), action, np.float32)) for _ in range(5)]
        share = envs.illegal_share
        envs.close()
        return first, steps[0][0], steps[-1][3], steps[-1][4], share

    first, observation, truncated, infos, share = after(1.01)
    np.testing.assert_array_equal(observation, first)
    assert truncated.all(), "five refused actions of five end an episode of five steps"
    assert [info["illegal_share"] for info in infos] == [1.0] * NUM
    assert share == 1
    cut, ends = after(1.01, "clip"), after(1.0)
    np.testing.assert_array_equal(cut[1], ends[1])
    assert cut[-1] == ends[-1] == 0


def test_what_no_policy_may_choose_raises() -> None:
    envs = _envs()
    envs.reset(seed=1)
    for value in (np.nan, np.inf):
        wrong = np.zeros((NUM, 6), np.float32)
        wrong[2, 3] = value
        with pytest.raises(IllegalAction, match="environment 2"):
            envs.step(wrong)
    with pytest.raises(ValueError, match=r"shape|broadcast"):
        envs.step(np.zeros((NUM, 5), np.float32))
    envs.close()


def test_a_gaussian_without_ends_is_mapped_by_tianshou_or_refused_here() -> None:
    def share(bound: str | None) -> float:
        envs = _envs()
        collector = Collector(_gaussian(bound), envs, VectorReplayBuffer(NUM * 20, NUM))
        collector.reset()
        collector.collect(n_step=NUM * 20)
        found = envs.illegal_share
        collector.close()
        return found

    assert share("clip") == share("tanh") == 0
    assert 0.5 < share(None) < 1, "six draws of width 1 are within 1 in one of ten"


def _gaussian(bound: str | None) -> Any:
    import torch
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic
    from torch.distributions import Independent, Normal

    torch.manual_seed(0)
    spaces = flat_spaces(flat_for(task("so101-reach")))
    net = Net(state_shape=spaces[0].shape, hidden_sizes=(8,))
    return ProbabilisticActorPolicy(
        actor=ContinuousActorProbabilistic(preprocess_net=net, action_shape=spaces[1].shape, unbounded=True),
        dist_fn=lambda parameters: Independent(Normal(*parameters), 1),
        action_space=spaces[1],
        action_scaling=False,
        action_bound_method=bound,
    )
