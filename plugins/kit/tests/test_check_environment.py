"""An environment that keeps its contract is not accused, and a report says what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from plugins.kit.tests import slider_faults
from plugins.kit.tests.subjects_that_end import ExitsInClose, KeepsStateInSqlite
from rlenv_kit import EnvironmentContract, check_environment
from rlenv_robot.env import Environment

pytestmark = pytest.mark.requirement("R4.3", "R1.2")


@pytest.fixture
def make(slider_class: type) -> Callable[..., Environment]:
    """A mutant: an environment of this kind around a slider."""
    return lambda kind=Environment: kind(slider_class())


def test_a_good_environment_passes(make: Callable[..., Environment]) -> None:
    report = check_environment(make())
    report.raise_if_failed()
    assert {check.key for check in report.checks if check.passed is None} == {
        "process",
        "inference",
        "players",
        "masks",
        "messages",
        "step extra",
        "reset options",
        "requests",
    }
    assert not [note for note in report.notes if "environment variables" not in note.text]  # set as libraries load


@pytest.mark.slow
def test_what_can_not_be_tried_says_so(slider_class: type) -> None:
    class Endless(slider_class):  # type: ignore[misc, valid-type]
        length = 10**9

        def step(self, action: Any, extra_info: Any) -> Any:
            self.moves = min(self.moves, 999)  # its description ends at 1000
            self.position = np.zeros(2)
            return super().step(action, extra_info)

    report = check_environment(Environment(Endless()), repeatable=False)
    untried = {check.key for check in report.checks if check.passed is None}
    assert "after the end" in untried
    assert "equal episodes" in untried
    assert report.passed, report


def test_an_environment_that_can_not_even_begin_is_reported_not_raised(make: Callable[..., Environment]) -> None:
    class Broken(Environment):
        def reset(self, options: Any = {}) -> Any:  # noqa: B006
            raise RuntimeError("the motor is gone")

    report = check_environment(make(Broken))
    assert not report.passed
    assert "the motor is gone" in str(report)


def test_the_contract_class_needs_a_make() -> None:
    with pytest.raises(NotImplementedError, match="make"):
        EnvironmentContract().test_it_keeps_the_contract()


def test_the_report_can_be_read(make: Callable[..., Environment]) -> None:
    report = check_environment(make(slider_faults.Clips), name="mine")
    lines = str(report).splitlines()
    assert lines[-1].startswith("environment mine: ")
    (finding,) = report.failures
    with pytest.raises(AssertionError, match="breaks its contract"):
        report.raise_if_failed()
    assert any(
        line.startswith(f"FAILED    #{finding.number:<3} 6.2.1-7    every kind of illegal action") for line in lines
    )
    assert "step" in finding.how
    assert any(line.startswith("step(") for line in finding.calls)


def test_one_check_can_be_made_again_by_its_number(make: Callable[..., Environment]) -> None:
    (finding,) = check_environment(make(slider_faults.Clips)).failures
    again = check_environment(make(slider_faults.Clips), only=finding.number)
    assert [(check.number, check.message) for check in again.checks] == [(finding.number, finding.message)]


def test_a_subject_is_made_used_and_closed_on_one_thread() -> None:
    """State in SQLite, as graphics contexts and serial ports, belongs to the thread that made it."""
    check_environment(KeepsStateInSqlite).raise_if_failed()


def test_an_exit_of_a_subject_in_this_process_is_a_finding() -> None:
    report = check_environment(ExitsInClose)
    assert not report.passed
    assert "raised SystemExit(0), which would have ended the process" in str(report)
