from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.guarding.motion_profile import (
    AT_REST,
    ElementLimits,
    MotionProfile,
    MotionState,
    braking_distance,
    element_limits,
)

PERIOD_S = 1 / 240

limits = st.builds(
    ElementLimits,
    st.floats(0.1, 10.0),
    st.floats(0.1, 100.0),
    st.floats(1.0, 10_000.0) | st.just(math.inf),
)
positions = st.floats(-1.0, 1.0)
goals = st.none() | positions | st.sampled_from([-1.0, 1.0])
"""None: nobody commands, so the element brakes."""

periods = st.just(PERIOD_S) | st.floats(0.05, 1.0).map(lambda share: share * PERIOD_S)
streams = st.lists(st.tuples(goals, st.lists(periods, min_size=1, max_size=40)), min_size=1, max_size=12)
"""Goals that jump, come every period or stay, at measured periods of any length up to the nominal one."""


def run(profile: MotionProfile, stream: list[tuple[float | None, list[float]]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions of one element, and the lengths of the periods between them."""
    way, seconds = [profile.states[0].position], []
    for goal, lengths in stream:
        for length in lengths:
            way.append(profile.advance([goal], length)[0])
            seconds.append(length)
    return np.array(way), np.array(seconds)


def differences(way: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return speed, acceleration and jerk by divided differences, which are means of them over a few periods."""
    speed = np.diff(way) / seconds
    acceleration = np.diff(speed) / ((seconds[1:] + seconds[:-1]) / 2)
    return speed, acceleration, np.diff(acceleration) / ((seconds[2:] + seconds[1:-1] + seconds[:-2]) / 3)


@given(limits, positions, streams)
def test_no_stream_of_goals_exceeds_a_limit_or_leaves_the_range(
    bounds: ElementLimits, start: float, stream: list[tuple[float | None, list[float]]]
) -> None:
    profile = MotionProfile([bounds])
    profile.begin([start])
    way, seconds = run(profile, stream)
    rounding = 4 * np.finfo(np.float64).eps
    shortest = seconds.min()
    for values, bound, power in zip(differences(way, seconds), bounds, (1, 2, 3), strict=True):
        if values.size and math.isfinite(bound):
            assert np.abs(values).max() <= bound * (1 + 1e-6) + 8 * rounding / shortest**power
    assert np.abs(way).max() <= 1.0 + 1e-9, "braking never leads beyond the end of travel"
    assert abs(profile.stop_positions()[0]) <= 1.0 + 1e-9


@given(limits, positions, positions)
def test_a_goal_that_stays_is_reached_exactly_and_without_overshoot(
    bounds: ElementLimits, start: float, goal: float
) -> None:
    profile = MotionProfile([bounds])
    profile.begin([start])
    side = math.copysign(1.0, goal - start)
    way_s = (
        abs(goal - start) / bounds.velocity
        + 2 * (bounds.velocity / bounds.acceleration)
        + 4 * (math.sqrt(bounds.velocity / bounds.jerk) + bounds.acceleration / bounds.jerk)
    )
    for _ in range(10 + int(way_s / PERIOD_S)):
        profile.advance([goal], PERIOD_S)
        assert (profile.states[0].position - goal) * side <= 1e-9
    assert profile.states[0] == MotionState(goal, *AT_REST)


@given(limits, st.floats(0.0, 1.0))
def test_braking_takes_the_distance_that_the_limits_allow(bounds: ElementLimits, share: float) -> None:
    """The distance by the textbook: v^2 / 2a + v a / 2j, or v sqrt(v / j) where the acceleration is never reached."""
    speed = share * bounds.velocity
    reaches = speed * bounds.jerk >= bounds.acceleration**2
    expected = (
        speed**2 / (2 * bounds.acceleration) + speed * bounds.acceleration / (2 * bounds.jerk)
        if reaches
        else speed * math.sqrt(speed / bounds.jerk)
    )
    assert braking_distance(speed, bounds) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(limits, positions, positions, st.integers(1, 60))
def test_a_silence_in_mid_motion_stops_where_the_profile_said(
    bounds: ElementLimits, start: float, goal: float, ticks: int
) -> None:
    profile = MotionProfile([bounds])
    profile.begin([start])
    for _ in range(ticks):
        profile.advance([goal], PERIOD_S)
    (stop,) = profile.stop_positions()
    braking_s = 2 * bounds.velocity / bounds.acceleration + 4 * (
        bounds.acceleration / bounds.jerk + math.sqrt(bounds.velocity / bounds.jerk)
    )
    for _ in range(10 + int(braking_s / PERIOD_S)):
        profile.advance([None], PERIOD_S)
    assert profile.states[0][1:] == AT_REST
    assert profile.states[0].position == pytest.approx(stop, abs=1e-8)


def test_a_moving_goal_is_followed_at_its_braking_distance() -> None:
    bounds = ElementLimits(4.0, 20.0, 400.0)
    profile = MotionProfile([bounds])
    profile.begin([0.0])
    speed = 1.0
    for tick in range(400):
        profile.advance([speed * (tick + 1) * PERIOD_S], PERIOD_S)
    lag = speed * 400 * PERIOD_S - profile.states[0].position
    assert profile.states[0].velocity == pytest.approx(speed, rel=1e-3)
    assert lag == pytest.approx(braking_distance(speed, bounds), rel=0.05)


def test_a_motion_is_as_fast_as_its_limits_allow() -> None:
    """From rest to rest over a distance d without reaching a limit of speed: 4 times the cube root of d / 2j."""
    bounds = ElementLimits(100.0, 1000.0, 50.0)
    profile = MotionProfile([bounds])
    profile.begin([0.0])
    ticks = 0
    while profile.states[0] != MotionState(1.0, *AT_REST):
        profile.advance([1.0], PERIOD_S)
        ticks += 1
        assert ticks < 1000
    assert ticks * PERIOD_S == pytest.approx(4 * (1.0 / (2 * 50.0)) ** (1 / 3), abs=2 * PERIOD_S)


def test_a_taken_back_period_leaves_no_trace() -> None:
    bounds = ElementLimits(4.0, 20.0, 400.0)
    one, other = MotionProfile([bounds, bounds]), MotionProfile([bounds, bounds])
    for profile in (one, other):
        profile.begin([0.0, 0.5])
        for _ in range(20):
            profile.advance([1.0, -1.0], PERIOD_S)
    one.advance([1.0, -1.0], PERIOD_S)
    assert one.brake_instead() == other.advance([None, None], PERIOD_S)
    assert one.states == other.states


@given(limits, positions, st.integers(1, 60))
def test_the_way_of_braking_is_known_in_advance(bounds: ElementLimits, goal: float, ticks: int) -> None:
    profile = MotionProfile([bounds, bounds])
    profile.begin([0.0, 0.0])
    for _ in range(ticks):
        profile.advance([goal, -goal / 2], PERIOD_S)
    assert profile.braking_positions(0.0) == [state.position for state in profile.states]
    np.testing.assert_allclose(profile.braking_positions(1.0), profile.stop_positions(), atol=1e-9)
    half_way = profile.braking_positions(0.5)
    for begin, middle, end in zip(profile.braking_positions(0.0), half_way, profile.stop_positions(), strict=True):
        assert min(begin, end) - 1e-9 <= middle <= max(begin, end) + 1e-9


def test_an_element_that_was_not_applied_begins_anew_there() -> None:
    bounds = ElementLimits(4.0, 20.0, 400.0)
    profile = MotionProfile([bounds, bounds])
    profile.begin([0.0, 0.0])
    for _ in range(20):
        profile.advance([1.0, 1.0], PERIOD_S)
    kept = profile.states[1]
    profile.correct([-0.5, kept.position + 0.01], [0.1, 0.1])
    assert profile.states == (MotionState(-0.5, *AT_REST), kept)
    profile.rest()
    assert profile.states == (MotionState(-0.5, *AT_REST), MotionState(kept.position, *AT_REST))


def test_limits_of_each_element() -> None:
    assert element_limits(4.0, (1.0, 2.0), None, (2,)) == ((4.0, 1.0, math.inf), (4.0, 2.0, math.inf))
    assert element_limits((1.0, 2.0), 3.0, 5.0, (2, 2)) == ((1.0, 3.0, 5.0), (2.0, 3.0, 5.0)) * 2


@given(limits, st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_the_way_of_braking_is_not_longer_than_its_detour_says(
    bounds: ElementLimits, speed: float, rate: float
) -> None:
    profile = MotionProfile([bounds])
    profile.states = (MotionState(0.0, speed * bounds.velocity, rate * bounds.acceleration),)
    (detour,) = profile.detours()
    places = [profile.braking_positions(share)[0] for share in np.linspace(0.0, 1.0, 400)]
    length = float(np.abs(np.diff(places)).sum())
    assert length <= abs(places[-1] - places[0]) + detour + 1e-6 * max(1.0, length)
