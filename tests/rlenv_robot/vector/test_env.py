"""A batch is N environments: the same numbers, the same refusals, the same ends."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
import rlenv_robot as rr
from hal import EpisodeError, IllegalAction
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tasks.episode_rules import episode_rng
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.robot import SimRobot
from sim.robots.so101 import so101

STEPS = 8


class _Draws(Reach):
    """Reach for a single environment, with the episodes that row ``row`` of a batch draws."""

    def __init__(self, seed: int, row: int, steps: int) -> None:
        super().__init__(steps=steps)
        object.__setattr__(self, "draw", (seed, row))
        object.__setattr__(self, "episode", [0])

    def begin(self, rng: np.random.Generator, options: Mapping[str, Any]) -> Any:
        own = episode_rng(*self.draw, self.episode[0])  # type: ignore[attr-defined]
        self.episode[0] += 1  # type: ignore[attr-defined]
        return super().begin(own, options)


def _single(seed: int, row: int) -> Environment:
    from hal import Guard

    return Environment(RobotWorld(Guard(SimRobot(so101())), _Draws(seed, row, STEPS)))


@pytest.fixture
def envs() -> Iterator[VectorEnvironment]:
    with _vector(3) as made:
        yield made


def _vector(num: int, **options: Any) -> VectorEnvironment:
    return VectorEnvironment(SimBatch(so101(), num, 2), Reach(steps=STEPS), **{"seed": 11, **options})


def _table(envs: VectorEnvironment, obs: Mapping[str, Any], target: np.ndarray) -> dict[str, Any]:
    return {"env_id": envs.env_ids, "frame_no": obs["frame_no"], "action": {"joint_target": target}}


def _targets(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.uniform(-0.6, 0.6, (num, 6)).astype(np.float32).clip(-0.17, None)


# -- the same as one -------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6.2", "R1.3")
@pytest.mark.parametrize("num", [1, 3, 8])
def test_each_row_is_a_single_environment_bit_for_bit(num: int) -> None:
    """Over three episodes, through the guard's limits, the ends and the resets."""
    rng = np.random.default_rng(0)
    targets = [_targets(rng, num) for _ in range(3 * STEPS)]
    with _vector(num) as envs:
        obs, batch = envs.reset(), []
        for target in targets:
            obs, reward = envs.step(_table(envs, obs, target))
            batch.append((obs, reward))
    for row in range(num):
        with _single(11, row) as env:
            one: Any = env.reset()
            for step, target in enumerate(targets):
                request = {"env_id": env.env_id, "frame_no": one["frame_no"], "action": {"joint_target": target[row]}}
                one, reward = env.step(request)
                obs, rewards = batch[step]
                _same_row(obs, row, one)
                assert rewards["reward"][row] == pytest.approx(reward["reward"], rel=1e-6)
                if one["truncated"] or one["terminated"]:
                    one = env.reset()
                    for name, value in one["observation"].items():
                        np.testing.assert_array_equal(obs["observation"][name][row], value, err_msg=f"first {name}")


def _same_row(obs: Any, row: int, one: Any) -> None:
    over = one["truncated"] or one["terminated"]
    assert (obs["terminated"][row], obs["truncated"][row]) == (one["terminated"], one["truncated"])
    observation = {name: value[row] for name, value in obs["observation"].items()}
    if over:
        final = obs["extra_info"]["final"]
        place = final["index"].tolist().index(row)
        observation = {name: value[place] for name, value in final["observation"].items()}
        assert final["frame_no"][place] == one["frame_no"]
        assert final["success"][place] == one["extra_info"]["success"]
        assert final["metrics"]["distance_mm"][place] == pytest.approx(one["extra_info"]["metrics"]["distance_mm"])
    else:
        assert obs["frame_no"][row] == one["frame_no"]
        np.testing.assert_array_equal(
            obs["extra_info"]["applied"]["joint_target"][row], one["extra_info"]["applied"]["joint_target"]
        )
    for name, value in one["observation"].items():
        np.testing.assert_array_equal(observation[name], value, err_msg=name)


def test_environment_0_is_what_make_makes() -> None:
    with _vector(2, seed=5) as envs, rlenv_robot.make("so101-reach") as env:
        many, one = envs.reset(), env.reset({"seed": 5})
        for name, value in one["observation"].items():
            np.testing.assert_array_equal(many["observation"][name][0], value)


def test_a_seed_begins_again() -> None:
    with _vector(2) as envs:
        first = envs.reset({"seed": 3})
        second = envs.reset()
        again = envs.reset({"seed": 3})
    for name, value in first["observation"].items():
        np.testing.assert_array_equal(again["observation"][name], value)
    assert (first["observation"]["target_position"] != second["observation"]["target_position"]).any()


