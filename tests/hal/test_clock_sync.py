"""The stated bound holds, whatever the network does; a clock that jumps is noticed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.clock_sync import MOST_PPM, OffsetEstimator

SECOND = 1_000_000_000


class Clocks:
    """Ours is the true time; theirs is off and drifts."""

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
def test_the_truth_is_never_outside_the_bound(
    offset_ns: int, drift_ppm: float, exchanges: list[tuple[int, int, int, int]], later: int
) -> None:
    """However unequal the two ways are, and however long the last exchange is past."""
    clocks, estimator, at = Clocks(offset_ns, drift_ppm), OffsetEstimator(), 0
    for there, thinks, back, pause in exchanges:
        at = clocks.exchange(estimator, at, there, thinks, back) + pause
    now = at + later
    known = estimator.at(now)
    assert known is not None
    assert abs(known.offset_ns - clocks.offset(now)) <= known.error_ns + 100  # rounding of the test's own clocks
    assert abs(known.drift_ppm - drift_ppm) <= known.drift_error_ppm + 0.001
    assert known.restarts == 0


def test_a_minute_of_a_jittery_network_is_known_to_its_quickest_exchanges() -> None:
    rng = np.random.default_rng(0)
    clocks, estimator = Clocks(7 * SECOND, 30.0), OffsetEstimator()
    at = 0
    while at < 60 * SECOND:
        there, back = (int(100_000 + rng.exponential(5_000_000)) for _ in range(2))
        at = clocks.exchange(estimator, at, there, 1_000_000, back) + 20_000_000
    known = estimator.at(at)
    assert known is not None
    assert known.error_ns < 1_500_000, "5 ms of jitter each way"
    assert abs(known.drift_ppm - 30) < known.drift_error_ppm < 60


@pytest.mark.parametrize("jump", [3600 * SECOND, -3600 * SECOND, 50_000_000])
def test_a_clock_that_jumps_is_noticed_and_all_begins_anew(jump: int) -> None:
    clocks, estimator, at = Clocks(0, 0), OffsetEstimator(), 0
    for n in range(20):
        if n == 10:
            clocks.offset_ns += jump
        at = clocks.exchange(estimator, at, 100_000, 0, 100_000) + SECOND // 4
    known = estimator.at(at)
    assert known is not None
    assert known.restarts == 1
    assert abs(known.offset_ns - jump) <= known.error_ns < 1_000_000


def test_what_says_nothing_is_left_out() -> None:
    estimator = OffsetEstimator()
    for stamps in ((0, 0, 0, 2 * SECOND), (5, 0, 0, 4), (0, 9, 8, 10), (0, 0, 50, 10)):
        estimator.add(*stamps)
    assert estimator.at(0) is None
