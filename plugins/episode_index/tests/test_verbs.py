"""The data verbs with a saved selection: those that read it, and those that say what to give in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.log.labels import read_labels
from rlenv_robot.source import open_source
from tests.rlenv_robot.cli.test_data import run

Made = Callable[..., Path]


@pytest.fixture
def selection(run_folder: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "a b.selection.json"
    assert run("data", "select", run_folder("run", (4, 2, 3)), "--where", "episode > 0", "--out", path) == 0
    assert f"rlenv-robot data browse '{path}'" in capsys.readouterr().out
    return path


@pytest.mark.plugin("curate")
def test_a_selection_is_copied_whole_and_labelled_in_its_run(selection: Path, tmp_path: Path) -> None:
    assert run("data", "cut", selection, tmp_path / "new") == 0
    assert open_source(tmp_path / "new").transitions.lengths.tolist() == [1, 2]
    assert run("data", "cut", tmp_path / "data" / "run", tmp_path / "other") == 2, "a run is not copied by mistake"
    first = tmp_path / "first.selection.json"
    assert run("data", "select", tmp_path / "data" / "run", "--where", "episode = 0", "--out", first) == 0
    assert run("data", "label", selection, first, "--note", "seen") == 0
    assert sorted(read_labels(tmp_path / "data" / "run")) == [0, 1, 2]


@pytest.mark.plugin("curate")
@pytest.mark.plugin("formats")
@pytest.mark.parametrize(
    "arguments",
    ["verify {}", "recover {}", "timeline {} {}", "fields {}", "units {} degrees"],
    ids=lambda text: text.split()[0],
)
def test_verbs_that_need_a_run_or_a_set_say_how_to_find_it(
    selection: Path, arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("data", *(word.format(selection) for word in arguments.split())) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "it is a selection" in message
    assert f"rlenv-robot data select '{selection}' --all" in message
