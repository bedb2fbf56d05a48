"""Tests of `rlenv_robot.training.trackers`: which places are opened, and what happens where one fails."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from hal import RobotError
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.training import trackers
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

    monkeypatch.setattr(trackers, "_TRACKERS", PluginTable("tracker", "no such group", {"full": Full, "good": Good}))
    tracker = open_tracker("full,good", "so101-reach")
    with caplog.at_level(logging.WARNING):
        for steps in (1, 2, 3):
            tracker.add(steps, {"trial/success": 0.5})
    tracker.close()
    assert kept == [1, 2, 3]
    assert [record.getMessage() for record in caplog.records] == [
        "no more metrics go to full: [Errno 28] No space left on device. The training goes on"
    ]


def test_without_the_plug_in_a_place_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "_TRACKERS", PluginTable("tracker", "no such group", {}))
    with pytest.raises(RobotError, match="wandb is reached by the plug-in rlenv_learn, which is not installed here"):
        open_tracker("wandb=arms", "so101-reach")
