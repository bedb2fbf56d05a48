"""Periods are counted where they belong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.cadence import EDGES_MS, Cadence


def test_each_period_falls_into_its_bin() -> None:
    times = iter([0.0, 0.1, 0.2003, 0.3003, 0.5, 5.0, 5.1])
    cadence = Cadence(0.1, lambda: next(times))
    for _ in range(5):
        cadence.tick()
    cadence.pause()
    cadence.tick()
    cadence.tick()
    counts = dict(zip((0.0, *EDGES_MS), cadence.counts, strict=True))
    assert {edge: count for edge, count in counts.items() if count} == {0.0: 3, 0.2: 1, 50.0: 1}
    assert (cadence.periods, cadence.overruns) == (5, 1)
    assert cadence.longest_s == pytest.approx(0.1997)


@given(st.lists(st.floats(0, 10)))
def test_every_period_is_counted_once(steps: list[float]) -> None:
    at = [0.0]
    cadence = Cadence(0.02, lambda: at[0])
    cadence.tick()
    for step in steps:
        at[0] += step
        cadence.tick()
    plain = cadence.to_plain()
    assert sum(plain["counts"]) == plain["periods"] == len(steps)
    assert plain["overruns"] <= plain["periods"]
