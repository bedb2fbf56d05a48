"""A training to a file: repeatable, with a curve and checkpoints beside the policy."""

from __future__ import annotations

import csv
import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

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
from rlenv_learn.ppo import ImitationSettings, PpoLearner, ppo_settings
from rlenv_learn.training_state import TrainingState


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


def rows_of(name: str) -> list[dict[str, str]]:
    with open(name, encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("demos", [False, True])
def test_an_interrupted_training_goes_on_at_its_step_with_its_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, demos: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "_TRIAL_EPISODES", 4)
    monkeypatch.setattr("rlenv_robot.cli.train._EVALUATED", 4)
    task = rlenv_robot.task("so101-push")
    chosen = replace(ppo_settings(task), num_envs=4, horizon=10, minibatch=20, imitation=ImitationSettings(cloning=20))
    monkeypatch.setattr(trainer, "ppo_settings", lambda task: chosen)
    words = ["train", "so101-push", "--method", "ppo", "--steps", "240", "--out", "p.npz"]
    if demos:
        record_demonstrations(task, ScriptedPush(), "demos", 1, disturbance=Disturbance(0.0))
        words += ["--demos", "demos"]
    original, updates = PpoLearner.update, list[tuple[float, float]]()

    def update(learner: PpoLearner, progress: float) -> dict[str, float]:
        if len(updates) == 3:
            updates.append((progress, 0.0))
            raise KeyboardInterrupt
        metrics = original(learner, progress)
        updates.append((progress, metrics["train/learning_rate"]))
        return metrics

    monkeypatch.setattr(PpoLearner, "update", update)
    assert main(words) == 130
    assert "stopped after 120 steps; go on with the same command and --resume" in capsys.readouterr().out
    state, before = TrainingState.load(Path("p.state")), rows_of("p.csv")
    assert [int(row["steps"]) for row in before] == [0] * demos + [40, 80, 120]
    assert state.tensors["updates"] == 3
    learned = chosen.epochs * 2 * (3 - demos)  # with demonstrations, the critic alone learns at first
    assert state.tensors["learner"]["optimizer"]["state"][0]["step"] == learned
    assert not Path("p.npz").exists()

    for other in (["--seed", "1"], ["--steps", "280"], ["--nominal"]):
        assert main([*words, *other, "--resume"]) == 2
        message = capsys.readouterr().err
        assert f"another {other[0].strip('-')}, " in message
        assert "leave out --resume" in message

    cloned = list[int]()
    monkeypatch.setattr(
        "rlenv_learn.ppo.clone", lambda network, demonstrations, updates, random: cloned.append(updates)
    )
    reports = Path("reports.jsonl")
    assert main([*words, "--resume", "--progress", str(reports)]) == 0
    assert cloned == [0] * demos
    assert [progress for progress, _ in updates] == pytest.approx([0, 1 / 6, 2 / 6, 3 / 6, 3 / 6, 4 / 6, 5 / 6])
    rates = [rate for _, rate in updates if rate]
    assert rates == sorted(rates, reverse=True)
    assert rows_of("p.csv")[: len(before)] == before
    assert [int(row["steps"]) for row in rows_of("p.csv")] == [0] * demos + [40, 80, 120, 160, 200, 240]
    assert [float(row["seconds"]) for row in rows_of("p.csv")] == sorted(
        float(row["seconds"]) for row in rows_of("p.csv")
    )
    shown = [json.loads(line)["figures"].get("steps") for line in reports.read_text().splitlines()]
    assert [one for one in shown if one is not None][: len(before)] == [int(row["steps"]) for row in before]
    assert Path("p.npz").exists()
    assert not Path("p.state").exists()
    assert main([*words, "--resume"]) == 2
    assert "there is no state of a training at p.state; leave out --resume" in capsys.readouterr().err
    assert main([*words, "--out", "other.npz", "--resume"]) == 2
    assert not Path("other.checkpoints").exists()


def test_a_training_that_is_killed_has_a_state_that_is_seconds_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trainer, "_TRIAL_EPISODES", 4)
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    monkeypatch.setattr("rlenv_learn.trainer.time", clock)
    held = list[int]()

    def progress(done: int, total: int, point: object) -> None:
        """See what a process that is killed at each report would leave."""
        now[0] += 2.0
        path = Path("p.state")
        held.append(int(TrainingState.load(path).tensors["updates"]) if path.exists() else 0)

    trainer.train_network("so101-reach", Path("p.npz"), steps=960 * 6, nominal=True, trials=1, progress=progress)
    assert held == [1, 1, 1, 4, 4, 4]


def test_a_trainer_that_cannot_resume_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(name: str, out: Path, *, steps: int | None, progress: object) -> None:
        raise AssertionError

    monkeypatch.setattr("rlenv_robot.training.trainers.trainer", lambda name: train)
    assert main(["train", "so101-reach", "--method", "ppo", "--out", "p.npz", "--resume"]) == 2
    assert "a training by ppo can't be resumed: leave out --resume" in capsys.readouterr().err


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
