"""TensorBoard's own reader, and a run of Weights & Biases on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal import RobotError
from rlenv_learn import trackers
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.registry import task
from rlenv_robot.training.learner import recipe_for
from rlenv_robot.training.rollout import LearningCurve
from rlenv_robot.training.trackers import TRACK, open_tracker


@pytest.mark.parametrize(("place", "extra"), [("tensorboard", "tensorboard"), ("wandb", "wandb")])
def test_a_missing_package_is_named_before_the_training_begins(
    place: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(trackers, "import_module", absent)
    with pytest.raises(RobotError, match=rf"rlenv-robot\[{extra}\]"):
        open_tracker(place, "so101-reach")


def test_tensorboard_reads_the_learning_curve_of_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    monkeypatch.setenv(TRACK, f"tensorboard={tmp_path}")
    policy = FeedbackPolicy.zeros(recipe_for(task("so101-reach")).vectors, "so101-reach")
    curve = LearningCurve("so101-reach", episodes=2, quiet=True)
    points = [curve.add(steps, policy) for steps in (10, 20)]
    curve.close()
    (run,) = tmp_path.iterdir()
    assert run.name.startswith("so101-reach-")
    events = reader.EventAccumulator(str(run))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {
        "trial/success", "trial/return", "trial/seconds", "trial/illegal_actions", "learning/illegal_actions",
    }  # fmt: skip
    read = [(event.step, event.value) for event in events.Scalars("trial/return")]
    assert read == [(point.steps, pytest.approx(point.returns, rel=1e-6)) for point in points]


@pytest.mark.process
@pytest.mark.slow
def test_weights_and_biases_keeps_a_run_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = open_tracker("wandb=arms", "so101-reach", {"seed": 7})
    for steps in (10, 20):
        tracker.add(steps, {"trial/success": steps / 100})
    tracker.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    assert b"trial/success" in content
    assert b"arms" in content
