"""The benchmarks' half-cheetah and ant against Gymnasium's own, state by state: observation, reward, termination."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hal import Guard
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.robot import SimRobot

gymnasium = pytest.importorskip("gymnasium", reason="gymnasium is not installed")
for needed in ("glfw", "imageio"):  # Gymnasium's MuJoCo environments import them, though they draw nothing here
    pytest.importorskip(needed, reason="gymnasium[mujoco] is not installed")
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__(name)


def theirs(name: str, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gymnasium.make(name, **options).unwrapped


def cheetah(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    ours = module("half_cheetah", monkeypatch)
    return ours.half_cheetah(), ours.HalfCheetah(), theirs("HalfCheetah-v5")


@pytest.mark.filterwarnings("ignore")
def ant(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    ours = module("ant", monkeypatch)
    options = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ours.ant(), ours.Ant(), theirs("Ant-v5", **options)


@pytest.mark.parametrize(("robot", "size"), [(cheetah, 6), (ant, 8)])
def test_one_environment_gives_gymnasiums_numbers(robot, size, monkeypatch):
    model, task, gym = robot(monkeypatch)
    env = Environment(RobotWorld(Guard(SimRobot(model)), task), env_id="one")
    rng = np.random.default_rng(3)
    ends = 0
    for seed in range(4):
        table = env.reset({"seed": seed})
        sensors = env.world._robot_state.sensors  # type: ignore[attr-defined]
        gym.reset(seed=seed)
        gym.set_state(sensors["qpos"].copy(), sensors["qvel"].copy())
        for _ in range(150):
            action = rng.uniform(-1, 1, size).astype(np.float32)
            request = {"env_id": "one", "frame_no": table["frame_no"], "action": {"torque": action}}
            table, reward = env.step(request)
            seen, their_reward, their_end, _, _ = gym.step(action)
            mine = np.concatenate([table["observation"]["position"], table["observation"]["velocity"]])
            assert np.array_equal(mine, seen)
            assert reward["reward"] == pytest.approx(their_reward, abs=1e-6)  # torques are summed in float32
            assert bool(table["terminated"]) == bool(their_end)
            if their_end:
                ends += 1
                break
    assert (ends > 0) == (size == 8), "the ant falls over within 150 random steps, the cheetah can't"


@pytest.mark.parametrize(("robot", "size"), [(cheetah, 6), (ant, 8)])
def test_a_batch_gives_gymnasiums_numbers(robot, size, monkeypatch):
    model, task, gym = robot(monkeypatch)
    num = 6
    envs = VectorEnvironment(SimBatch(model, num, 2), task, seed=0, autoreset="disabled")
    table = envs.reset()
    starts = envs._batch_state.sensors  # type: ignore[union-attr]
    starts = {name: value.copy() for name, value in starts.items()}
    actions = np.random.default_rng(1).uniform(-1, 1, (60, num, size)).astype(np.float32)
    seen, rewards, ended = [], [], np.zeros((60, num), bool)
    for index, action in enumerate(actions):
        request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"torque": action}}
        table, reward = envs.step(request)
        seen.append(np.concatenate([table["observation"]["position"], table["observation"]["velocity"]], axis=1))
        rewards.append(reward["reward"])
        ended[index] = table["terminated"]
    for env in range(num):
        gym.reset(seed=0)
        gym.set_state(starts["qpos"][env], starts["qvel"][env])
        for index in range(60):
            observation, reward, end, _, _ = gym.step(actions[index, env])
            assert np.array_equal(seen[index][env], observation)
            assert rewards[index][env] == pytest.approx(reward, abs=1e-6)
            assert ended[index, env] == end
            if end:
                break


@pytest.mark.parametrize(("robot", "size"), [(cheetah, 6), (ant, 8)])
def test_a_single_reward_equals_a_row_of_the_batchs_bit_for_bit(robot, size, monkeypatch):
    model, task, _ = robot(monkeypatch)
    envs = VectorEnvironment(SimBatch(model, 3, 2), task, seed=5, autoreset="disabled")
    env = Environment(RobotWorld(Guard(SimRobot(model)), task), env_id="one")
    table, tables = env.reset({"seed": 5}), envs.reset()
    for action in np.random.default_rng(2).uniform(-1, 1, (20, size)).astype(np.float32):
        table, one = env.step({"env_id": "one", "frame_no": table["frame_no"], "action": {"torque": action}})
        request = {
            "env_id": tables["env_id"],
            "frame_no": tables["frame_no"],
            "action": {"torque": np.tile(action, (3, 1))},
        }
        tables, many = envs.step(request)
        assert one["reward"] == many["reward"][0]
        assert all(
            np.array_equal(value, tables["observation"][name][0]) for name, value in table["observation"].items()
        )
        if table["terminated"]:
            break
