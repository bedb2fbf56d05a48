"""Recorded runs outlive the software that wrote them: a log, its table and its samples stay as they were."""

from __future__ import annotations

import pytest

from tests.golden.describe_log import FILES
from tests.golden.stored import check


@pytest.mark.parametrize("name", FILES)
def test_a_recorded_run_is_as_it_was(name: str) -> None:
    check(name, FILES[name]())
