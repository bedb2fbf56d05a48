from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not installed")

import rlenv_robot
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.adapters.gymnasium import to_gymnasium_vector
from rlenv_robot.adapters.stable_baselines3 import to_stable_baselines3
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
    with pytest.raises(ValueError, match="wants 'same_step'"):
        to_stable_baselines3(rlenv_robot.make_vector("so101-reach", 2, autoreset="disabled"), FLAT)
    envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", 2), FLAT)
    assert envs.get_attr("num_envs") == [2, 2]
    with pytest.raises(AttributeError, match="can't be set"):
        envs.set_attr("gain", 1)
    with pytest.raises(AttributeError, match="can't be called"):
        envs.env_method("gain")
    envs.close()


def test_values_beyond_one_are_its_ends_and_what_no_policy_may_choose_raises() -> None:
    def after(action: float) -> np.ndarray:
        envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM, steps=6), FLAT)
        envs.seed(1)
        envs.reset()
        observation, *_, infos = envs.step(np.full((NUM, 6), action, np.float32))
        assert not any("illegal_share" in info for info in infos)
        envs.close()
        return observation

    np.testing.assert_array_equal(after(1.01), after(1.0))
    envs = to_stable_baselines3(rlenv_robot.make_vector("so101-reach", NUM), FLAT)
    envs.reset()
    wrong = np.zeros((NUM, 6), np.float32)
    wrong[2, 3] = np.nan
    for actions in (wrong, np.zeros((NUM, 5), np.float32), np.zeros((NUM + 1, 6), np.float32)):
        with pytest.raises(ValueError, match=r"environment 2|shape"):
            envs.step(actions)
    envs.close()
