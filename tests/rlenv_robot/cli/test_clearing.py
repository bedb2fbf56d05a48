"""The flags that clear a stop name it by its number."""

from __future__ import annotations

import argparse

import pytest

from rlenv_robot.cli.clearing import add_clearing, clearing
from rlenv_robot.cli.served import describe


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_clearing(parser)
    return parser.parse_args(words)


def test_the_flags_become_options_of_the_first_reset() -> None:
    assert clearing(parsed()) == {}
    assert clearing(parsed("--clear-stop", "looked")) == {"clear_stop": "looked"}
    assert clearing(parsed("--clear-stop", "looked", "--stop-number", "7")) == {
        "clear_stop": "looked", "stop_number": 7
    }  # fmt: skip
    with pytest.raises(ValueError, match="WHY"):
        clearing(parsed("--stop-number", "7"))


def test_the_status_of_a_stopped_robot_gives_the_words_to_type() -> None:
    shown = describe({"state": "stopped", "why": "smoke", "stop_number": 7})["to clear it"]
    words = shown.partition("--clear-stop")[2].split('"')
    assert clearing(parsed("--clear-stop", "looked", *words[2].split())) == {"clear_stop": "looked", "stop_number": 7}
    assert "to clear it" not in describe({"state": "ready", "stop_number": 7})
