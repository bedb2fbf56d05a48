"""``gap``, ``offsets``, ``identify``, ``excite`` and ``validity`` from the command line, on recorded runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal.robot import Actuation
from hal.robots.so101 import SO101
from rlenv_robot.cli.main import main
from rlenv_sim2real.drift import GAP_FILE
from sim.model import SimModel
from sim.robot import SimRobot
from sim.robots.so101 import NOMINAL_GAINS
from sim.robots.twin import IDENTIFIED, so101_twin


def recorded(folder: Path, steps: int = 80, seed: int = 0, arm: SimModel | None = None) -> Path:
    """A short run of a twin, whose goals wander; returns the run's folder."""
    before = set(folder.glob("*"))
    rng = np.random.default_rng(seed)
    low, high = SO101.commands["joint_target"].bounds
    with rr.make("so101-reach", robot=SimRobot(arm or so101_twin(2)), record=folder, steps=steps) as env:
        table = env.reset({"seed": seed})
        goal = np.asarray(table["observation"]["joint_goal"], np.float64)
        phases = rng.uniform(0, 6.28, 6)
        while not (table["terminated"] or table["truncated"]):
            sway = 0.3 * (np.sin(0.15 * table["frame_no"] + phases) - np.sin(phases))
            action = {"joint_target": (goal + sway).clip(low, high).astype(np.float32)}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
            assert "error" not in table["extra_info"]
    (run,) = set(folder.glob("*")) - before
    return run


def said(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    assert main([str(word) for word in words]) == code, capsys.readouterr()
    return capsys.readouterr().out


def test_gap_prints_its_figures_keeps_them_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path)
    text = said(capsys, "sim2real", "gap", run)
    assert "fingertip:" in text
    assert "elbow_flex" in text
    kept = json.loads((run / GAP_FILE).read_text())
    data = json.loads(said(capsys, "sim2real", "gap", run, "--json"))
    assert data["episodes"] == kept["episodes"]
    assert data["drifts"] == []
    twin = json.loads(said(capsys, "sim2real", "gap", run, "--json", "--model", "twin:2"))
    assert twin["episodes"][0]["tip_rms_mm"] < 0.2 * data["episodes"][0]["tip_rms_mm"]
    pytest.importorskip("matplotlib")
    assert said(capsys, "sim2real", "gap", run, "--plot", tmp_path / "gap.png").splitlines()[-1] == str(
        tmp_path / "gap.png"
    )


def test_gap_flags_an_arm_that_left_its_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [recorded(tmp_path, 160) for _ in range(2)]
    for run in runs:
        said(capsys, "sim2real", "gap", run)
    kept = json.loads((runs[0] / GAP_FILE).read_text())
    for joint in kept["episodes"][0]["joints"]:
        joint["offset_rad"] += np.radians(3.0) * (joint["joint"] == "wrist_flex")
    (runs[0] / GAP_FILE).write_text(json.dumps(kept))
    text = said(capsys, "sim2real", "gap", runs[1], code=1)
    assert "drift: wrist_flex" in text
    assert "shoulder_pan stands" not in text


def test_offsets_prints_alarms_alone_and_all_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = recorded(tmp_path)
    assert "0 of 6 offsets are beyond their limit" in said(capsys, "sim2real", "offsets", run)
    assert "shoulder_pan" in said(capsys, "sim2real", "offsets", run, "--all")
    data = json.loads(said(capsys, "sim2real", "offsets", run, "--json"))
    assert len(data["offsets"]) == 6
    beside = so101_twin(servos=replace(IDENTIFIED, offset=(0.0, 0.0, 0.0, 0.0, 0.3, 0.0)))
    other = said(capsys, "sim2real", "offsets", recorded(tmp_path / "beside", 240, arm=beside), code=1)
    assert [line.split()[1] for line in other.splitlines() if "ALARM" in line] == ["wrist_roll"]
    assert main(["sim2real", "offsets", str(run), "--limit", "-1"]) == 2


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_identify_writes_a_profile_that_gap_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs"
    for seed in range(3):
        recorded(runs, 90, seed)
    profile, kinds = tmp_path / "arm.toml", "stiffness,damping,offset,delay"
    data = json.loads(
        said(capsys, "sim2real", "identify", runs, "--judge", "2", "--output", profile, "--json", "--kinds", kinds)
    )
    assert data["held_out"]
    assert data["episodes"] == [0, 1]
    assert np.mean(data["judged"]["identified_rad"]) < 0.6 * np.mean(data["judged"]["nominal_rad"])
    gap = json.loads(said(capsys, "sim2real", "gap", runs, "--episode", "2", "--model", profile, "--json"))
    assert np.mean([joint["rms_rad"] for joint in gap["episodes"][0]["joints"]]) == pytest.approx(
        np.mean(data["judged"]["identified_rad"]), rel=0.2
    )
    assert "held back" in said(capsys, "sim2real", "identify", runs, "--judge", "2", "--kinds", "delay")
    assert main(["sim2real", "identify", str(runs), "--fit", "0", "--judge", "0"]) == 2
    assert "payload" in said(capsys, "sim2real", "identify", runs, "--kinds", "help")


