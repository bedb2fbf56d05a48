"""``rlenv-robot data``: what a person does with recorded data, as they would type it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from recorder.formats.images import Filming
from recorder.formats.registry import Format
from recorder.table.load import load_runs
from rlenv_robot.cli import data
from rlenv_robot.cli import main as cli
from rlenv_robot.cli.data.selection import choice

Captured = pytest.CaptureFixture[str]


def run(*arguments: object) -> int:
    try:
        return cli.main([str(each) for each in arguments])
    except SystemExit as over:
        return int(over.code or 0)


def assert_refused(runs: Path, arguments: tuple[str, ...], told: str, capsys: Captured) -> None:
    """Check that ``rlenv-robot data`` refuses arguments in its last line, and writes nothing; ``{}`` is the folder."""
    (runs / "empty").mkdir()
    assert run("data", *(word.format(runs) for word in arguments)) == 2
    captured = capsys.readouterr()
    assert told in captured.err.splitlines()[-1]
    assert captured.out == ""
    assert not (runs / "new").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs ``a``, three episodes, and ``b``, two."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for name, episodes in (("a", 3), ("b", 2)):
        with rlenv_robot.make("so101-reach", record=folder / "new", info={"source": "random"}, steps=12) as env:
            for seed in range(episodes):
                obs = env.reset({"seed": seed})
                while not (obs["terminated"] or obs["truncated"]):
                    near = obs["extra_info"]["applied"]["joint_target"] + rng.uniform(-0.03, 0.03, 6)
                    target = near.astype(np.float32).clip(*env.action["joint_target"].bounds)
                    action = {"joint_target": target}
                    obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
        (run,) = (folder / "new").iterdir()
        run.rename(folder / name)
    (folder / "new").rmdir()
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """A copy, to do with as one likes."""
    return Path(shutil.copytree(made, tmp_path / "runs"))


@pytest.mark.parametrize("verb", data.all_verbs())
def test_every_verb_explains_itself(verb: str, capsys: Captured) -> None:
    assert run("data", verb, "--help") == 0
    assert f"usage: rlenv-robot data {verb}" in capsys.readouterr().out


def test_ls_has_a_line_for_eachrun(runs: Path, capsys: Captured) -> None:
    (runs / "c").mkdir()
    (runs / "c" / "log.mcap").write_bytes(b"no log")
    torn = (runs / "b" / "log.mcap").read_bytes()
    (runs / "b" / "log.mcap").write_bytes(torn[: len(torn) * 2 // 3])
    assert run("data", "ls", runs) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines() if line.startswith("  ")}
    assert lines["a"].split()[3:6] == ["so101-reach", "3", "36"]
    assert lines["a"].endswith("whole")
    assert lines["b"].endswith("torn")
    assert lines["c"].endswith("unreadable")
    assert "is no MCAP file" in out


def test_ls_takes_several_paths(runs: Path, capsys: Captured) -> None:
    assert run("data", "ls", runs / "a", runs / "b") == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[0] for line in lines] == [str(runs / "a"), str(runs / "b")]


def test_a_path_in_place_of_a_verb_is_shown(runs: Path, capsys: Captured) -> None:
    assert run("data", runs / "a") == 0
    short = capsys.readouterr().out
    assert run("data", "show", runs / "a") == 0
    assert capsys.readouterr().out == short
    assert "3 episodes, 36 steps" in short


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("shwo",), "'shwo' is neither a verb nor a path, did you mean 'show'? verbs are ls, show, replay, export"),
        (("ls", "{}/nothing"), "does not exist"),
        (("ls", "{}/empty"), "holds no runs (folders with a log.mcap)"),
        (("export", "{}/a", "{}/new", "--to", "cassette"), "'cassette' is unknown"),
    ],
)
def test_what_a_user_can_do_wrong(runs: Path, arguments: tuple[str, ...], told: str, capsys: Captured) -> None:
    assert_refused(runs, arguments, told, capsys)


@pytest.mark.plugin("formats")
def test_ls_says_how_files_of_unknown_columns_are_read(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "arm.csv").write_text("q,u\n1,2\n3,4\n")
    assert_refused(tmp_path, ("ls", "{}"), "--columns", capsys)


def test_export_goes_by_the_catalogue(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    calls: list[Any] = []

    def write(table: Any, path: Path) -> list[str]:
        calls.append((len(table.starts), path))
        return ["it has no place for goals"]

    known = Format("cassette", lambda path: False, load_runs, write)
    monkeypatch.setattr("recorder.formats.registry.writable_format", lambda name: (known, write))
    assert run("data", "export", runs, runs / "out", "--to", "cassette") == 0
    assert calls == [(5, runs / "out")]
    assert capsys.readouterr().out == f"{runs / 'out'}: 5 episodes as cassette\nnote: it has no place for goals\n"


def test_export_says_which_images(runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    calls: list[Any] = []
    known = Format("lerobot", lambda path: False, load_runs, holds_images=True, write_options=("embedded",))
    monkeypatch.setattr(
        "recorder.formats.registry.writable_format", lambda name: (known, lambda *all_: calls.append(all_) or [])
    )
    wanted = ("--cameras", "top,wrist", "--size", "320x240", "--embed")
    assert run("data", "export", runs, runs / "out", "--to", "lerobot", *wanted) == 0
    assert calls[0][2] == Filming(("top", "wrist"), (240, 320), True)
    assert run("data", "export", runs, runs / "out", "--to", "lerobot", "--cameras", "none") == 0
    assert calls[1][2] == Filming(())


@pytest.mark.parametrize(
    ("text", "wanted"), [("3", [3]), ("0,2", [0, 2]), ("2-4", [2, 3, 4]), ("7-", [7, 8, 9]), ("9,0-1", [0, 1, 9])]
)
def test_episodes_as_people_write_them(text: str, wanted: list[int]) -> None:
    assert choice(text).among(range(10)) == wanted
