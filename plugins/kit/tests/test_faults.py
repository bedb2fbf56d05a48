"""The kit sees planted faults, each by the check that should, and accuses nobody who keeps the contract."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from plugins.kit.tests import (
    arm_faults,
    cart_faults,
    carts,
    diary,
    end_faults,
    frame_faults,
    gantry_motion_faults,
    gantry_state_faults,
    good_ones,
    lander_caller_faults,
    lander_refusal_faults,
    lander_table_faults,
    member_faults,
    other_styles,
    ownership_faults,
    refusal_faults,
    robot_class_faults,
    robot_faults,
    rover,
    rover_faults,
    rows_of_carts,
    rows_of_landers,
    scara_faults,
    scara_styles,
    seed_faults,
    shipped_faults,
    slider_faults,
    source_class_faults,
    source_faults,
    source_value_faults,
    vector_faults,
    wheels_faults,
    world_faults,
)
from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.planting import Planted
from rlenv_kit import Deadlines, check_environment, check_robot, check_source, check_vector
from rlenv_kit.report import Report
from rlenv_robot import Environment
from tests.fakes import Slider

pytestmark = pytest.mark.requirement("R4.3")

PATIENCE = Deadlines(step=10.0, reset=10.0)
"""More than rendering by software takes on a busy machine."""

HANG = {
    "BlocksTheStop", "CloseHangs", "HangsInStep", "HangsLate", "ResetLoopsForEver", "SlowToAnswer", "StepHangs",
    "StopBlocks", "StopWhileStepping",
}  # fmt: skip
"""Faults that hang: a short deadline shows them as well, and render nothing before."""

IMPATIENCE = Deadlines(step=2.0, reset=3.0)

NOT_SEEN = {
    "SameStart": "a note: a world without chance begins alike for every seed",
    "SetsEnvironment": "a note: libraries set environment variables when they are loaded",
    "LargeSeed": "no clause says how large a seed may be",
    "RenderTakesAll": "a note: the options of render are the environment's own",
    "AppliedIsMeasured": "the gantry reaches every goal within a period, so both are equal",
    "ImageMissing": "a note: a simulated robot renders the cameras that were asked for",
    "StopMoves": "nothing shows it, since the robot has no read and no start where it stands",
    "FastAxis": "a guard applies the spec's limits, not the driver",
    "ThreeFramesLate": "a dead time of sensor and motor together may be the robot's own",
    "LiftAtFourFifths": "a joint that carries a weight gives way as much",
    "StampBeforeTheStep": "a robot's own clock may have any zero",
    "LampIsNotApplied": "5 % of the range of a whole number from 0 to 3 is no motion",
}
"""Fault -> why the kit does not accuse it."""

WHOLE = {
    "lander_caller_faults.ChangesFolder", "robot_faults.LeavesAThread", "cart_faults.Drifts",
    "gantry_motion_faults.LeavesThread", "wheels_faults.LeavesAThread", "arm_faults.StopOncePerLife",
    "scara_faults.AnotherRateWhenOpen", "cart_faults.OtherSpecLater",
}  # fmt: skip
"""Faults that show after the calls of other checks alone."""

Check = Callable[..., Report]


def _environment(made: Any, **options: Any) -> Report:
    return check_environment(lambda: made(), **options)  # so that no other process makes it


def _world(made: Any, **options: Any) -> Report:
    return check_environment(lambda: Environment(made()), **options)


def _repeatable(made: Any, **options: Any) -> Report:
    return check_robot(made, repeatable=True, **options)


def _slider(made: Any, **options: Any) -> Report:
    return check_environment(made(Slider()), **options)


def _sled_rows(made: Any, **options: Any) -> Report:
    return check_vector(made, Sleds, **options)


def _lander_rows(made: Any, **options: Any) -> Report:
    return check_vector(made, rows_of_landers.Alone, **options)


def _cart_rows(made: Any, **options: Any) -> Report:
    return check_vector(made, rows_of_carts.AloneCarts, **options)


CHECK_OF: dict[ModuleType, Check] = {
    **dict.fromkeys((
        frame_faults, seed_faults, ownership_faults, refusal_faults, end_faults, lander_table_faults,
        lander_refusal_faults, lander_caller_faults, carts, shipped_faults,
    ), _environment),
    **dict.fromkeys((
        robot_faults, gantry_state_faults, gantry_motion_faults, arm_faults, scara_faults, wheels_faults, rover_faults,
        robot_class_faults, member_faults,
    ), check_robot),
    world_faults: _world,
    cart_faults: _repeatable, slider_faults: _slider, source_faults: check_source, diary: check_source,
    source_class_faults: check_source, source_value_faults: check_source,
    vector_faults: _sled_rows, rows_of_landers: _lander_rows, rows_of_carts: _cart_rows,
}  # fmt: skip
"""Module of faults -> how they are checked."""

FAULTS: dict[str, tuple[Check, Planted]] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": (check_environment if fault.keys == ("process",) else check, fault)
    for module, check in CHECK_OF.items() for name, fault in module.FAULTS.items()
}  # fmt: skip


@pytest.fixture(autouse=True)
def _leaves_the_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what faults do to the process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, errors, handler, environment = Path.cwd(), np.geterr(), signal.getsignal(signal.SIGINT), dict(os.environ)
    yield
    for child in shipped_faults.CHILDREN:
        child.kill()
        child.wait()
    shipped_faults.CHILDREN.clear()
    os.chdir(folder)
    np.seterr(**errors)
    signal.signal(signal.SIGINT, handler)
    for name in os.environ.keys() - environment:
        del os.environ[name]
    shutil.rmtree(tmp_path, ignore_errors=True)


def _deadlines(name: str) -> Deadlines:
    return IMPATIENCE if _bare(name) in HANG else PATIENCE


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def _failed(report: Report) -> list[str]:
    return [check.key for check in report.failures]


@pytest.mark.requirement("R3.1", "R3.2", "R3.3", "R3.4", "R3.5", "R3.6", "R6.2", "R6.3", "6.4-c")
@pytest.mark.parametrize("name", [
    name if place % 8 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for place, name in enumerate(name for name, (_, fault) in FAULTS.items() if fault.keys)
])  # fmt: skip
def test_a_fault_is_seen_by_its_check(name: str) -> None:
    """Every eighth fault is checked while one works."""
    check, fault = FAULTS[name]
    for key in fault.keys:
        report = check(fault.made, deadlines=_deadlines(name), only=0 if name in WHOLE else key)
        if key in _failed(report):
            break
    assert key in _failed(report), report.lines(verbose=True)
    for finding in report.failures:
        assert finding.clause
        assert finding.message


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, fault) in FAULTS.items() if not fault.keys])
def test_no_check_accuses_what_the_table_lists(name: str) -> None:
    check, fault = FAULTS[name]
    assert _bare(name) in NOT_SEEN
    assert not check(fault.made, deadlines=_deadlines(name)).failures


TWO_FINDINGS = {
    "ChanceOfAll", "ClosesAll", "FinalIsMissing", "FinalIsTheNextFirst", "FrameNumbersAreTheCallers",
    "HalfObeysNaN", "MeasuresTheRequest", "NextStepMoves", "PopsFromTheAction", "ThresholdIgnored",
}  # fmt: skip
"""Faults that show in two ways."""

BY_ALL_CALLS = {
    "AppliedIsAsked", "ClearsFirst", "NothingApplied", "ObservationIsNotFinite", "OldAndFresh", "ResetsBySurprise",
    "StopNeverCleared",
}  # fmt: skip
"""Faults that give other findings, or after more steps, when other checks came before."""

SAMPLE = [
    *[name for name, (_, fault) in FAULTS.items()
      if zlib.crc32(name.encode()) % 16 == 5
      and fault.keys and name not in WHOLE and _bare(name) not in HANG | BY_ALL_CALLS],
    "shipped_faults.ClosesAll", "scara_faults.HalfObeysNaN",
]  # fmt: skip
"""One fault of sixteen, by its name, so that a new fault does not change the sample."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_gives_one_finding_that_is_reproduced_alone(name: str) -> None:
    """Make all checks of a sample: others neither hide the fault nor accuse it a second time."""
    check, fault = FAULTS[name]
    report = check(fault.made, deadlines=_deadlines(name))
    finding = report.failures[0]
    assert set(fault.keys) & set(_failed(report)), report.lines(verbose=False)
    assert len(report.failures) == 1 + (_bare(name) in TWO_FINDINGS), report.lines(verbose=False)
    assert finding.how or finding.key in ("described", "spec", "spec stays"), "what was done"
    (again,) = check(fault.made, deadlines=_deadlines(name), only=finding.number).checks
    assert (again.number, again.key, again.passed) == (finding.number, finding.key, False)
    assert _without_reasons(again.how) == _without_reasons(finding.how)
    assert again.calls or not finding.calls


