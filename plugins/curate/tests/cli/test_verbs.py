"""``rlenv-robot data check``, ``cut``, ``merge`` and ``plot``, as a person would type them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rlenv_robot
from recorder.table.load import build
from tests.rlenv_robot.cli.test_data import assert_refused, run

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("check", "{}/empty"), "holds no data that can be read"),
        (("check", "{}/a", "--ignore", "noise"), "'noise', allowed are gap, clock"),
        (("plot", "{}/a", "--episodes", "7"), "there is no episode 7, there are 0 to 2"),
        (("plot", "{}/a", "--episodes", "1-x"), "'1-x' is not a choice of episodes"),
        (("cut", "{}/a", "{}/new"), "give --episodes, --from, --until or another filter"),
        (("cut", "{}/a", "{}/new", "--from", "3", "--until", "2"), "--from is 3, it must be below --until"),
        (("cut", "{}/a", "{}/new", "--from", "999"), "nothing is left: no frame lies in these"),
        (("cut", "{}/a", "{}/b", "--episodes", "0"), "is there already; runs are never overwritten"),
        (("cut", "{}", "{}/new", "--episodes", "0"), "holds 2 runs, name one: a, b"),
        (("cut", "{}/empty", "{}/new", "--episodes", "0"), "holds no run"),
        (("merge", "{}/a", "{}/a/log.mcap", "--to", "{}/new"), "named more than once"),
        (("merge", "{}/empty", "--to", "{}/new"), "no run was found in"),
    ],
)
def test_what_a_user_can_do_wrong(runs: Path, arguments: tuple[str, ...], told: str, capsys: Captured) -> None:
    assert_refused(runs, arguments, told, capsys)


def test_check_finds_and_says_where(runs: Path, capsys: Captured) -> None:
    assert run("data", "check", runs, "--ignore", "clipped,limited") == 0
    assert "5 episodes, 60 steps checked\nnothing was found\n" in capsys.readouterr().out.replace("\n\n", "\n")
    whole = (runs / "b" / "log.mcap").read_bytes()
    (runs / "b" / "log.mcap").write_bytes(whole[: len(whole) * 4 // 5])
    assert run("data", "check", runs, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"] >= 3
    assert {"kind", "episode", "field", "first", "last", "message", "advice"} == set(told["findings"][0])
    assert "lost" in {each["kind"] for each in told["findings"]}
    assert run("data", "check", runs) == 1
    assert "lost (" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["so101-pick-place", "g1-pick-bottle"])
def test_check_reads_lerobots_data_sets(shared_data: Path, name: str, capsys: Captured) -> None:
    pytest.importorskip("pyarrow")
    assert run("data", "check", shared_data / name, "--json", "--fast") in (0, 1)
    told = json.loads(capsys.readouterr().out)
    assert {each["kind"] for each in told["findings"]} <= {"frozen", "lost", "duplicate"}
    assert len(told["scores"]) == told["episodes"]
    assert all(0 <= score <= 1 for score in told["scores"])


def test_check_prints_scores_and_refuses_an_unknown_camera(runs: Path, capsys: Captured) -> None:
    run("data", "check", runs / "a", "--score")
    assert "scores, worst first:\n  episode " in capsys.readouterr().out
    assert run("data", "check", runs / "a", "--cameras", "nowhere") == 2
    assert "nowhere" in capsys.readouterr().err


def test_cut_and_merge_make_runs(runs: Path, capsys: Captured) -> None:
    assert run("data", "cut", runs / "a", runs / "few", "--episodes", "0,2-") == 0
    assert capsys.readouterr().out == f"{runs / 'few'}: 2 episodes, 26 frames\n"
    assert run("data", "merge", runs / "few", runs / "b", "--to", runs / "all") == 0
    table = build(runs / "all")
    assert [info["seed"] for info in table.episodes] == [0, 2, 0, 1]
    assert len(rlenv_robot.open_source(runs / "all", task="so101-reach")) == 48


def test_plot_writes_a_sheet_an_episode(runs: Path, tmp_path: Path, capsys: Captured) -> None:
    pytest.importorskip("matplotlib")
    assert run("data", "plot", runs / "a", "--episodes", "0,2", "--out", tmp_path / "s.png") == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "s-0000.png"), str(tmp_path / "s-0002.png")]
    assert (tmp_path / "s-0002.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send there")
def test_ctrl_c_while_copying_leaves_nothing(runs: Path) -> None:
    code = (
        "import sys, time, rlenv_curate.cut as c, rlenv_robot.cli.main as cli\n"
        "def wait(self, report): print('ready', flush=True); time.sleep(60)\n"
        "c._Copier.run = wait\n"
        f"raise SystemExit(cli.main(['data', 'merge', {str(runs)!r}, '--to', {str(runs / 'all')!r}]))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (130, "interrupted\n")
    assert sorted(path.name for path in runs.iterdir()) == ["a", "b"]
