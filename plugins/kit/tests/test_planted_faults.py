"""The kit sees planted faults, each by the check that should, and accuses nobody who keeps the contract."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.kit.tests import (
    end_faults,
    frame_faults,
    ownership_faults,
    refusal_faults,
    robot_faults,
    seed_faults,
    source_faults,
    vector_faults,
)
from plugins.kit.tests.good_ones import ENVIRONMENTS, ROBOTS
from plugins.kit.tests.plain import Sleds
from rlenv_kit import Deadlines, check_environment, check_robot, check_source, check_vector
from rlenv_kit.report import Report

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.slow]

ENVIRONMENT_FAULTS = {
    **frame_faults.FAULTS, **seed_faults.FAULTS, **ownership_faults.FAULTS, **refusal_faults.FAULTS,
    **end_faults.FAULTS,
}  # fmt: skip
PATIENCE = Deadlines(step=3.0, reset=3.0)


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("broken", ENVIRONMENT_FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_of_an_environment_is_seen(broken: type) -> None:
    key = ENVIRONMENT_FAULTS[broken]
    report = check_environment(broken if key == "process" else lambda: broken(), deadlines=PATIENCE)
    keys = [check.key for check in report.failures]
    assert set(key.split(" or ")) & set(keys), report.lines(verbose=False)
    assert len(keys) <= 2, "one fault gives one finding, or two where it shows in two ways"
    assert all(check.how for check in report.failures if check.key not in ("described", "spec stays"))


@pytest.mark.parametrize("broken", robot_faults.FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_of_a_robot_is_seen(broken: type) -> None:
    _check_seen(check_robot(broken, deadlines=PATIENCE), robot_faults.FAULTS[broken])


@pytest.mark.parametrize("broken", [*ENVIRONMENT_FAULTS][::8], ids=lambda kind: kind.__name__)
def test_a_finding_is_made_again_alone(broken: type) -> None:
    key = ENVIRONMENT_FAULTS[broken]
    factory = broken if key == "process" else lambda: broken()
    found = check_environment(factory, deadlines=PATIENCE).failures[0]
    again = check_environment(factory, deadlines=PATIENCE, only=found.number)
    assert [(check.number, check.key, check.passed) for check in again.checks] == [(found.number, found.key, False)]
    assert again.checks[0].calls or not found.calls


@pytest.mark.requirement("R3.1", "R3.2", "R3.3", "R3.4", "R3.5", "R3.6")
@pytest.mark.parametrize("broken", source_faults.FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_of_source_data_is_seen(broken: type) -> None:
    _check_seen(check_source(broken, deadlines=PATIENCE), source_faults.FAULTS[broken])


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize("broken", vector_faults.FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_of_a_batch_is_seen(broken: type) -> None:
    _check_seen(check_vector(broken, Sleds, deadlines=PATIENCE), vector_faults.FAULTS[broken])


def _check_seen(report: Report, key: str) -> None:
    keys = [check.key for check in report.failures]
    assert set(key.split(" or ")) & set(keys), report.lines(verbose=False)
    assert len(keys) <= 2, "one fault gives one finding, or two where it shows in two ways"


def test_motion_over_illegal_commands_is_measured_on_a_robot_that_is_not_repeatable() -> None:
    report = check_robot(robot_faults.RealArmThatTwitches, repeatable=False, deadlines=PATIENCE)
    assert "measured unmoved" in [check.key for check in report.failures], report.lines(verbose=False)


@pytest.mark.parametrize("good", ENVIRONMENTS, ids=lambda kind: kind.__name__)
def test_a_good_environment_is_not_accused(good: Callable[[], Any]) -> None:
    check_environment(good).raise_if_failed()


@pytest.mark.parametrize("good", ROBOTS, ids=lambda kind: kind.__name__)
def test_a_good_robot_is_not_accused(good: Callable[[], Any]) -> None:
    check_robot(good).raise_if_failed()


def test_there_are_enough_of_both() -> None:
    assert len(ENVIRONMENT_FAULTS) >= 70
    assert len(robot_faults.FAULTS) >= 30
    assert len(source_faults.FAULTS) >= 50
    assert len(vector_faults.FAULTS) >= 40
    assert len(ENVIRONMENTS) + len(ROBOTS) >= 20
