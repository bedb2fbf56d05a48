from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import rlenv_robot
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.adapters.gymnasium import to_gymnasium
from rlenv_robot.adapters.gymnasium_vector import GymnasiumVectorEnv, to_gymnasium_vector

pytestmark = pytest.mark.requirement("R1.1")
NUM, STEPS = 3, 20


def _single(flat: FlattenObservation | None = None) -> Any:
    return to_gymnasium(rlenv_robot.make("so101-reach", steps=8), flat=flat)


def _vector(flat: bool = False, **options: Any) -> GymnasiumVectorEnv:
    """All environments share the episodes of environment 0, which are those of a single one."""
    envs = rlenv_robot.make_vector("so101-reach", NUM, steps=8, streams=np.zeros(NUM, int), **options)
    return to_gymnasium_vector(envs, flat=flat_for(envs.task) if flat else None)


def _same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for name in theirs:
            _same(mine[name], theirs[name])
    else:
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("flat", [False, True], ids=["fields", "vectors"])
def test_bit_for_bit_what_gymnasiums_own_vector_of_single_environments_gives(flat: bool) -> None:
    mine = _vector(flat)
    one = mine.flat
    theirs = SyncVectorEnv([lambda: _single(one)] * NUM, autoreset_mode=AutoresetMode.SAME_STEP)
    for name in ("single_observation_space", "single_action_space", "observation_space", "action_space"):
        assert getattr(mine, name) == getattr(theirs, name)
    assert mine.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    _same(mine.reset(seed=5)[0], theirs.reset(seed=[5] * NUM)[0])
    rng, ends = np.random.default_rng(0), 0
    for _ in range(STEPS):
        actions = rng.uniform(-1, 1, (NUM, 6)).astype(np.float32)
        (*arrays, info), (*expected, wanted) = mine.step(actions), theirs.step(actions)
        for values, other in zip(arrays, expected, strict=True):
            _same(values, other)
            assert flat or isinstance(values, dict) or values.dtype == other.dtype
        assert ("final_obs" in info) == ("final_obs" in wanted)
        if "final_obs" in wanted:
            ends += 1
            np.testing.assert_array_equal(info["_final_obs"], wanted["_final_obs"])
            for env in np.flatnonzero(wanted["_final_obs"]):
                _same(info["final_obs"][env], wanted["final_obs"][env])
            np.testing.assert_array_equal(info["final_info"]["is_success"], wanted["final_info"]["is_success"])
            _same(info["final_info"]["metrics"]["distance_mm"], wanted["final_info"]["metrics"]["distance_mm"])
    assert ends == STEPS // 8
    mine.close()
    theirs.close()


def test_a_single_environment_of_vectors_passes_gymnasiums_checker() -> None:
    env = _single(flat_for(rlenv_robot.make("so101-reach").world.task))
    check_env(env, skip_render_check=True)
    env.close()


def test_what_is_returned_lies_in_the_spaces_and_is_not_written_to_again() -> None:
    envs = _vector(True)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    for _ in range(STEPS):
        observation, *_ = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observation)
    np.testing.assert_array_equal(first, kept)
    envs.close()


@pytest.mark.parametrize("autoreset", ["same_step", "disabled"])
def test_gymnasiums_statistics_wrapper_counts_our_episodes(autoreset: str) -> None:
    envs = RecordEpisodeStatistics(_vector(autoreset=autoreset))
    envs.reset(seed=0)
    total = np.zeros(NUM)
    for step in range(16):
        _, rewards, terminated, truncated, info = envs.step(np.zeros((NUM, 6), np.float32))
        total += rewards
        if (terminated | truncated).all():
            np.testing.assert_allclose(info["episode"]["r"], total, rtol=1e-6)
            assert info["episode"]["l"].tolist() == [8] * NUM
            total[:] = 0
            if autoreset == "disabled":
                envs.reset(options={"reset_mask": np.ones(NUM, bool)})
        assert bool(truncated.any()) == (step % 8 == 7)
    envs.close()


def test_a_mask_resets_some_and_a_step_moves_some() -> None:
    envs = _vector(True, autoreset="disabled")
    start, _ = envs.reset(seed=0)
    actions = np.full((NUM, 6), 0.5, np.float32)
    moved, *_ = envs.step_some(np.array([1]), actions)
    assert [bool(np.array_equal(moved[env], start[env])) for env in range(NUM)] == [True, False, True]
    again, _ = envs.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(again[[0, 2]], start[[0, 2]])
    assert not np.array_equal(again[1], moved[1])
    envs.close()


def test_an_action_that_is_not_legal_is_told_by_its_row() -> None:
    envs = _vector()
    envs.reset(seed=0)
    actions = np.zeros((NUM, 6), np.float32)
    actions[1, 2] = 1.01
    assert envs.step(actions)[4]["error"][1]["code"] == "range"
    envs.close()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"seed": [1, 2, 3]}, "give one number"),
        ({"options": {"reset_mask": np.ones(NUM)}}, "wanted is a bool array"),
        ({"options": {"goal": 1}}, "'goal' is unknown, allowed is reset_mask"),
    ],
)
def test_a_wrong_reset_says_what_is_allowed(request_: dict[str, Any], message: str) -> None:
    envs = _vector()
    with pytest.raises(ValueError, match=message):
        envs.reset(**request_)
    envs.close()
