from __future__ import annotations

import pytest

from hal import Rate
from tests.fakes import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rate(clock: ManualClock) -> Rate:
    return Rate(10, clock, clock.advance)


def test_periods_begin_at_multiples_whatever_the_work_takes(clock: ManualClock, rate: Rate) -> None:
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


def test_missed_periods_are_not_raced_through(clock: ManualClock, rate: Rate) -> None:
    rate.wait()
    clock.advance(1.0)
    assert rate.wait() == pytest.approx(0.9)
    rate.wait()
    assert clock.now == pytest.approx(101.1)


def test_restart_begins_anew(clock: ManualClock, rate: Rate) -> None:
    rate.wait()
    clock.advance(5)
    rate.restart()
    assert rate.wait() == 0
    assert rate.overruns == 0


@pytest.mark.parametrize("hz", [0, -1, float("nan")])
def test_a_rate_is_above_zero(hz: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Rate(hz)


def test_with_the_real_clock_it_sleeps() -> None:
    rate = Rate(1000)
    rate.wait()
    assert rate.wait() >= 0
