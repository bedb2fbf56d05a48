"""The same seed and the same actions give the same observations, rewards and ends as before."""

from __future__ import annotations

import pytest

from tests.golden.run_trajectories import FILES
from tests.golden.stored import check


@pytest.mark.parametrize("name", FILES)
def test_the_same_actions_lead_to_the_same_answers(name: str) -> None:
    check(name, FILES[name]())
