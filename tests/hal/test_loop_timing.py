"""Periods are counted where they belong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.clock import EDGES_MS, LoopTiming


def test_each_period_falls_into_its_bin() -> None:
    times = iter([0.0, 0.1, 0.2003, 0.3003, 0.5, 5.0, 5.1])
    loop_timing = LoopTiming(0.1, lambda: next(times))
    for _ in range(5):
        loop_timing.tick()
    loop_timing.pause()
    loop_timing.tick()
    loop_timing.tick()
    counts = dict(zip((0.0, *EDGES_MS), loop_timing.counts, strict=True))
    assert {edge: count for edge, count in counts.items() if count} == {0.0: 3, 0.2: 1, 50.0: 1}
    assert (loop_timing.periods, loop_timing.overruns) == (5, 1)
    assert loop_timing.longest_s == pytest.approx(0.1997)


@given(st.lists(st.floats(0, 10)))
def test_every_period_is_counted_once(steps: list[float]) -> None:
    at = [0.0]
    loop_timing = LoopTiming(0.02, lambda: at[0])
    loop_timing.tick()
    for step in steps:
        at[0] += step
        loop_timing.tick()
    plain = loop_timing.to_dict()
    assert sum(plain["counts"]) == plain["periods"] == len(steps)
    assert plain["overruns"] <= plain["periods"]
