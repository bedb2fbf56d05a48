"""The stated bound holds whatever the network does, and a jump of a clock is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.clock_sync import MOST_PPM, OffsetEstimator

SECOND = 1_000_000_000


class Clocks:
    """A local clock, which shows the true time, and a remote clock with an offset and a drift."""

    def __init__(self, offset_ns: int, drift_ppm: float) -> None:
        self.offset_ns, self.drift_ppm = offset_ns, drift_ppm

    def offset(self, ours: int) -> int:
        return self.offset_ns + round(ours * self.drift_ppm / 1e6)

    def exchange(self, estimator: OffsetEstimator, at: int, there: int, thinks: int, back: int) -> int:
        t1, t2 = at + there, at + there + thinks
        estimator.add(at, t1 + self.offset(t1), t2 + self.offset(t2), t2 + back)
        return t2 + back


delays = st.integers(0, 100_000_000)


@given(
    st.integers(-(2**62), 2**62),
    st.floats(-MOST_PPM * 0.99, MOST_PPM * 0.99),
    st.lists(st.tuples(delays, delays, delays, st.integers(0, 5 * SECOND)), min_size=1, max_size=80),
    st.integers(0, 100 * SECOND),
)
def test_the_true_offset_is_never_outside_the_bound(
    offset_ns: int, drift_ppm: float, exchanges: list[tuple[int, int, int, int]], later: int
) -> None:
    """However unequal the two ways are, and however long the last exchange is ago."""
    clocks, estimator, at = Clocks(offset_ns, drift_ppm), OffsetEstimator(), 0
    for there, thinks, back, pause in exchanges:
        at = clocks.exchange(estimator, at, there, thinks, back) + pause
    now = at + later
    estimate = estimator.at(now)
    assert estimate is not None
    assert abs(estimate.offset_ns - clocks.offset(now)) <= estimate.error_ns + 100  # rounding of the test's own clocks
    assert abs(estimate.drift_ppm - drift_ppm) <= estimate.drift_error_ppm + 0.001
    assert estimate.restarts == 0


def test_the_quickest_exchanges_of_a_minute_bound_the_error() -> None:
    rng = np.random.default_rng(0)
    clocks, estimator = Clocks(7 * SECOND, 30.0), OffsetEstimator()
    at = 0
    while at < 60 * SECOND:
        there, back = (int(100_000 + rng.exponential(5_000_000)) for _ in range(2))
        at = clocks.exchange(estimator, at, there, 1_000_000, back) + 20_000_000
    estimate = estimator.at(at)
    assert estimate is not None
    assert estimate.error_ns < 1_500_000, "5 ms of jitter each way"
    assert abs(estimate.drift_ppm - 30) < estimate.drift_error_ppm < 60


@pytest.mark.parametrize("jump", [3600 * SECOND, -3600 * SECOND, 50_000_000])
def test_a_jump_of_a_clock_restarts_the_estimate(jump: int) -> None:
    clocks, estimator, at = Clocks(0, 0), OffsetEstimator(), 0
    for n in range(20):
        if n == 10:
            clocks.offset_ns += jump
        at = clocks.exchange(estimator, at, 100_000, 0, 100_000) + SECOND // 4
    estimate = estimator.at(at)
    assert estimate is not None
    assert estimate.restarts == 1
    assert abs(estimate.offset_ns - jump) <= estimate.error_ns < 1_000_000


def test_impossible_exchanges_are_ignored() -> None:
    estimator = OffsetEstimator()
    for stamps in ((0, 0, 0, 2 * SECOND), (5, 0, 0, 4), (0, 9, 8, 10), (0, 0, 50, 10)):
        estimator.add(*stamps)
    assert estimator.at(0) is None