def test_environments_that_share_a_stream_share_their_episodes() -> None:
    with _vector(4, streams=np.array([0, 0, 1, 1])) as envs:
        goals = envs.reset()["observation"]["target_position"]
    np.testing.assert_array_equal(goals[0], goals[1])
    np.testing.assert_array_equal(goals[2], goals[3])
    assert (goals[0] != goals[2]).any()
    with pytest.raises(ValueError, match=r"streams has shape \(3,\), .* 4"):
        _vector(4, streams=np.zeros(3))


# -- ends ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1.4")
def test_the_last_observation_is_the_true_one(envs: VectorEnvironment) -> None:
    obs = envs.reset()
    goals = obs["observation"]["target_position"]
    for _ in range(STEPS):
        obs, _ = envs.step(_table(envs, obs, obs["observation"]["joint_goal"]))
    final = obs["extra_info"]["final"]
    assert final["index"].tolist() == [0, 1, 2]
    assert final["frame_no"].tolist() == [STEPS] * 3
    assert obs["frame_no"].tolist() == [0, 0, 0]
    assert obs["truncated"].tolist() == [1, 1, 1]
    np.testing.assert_array_equal(final["observation"]["target_position"], goals)
    assert (obs["observation"]["target_position"] != goals).any(axis=1).all(), "the next episode's goal"


@pytest.mark.parametrize("name", ["go2-walk", "so101-pair-lift", "so101-pick-place"])
def test_the_first_observation_of_an_episode_is_of_its_own_reading(name: str) -> None:
    """A task may remember what it computed of the reading that the episode before ended with."""
    with rr.make_vector(name, 3, seed=0, steps=4) as envs:
        table, rng, seen = envs.reset(), np.random.default_rng(0), []
        for _ in range(9):
            action = {f.name: rng.uniform(-0.2, 0.2, (3, *f.shape)).astype(f.numpy_dtype) for f in envs.action}
            action = {n: np.clip(value, *envs.action[n].bounds).astype(value.dtype) for n, value in action.items()}
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
            assert envs._batch_state is not None
            kept = (
                {n: np.array(value) for n, value in part.items()} for part in (envs._batch_state.sensors, envs._goal)
            )
            seen.append((table["observation"], *kept))  # judged later, so that this remembers nothing on the way
        for observation, sensors, goal in seen:
            for key, value in envs.task.observe(sensors, goal).items():
                np.testing.assert_array_equal(observation[key], value, err_msg=key)


def test_without_autoreset_an_ended_environment_waits() -> None:
    with _vector(3, autoreset="disabled") as envs:
        obs = envs.reset()
        for _ in range(STEPS):
            obs, _ = envs.step(_table(envs, obs, obs["observation"]["joint_goal"]))
        assert obs["truncated"].tolist() == [1, 1, 1]
        assert obs["frame_no"].tolist() == [STEPS] * 3
        held = obs["observation"]["joint_position"]
        obs = envs.reset({"ids": [1]})
        assert obs["frame_no"].tolist() == [STEPS, 0, STEPS]
        assert obs["truncated"].tolist() == [1, 0, 1], "a reset of another one begins no episode of these"
        obs, reward = envs.step(_table(envs, obs, obs["observation"]["joint_goal"]))
        assert obs["frame_no"].tolist() == [STEPS, 1, STEPS]
        assert {env: error["code"] for env, error in obs["extra_info"]["error"].items()} == {0: "ended", 2: "ended"}
        assert reward["reward"][[0, 2]].tolist() == [0, 0]
        assert obs["truncated"].tolist() == [1, 0, 1]
        assert obs["terminated"].tolist() == [0, 0, 0]
        np.testing.assert_array_equal(obs["observation"]["joint_position"][[0, 2]], held[[0, 2]])


@dataclass(frozen=True)
class EndsThere(Reach):
    """Reach whose first joint ends the episode, and whose time does the others."""

    def terminated(self, sensors: Any, goal: Any) -> Any:
        return sensors["joint_position"][..., 0] > 0.6


