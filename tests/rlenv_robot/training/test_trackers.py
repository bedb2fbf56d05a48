"""Tests of `rlenv_robot.training.trackers`: TensorBoard's own reader and a run of Weights & Biases on this machine."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hal import RobotError
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.registry import task
from rlenv_robot.training import trackers
from rlenv_robot.training.learner import recipe_for
from rlenv_robot.training.rollout import LearningCurve
from rlenv_robot.training.trackers import TRACK, open_tracker


def test_nothing_is_written_unless_the_user_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(TRACK, raising=False)
    for where in (None, "", " , "):
        tracker = open_tracker(where, "so101-reach")
        tracker.add(1, {"trial/success": 0.5})
        tracker.close()
    assert not list(tmp_path.iterdir())


def test_a_place_with_another_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="tensorboard=FOLDER") as caught:
        open_tracker("tensorbord", "so101-reach")
    assert "tensorbord" in str(caught.value)


@pytest.mark.parametrize(("place", "extra"), [("tensorboard", "tensorboard"), ("wandb", "wandb")])
def test_a_missing_package_is_named_before_the_training_begins(
    place: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(trackers, "import_module", absent)
    with pytest.raises(RobotError, match=rf"rlenv-robot\[{extra}\]"):
        open_tracker(place, "so101-reach")


def test_a_place_that_fails_later_does_not_end_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[int] = []

    class Full:
        def __init__(self, *_: object) -> None: ...

        def add(self, steps: int, figures: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    class Good(Full):
        def add(self, steps: int, figures: object) -> None:
            kept.append(steps)

    monkeypatch.setattr(trackers, "_KINDS", {"full": Full, "good": Good})
    tracker = open_tracker("full,good", "so101-reach")
    with caplog.at_level(logging.WARNING):
        for steps in (1, 2, 3):
            tracker.add(steps, {"trial/success": 0.5})
    tracker.close()
    assert kept == [1, 2, 3]
    assert [record.getMessage() for record in caplog.records] == [
        "no more metrics go to full: [Errno 28] No space left on device. The training goes on"
    ]


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
