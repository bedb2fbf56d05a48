"""Recorded data through `open_source`: a run of our own from end to end, and real robots' logs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from hal import SourceError
from hal.robots.so101 import HIGH, LOW
from recorder.log.writer import LogWriter
from rlenv_robot.env import Environment
from rlenv_robot.recording.observer import FrameObserver
from rlenv_robot.registry import robot
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.source import open_source
from rlenv_robot.tasks.reach import Reach

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


def real(name: str) -> Path:
    if not (DATA / name).is_dir():
        pytest.skip(f"the data set {name} is not there: {DATA / name}")
    pytest.importorskip("pyarrow")
    return DATA / name


def record(folder: Path, episodes: int = 2, steps: int = 12) -> list[list[float]]:
    """Record a run; returns the rewards that the agent got. Every fifth action is illegal and not executed."""
    world = RobotWorld(robot("so101"), Reach(steps=steps))
    observer = FrameObserver(world.layout, LogWriter(folder, world.layout, {}), {"source": "random"})
    environment, rng, rewards = Environment(world, "bench", observer), np.random.default_rng(0), []
    for seed in range(episodes):
        table, got, asked = environment.reset({"seed": seed}), [], 0
        while not (table["terminated"] or table["truncated"]):
            asked += 1
            wanted = table["observation"]["joint_goal"] + rng.normal(0, 0.02, 6)
            target = np.clip(wanted, np.float32(LOW), np.float32(HIGH)) if asked % 5 else np.full(6, 9.0)
            action = {"joint_target": target.astype(np.float32)}
            frame_no = table["frame_no"]
            table, reward = environment.step({"env_id": "bench", "frame_no": frame_no, "action": action})
            if table["frame_no"] != frame_no:
                got.append(float(reward["reward"]))
        rewards.append(got)
    environment.close()
    return rewards


@pytest.mark.requirement("R3.1", "R6.6", "B.6.2-2")
def test_a_run_comes_back_as_it_was_lived_and_the_task_rewards_it_alike(tmp_path: Path) -> None:
    lived = record(tmp_path / "run")
    data, again = open_source(tmp_path), open_source(tmp_path, task=Reach())
    for source in (data, again):
        for one in source.sample_trajectories(2, {"replace": False}):
            np.testing.assert_array_equal(one["steps_set"]["reward"], lived[one["trajectory_id"]])
            assert (one["env_id"], one["extra_info"]["source"], one["extra_info"]["lost"]) == ("bench", "random", 0)
            assert one["steps_set"]["done"].tolist() == [0] * 11 + [1]
    assert data.transitions.facts.tobytes() == again.transitions.facts.tobytes()
    better = open_source(tmp_path, task="so101-reach", goal="hindsight")
    assert (better.transitions.returns > data.transitions.returns).all()


# -- real robots -------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6.6", "R3.3", "R3.4", "B.6.2-2")
@pytest.mark.parametrize(("name", "joints"), [("so101-pick-place", 6), ("g1-pick-bottle", 26)])
def test_a_real_robots_log_is_sampled_as_it_is(name: str, joints: int) -> None:
    data = open_source(real(name))
    data.init({"seed": 1})
    batch = data.sample_steps(256)
    assert batch["observation"]["state"].shape == batch["action"]["target"].shape == (256, joints)
    one = data.sample_trajectories(1, {"episodes": [0]})[0]
    np.testing.assert_array_equal(one["steps_set"]["observation"]["state"][1:],
                                  one["steps_set"]["next_observation"]["state"][:-1])  # fmt: skip
    timing = data.statistics({"kind": "timing"})
    assert timing is not None
    assert timing["nominal_s"] == pytest.approx(1 / 30, rel=1e-3)
    taken = data.get_all_actions()["action"]["target"]
    assert (taken == one["steps_set"]["action"]["target"][0]).all(axis=1).any()


@pytest.mark.requirement("R6.6", "R3.1")
def test_a_real_arms_log_gets_rewards_from_a_task_by_name() -> None:
    folder = real("so101-pick-place")
    data = open_source(folder, task="so101-reach", goal="hindsight", units="percent")
    assert data.transitions.lengths.tolist() == [372, 373]
    assert np.isfinite(data.transitions.returns).all()
    assert (data.transitions.facts["reward"] <= 1.0).all()
    # The task's own bound is reached where the arm is where it will end: both exponentials are 1.
    assert data.transitions.facts["reward"].max() > 0.9
    steps = data.sample_steps(32, {"priority": "return", "n_step": 5})
    assert steps["action"]["joint_target"].shape == (32, 6)


@pytest.mark.requirement("R6.2", "R6.6")
def test_a_model_is_judged_on_held_out_real_episodes() -> None:
    data = open_source(real("so101-pick-place"))
    train, test = data.split(0.5)

    def design(observation: Mapping[str, np.ndarray], action: Mapping[str, np.ndarray]) -> np.ndarray:
        parts = (observation["state"], action["target"], np.ones((len(action["target"]), 1)))
        return np.concatenate(parts, axis=1).astype(float)

    steps = data.sample_trajectories(1, {"episodes": train})[0]["steps_set"]
    inputs = design(steps["observation"], steps["action"])
    fit = np.linalg.lstsq(inputs, steps["next_observation"]["state"].astype(float), rcond=None)[0]
    request = {"kind": "model_error", "model": lambda o, a: {"state": design(o, a) @ fit}, "episodes": test}
    found = data.statistics(request)
    assert found is not None
    assert found["rms"]["state"][0] < found["unchanged"]["state"][0]


@pytest.mark.requirement("R3.1")
def test_data_of_another_robot_are_refused() -> None:
    with pytest.raises(SourceError, match="data are of another robot"):
        open_source(real("g1-pick-bottle"), task="so101-reach")