def test_a_flag_stands_while_its_episode_is_over_through_steps_resets_of_others_and_snapshots() -> None:
    with (
        rr.make_vector(EndsThere(steps=40), 3, seed=2, autoreset="disabled") as envs,
        rr.make_vector(EndsThere(steps=40), 3, seed=3, autoreset="disabled") as others,
    ):
        obs, goal = envs.reset(), np.zeros((3, 6), np.float32)
        goal[1, 0] = 1.0

        def flags(table: Any) -> list[tuple[int, int]]:
            assert table["terminated"].dtype == table["truncated"].dtype == np.int32
            return list(zip(table["terminated"].tolist(), table["truncated"].tolist(), strict=True))

        over: set[int] = set()
        for _ in range(45):
            obs, _ = envs.step(_table(envs, obs, goal))
            for env, (terminated, truncated) in enumerate(flags(obs)):
                assert terminated + truncated == (1 if env in over or terminated or truncated else 0)
                over |= {env} if terminated or truncated else set()
        assert flags(obs) == [(0, 1), (1, 0), (0, 1)]
        kept = rr.VectorSnapshot.from_bytes(envs.snapshot().to_bytes())
        assert flags(envs.reset({"ids": [0]})) == [(0, 0), (1, 0), (0, 1)]
        assert flags(envs.end("a break", [0])) == [(0, 1), (1, 0), (0, 1)]
        assert flags(envs.reset({"ids": [1, 2]})) == [(0, 1), (0, 0), (0, 0)]
        others.reset()
        assert flags(others.restore(kept)) == [(0, 1), (1, 0), (0, 1)]
        assert flags(envs.reset()) == [(0, 0)] * 3


def test_an_episode_that_ends_while_another_one_begins_shows_its_last_frame() -> None:
    """With next_step and ends at different times."""
    with _vector(2, autoreset="next_step") as envs:
        obs = envs.reset()
        for _ in range(STEPS - 1):
            obs, _ = envs.step(_table(envs, obs, obs["observation"]["joint_goal"]))
        obs = envs.end("a break", [0])
        obs, _ = envs.step(_table(envs, obs, obs["observation"]["joint_goal"]))
        assert (obs["frame_no"].tolist(), obs["truncated"].tolist()) == ([0, STEPS], [0, 1])
        last = obs["extra_info"]["final"]["observation"]["joint_position"][0]
        np.testing.assert_array_equal(obs["observation"]["joint_position"][1], last)
        obs, _ = envs.step(_table(envs, obs, obs["observation"]["joint_goal"]))
        assert (obs["frame_no"].tolist(), obs["truncated"].tolist()) == ([1, 0], [0, 0])


def test_what_was_returned_stays_as_it_was(envs: VectorEnvironment) -> None:
    """Through resets of some, which write into rows."""
    obs = envs.reset()
    kept = []
    rng = np.random.default_rng(1)
    for step in range(2 * STEPS):
        arrays = {**obs["observation"], **obs["extra_info"]["applied"], "frame_no": obs["frame_no"]}
        kept.append((arrays, {name: value.copy() for name, value in arrays.items()}))
        obs, _ = envs.step(_table(envs, obs, _targets(rng, 3)))
        if step % 3 == 0:
            obs = envs.reset({"ids": [step % 2]})
    for arrays, copies in kept:
        for name, value in copies.items():
            np.testing.assert_array_equal(arrays[name], value, err_msg=name)


def test_what_the_agent_writes_into_reaches_nothing() -> None:
    def run(spoil: bool) -> list[bytes]:
        with _vector(2) as envs:
            obs, told = envs.reset(), []
            for _ in range(4):
                table = _table(envs, obs, np.full((2, 6), 0.9, np.float32))
                if spoil:
                    for value in (*obs["observation"].values(), *obs["extra_info"]["applied"].values()):
                        value[...] = 1.0
                obs, reward = envs.step(table)
                told += [reward["reward"].tobytes(), obs["extra_info"]["applied"]["joint_target"].tobytes()]
            return told

    assert run(spoil=True) == run(spoil=False)


# -- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(
    ("value", "code", "index"), [(np.nan, "not_finite", [4]), (np.inf, "not_finite", [4]), (3.0, "range", [4])]
)
def test_an_illegal_row_stands_still_while_the_others_move(value: float, code: str, index: list[int]) -> None:
    """And the others do exactly what they do in a batch without it."""
    results = {}
    for name, spoilt in (("with", True), ("without", False)):
        with _vector(3) as envs:
            first = envs.reset()
            target = first["observation"]["joint_goal"] + np.float32(0.05)
            if spoilt:
                target[1, 4] = value
            results[name] = (first, *envs.step(_table(envs, first, target)))
    first, obs, reward = results["with"]
    assert obs["frame_no"].tolist() == [1, 0, 1]
    assert list(obs["extra_info"]["error"]) == [1]
    error = obs["extra_info"]["error"][1]
    assert (error["code"], error["field"], error["index"]) == (code, "action.joint_target", index)
    assert reward["reward"][1] == 0
    for field, observed in obs["observation"].items():
        np.testing.assert_array_equal(observed[1], first["observation"][field][1], err_msg=field)
        np.testing.assert_array_equal(observed[[0, 2]], results["without"][1]["observation"][field][[0, 2]])
    np.testing.assert_array_equal(reward["reward"][[0, 2]], results["without"][2]["reward"][[0, 2]])


