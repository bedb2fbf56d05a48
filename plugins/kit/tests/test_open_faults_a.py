"""The kit sees the open faults of `faults/`, and accuses none of the correct subjects there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.kit.tests.test_fault_sets_a import FAULTS, FRONTS, STATEMENTS
from rlenv_kit import check_environment, check_vector
from rlenv_kit.report import Report

pytestmark = pytest.mark.requirement("R4.3", "6.4-c")

OPEN = set(json.loads((FAULTS / "open_a.json").read_text(encoding="utf-8")))

ENTRIES = {
    entry["id"]: entry for part in FRONTS for entry in json.loads((FAULTS / f"{part}.json").read_text(encoding="utf-8"))
}

CITED = {one["id"] for one in json.loads(STATEMENTS.read_text(encoding="utf-8"))["statements"]} | {"contract"}
"""What a finding may cite; a clause is the beginning of the ids of its statements."""


def _report(entry: dict[str, Any]) -> Report:
    make = getattr(FRONTS[entry["part"]], entry["factory"].partition(":")[2])
    if entry["part"] == "vector":
        return check_vector(lambda num: make(num))  # so that no other process makes it
    return check_environment(lambda: make())


def _named(entries: list[dict[str, Any]]) -> list[Any]:
    """Every eighth subject is checked while one works."""
    return [
        pytest.param(
            entry, id=entry["id"], marks=[pytest.mark.slow] if place % 8 or "in_a_child" in entry["id"] else []
        )
        for place, entry in enumerate(entries)
    ]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("entry", _named([entry for name, entry in ENTRIES.items() if name in OPEN]))
def test_an_open_fault_is_seen(entry: dict[str, Any]) -> None:
    report = _report(entry)
    assert report.failures, report.lines(verbose=True)
    for finding in report.failures:
        assert all(any(one.startswith(cited) for one in CITED) for cited in finding.clause.split())


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "entry",
    _named(
        [
            entry
            for name, entry in ENTRIES.items()
            if entry["good"] and not name.endswith("-slow")  # 45 s
        ]
    ),
)
def test_a_correct_subject_of_the_sets_is_not_accused(entry: dict[str, Any]) -> None:
    _report(entry).raise_if_failed()
