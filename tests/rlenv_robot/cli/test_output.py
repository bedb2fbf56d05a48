"""Commands print progress and counts."""

import io
import re
import sys
import time

import numpy as np
import pytest

from rlenv_robot.cli.output import counted, print_table, progress, progress_bars, search_bar
from rlenv_robot.training.evolution import Generation


def test_progress_without_a_terminal_is_a_line_for_a_stage_or_nothing(capsys):
    with progress_bars() as bars:
        advance = bars.begin("train", 10)
        advance(4, "halfway")
        advance(10, "done")
    assert capsys.readouterr().out == "train\n  done\n"
    with progress("copying") as report:
        report(1, 2)
        report(2, 2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("title", ["train by evolution", "3 retrain from the recording only"])
def test_a_search_shows_its_time_left(columns, title, monkeypatch):
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    for name, value in {"COLUMNS": str(columns), "TERM": "xterm", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bars() as bars:
        report = search_bar(bars, title)
        for number in range(3):
            time.sleep(0.2)  # so that there is a speed to tell the time left by
            report(Generation(number, -123.4, -234.5, np.zeros(2), 0.1 * number, share=(number + 1) / 200))
        time.sleep(0.3)
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert re.search(r"\d\d:\d\d", frames), "the time left is not shown"


def test_a_count_has_its_noun():
    assert [counted(count, "episode") for count in (0, 1, 2)] == ["0 episodes", "1 episode", "2 episodes"]


NAMES = ["2026-11-22_11-08-28", "2026-11-22_11-08-29-2"]
HEAD = ("run", "began", "world", "episodes", "steps", "minutes", "size", "state")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_name_in_a_table_is_cut(columns, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [(name, "2026-11-22 11:08", "so101-pick-place", "3", "180", "0.1", "66 kB", "whole") for name in NAMES]
    print_table("Runs", HEAD, rows)
    words = capsys.readouterr().out.split()
    assert all(words.count(word) == len(NAMES) for word in ("2026-11-22", "11:08", "so101-pick-place", "whole"))
    assert [word for word in words if word in NAMES] == NAMES