@pytest.mark.requirement("R1.2")
def test_a_stale_row_stands_still(envs: VectorEnvironment) -> None:
    obs = envs.reset()
    target = obs["observation"]["joint_goal"]
    obs, _ = envs.step({**_table(envs, obs, target), "frame_no": np.array([0, 1, -1])})
    assert obs["frame_no"].tolist() == [1, 0, 0]
    assert {env: error["code"] for env, error in obs["extra_info"]["error"].items()} == {1: "frame_no", 2: "frame_no"}


def _malformed() -> dict[str, Any]:
    good = np.zeros((3, 6), np.float32)
    return {
        "None": (lambda table: None, "dtype"),
        "no env_id": (lambda table: {"frame_no": table["frame_no"], "action": table["action"]}, "missing"),
        "another key": (lambda table: {**table, "colour": 1}, "unknown"),
        "other names": (lambda table: {**table, "env_id": ["a", "b", "c"]}, "env_id"),
        "one name": (lambda table: {**table, "env_id": "abc"}, "env_id"),
        "no names": (lambda table: {**table, "env_id": None}, "env_id"),
        "one frame_no": (lambda table: {**table, "frame_no": 0}, "frame_no"),
        "frames with fractions": (lambda table: {**table, "frame_no": np.zeros(3)}, "frame_no"),
        "no action": (lambda table: {**table, "action": None}, "dtype"),
        "an empty action": (lambda table: {**table, "action": {}}, "missing"),
        "another field": (lambda table: {**table, "action": {"joint_target": good, "torque": good}}, "unknown"),
        "too few rows": (lambda table: {**table, "action": {"joint_target": good[:2]}}, "shape"),
        "one row": (lambda table: {**table, "action": {"joint_target": good[0]}}, "shape"),
        "ragged": (lambda table: {**table, "action": {"joint_target": [[0.0], [0.0, 0.0], []]}}, "shape"),
        "words": (lambda table: {**table, "action": {"joint_target": good.astype(str)}}, "dtype"),
    }


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize("case", _malformed())
def test_a_malformed_batch_moves_nobody(envs: VectorEnvironment, case: str) -> None:
    spoil, code = _malformed()[case]
    obs = envs.reset()
    table = _table(envs, obs, obs["observation"]["joint_goal"])
    with pytest.raises(IllegalAction) as refused:
        envs.step(spoil(table))
    assert refused.value.violation.code == code
    obs, _ = envs.step(table)
    assert obs["frame_no"].tolist() == [1, 1, 1]
    assert "error" not in obs["extra_info"]


def test_wider_numbers_are_rounded_and_enormous_ones_refused(envs: VectorEnvironment) -> None:
    obs = envs.reset()
    target = np.zeros((3, 6))
    target[0] = envs.action["joint_target"].bounds[1].astype(float) + 1e-9  # the bound itself, once it is a float32
    target[1, 2] = 1e300
    obs, _ = envs.step(_table(envs, obs, target))
    assert {env: error["code"] for env, error in obs["extra_info"]["error"].items()} == {1: "not_finite"}


@pytest.mark.parametrize("ids", [[3], [-1], [1, 0], [0, 0], 1, [0.5], ["a"]])
def test_wrong_ids_are_refused(envs: VectorEnvironment, ids: Any) -> None:
    envs.reset()
    with pytest.raises(ValueError, match="expected ascending numbers from 0 to 2"):
        envs.reset({"ids": ids})


def test_calls_out_of_turn_are_refused(envs: VectorEnvironment) -> None:
    table = {"env_id": envs.env_ids, "frame_no": np.zeros(3, int), "action": {"joint_target": np.zeros((3, 6))}}
    with pytest.raises(EpisodeError, match="call reset first"):
        envs.step(table)
    with pytest.raises(EpisodeError, match="reset without ids first"):
        envs.reset({"ids": [0]})
    for wrong in ({"seeds": 1}, {"seed": -1}, {"seed": 0.5}):
        with pytest.raises(ValueError, match="seed"):
            envs.reset(wrong)
    envs.close()
    envs.close()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="autoreset is 'always', allowed are 'same_step'"):
        _vector(1, autoreset="always")
    with pytest.raises(ValueError, match="did you mean 'tolerance_m'"):
        rlenv_robot.make_vector("so101-reach", 2, toleranc_m=1)
    with pytest.raises(ValueError, match="did you mean 'so101-reach'"):
        rlenv_robot.make_vector("so101-reech", 2)


