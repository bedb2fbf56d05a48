"""``rlenv-robot data label`` and ``recover``, as a person would type them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rlenv_robot
from recorder.names import LABELS
from tests.rlenv_robot.cli.test_data import run

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("label", "{}/a", "0"), "give --verdict"),
        (("label", "{}/a", "5", "--verdict", "success"), "there is no episode 5, there are 0 to 2"),
        (("label", "{}/a", "0", "--verdict", "great"), "invalid choice: 'great'"),
    ],
)
def test_what_a_user_can_do_wrong(runs: Path, arguments: tuple[str, ...], message: str, capsys: Captured) -> None:
    assert run("data", *(word.format(runs) for word in arguments)) == 2
    captured = capsys.readouterr()
    assert message in captured.err.splitlines()[-1]
    assert captured.out == ""


def test_labels_are_what_the_filters_go_by(runs: Path, capsys: Captured) -> None:
    assert run("data", "label", runs / "a", "0,2", "--verdict", "success", "--source", "expert", "--by", "ana") == 0
    assert "2 episodes: verdict success, source expert" in capsys.readouterr().out
    assert json.loads((runs / "a" / LABELS).read_text().splitlines()[1])["who"] == "ana"
    source = rlenv_robot.open_source(runs / "a")
    batch = source.sample_steps(50, {"success": True, "source": "expert"})
    assert set(batch["extra_info"]["episode"].tolist()) == {0, 2}
    assert run("data", "label", runs / "a", "2", "--no-success") == 0
    episodes = rlenv_robot.open_source(runs / "a").sample_steps(50, {"success": True})["extra_info"]["episode"]
    assert set(episodes.tolist()) == {0}


def test_recover_mends_a_tornrun(runs: Path, capsys: Captured) -> None:
    log = runs / "a" / "log.mcap"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 3 // 4])
    assert run("data", "recover", runs / "a") == 0
    assert "written anew: log.mcap" in capsys.readouterr().out
    assert run("data", "recover", runs / "b") == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert run("data", "recover", runs / "none") == 2
