"""Recorded episodes as the page gets them: what was measured, and what the simulation does under the same commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from rlenv_operate.console.replay import Replays
from rlenv_operate.console.scene import Scene
from rlenv_operate.console.view import replay_text
from rlenv_robot.robot_models import find_robot_model


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with rr.make("so101-reach", record=folder, info={"operator": "ann"}, steps=15) as env:
        for seed in range(2):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                action = {"joint_target": np.zeros(6, np.float32)}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    return folder


def test_the_list_has_the_newest_first(runs: Path) -> None:
    listed = Replays(runs).listing()
    assert [entry["episode"] for entry in listed] == [1, 0]
    assert [(entry["frames"], entry["seconds"], entry["operator"]) for entry in listed] == [(16, 0.5, "ann")] * 2


def test_the_frames_are_the_measured_poses(runs: Path) -> None:
    log = Replays(runs).load(1)
    assert (log["episode"], log["simulated"], len(log["poses"])) == (1, False, 16)
    assert log["rate_hz"] == pytest.approx(30.0, rel=1e-3)
    steps = rr.open_source(str(runs)).sample_trajectories(50, {})
    first = next(one["steps_set"] for one in steps if one["trajectory_id"] == 1)
    scene = Scene(find_robot_model("so101").make_sim_model())
    assert log["poses"][0] == scene.pose({"joint_position": first["observation"]["joint_position"][0]})


def test_the_simulation_of_a_simulated_episode_follows_it(runs: Path) -> None:
    replays = Replays(runs)
    log, simulated = replays.load(0), replays.load(0, simulated=True)
    apart = np.abs(np.asarray(log["poses"]) - np.asarray(simulated["poses"])).max()
    assert apart < 0.02
    assert np.ptp(np.asarray(log["poses"]), axis=0).max() > 0.1, "the arm moved"


def test_what_is_not_there_is_said(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no episode 7"):
        Replays(runs).load(7)
    assert "no episode 7" in replay_text(Replays(runs), 7, False, 1)
    assert "--runs" in replay_text(None, None, False, 0)
    assert '"problem":""' not in replay_text(Replays(tmp_path), None, False, 0)
