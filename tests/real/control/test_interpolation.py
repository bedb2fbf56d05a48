"""A command of one control period, spread over the ticks of a faster loop."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, IllegalAction, RobotState, Spec
from real.control.commands import Step
from real.control.interpolation import SetpointInterpolator, check_watched, ticks_of

COMMANDS = Spec("commands", (Field("joint", (2,), "float32", -3, 3), Field("gear", (), "int8", 0, 5)))


def command(a, b=0.0, gear=0):
    return {"joint": np.array([a, b], np.float32), "gear": np.array(gear, np.int8)}


def robot_state(applied):
    return RobotState({}, applied, 0)


@pytest.fixture
def interpolator():
    def make(ticks=4):
        made = SetpointInterpolator(COMMANDS, ticks)
        made.begin(command(0.0))
        return made

    return make


def run(interpolator, ticks):
    """Return the commands of that many ticks, and the orders that each tick ends."""
    told, ended = [], []
    for _ in range(ticks):
        values = interpolator.next()
        told.append(values)
        ended.append(interpolator.went(robot_state(values)))
    return told, ended


def test_a_straight_line_that_arrives_with_the_last_tick(interpolator):
    way = interpolator(4)
    order = Step(1, command(1.0, -2.0, 3))
    assert way.follow(order) is None
    told, ended = run(way, 6)
    assert [values["joint"].tolist() for values in told] == [[0.25, -0.5], [0.5, -1], [0.75, -1.5]] + [[1, -2]] * 3
    assert [values["gear"].item() for values in told] == [3] * 6, "what is no quantity does not go by halves"
    assert ended == [None, None, None, order, None, None]
    assert told[0]["joint"].dtype == np.float32


def test_a_command_that_comes_a_little_late_has_what_is_left_of_its_period(interpolator):
    way = interpolator(4)
    for late, ticks in ((0, 4), (1, 3), (2, 2), (3, 4), (7, 4)):
        way.begin(command(0.0))
        way.follow(Step(1, command(0.5)))
        run(way, 4 + late)
        second = Step(2, command(1.0))
        way.follow(second)
        told, ended = run(way, ticks)
        assert ended == [None] * (ticks - 1) + [second], late
        assert told[-1]["joint"][0] == 1.0


def test_a_newer_command_takes_over_from_where_the_robot_is(interpolator):
    way = interpolator(4)
    first, second = Step(1, command(1.0)), Step(2, command(0.0))
    way.follow(first)
    run(way, 2)
    assert way.follow(second) is first
    told, ended = run(way, 4)
    assert [values["joint"][0] for values in told] == [0.375, 0.25, 0.125, 0.0]
    assert ended[-1] is second


def test_it_goes_on_from_what_was_applied_and_not_from_what_was_asked(interpolator):
    way = interpolator(2)
    way.follow(Step(1, command(1.0)))
    for _ in range(2):
        way.next()
        way.went(robot_state(command(0.125)))  # a guard that lets no more through
    assert way.next()["joint"][0] == 0.125


def test_an_illegal_command_changes_nothing(interpolator):
    way = interpolator(4)
    first = Step(1, command(1.0))
    way.follow(first)
    run(way, 1)
    with pytest.raises(IllegalAction):
        way.follow(Step(2, command(9.0)))
    assert way.step is first
    assert run(way, 3)[1][-1] is first


@pytest.mark.parametrize("ticks", [1, 4])
def test_the_step_under_way_is_handed_back(interpolator, ticks):
    fresh = SetpointInterpolator(COMMANDS, ticks)
    assert (fresh.applied, fresh.step) == (None, None)
    for end in ("give_up", "end", "follow"):
        way, order, later = interpolator(ticks), Step(1, command(1.0)), Step(2, command(0.5))
        assert way.follow(order) is None
        assert (way.follow(later) if end == "follow" else getattr(way, end)()) is order
        assert way.step is (later if end == "follow" else None)
        assert (way.applied is None) == (end == "end")


def test_one_tick_a_period_leaves_the_check_to_the_guard(interpolator):
    way = interpolator(1)
    illegal = Step(1, command(9.0))
    way.follow(illegal)
    assert way.next() is illegal.command


def test_a_newer_command_over_a_late_one_has_a_whole_period(interpolator):
    way = interpolator(4)
    way.follow(Step(1, command(0.5)))
    run(way, 5)
    way.follow(Step(2, command(1.0)))  # has three ticks
    way.follow(Step(3, command(1.5)))
    told, _ = run(way, 4)
    assert [values["joint"][0] for values in told] == [0.75, 1.0, 1.25, 1.5]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(st.floats(-3, 3, width=32), st.floats(-3, 3), st.integers(1, 9))
def test_every_tick_goes_the_same_way_and_the_last_one_arrives(dtype, start, goal, ticks):
    way = SetpointInterpolator(Spec("commands", (Field("joint", (1,), dtype, -3, 3),)), ticks)
    goals, starts = np.array([goal], dtype), np.array([start], dtype)
    way.begin({"joint": starts})
    way.follow(Step(1, {"joint": goals}))
    told, _ = run(way, ticks)
    places = np.array([starts, *(values["joint"] for values in told)])[:, 0]
    np.testing.assert_allclose(np.diff(places), [(goal - start) / ticks] * ticks, atol=1e-6)
    assert places[-1] == goals[0]


def test_one_tick_a_period_goes_through_as_it_is(interpolator):
    way = interpolator(1)
    order = Step(1, command(1.0))
    way.follow(order)
    assert way.next() is order.command
    assert way.went(robot_state(order.command)) is order


@given(st.floats(-3, 3, width=32), st.floats(-3, 3, width=32), st.integers(2, 17))
def test_no_tick_leaves_the_line(start, goal, ticks):
    way = SetpointInterpolator(COMMANDS, ticks)
    way.begin(command(start))
    way.follow(Step(1, command(goal)))
    told, ended = run(way, ticks)
    values = [start, *(each["joint"][0].item() for each in told)]
    assert values == sorted(values, reverse=goal < start)
    assert values[-1] == goal
    assert [order is None for order in ended] == [True] * (ticks - 1) + [False]
    COMMANDS.validate(told[0], "told")


def test_rates_that_do_not_go_into_each_other_are_refused_with_near_ones(robot):
    assert ticks_of(replace(robot.spec, rate_hz=240.0), 30.0) == 8
    assert ticks_of(robot.spec, None) == 1
    assert [ticks_of(robot.spec, hz) for hz in (50.0, 25.0, 1.0, 0.5)] == [1, 2, 50, 100]
    for control_hz in (30.0, 100.0, 0.0, -5.0, float("nan")):
        with pytest.raises(ValueError, match=r"integrator runs at 50 Hz, which is no whole multiple"):
            ticks_of(robot.spec, control_hz)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_watchdog_outlasts_two_periods_and_only_a_simulation_has_none(robot, simulated):
    robot.simulated = simulated
    period_s = 1 / robot.spec.rate_hz
    for watchdog_s, legal in ((2 * period_s, True), (3 * period_s, True), (1.9 * period_s, False), (None, simulated)):
        if legal:
            check_watched(robot, robot.spec, watchdog_s)
        else:
            with pytest.raises(ValueError, match="watchdog"):
                check_watched(robot, robot.spec, watchdog_s)


def test_a_command_that_lags_goes_on_along_its_line() -> None:
    """A line from the applied command would begin behind the last goal if the guard limits the acceleration."""
    way = SetpointInterpolator(COMMANDS, 4, led={"joint"})
    way.begin(command(0.0))
    way.follow(Step(1, command(1.0)))
    for _ in range(4):
        way.next()
        way.went(robot_state(command(0.1)))
    way.follow(Step(2, command(2.0, gear=1)))
    told = [way.next()["joint"][0], way.went(robot_state(command(0.2))), way.next()["joint"][0]]
    assert told == [1.25, None, 1.5]
    way.follow(Step(3, command(1.0)))  # a newer command, in mid-way
    assert way.next()["joint"][0] == 1.375


@pytest.mark.parametrize(("late", "begins"), [(0, 1.0), (1, 1.0), (2, 1.0), (3, 0.2)])
def test_a_lagging_command_goes_on_where_its_line_ended_for_half_a_period(late: int, begins: float) -> None:
    way = SetpointInterpolator(COMMANDS, 4, led={"joint"})
    way.begin(command(0.0))
    way.follow(Step(1, command(1.0)))
    for _ in range(4 + late):
        way.next()
        way.went(robot_state(command(0.2)))
    way.follow(Step(2, command(2.0)))
    ticks = 4 - late if late < 3 else 4
    assert way.next()["joint"][0] == pytest.approx(begins + (2.0 - begins) / ticks)


@pytest.mark.parametrize("end", ["give_up", "silence", "begin"])
def test_after_a_pause_a_lagging_command_begins_where_it_was_applied(end: str) -> None:
    way = SetpointInterpolator(COMMANDS, 4, led={"joint"})
    way.begin(command(0.0))
    way.follow(Step(1, command(1.0)))
    for _ in range(4 + 3 * (end == "silence")):
        way.next()
        way.went(robot_state(command(0.2)))
    if end == "give_up":
        way.give_up()
    elif end == "begin":
        way.begin(command(0.2))
    way.follow(Step(2, command(1.0)))
    assert way.next()["joint"][0] == pytest.approx(0.4)
