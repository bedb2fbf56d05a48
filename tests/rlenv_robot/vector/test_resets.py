"""Resets one step later, as Gymnasium's own vectors do it; snapshots of environments; other processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.latency import DelayModel
from sim.randomize.randomise import Randomise
from sim.robots.so101 import so101

STEPS = 5


def vector(num: int, **options: Any) -> VectorEnvironment:
    conditions = {key: options.pop(key) for key in ("timing", "randomise") if key in options}
    batch = SimBatch(so101(looks=False), num, 2, **conditions)
    return VectorEnvironment(batch, Reach(steps=STEPS), **{"seed": 11, **options})


def table(envs: VectorEnvironment, obs: Mapping[str, Any], target: np.ndarray) -> dict[str, Any]:
    return {"env_id": envs.env_ids, "frame_no": obs["frame_no"], "action": {"joint_target": target}}


def targets(step: int, num: int) -> np.ndarray:
    return np.random.default_rng(step).uniform(-0.1, 0.6, (num, 6)).astype(np.float32)


# -- next-step resets --------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1.3", "R1.4")
def test_next_step_is_same_step_with_a_step_between() -> None:
    """The same episodes: where one begins the next within the step, the other does in the following one."""
    with vector(3, autoreset="same_step") as one, vector(3, autoreset="next_step") as other:
        first, second = one.reset(), other.reset()
        for step in range(3 * STEPS):
            first, reward = one.step(table(one, first, targets(step, 3)))
            second, same = other.step(table(other, second, targets(step, 3)))
            np.testing.assert_array_equal(reward["reward"], same["reward"])
            for flag in ("terminated", "truncated"):
                assert first[flag].tolist() == second[flag].tolist()
            if "final" not in first["extra_info"]:
                continue
            final = first["extra_info"]["final"]
            for name, value in final["observation"].items():
                np.testing.assert_array_equal(second["observation"][name], value, err_msg=f"last {name}")
            assert second["frame_no"].tolist() == [STEPS] * 3
            np.testing.assert_array_equal(second["extra_info"]["final"]["success"], final["success"])
            wild = np.full((3, 6), np.nan, np.float32)
            second, same = other.step({**table(other, second, wild), "frame_no": np.full(3, 77)})
            assert same["reward"].tolist() == [0, 0, 0]
            assert "error" not in second["extra_info"]
            assert [second[flag].tolist() for flag in ("terminated", "truncated", "frame_no")] == [[0, 0, 0]] * 3
            for name, value in first["observation"].items():
                np.testing.assert_array_equal(second["observation"][name], value, err_msg=f"first {name}")


def test_only_those_that_ended_begin_anew() -> None:
    with vector(3, autoreset="next_step") as envs, vector(3, autoreset="disabled") as same:
        obs, theirs = envs.reset(), same.reset()
        for step in range(2):
            obs, _ = envs.step(table(envs, obs, targets(step, 3)))
            theirs, _ = same.step(table(same, theirs, targets(step, 3)))
        obs = envs.reset({"ids": [1]})
        for step in range(2, STEPS):
            obs, _ = envs.step(table(envs, obs, targets(step, 3)))
            theirs, _ = same.step(table(same, theirs, targets(step, 3)))
        assert obs["truncated"].tolist() == [1, 0, 1]
        obs, reward = envs.step(table(envs, obs, targets(9, 3)))
        assert obs["frame_no"].tolist() == [0, STEPS - 1, 0]
        assert (reward["reward"] != 0).tolist() == [False, True, False]
        assert obs["truncated"].tolist() == [0, 0, 0]


# -- snapshots ---------------------------------------------------------------------------------------------------

CONDITIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "drawn": {
        "timing": DelayModel.from_dict({"command_delay": {"uniform": [0.0, 0.05]}, "reading_loss": 0.1}),
        "randomise": Randomise.from_dict({"joint.*.damping": {"uniform": [0.5, 1.5], "scale": True}}),
    },
}


def run(envs: VectorEnvironment, obs: Mapping[str, Any], first: int, steps: int) -> list[dict[str, np.ndarray]]:
    rows = []
    for step in range(first, first + steps):
        obs, reward = envs.step(table(envs, obs, targets(step, envs.num_envs)))
        flags = {name: obs[name] for name in ("frame_no", "terminated", "truncated")}
        rows.append({**obs["observation"], **flags, **reward})
    return rows


def assert_same(mine: Any, theirs: Any, rows: list[int]) -> None:
    for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        for name, value in one.items():
            if name != "env_id":
                np.testing.assert_array_equal(value[rows], other[name][rows], err_msg=f"{name} at step {step}")


@pytest.mark.requirement("R1.3")
@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_restored_environments_go_on_bit_by_bit_through_their_next_episodes(autoreset: str, conditions: str) -> None:
    options = {"autoreset": autoreset, **CONDITIONS[conditions]}
    with vector(3, **options) as envs, vector(3, **{**options, "seed": 99}) as fresh:
        run(envs, envs.reset(), 0, 3)
        kept = envs.snapshot()
        obs = envs.restore(kept)
        after = run(envs, obs, 3, 3 * STEPS)
        for each in (envs, fresh):
            assert_same(run(each, each.restore(kept), 3, 3 * STEPS), after, [0, 1, 2])


def test_some_are_restored_and_the_others_stay() -> None:
    with vector(3) as envs:
        run(envs, envs.reset(), 0, 2)
        kept, obs = envs.snapshot([1]), envs.restore(envs.snapshot())
        after = run(envs, obs, 2, 2)
        held = envs.snapshot().sensors["joint_position"]
        obs = envs.restore(kept, [1])
        assert obs["frame_no"].tolist() == [4, 2, 4]
        np.testing.assert_array_equal(obs["observation"]["joint_position"][[0, 2]], held[[0, 2]])
        assert_same(run(envs, obs, 2, 2), after, [1])


def test_one_is_put_into_all() -> None:
    with vector(3) as envs:
        run(envs, envs.reset(), 0, 2)
        obs = envs.restore(envs.snapshot([2]))
        for name, value in obs["observation"].items():
            assert (value == value[0]).all(), name


def test_snapshots_out_of_turn_and_of_what_can_not_be_kept_are_refused() -> None:
    with vector(2) as envs:
        with pytest.raises(EpisodeError, match="snapshot before reset"):
            envs.snapshot()
        envs.reset()
        kept = envs.snapshot()
        with pytest.raises(ValueError, match="ascending numbers"):
            envs.snapshot([1, 0])
        with vector(2) as fresh, pytest.raises(EpisodeError, match="call reset first"):
            fresh.restore(kept, [0, 1])
        envs.batch = object()  # type: ignore[assignment]
        with pytest.raises(ValueError, match=r"a object can't be saved"):
            envs.snapshot()
        envs.batch = SimBatch(so101(looks=False), 2, 1)


# -- what was drawn ----------------------------------------------------------------------------------------------


def test_what_was_drawn_is_told_in_training_where_an_episode_begins_and_ends() -> None:
    with vector(2, **CONDITIONS["drawn"]) as envs, vector(2, mode="inference", **CONDITIONS["drawn"]) as blind:
        obs = envs.reset()
        drawn = obs["extra_info"]["randomisation"]
        assert {"joint.shoulder_pan.damping", "timing.command_delay", "timing.reading_loss"} <= drawn.keys()
        assert "randomisation" not in blind.reset()["extra_info"]
        for step in range(STEPS):
            obs, _ = envs.step(table(envs, obs, targets(step, 2)))
            assert ("randomisation" in obs["extra_info"]) == (step == STEPS - 1)
        ended = obs["extra_info"]["final"]["randomisation"]
        for name, value in drawn.items():
            np.testing.assert_array_equal(ended[name], value)
        assert (obs["extra_info"]["randomisation"]["timing.command_delay"] != ended["timing.command_delay"]).all()


def test_draws_depend_on_neither_the_number_nor_the_threads() -> None:
    with vector(2, **CONDITIONS["drawn"]) as few, vector(5, **CONDITIONS["drawn"]) as many:
        one, other = (each.reset()["extra_info"]["randomisation"] for each in (few, many))
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name][:2], err_msg=name)


# -- other processes ---------------------------------------------------------------------------------------------


def _rollout(seed: int) -> bytes:
    with rr.make_vector("so101-reach", 2, threads=1, seed=seed) as envs:
        obs = envs.reset()
        for step in range(3):
            obs, _ = envs.step(table(envs, obs, targets(step, 2)))
        return bytes(obs["observation"]["joint_position"].tobytes())


@pytest.mark.process
def test_a_spawned_process_computes_the_same() -> None:
    here = [_rollout(seed) for seed in (1, 2)]  # this process has threads of its own by now
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_rollout, [1, 2]) == here


def _gymnasium_env() -> Any:
    return rr.to_gymnasium(rr.make("so101-reach", steps=STEPS))


@pytest.mark.slow
def test_gymnasiums_own_vector_of_processes_runs_them() -> None:
    vectors = pytest.importorskip("gymnasium.vector", reason="gymnasium (extra gym) is not installed")
    envs = vectors.AsyncVectorEnv([_gymnasium_env] * 2, context="spawn")
    same = vectors.SyncVectorEnv([_gymnasium_env] * 2)
    try:
        first, others = envs.reset(seed=[3, 4]), same.reset(seed=[3, 4])
        np.testing.assert_array_equal(first[0]["joint_position"], others[0]["joint_position"])
        for step in range(STEPS + 2):  # through an end, and the reset in the step after it
            action = np.random.default_rng(step).uniform(-1, 1, (2, 6)).astype(np.float32)
            mine, theirs = envs.step(action), same.step(action)
            for name, value in mine[0].items():
                np.testing.assert_array_equal(value, theirs[0][name], err_msg=f"{name} at step {step}")
            assert mine[3].tolist() == theirs[3].tolist() == [step == STEPS - 1] * 2
    finally:
        envs.close()
        same.close()


# -- tables ------------------------------------------------------------------------------------------------------


def test_the_receiver_may_clear_the_names_of_a_table() -> None:
    envs = vector(3)
    obs = envs.reset()
    names = list(envs.env_ids)
    obs["env_id"].clear()
    obs, reward = envs.step({**table(envs, obs, targets(0, 3)), "env_id": names})
    reward["env_id"].clear()
    assert obs["env_id"] == envs.env_ids == names
    envs.close()


def test_a_reset_of_no_environment_begins_none() -> None:
    envs = vector(2)
    obs = envs.reset()
    obs, _ = envs.step(table(envs, obs, targets(0, 2)))
    again = envs.reset({"ids": []})
    np.testing.assert_array_equal(again["frame_no"], [1, 1])
    np.testing.assert_array_equal(again["observation"]["joint_position"], obs["observation"]["joint_position"])
    envs.close()
