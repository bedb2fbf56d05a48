"""The kit sees faults that were planted without knowledge of its checks, and accuses no unusual style."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from plugins.kit.tests import (
    arm_faults,
    carts,
    diary,
    gantry_motion_faults,
    gantry_state_faults,
    lander_caller_faults,
    lander_refusal_faults,
    lander_table_faults,
    rows_of_carts,
    rows_of_landers,
    scara_faults,
    scara_styles,
    shipped_faults,
    wheels_faults,
)
from plugins.kit.tests.other_styles import BATCHES, ENVIRONMENTS, ROBOTS, SOURCES
from rlenv_kit import Deadlines, check_environment, check_robot, check_source, check_vector
from rlenv_kit.report import Report

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.slow]


def _all(*modules: ModuleType) -> dict[str, Any]:
    """Return the faults of several modules by module and name."""
    return {f"{module.__name__.rpartition('.')[2]}.{name}": fault for module in modules
            for name, fault in module.FAULTS.items()}  # fmt: skip


OF_ENVIRONMENTS = _all(lander_table_faults, lander_refusal_faults, lander_caller_faults, carts, shipped_faults)
OF_ROBOTS = _all(gantry_state_faults, gantry_motion_faults, arm_faults, scara_faults, wheels_faults)
OF_BATCHES = _all(rows_of_landers)
OF_BATCHES_OF_SEVERAL = _all(rows_of_carts)
OF_SOURCES = _all(diary)
PATIENCE = Deadlines(step=10.0, reset=10.0)
"""More than rendering by software takes on a busy machine."""

HANG = {"CloseHangs", "HangsLate", "HangsInStep", "SlowToAnswer", "StopWhileStepping", "StopBlocks", "BlocksTheStop"}
"""Faults that hang: a short deadline shows them as well, and render nothing before."""

IMPATIENCE = Deadlines(step=2.0, reset=3.0)

NOT_SEEN = {
    "SameEnvId": "a note: whether the id is unique among instances, their maker knows",
    "SameStart": "a note: a world without chance begins alike for every seed",
    "SetsEnvironment": "a note: libraries set environment variables when they are loaded",
    "ResetAfterClose": "a note: a robot may be opened again",
    "StampsFall": "a note: the clock of a replay begins anew with a reset",
    "LargeSeed": "no clause says how large a seed may be",
    "RenderTakesAll": "a note: the options of render are the environment's own",
    "AppliedIsMeasured": "the gantry reaches every goal within a period, so both are equal",
    "ImageMissing": "a note: a simulated robot renders the cameras that were asked for",
    "StopMoves": "nothing can be measured while it is stopped, since the robot has no read",
    "FastAxis": "a guard applies the spec's limits, not the driver",
    "ThreeFramesLate": "a dead time of sensor and motor together may be the robot's own",
    "AppliedIsTheRequest": "a servo that is slow by itself looks alike",
    "LiftAtFourFifths": "a joint that carries a weight gives way as much",
    "AlwaysFresh": "a coarse sensor repeats its value too",
    "FrozenCameraNewStamps": "a note: a camera may look at what never changes",
    "Drifts": "4 % of the range at rest: a real joint gives way more",
    "StampBeforeTheStep": "a robot's own clock may have any zero",
    "RollsOn": "a note: only the way shows it, and no command is measured by that",
    "LampIsNotApplied": "5 % of the range of a whole number from 0 to 3 is no motion",
}
"""Fault -> why the kit does not accuse it."""

IN_ANOTHER_PROCESS = {"HashSeed"}
TWO_FINDINGS = {
    "ClosesAll": "it influences other instances, and can't be reset when it is closed",
    "HalfObeysNaN": "it moves in refused steps, and in others",
}
MORE_FINDINGS = {"NothingApplied": "every check that needs the applied values fails"}


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


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def _deadlines(name: str) -> Deadlines:
    return IMPATIENCE if _bare(name) in HANG else PATIENCE


def _check_seen(report: Report, name: str) -> None:
    """Check that one fault gives one finding, with what was done, or that the table says why it gives none."""
    name = _bare(name)
    lines = report.lines(verbose=False)
    if name in NOT_SEEN:
        assert report.passed, lines
        return
    assert len(report.failures) == 1 + (name in TWO_FINDINGS) or name in MORE_FINDINGS, lines
    assert report.failures, lines
    for finding in report.failures:
        assert finding.requirement, lines
        assert finding.message, lines


@pytest.mark.parametrize("name", OF_ENVIRONMENTS)
def test_a_fault_of_an_environment_gives_one_finding(name: str) -> None:
    made = OF_ENVIRONMENTS[name]
    report = check_environment(
        made if _bare(name) in IN_ANOTHER_PROCESS else lambda: made(), deadlines=_deadlines(name)
    )
    _check_seen(report, name)


@pytest.mark.parametrize("name", OF_ROBOTS)
def test_a_fault_of_a_robot_gives_one_finding(name: str) -> None:
    _check_seen(check_robot(OF_ROBOTS[name], deadlines=_deadlines(name)), name)


@pytest.mark.requirement("R6.2")
@pytest.mark.parametrize("name", OF_BATCHES)
def test_a_fault_of_a_batch_gives_one_finding(name: str) -> None:
    _check_seen(check_vector(OF_BATCHES[name], rows_of_landers.Alone, deadlines=PATIENCE), name)


@pytest.mark.requirement("R6.2", "R6.3")
@pytest.mark.parametrize("name", OF_BATCHES_OF_SEVERAL)
def test_a_fault_of_a_batch_of_several_agents_gives_one_finding(name: str) -> None:
    _check_seen(check_vector(OF_BATCHES_OF_SEVERAL[name], rows_of_carts.AloneCarts, deadlines=PATIENCE), name)


def test_a_batch_of_several_agents_is_not_accused() -> None:
    check_vector(rows_of_carts.RowsOfCarts, rows_of_carts.AloneCarts).raise_if_failed()


@pytest.mark.requirement("R3.1", "R3.2", "R3.3", "R3.4", "R3.5", "R3.6")
@pytest.mark.parametrize("name", OF_SOURCES)
def test_a_fault_of_source_data_gives_one_finding(name: str) -> None:
    _check_seen(check_source(OF_SOURCES[name], deadlines=PATIENCE), name)


@pytest.mark.parametrize("made", ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_an_environment_in_another_style_is_not_accused(made: Callable[[], Any]) -> None:
    check_environment(lambda: made()).raise_if_failed()


@pytest.mark.parametrize("made", ROBOTS.values(), ids=ROBOTS)
def test_a_robot_in_another_style_is_not_accused(made: Callable[[], Any]) -> None:
    check_robot(made).raise_if_failed()


@pytest.mark.parametrize("made", scara_styles.ROBOTS, ids=lambda made: made.__name__)
def test_a_robot_with_noise_backlash_or_its_own_words_is_not_accused(made: Callable[[], Any]) -> None:
    check_robot(made).raise_if_failed()


@pytest.mark.parametrize("made", [*BATCHES.values(), *SOURCES.values()], ids=[*BATCHES, *SOURCES])
def test_a_batch_and_source_data_in_another_style_are_not_accused(made: Any) -> None:
    report = check_vector(made, rows_of_landers.Alone) if made in BATCHES.values() else check_source(made)
    report.raise_if_failed()


def _without_reasons(how: str) -> str:
    """Leave out the random reasons of stops."""
    return re.sub(r"[0-9a-f]{12}", "", how)


SAMPLE: dict[str, tuple[Callable[..., Report], Any]] = {
    **{_bare(name): (check_environment, OF_ENVIRONMENTS[name]) for name in (
        "lander_table_faults.LateNan", "lander_refusal_faults.RefusalTicks", "carts.OwnNan",
        "lander_caller_faults.EatsSeed")},
    **{name: (check_robot, gantry_state_faults.FAULTS[name]) for name in ("SignOfSecond", "ImageFromFuture")},
    "StopForgotten": (check_robot, gantry_motion_faults.FAULTS["StopForgotten"]),
    **{name: (check_vector, rows_of_landers.FAULTS[name]) for name in ("RowsSwapped", "ResetOfSomeResetsAll")},
    **{name: (check_source, diary.FAULTS[name]) for name in ("WrongMean", "ThresholdIgnored", "NextIsSame")},
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_a_finding_is_reproduced_alone_with_what_was_done(name: str) -> None:
    check, made = SAMPLE[name]
    (found,) = check(made).failures
    assert found.how, "what was done"
    assert found.allowed or found.message, "what is allowed"
    (again,) = check(made, only=found.number).checks
    assert (again.key, again.passed) == (found.key, False)
    assert _without_reasons(again.how) == _without_reasons(found.how)
    assert again.calls or not found.calls