@pytest.mark.parametrize("options", [5, {"goal": {}}, {"seed": -1}, {"ids": [9]}, {"ids": "all"}])
def test_a_reset_option_of_a_wrong_type_or_value_is_refused(options: Any) -> None:
    envs = _vector(2)
    envs.reset({})
    with pytest.raises(ValueError, match=r"option|seed|ids"):
        envs.reset(options)
    envs.reset({})


# -- Snapshots in files --------------------------------------------------------------------------------------


GO_ON = """
import sys

import numpy as np

import rlenv_robot as rr

def go_on(kept):
    envs = rr.make_vector("so101-reach", 3, seed=99, steps=20, autoreset="same_step")
    seen = envs.restore(rr.VectorSnapshot.load(kept))
    told = []
    for step in range(30):
        action = {"joint_target": seen["observation"]["joint_goal"] + np.float32(0.01)}
        seen, reward = envs.step({"env_id": envs.env_ids, "frame_no": seen["frame_no"], "action": action})
        told += [*seen["observation"].values(), seen["frame_no"], seen["truncated"], reward["reward"]]
    envs.close()
    return b"".join(np.ascontiguousarray(value).tobytes() for value in told)

if __name__ == "__main__":
    sys.stdout.buffer.write(go_on(sys.argv[1]))
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Three environments in the middle of an episode."""
    with rr.make_vector("so101-reach", 3, seed=7, steps=20) as envs:
        obs = envs.reset()
        for _ in range(13):
            action = {"joint_target": obs["observation"]["joint_goal"]}
            obs, _ = envs.step({"env_id": envs.env_ids, "frame_no": obs["frame_no"], "action": action})
        return envs.snapshot().save(tmp_path / "kept.npz")


@pytest.mark.process
def test_another_process_goes_on_through_the_next_episodes(kept: Path, tmp_path: Path) -> None:
    script = tmp_path / "go_on.py"
    script.write_text(GO_ON)
    here = runpy.run_path(str(script))["go_on"](kept)
    done = subprocess.run([sys.executable, script, kept], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == here


def test_a_file_says_all_that_the_snapshot_said(kept: Path) -> None:
    snapshot = rr.VectorSnapshot.load(kept)
    assert (snapshot.seed, snapshot.task, snapshot.frame_no.tolist()) == (7, "so101-reach", [13] * 3)
    assert rr.VectorSnapshot.from_bytes(snapshot.to_bytes()).to_bytes() == kept.read_bytes()


def test_another_tasks_snapshot_is_refused(kept: Path) -> None:
    with rr.make_vector("so101-push", 3) as envs:
        envs.reset()
        before = envs.snapshot()
        with pytest.raises(ValueError, match=r"'so101-reach', .* 'so101-push'"):
            envs.restore(rr.VectorSnapshot.load(kept))
        assert envs.snapshot().to_bytes() == before.to_bytes(), "nothing changed"


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_episodes_of_a_batch_end_in_good_order(autoreset: str) -> None:
    with rlenv_robot.make_vector("so101-reach", 3, seed=1, autoreset=autoreset) as envs:
        with pytest.raises(EpisodeError):
            envs.end("too early")
        table = envs.reset()
        goal = {"joint_target": table["observation"]["joint_goal"]}
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": goal})
        last = {name: value[1].copy() for name, value in table["observation"].items()}
        ended = envs.end("a break", [1])
        assert (ended["truncated"].tolist(), ended["terminated"].tolist()) == ([0, 1, 0], [0, 0, 0])
        final = ended["extra_info"]["final"]
        assert (final["index"].tolist(), final["reason"], final["frame_no"].tolist()) == ([1], "a break", [1])
        np.testing.assert_array_equal(final["observation"]["joint_position"][0], last["joint_position"])
        assert ended["frame_no"].tolist() == ([1, 0, 1] if autoreset == "same_step" else [1, 1, 1])
        if autoreset != "same_step":
            with pytest.raises(EpisodeError):
                envs.end("again", [1])
        if autoreset == "disabled":
            ended = envs.reset({"ids": [1]})
        table, _ = envs.step({"env_id": ended["env_id"], "frame_no": ended["frame_no"], "action": goal})
        assert "error" not in table["extra_info"], "nothing has to be cleared"
        assert table["frame_no"].tolist() == ([2, 0, 2] if autoreset == "next_step" else [2, 1, 2])
        with pytest.raises(ValueError, match="reason"):
            envs.end(" ")
