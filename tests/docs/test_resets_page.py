"""The page about resets says what the code says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hal import ResetRequest, ResetState
from hal.reset.record import Outcome
from rlenv_operate.teleop import keyboard
from rlenv_robot.config.profile import RESET_SIGNALS

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "resets.md").read_text(encoding="utf-8")


def table(heading: str) -> list[str]:
    """The words in code in the first column of the table under a heading."""
    part = TEXT.split(heading, 1)[1]
    rows = re.findall(r"^\| (`[^|]*)\|", part.split("\n## ", 1)[0], re.M)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


def test_every_state_is_drawn_and_every_outcome_listed() -> None:
    drawing = TEXT.split("## The course of a reset", 1)[1].split("```")[1]
    assert all(state.value in drawing for state in ResetState)
    assert table("## The course of a reset") == [outcome.value for outcome in Outcome]


def test_every_signal_of_a_profile_is_listed() -> None:
    assert sorted(table("## Ways to confirm a reset")) == RESET_SIGNALS.names()


def test_the_example_is_what_a_machine_is_asked() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", TEXT, re.S)
    assert json.loads(example) == ResetRequest("so101", 4, 60.0, verdict=True).to_dict()


def test_the_keys_are_the_keyboards() -> None:
    keys = table("## Interventions")
    assert keys[:13] == ["i", *keyboard.UP[:6], *keyboard.DOWN[:6]]
