"""The simulator judged by recorded episodes, as any other model of the dynamics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from rlenv_curate.simulated_dynamics import SimulatedDynamics
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.robots.twin import so101_twin

pytestmark = pytest.mark.requirement("R3.6")


def record(folder: Path, model: Any) -> rr.SourceData:
    rng = np.random.default_rng(0)
    with rr.make("so101-reach", robot=SimRobot(model), record=folder, steps=40) as env:
        obs: Any = env.reset({"seed": 1})
        while not (obs["terminated"] or obs["truncated"]):
            goal = obs["observation"]["joint_goal"] + rng.normal(0, 0.05, 6)
            target = np.clip(goal, *env.action["joint_target"].bounds).astype(np.float32)
            table = {"env_id": env.env_id, "frame_no": obs["frame_no"], "action": {"joint_target": target}}
            obs, _ = env.step(table)
    return rr.open_source(folder)


def error(data: rr.SourceData, horizon: int = 1) -> dict[str, Any]:
    found = data.statistics({"kind": "model_error", "model": SimulatedDynamics(so101()), "horizon": horizon})
    assert found is not None
    return found


def test_of_itself_it_is_right_and_of_another_arm_it_is_not(tmp_path: Path) -> None:
    same, other = error(record(tmp_path / "a", so101())), error(record(tmp_path / "b", so101_twin(3)))
    still = same["unchanged"]["joint_position"][0]
    assert still > 0.01
    assert same["rms"]["joint_position"][0] < 1e-4 * still
    assert same["rms"]["gripper_position"][0] < 1e-5
    assert same["rms"]["target_position"] == [0.0]
    assert 0.02 * still < other["rms"]["joint_position"][0] < still


def test_errors_grow_open_loop(tmp_path: Path) -> None:
    rms = error(record(tmp_path, so101_twin(3)), horizon=5)["rms"]["joint_position"]
    assert len(rms) == 5
    assert rms[4] > 1.5 * rms[0]


def test_what_was_not_observed_is_said() -> None:
    model = SimulatedDynamics(so101())
    observation = {"joint_position": np.zeros((2, 6), np.float32)}
    with pytest.raises(SourceError, match="0 of the 6 numbers of qvel of 'so101'"):
        model(observation, {"joint_target": np.zeros((2, 6), np.float32)})