def _without_reasons(how: str) -> str:
    """Leave out the random reasons of stops."""
    return re.sub(r"[0-9a-f]{12}", "", how)


def test_motion_over_illegal_commands_is_measured_on_a_robot_that_is_not_repeatable() -> None:
    report = check_robot(
        robot_faults.RealArmThatTwitches, repeatable=False, deadlines=PATIENCE, only="measured unmoved"
    )
    assert _failed(report) == ["measured unmoved"], report.lines(verbose=False)


GOOD: dict[str, tuple[Check, Any]] = {
    f"{made.__module__.rpartition('.')[2]}.{made.__name__}": (check, made)
    for check, group in (
        (_environment, (*good_ones.ENVIRONMENTS, *other_styles.ENVIRONMENTS.values())),
        (
            check_robot,
            (
                *good_ones.ROBOTS,
                *other_styles.ROBOTS.values(),
                *scara_styles.ROBOTS,
                rover.Rover,
                *member_faults.GOOD,
                robot_class_faults.Standing,
            ),
        ),
        (_world, (world_faults.Sticks,)),
        (_lander_rows, other_styles.BATCHES.values()),
        (_cart_rows, (rows_of_carts.RowsOfCarts,)),
        (
            check_source,
            (
                *other_styles.SOURCES.values(),
                *source_class_faults.GOOD.values(),
                *source_value_faults.GOOD.values(),
            ),
        ),
    )
    for made in group
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD)
def test_who_keeps_the_contract_in_another_style_is_not_accused(name: str) -> None:
    check, made = GOOD[name]
    check(made).raise_if_failed()


def test_there_are_enough_of_both() -> None:
    assert len(FAULTS) >= 740
    assert len(GOOD) >= 50
