from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Rate, Watchdog
from hal.clock import EDGES_MS, MOST_PPM, LoopTiming, OffsetEstimator
from tests.fakes import ManualClock

# -- Rate ------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rate(clock: ManualClock) -> Rate:
    return Rate(10, clock, clock.advance)


def test_periods_begin_at_multiples_of_the_period_whatever_the_work_takes(clock: ManualClock, rate: Rate) -> None:
    rate.wait()
    for k, work in enumerate((0.02, 0.09, 0.0, 0.05), start=1):
        clock.advance(work)
        assert rate.wait() == 0
        assert clock.now == pytest.approx(100 + 0.1 * k)
    assert rate.overruns == 0


def test_one_late_period_does_not_make_the_next_late(clock: ManualClock, rate: Rate) -> None:
    rate.wait()
    clock.advance(0.13)
    assert rate.wait() == pytest.approx(0.03)
    rate.wait()
    assert clock.now == pytest.approx(100.2)
    assert rate.overruns == 1


def test_a_rate_does_not_race_through_missed_periods(clock: ManualClock, rate: Rate) -> None:
    rate.wait()
    clock.advance(1.0)
    assert rate.wait() == pytest.approx(0.9)
    rate.wait()
    assert clock.now == pytest.approx(101.1)


def test_a_restart_begins_a_new_schedule(clock: ManualClock, rate: Rate) -> None:
    rate.wait()
    clock.advance(5)
    rate.restart()
    assert rate.wait() == 0
    assert rate.overruns == 0


@pytest.mark.parametrize("hz", [0, -1, float("nan")])
def test_a_rate_is_above_zero(hz: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Rate(hz)


def test_a_rate_sleeps_on_the_real_clock() -> None:
    rate = Rate(1000)
    rate.wait()
    assert rate.wait() >= 0


# -- LoopTiming ------------------------------------------------------------------------------------------------


def test_each_period_falls_into_the_bin_of_its_deviation() -> None:
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
    clock = ManualClock(0.0)
    loop_timing = LoopTiming(0.02, clock)
    loop_timing.tick()
    for step in steps:
        clock.advance(step)
        loop_timing.tick()
    assert sum(loop_timing.counts) == loop_timing.periods == len(steps)
    assert loop_timing.overruns <= loop_timing.periods
    assert loop_timing.to_dict()["counts"] == loop_timing.counts


# -- Watchdog --------------------------------------------------------------------------------------------------


def test_a_watchdog_expires_after_its_timeout_and_not_before() -> None:
    clock = ManualClock(0.0)
    watchdog = Watchdog(0.2, clock)
    assert not watchdog.expired  # disarmed until the first command
    watchdog.feed()
    clock.now = 0.2
    assert not watchdog.expired
    clock.now = 0.201
    assert watchdog.expired
    assert watchdog.silence_s == pytest.approx(0.201)
    watchdog.feed()
    assert not watchdog.expired
    clock.now = 9.0
    watchdog.disarm()
    assert not watchdog.expired


def test_silence_begins_when_a_command_was_sent() -> None:
    clock = ManualClock(1.0)
    watchdog = Watchdog(0.2, clock)
    watchdog.feed(0.15)
    assert watchdog.silence_s == pytest.approx(0.15)
    clock.now = 1.06
    assert watchdog.expired


@pytest.mark.parametrize("timeout", [0, -0.2, float("nan")])
def test_a_watchdogs_timeout_is_above_zero(timeout: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Watchdog(timeout)


# -- The stated bound holds whatever the network does, and a jump of a clock is noticed ----------------------


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
