"""A busy machine changes no verdict: what is cut short is cut by calls and processor time, not by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.kit.tests import frame_faults, source_faults
from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.plain_source import Records
from plugins.kit.tests.test_programs import BREAKS_RULES
from rlenv_kit import (
    JsonSubject,
    Report,
    check_environment,
    check_source,
    illegal,
    ownership,
    probe,
    source_probe,
)

pytestmark = [pytest.mark.requirement("R4.3"), pytest.mark.slow]


def verdicts(report: Report) -> list[tuple[str, bool | None]]:
    return [(check.key, check.passed) for check in report.checks]


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what makes the machine busy: by the clock each look at it comes 4 s after the one before."""

    def begin() -> None:
        looks = iter(range(0, 10**9, 4))
        clock = SimpleNamespace(monotonic=lambda: float(next(looks)), process_time=time.process_time)
        for module in (illegal, ownership, probe, source_probe):
            monkeypatch.setattr(module, "time", clock, raising=False)

    return begin


HANGING = {"ResetLoopsForEver", "StepHangs"}
"""Faults that the deadline of a call finds."""

ENVIRONMENTS: list[Any] = [
    Sleds,
    *(one.made for one in list(frame_faults.FAULTS.values())[::3] if one.name not in HANGING),
]

CORES = os.cpu_count() or 2

SOURCES: list[Any] = [Records, *(one.made for one in list(source_faults.FAULTS.values())[::6])]


@pytest.mark.parametrize("kind", ENVIRONMENTS, ids=lambda kind: kind.__name__)
def test_environments_get_equal_verdicts(kind: Any, busy: Callable[[], None]) -> None:
    quiet = verdicts(check_environment(kind))
    busy()
    assert verdicts(check_environment(kind)) == quiet


PROGRAMS = ("", "nan")
"""Ways of `programs/breaks_rules.py`."""


@pytest.mark.parametrize("kind", PROGRAMS, ids=("good", "nan"))
@pytest.mark.timeout(600)
def test_programs_get_equal_verdicts_in_five_runs_on_a_busy_machine(kind: str, busy: Callable[[], None]) -> None:
    """Programs that compute share the processors with the judge and the program under test."""
    subject = JsonSubject([*BREAKS_RULES, kind])
    quiet = verdicts(check_environment(subject, steps=8))
    busy()
    others = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(CORES)]
    try:
        assert [verdicts(check_environment(subject, steps=8)) for _ in range(5)] == [quiet] * 5
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("kind", SOURCES, ids=lambda kind: kind.__name__)
def test_sources_get_equal_verdicts(kind: Any, busy: Callable[[], None]) -> None:
    quiet = verdicts(check_source(kind))
    busy()
    assert verdicts(check_source(kind)) == quiet