def at_gain(p: float) -> SimModel:
    """Return an arm whose servos have a gain P other than 16, and which declares it."""
    factor = p / NOMINAL_GAINS["p"]
    stiffness = (np.asarray(IDENTIFIED.stiffness) * factor).tolist()
    arm = so101_twin(servos=replace(IDENTIFIED, stiffness=tuple(stiffness)))
    gains = {**NOMINAL_GAINS, "p": p, "stiffness": NOMINAL_GAINS["stiffness"] * factor}
    return replace(arm, spec=replace(arm.spec, actuation=Actuation.for_all(arm.spec.commands, gains)))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_logs_at_two_gains_are_fitted_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [recorded(tmp_path / f"p{p}", 120, p, at_gain(p)) for p in (16, 32)]
    profile = tmp_path / "arm.toml"
    words = ["sim2real", "identify", *logs, "--output", profile, "--json"]
    data = json.loads(said(capsys, *words))
    assert not data["held_out"], "neither gain is left out of the fit"
    assert data["episodes"] == [0, 1]
    found = {part["joint"]: part["value"] for part in data["estimates"] if part["kind"] == "stiffness"}
    assert found["shoulder_lift"] == pytest.approx(IDENTIFIED.stiffness[1], rel=0.2)
    assert "gains = {p = 16," in profile.read_text()
    both = tmp_path / "both"
    both.mkdir()
    for log in logs:
        log.rename(both / log.parent.name)
    assert main(["sim2real", "identify", str(both)]) == 2
    assert "several gains P" in capsys.readouterr().err


def test_excite_shows_a_motion_and_records_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "sim2real", "excite", "so101", "--seconds", "10")
    assert "all parts keep" in text
    data = json.loads(
        said(capsys, "sim2real", "excite", "so101", "--seconds", "10", "--robot", "sim", "--record", tmp_path, "--json")
    )
    assert data["steps"] == data["frames"] - 1 == 300
    gap = json.loads(said(capsys, "sim2real", "gap", next(tmp_path.glob("*")), "--json"))
    assert gap["episodes"][0]["tip_rms_mm"] < 0.01, "it was recorded on the simulation itself"
    assert main(["sim2real", "excite", "so101", "--robot", "tcp://127.0.0.1:1", "--seconds", "10"]) == 2
    assert "--yes" in capsys.readouterr().err


def test_validity_takes_recorded_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = tmp_path / "scores.json"
    scores.write_text(json.dumps({"a": {"simulated": [0, 0, 1], "real": 0.2}, "b": {"simulated": 0.9, "real": [1, 1]}}))
    data = json.loads(said(capsys, "sim2real", "validity", "--scores", scores, "--json"))
    assert data["pearson"] == pytest.approx(1.0)
    assert data["mean_maximum_rank_violation"] == 0
    scores.write_text('{"a": {"simulated": [1]}}')
    assert main(["sim2real", "validity", "--scores", str(scores)]) == 2
    assert "expected" in capsys.readouterr().err
    assert main(["sim2real", "validity", "so101-reach"]) == 2


@pytest.mark.slow
def test_validity_runs_policies_on_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = []
    for number, seconds in enumerate((0.2, 4)):
        policies.append(tmp_path / f"{number}.npz")
        assert main(["train", "so101-reach", "--seconds", str(seconds), "--out", str(policies[-1])]) == 0
    capsys.readouterr()
    data = json.loads(
        said(
            capsys, "sim2real", "validity", "so101-reach", *policies, "--episodes", "20", "--score", "return", "--json"
        )
    )
    assert set(data["policies"]) == {str(path) for path in policies}
    assert all(np.isfinite([scores["simulated"], scores["real"]]).all() for scores in data["policies"].values())
    assert data["mean_maximum_rank_violation"] >= 0


@pytest.mark.slow
def test_a_recorded_run_of_a_twin_ends_with_its_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "short.toml"
    profile.write_text('[task]\nname = "so101-reach"\noptions = {steps = 90}\n')
    words = ["run", "so101-reach", "--policy", "zero", "--episodes", "1", "--profile", profile]
    text = said(capsys, *words, "--robot", "twin", "--record", tmp_path / "runs")
    assert "gap to sim, episode 0:" in text
    assert "mm at the fingertip" in text
    assert len(list(tmp_path.glob(f"runs/*/{GAP_FILE}"))) == 1
    assert "gap to" not in said(capsys, *words, "--record", tmp_path / "runs"), "the simulation itself has no gap"
