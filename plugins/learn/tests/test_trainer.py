"""A training to a file: repeatable, with a curve and checkpoints beside the policy."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from rlenv_learn.policies.network import NetworkPolicy
from rlenv_robot.cli.main import main
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.training.trials import success_rates, twin_vector
from rlenv_tabletop.scripted import ScriptedPush

pytest.importorskip("torch", reason="PyTorch is not installed")

from rlenv_learn import trainer
from rlenv_learn.imitation.demonstrations import Disturbance, record_demonstrations
from rlenv_learn.ppo import ImitationSettings, ppo_settings


def test_a_seed_gives_the_same_policy_file_with_its_curve_and_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        assert main(["train", "so101-reach", "--out", f"{name}.npz", "--steps", "2000", "--seed", "7"]) == 0
        printed = capsys.readouterr().out
        assert "1,920 steps" in printed
        assert "twin 0" in printed
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()
    with open("a.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["steps"]) for row in rows] == [960, 1920]
    checkpoints = sorted(Path("a.checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["0000000960.npz", "0000001920.npz"]
    assert NetworkPolicy.load(checkpoints[-1]).task == "so101-reach"
    assert main(["run", "so101-reach", "--policy", "a.npz", "--episodes", "1"]) == 0


def test_a_training_begins_from_recorded_demonstrations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record_demonstrations(rlenv_robot.task("so101-push"), ScriptedPush(), "demos", 1, disturbance=Disturbance(0.0))
    settings = replace(ppo_settings(rlenv_robot.task("so101-push")), imitation=ImitationSettings(cloning=20))
    monkeypatch.setattr(trainer, "ppo_settings", lambda task: settings)
    monkeypatch.setattr(trainer, "_TRIAL_EPISODES", 5)
    monkeypatch.setattr("rlenv_robot.cli.train._EVALUATED", 5)
    arguments = ["train", "so101-push", "--demos", "demos", "--steps", "1", "--out"]
    assert main([*arguments, "p.npz"]) == 0
    assert "from demonstrations (their clone: " in capsys.readouterr().out
    with open("p.csv", encoding="utf-8") as file:
        assert [int(row["steps"]) for row in csv.DictReader(file)] == [0, settings.num_envs * settings.horizon]
    assert main(["run", "so101-push", "--policy", "p.npz", "--episodes", "1"]) == 0
    assert main([*arguments, "q.npz", "--method", "evolution"]) != 0
    assert "--demos" in capsys.readouterr().err


def test_a_network_is_retrained_by_its_last_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "so101-reach", "--out", "p.npz", "--steps", "960", "--nominal"]) == 0
    assert main(["run", "so101-reach", "--policy", "p.npz", "--episodes", "5", "--record", "runs"]) == 0
    assert main(["retrain", "runs", "--policy", "p.npz", "--out", "q.npz", "--seconds", "0.1"]) == 0
    before, after = NetworkPolicy.load("p.npz"), NetworkPolicy.load("q.npz")
    for one, other in zip(before.layers[:-1], after.layers[:-1], strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_reaching_holds_on_the_identified_arm_and_does_not_buzz(tmp_path: Path) -> None:
    """The whole training of the verb, judged on an arm that was fitted to a real one."""
    assert main(["train", "so101-reach", "--out", str(tmp_path / "p.npz"), "--seed", "0"]) == 0
    policy = load_policy(tmp_path / "p.npz")
    rates = success_rates("so101-reach", policy, 200, 31)
    assert rates["twin 0"] >= 0.95
    with twin_vector("so101-reach", 50, steps=120) as envs:
        cycles = [outcome.limit_cycle_deg for outcome in evaluate(envs, policy, 3)]
        assert np.radians(np.median(cycles)) <= 0.01
