from __future__ import annotations

import pytest

from hal import Rate


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def rate(clock: Clock) -> Rate:
    return Rate(10, clock, clock.work)


def test_periods_begin_at_multiples_whatever_the_work_takes(clock: Clock, rate: Rate) -> None:
    rate.wait()
    for k, work in enumerate((0.02, 0.09, 0.0, 0.05), start=1):
        clock.work(work)
        assert rate.wait() == 0
        assert clock.now == pytest.approx(100 + 0.1 * k)
    assert rate.overruns == 0


def test_one_late_period_does_not_make_the_next_late(clock: Clock, rate: Rate) -> None:
    rate.wait()
    clock.work(0.13)
    assert rate.wait() == pytest.approx(0.03)
    rate.wait()
    assert clock.now == pytest.approx(100.2)
    assert rate.overruns == 1


def test_missed_periods_are_not_raced_through(clock: Clock, rate: Rate) -> None:
    rate.wait()
    clock.work(1.0)
    assert rate.wait() == pytest.approx(0.9)
    rate.wait()
    assert clock.now == pytest.approx(101.1)


def test_restart_begins_anew(clock: Clock, rate: Rate) -> None:
    rate.wait()
    clock.work(5)
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
