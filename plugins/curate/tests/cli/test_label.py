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
        (("label", "{}/a", "0"), "give one of --verdict"),
        (("label", "{}/a", "5", "--verdict", "success"), "there is no episode 5, there are 0 to 2"),
        (("label", "{}/a", "0", "--verdict", "great"), "invalid choice: 'great'"),
        (("label", "{}/a", "--verdict", "success"), "name the episodes"),
        (("label", "{}/a", "{}/b", "--episodes", "0", "--verdict", "success"), "--where CONDITION"),
        (("label", "{}", "--where", "steps > 99", "--tag", "x"), "no episode fits"),
        (("label", "{}", "--where", "size > 99", "--tag", "x"), "no column size"),
        (("label", "{}/a", "first", "--tag", "x"), "not a choice of episodes"),
        (("label", "{}/a", "0", "--tag", "x,"), "tag '' is not allowed"),
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


def test_episodes_that_fit_are_labelled_in_several_runs(runs: Path, capsys: Captured) -> None:
    assert run("data", "label", runs, "--where", "episode > 0", "--tag", "later, odd", "--note", "look") == 0
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()] == [
        "labels.jsonl: 2 episodes: note look, tag later, odd", "labels.jsonl: 1 episode: note look, tag later, odd",
    ]  # fmt: skip
    assert run("data", "label", runs / "a", "--episodes", "0-1", "--where", "has(tags, 'odd')", "--untag", "odd") == 0
    tags = [info.get("tags") for info in rlenv_robot.open_source(runs).table.episodes]
    assert tags == [None, ["later"], ["later", "odd"], None, ["later", "odd"]]
    source = rlenv_robot.open_source(runs)
    assert set(source.sample_steps(50, {"tag": "odd"})["extra_info"]["episode"].tolist()) == {2, 4}


def test_recover_mends_a_tornrun(runs: Path, capsys: Captured) -> None:
    log = runs / "a" / "log.mcap"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 3 // 4])
    assert run("data", "recover", runs / "a") == 0
    assert "written anew: log.mcap" in capsys.readouterr().out
    assert run("data", "recover", runs / "b") == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert run("data", "recover", runs / "none") == 2
