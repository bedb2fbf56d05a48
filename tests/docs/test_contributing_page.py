"""The paths in CONTRIBUTING.md exist, and its rules for checks of data hold."""

from __future__ import annotations

import re

from rlenv_curate.checks.table import ADVICE
from tests.house.house import ROOT, listing

TABLE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Where to add something")[1].split("\n## ")[0]


def test_the_paths_of_the_table_exist() -> None:
    paths = re.findall(r"`((?:hal|sim|real|recorder|rlenv_robot|plugins|tests|docs)/[^` ]*)`", TABLE)
    assert len(paths) > 15, "the search misses paths"
    offenders = [path for path in paths if not any(ROOT.glob(re.sub(r"<\w+>", "*", path).rstrip("/")))]
    assert not offenders, listing(offenders)


def test_the_table_of_findings_has_every_kind() -> None:
    page = (ROOT / "docs" / "data-tools.md").read_text(encoding="utf-8")
    section = page.split("## check: find what spoils training")[1].split("\n## ")[0]
    kinds = {
        kind for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for kind in re.findall(r"`(\w+)`", row)
    }
    assert kinds == set(ADVICE)
