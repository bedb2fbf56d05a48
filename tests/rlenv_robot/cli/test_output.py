"""Commands print progress and counts."""

from rlenv_robot.cli.output import counted, progress, progress_bars


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


def test_a_count_has_its_noun():
    assert [counted(count, "episode") for count in (0, 1, 2)] == ["0 episodes", "1 episode", "2 episodes"]
