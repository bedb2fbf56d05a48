from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import rlenv_robot
from hal import IllegalAction
from rlenv_bridges.stable_baselines3 import to_stable_baselines3
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.adapters.gymnasium import OutOfRange
from rlenv_robot.adapters.gymnasium_vector import to_gymnasium_vector
from rlenv_robot.registry import task

NUM, FLAT = 3, flat_for(task("so101-reach"))


def test_its_numbers_are_the_batches_and_its_books_add_up() -> None:
    mine = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM, steps=5), FLAT)
    theirs = to_gymnasium_vector(rlenv_robot.make_vector("so101-reach", NUM, steps=5), flat=FLAT)
    mine.seed(4)
    np.testing.assert_array_equal(mine.reset(), theirs.reset(seed=4)[0])
    rng, total = np.random.default_rng(0), np.zeros(NUM)
    for step in range(11):
        actions = rng.uniform(-1, 1, (NUM, 6)).astype(np.float32)
        observation, rewards, done, infos = mine.step(actions)
        expected, reward, terminated, truncated, info = theirs.step(actions)
        total += reward
        np.testing.assert_array_equal(observation, expected)
        np.testing.assert_array_equal(rewards, reward.astype(np.float32))
        np.testing.assert_array_equal(done, terminated | truncated)
        assert done.all() == (step % 5 == 4)
        for env in np.flatnonzero(done):
            np.testing.assert_array_equal(infos[env]["terminal_observation"], info["final_obs"][env])
            assert infos[env]["TimeLimit.truncated"]
            assert infos[env]["episode"] == {"r": pytest.approx(total[env]), "l": 5}
        total[done] = 0
    mine.close()
    theirs.close()


def test_what_it_can_not_do_it_says() -> None:
    with pytest.raises(ValueError, match="needs 'same_step'"):
        to_stable_baselines3(rlenv_robot.make_vector("so101-reach", 2, autoreset="disabled"), FLAT)
    envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", 2), FLAT)
    assert envs.get_attr("num_envs") == [2, 2]
    with pytest.raises(AttributeError, match="can't be set"):
        envs.set_attr("gain", 1)
    with pytest.raises(AttributeError, match="can't be called"):
        envs.env_method("gain")
    envs.close()


def _after(action: float, out_of_range: OutOfRange = "refuse") -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Return the first observation, the observation after an action, and the `info` of that step."""
    envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM, steps=6), FLAT, out_of_range)
    envs.seed(1)
    first = envs.reset()
    observation, *_, infos = envs.step(np.full((NUM, 6), action, np.float32))
    envs.close()
    return first, observation, infos


@pytest.mark.requirement("R1.2")
def test_values_beyond_one_are_refused_or_cut_off_as_asked() -> None:
    with pytest.warns(UserWarning, match="1.00999"):
        first, observation, infos = _after(1.01)
    np.testing.assert_array_equal(observation, first)
    assert [info["error"]["code"] for info in infos] == ["range"] * NUM
    cut, ends = _after(1.01, "clip"), _after(1.0)
    np.testing.assert_array_equal(cut[1], ends[1])
    assert not any("error" in info for info in (*cut[2], *ends[2]))


def test_an_episode_of_refused_actions_ends_with_time_and_its_share_is_told() -> None:
    envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM, steps=6), FLAT)
    envs.reset()
    actions = np.zeros((NUM, 6), np.float32)
    actions[1, 3] = 1.01
    with pytest.warns(UserWarning, match="environment 1 was refused") as told:
        ends = [envs.step(actions)[2:] for _ in range(6)]
    assert len(told) == 1
    assert [done.tolist() for done, _ in ends] == [[False] * NUM] * 5 + [[True] * NUM]
    assert [info["illegal_share"] for info in ends[-1][1]] == [0, 1, 0]
    assert envs.illegal_share == 1 / NUM
    envs.close()


def test_what_no_policy_may_choose_raises() -> None:
    for out_of_range in get_args(OutOfRange):
        envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM), FLAT, out_of_range)
        envs.reset()
        for value in (np.nan, np.inf):
            wrong = np.zeros((NUM, 6), np.float32)
            wrong[2, 3] = value
            with pytest.raises(IllegalAction, match="environment 2"):
                envs.step(wrong)
        for shape in ((NUM, 5), (NUM + 1, 6), (NUM,)):
            with pytest.raises(IllegalAction, match="shape"):
                envs.step(np.zeros(shape, np.float32))
        envs.close()
    with pytest.raises(ValueError, match="'cut'"):
        to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM), FLAT, "cut")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PPO", "SAC", "TD3"])
def test_its_own_algorithms_choose_nothing_beyond_one(kind: str) -> None:
    import stable_baselines3
    from stable_baselines3.common.noise import NormalActionNoise

    algorithm = getattr(stable_baselines3, kind)
    envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", 4, seed=0, steps=20), FLAT)
    if kind == "PPO":  # a Gaussian whose draws are beyond 1 in one of three: it cuts them off itself
        model = algorithm("MlpPolicy", envs, n_steps=32, policy_kwargs={"log_std_init": 0.0}, device="cpu", seed=0)
    else:
        noise = NormalActionNoise(np.zeros(6), np.full(6, 0.5)) if kind == "TD3" else None
        model = algorithm("MlpPolicy", envs, learning_starts=40, action_noise=noise, device="cpu", seed=0)
    model.learn(160)
    assert envs.illegal_share == 0
    envs.close()
