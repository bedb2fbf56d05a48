"""``rlenv-robot data select``, as a person would type it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlenv_episode_index.manifest import read_selection
from tests.rlenv_robot.cli.test_data import run

Captured = pytest.CaptureFixture[str]
Made = Callable[..., Path]


def test_episodes_are_listed(lerobot_set: Made, run_folder: Made, capsys: Captured) -> None:
    data = lerobot_set("cups").parent
    run_folder("run")
    assert run("data", "select", data, "--where", "steps > 2", "--order", "steps desc") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "4 episodes of 5 fit"
    assert [line.split()[1] for line in out[3:7]] == ["7", "5", "3", "3"]
    assert run("data", "select", data, "--task-text", "CUP", "--max-steps", "5", "--recorded-robot", "arm") == 0
    assert "1 episode of 5 fit" in capsys.readouterr().out


def test_a_selection_is_saved_labelled_parted_and_cut(lerobot_set: Made, tmp_path: Path, capsys: Captured) -> None:
    root = lerobot_set("cups", (4, 6, 8, 9))
    good, rest = tmp_path / "good.selection.json", tmp_path / "rest.selection.json"
    assert run("data", "select", root, "--min-steps", "5", "--out", good, "--by", "ana") == 0
    assert "3 episodes of 4, in 1 set, digest " in capsys.readouterr().out
    assert read_selection(good).where == "steps >= 5"
    assert run("data", "label", good, "--where", "steps = 7", "--tag", "odd,far") == 0
    assert run("data", "label", root, "3", "--verdict", "discard") == 0
    capsys.readouterr()
    assert run("data", "select", root, "--tag", "odd", "--out", rest) == 0
    assert [number for _, number, _ in read_selection(rest)] == [2]
    assert run("data", "select", good, "--without", rest, "--out", tmp_path / "few.selection.json") == 0
    assert [number for _, number, _ in read_selection(tmp_path / "few.selection.json")] == [1]  # 3 is discarded
    assert run("data", "select", good, "--split", "0.3") == 0
    parts = [read_selection(tmp_path / f"good.{name}.selection.json") for name in ("train", "test")]
    assert [len(part) for part in parts] == [2, 1]
    capsys.readouterr()
    assert run("data", "show", good, "--tag", "odd") == 0
    assert "1 episodes, 7 steps" in capsys.readouterr().out
    assert run("data", "cut", good, tmp_path / "copy", "--where", "has(tags, 'far')") == 0
    assert "1 episode as lerobot" in capsys.readouterr().out


def test_runs_of_a_selection_become_a_run(run_folder: Made, tmp_path: Path, capsys: Captured) -> None:
    data = run_folder("a").parent
    run_folder("b", (5, 6))
    assert run("data", "select", data, "--where", "steps > 2", "--out", tmp_path / "x.selection.json") == 0
    assert run("data", "cut", tmp_path / "x.selection.json", tmp_path / "cut", "--where", "steps < 5") == 0
    assert "2 episodes, 9 frames" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--where", "nonsense > 1"), "no column nonsense"), (("--out", "{}/a.json"), "selection.json"),
        (("--where", "steps > 99", "--out", "{}/a.selection.json"), "nothing was selected"),
        (("--split", "0.5"), "takes one selection"), (("--began-from", "soon"), "no date"),
        (("--order", "size"), "order"),
        (("--without", "{}/none.selection.json", "--out", "{}/a.selection.json"), "none"),
        (("--split", "0.5", "--out", "{}/a.selection.json"), "leave --out away"),
    ],
)  # fmt: skip
def test_mistakes(lerobot_set: Made, tmp_path: Path, capsys: Captured, arguments: tuple[str, ...], word: str) -> None:
    assert run("data", "select", lerobot_set("cups"), *(argument.format(tmp_path) for argument in arguments)) == 2
    captured = capsys.readouterr()
    assert word in captured.err.splitlines()[-1]
    assert not list(tmp_path.glob("*.json"))
