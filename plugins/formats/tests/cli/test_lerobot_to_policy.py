"""From a LeRobot data set to a policy that runs: the commands of docs/lerobot.md, one after another."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal.robots.so101_units import JointUnits
from plugins.formats.tests.lerobot.test_read import edit, write_set
from rlenv_robot.cli.main import main

pq = pytest.importorskip("pyarrow.parquet", reason="the extra 'parquet' is not installed")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")

NAMES = [f"{joint}.pos" for joint in (
    "shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper",
)]  # fmt: skip
LENGTHS = (40,) * 6


@pytest.fixture
def data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a set in LeRobot's layout of an SO-101 that moves at random, in degrees."""
    monkeypatch.chdir(tmp_path)
    columns = write_set(tmp_path / "my-set", "v3.0", LENGTHS, "so101_follower", NAMES)
    degrees, rng, row = JointUnits("degrees"), np.random.default_rng(0), 0
    with rr.make("so101-reach", steps=max(LENGTHS)) as env:
        for seed in range(len(LENGTHS)):
            obs = env.reset({"seed": seed})
            aim = obs["observation"]["joint_goal"]
            for step in range(max(LENGTHS)):
                if step % 10 == 0:
                    side = rng.uniform(-0.5, 0.5, 6)
                aim = np.clip(aim + 0.05 * side, *env.action["joint_target"].bounds)
                columns["observation.state"][row] = degrees.from_radians(obs["observation"]["joint_position"])
                columns["action"][row] = degrees.from_radians(aim)
                action = {"joint_target": aim.astype(np.float32)}
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
                row += 1
    columns["timestamp"] = np.concatenate([np.arange(n) / 30 for n in LENGTHS]).astype(np.float32)
    arrays = {k: pa.array(v.tolist(), pa.list_(pa.float32(), 6)) if v.ndim == 2 else v for k, v in columns.items()}
    pq.write_table(pa.table(arrays), tmp_path / "my-set" / "data" / "chunk-000" / "file-000.parquet")
    features = json.loads((tmp_path / "my-set" / "meta" / "info.json").read_text())["features"]
    edit(tmp_path / "my-set", fps=30, features={name: features[name] for name in ("observation.state", "action")})
    return tmp_path / "my-set"


@pytest.mark.slow
def test_three_commands_make_a_policy_that_runs(data_set: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy of an untrained search stands in for one that was trained in simulation."""
    assert main(["train", "so101-reach", "--method", "evolution", "--seconds", "0.5", "--out", "start.npz"]) == 0
    capsys.readouterr()
    retrain = ["retrain", "my-set", "--policy", "start.npz", "--out", "policy.npz", "--seconds", "1"]
    assert main(retrain) == 2  # each error names the next step
    assert re.search(r"degrees .* or in percent; .*`rlenv-robot data units`", capsys.readouterr().err)
    assert main(["data", "units", "my-set", "degrees"]) == 0
    assert main(retrain) == 2
    assert "--goal hindsight" in capsys.readouterr().err
    assert main(["data", "ls", "."]) == 0
    assert "my-set" in capsys.readouterr().out
    assert main(["data", "check", "my-set", "--ignore", "duplicate,frozen"]) == 0
    assert main([*retrain, "--goal", "hindsight"]) == 0
    assert "model fitted to 5 episodes; over" in capsys.readouterr().out
    assert main(["run", "so101-reach", "--policy", "policy.npz", "--episodes", "2"]) == 0
    assert "distance" in capsys.readouterr().out


def test_the_data_teach_the_arms_own_motion(data_set: Path) -> None:
    """Rewards that are computed anew are those of the simulation's own sensors, within LeRobot's float32 degrees."""
    source = rr.open_source("my-set", "so101-reach", goal="hindsight", units="degrees")
    last = source.table.stops - 1
    gap = (
        source.table.rows["observation_gripper_position"][last] - source.table.rows["observation_target_position"][last]
    )
    assert np.abs(gap).max() < 1e-6  # hindsight: the goal is where each episode ended
    moved = np.ptp(source.table.rows["observation_joint_position"], axis=0)
    assert (moved[:5] > 0.2).all()
