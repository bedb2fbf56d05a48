"""The kit sees the open third of the second set of faults, and accuses none of its correct subjects.

The other faults of the set measure the kit, so no test of its checks may use them.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from plugins.kit.tests.test_fault_sets_b import ENTRIES, FOLDER, factory
from rlenv_kit import check_robot, check_source
from rlenv_kit.standard import CONTRACT, statements_of

pytestmark = pytest.mark.requirement("R4.3")

CHECKS = {"source": check_source, "robot": check_robot}
"""Part -> its check."""

OPEN = set(json.loads((FOLDER / "open_b.json").read_text(encoding="utf-8")))
SLOW = ("huge", "slow-rails", "cup", "-ends-the-stop", "valve")
"""Parts of the ids of subjects that take a minute: they are large, or run in real time."""

TRIED = [pytest.param(entry, id=entry["id"], marks=pytest.mark.slow if any(map(entry["id"].__contains__, SLOW)) else ())
         for part in CHECKS for entry in ENTRIES[part] if entry["good"] or entry["id"] in OPEN]  # fmt: skip


@pytest.mark.parametrize("entry", TRIED)
def test_a_fault_is_accused_and_a_correct_subject_is_not(entry: dict[str, Any]) -> None:
    report = CHECKS[entry["part"]](factory(entry))
    assert bool(report.failures) != entry["good"], report.lines(verbose=False)
    for finding in report.failures:
        assert finding.clause in (CONTRACT, "robot") or statements_of(finding.clause), finding
        assert finding.found
