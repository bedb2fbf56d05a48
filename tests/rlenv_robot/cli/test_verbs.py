"""Verbs are declared in a table and imported when they are parsed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from rlenv_robot.cli.verbs import HelpFormatter, Verb, add_verbs

MODULE = """
def add(parser):
    parser.add_argument("--times", type=int, default=1)
    parser.set_defaults(run=lambda args: args.times)


def add_declaiming(parser):
    parser.set_defaults(run=lambda args: -1)
"""
VERBS = {
    "say": Verb("verbs_of_a_test", "say it"),
    "declaiming": Verb("verbs_of_a_test:add_declaiming", "say it louder"),
}


@pytest.fixture
def parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    (tmp_path / "verbs_of_a_test.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "verbs_of_a_test", raising=False)
    parser = argparse.ArgumentParser(prog="prog", formatter_class=HelpFormatter)
    add_verbs(parser, VERBS, default="say")
    return parser


def test_help_lists_the_verbs_without_their_module(parser: argparse.ArgumentParser) -> None:
    text = parser.format_help()
    assert "say it" in text
    assert "\n    declaiming  say it louder" in text, "its line is not broken"
    assert "verbs_of_a_test" not in sys.modules


def test_verbs_stand_below_their_headings() -> None:
    parser = argparse.ArgumentParser(prog="prog", formatter_class=HelpFormatter)
    plain = Verb("verbs_of_a_test", "say it")
    add_verbs(parser, {
        "shout": plain._replace(heading="loud"), "cough": plain, "breathe": plain._replace(heading="calm"),
        "call": plain._replace(heading="loud"),
    })  # fmt: skip
    lines = parser.format_help().partition("VERB\n")[2].splitlines()
    assert [line.split()[0] for line in lines if line] == [
        "loud:",
        "shout",
        "call",
        "calm:",
        "breathe",
        "others:",
        "cough",
    ]
    assert lines[0].startswith("    loud")
    assert lines[1].startswith("      shout    say it")


def test_a_module_declares_one_verb_or_several(parser: argparse.ArgumentParser) -> None:
    args = parser.parse_args(["say", "--times", "3"])
    assert args.run(args) == 3
    args = parser.parse_args(["declaiming"])
    assert args.run(args) == -1


def test_a_path_in_the_place_of_a_verb_means_the_default(parser: argparse.ArgumentParser, tmp_path: Path) -> None:
    def path_argument(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("path")

    import verbs_of_a_test  # type: ignore[import-not-found]

    declare = verbs_of_a_test.add
    verbs_of_a_test.add = lambda sub: (declare(sub), path_argument(sub))
    assert parser.parse_args([str(tmp_path)]).path == str(tmp_path)


def test_a_word_that_is_neither_lists_the_verbs(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["whisper"])
    assert "say, declaiming" in capsys.readouterr().err
