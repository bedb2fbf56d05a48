"""Each statement of the standard has a check or a test, and the page of requirements says which."""

from __future__ import annotations

from rlenv_kit.standard import statements
from tests import requirements_page
from tests.house.house import ROOT, listing


def test_the_page_of_requirements_is_what_its_sources_say() -> None:
    assert requirements_page.PAGE.read_text() == requirements_page.page(), "run python -m tests.requirements_page"


def test_every_requirement_is_proved_or_said_to_be_open() -> None:
    named = {one.requirement for one in statements().values()}
    marks = {mark for mark, _, _ in requirements_page.marked_tests()}
    groups = {mark for mark in marks if mark.startswith("R")}
    assert len(named) == 25
    assert groups == named, "a group without a test, or a mark of no group"
    cited = requirements_page.checks().keys() | requirements_page.tests().keys()
    unproved = statements().keys() - cited
    assert unproved == requirements_page.OPEN.keys(), "neither a check nor a test cites these, or OPEN is out of date"


def test_the_places_of_the_requirements_exist() -> None:
    missing = [place for place in requirements_page.PLACES.values() if not (ROOT / place).exists()]
    assert not missing, listing(missing)
