from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import (
    Automatic,
    EpisodeError,
    Field,
    Guard,
    Homing,
    IllegalAction,
    Limits,
    RobotError,
    RobotSpec,
    RobotState,
    RobotStopped,
    Spec,
    StaleReading,
)
from hal.errors import StopReason
from hal.guard import guarded, innermost_guard
from hal.guarding.command_limiter import CommandLimiter
from hal.wrapper import RobotWrapper
from tests.fakes import TWO_JOINTS, ManualClock, Puppet


def target(*values: float) -> dict[str, np.ndarray]:
    return {"target": np.asarray(values, np.float32)}


def hold(guard: Guard, steps: int) -> None:
    for _ in range(steps):
        guard.step(target(0, 0))


@pytest.fixture
def inner(puppet: Any) -> Any:
    return puppet()


@pytest.fixture
def guard(inner: Any) -> Guard:
    guard = Guard(inner)
    guard.reset({})
    return guard


def test_a_gentle_command_passes_unchanged(guard: Guard, inner: Any) -> None:
    robot_state = guard.step(target(0.1, -0.1))
    np.testing.assert_array_equal(inner.told[0], np.float32([0.1, -0.1]))
    np.testing.assert_array_equal(robot_state.applied["target"], inner.told[0])


def test_a_fast_command_is_slowed_and_says_so(guard: Guard) -> None:
    robot_state = guard.step(target(1.0, -1.0))
    np.testing.assert_allclose(robot_state.applied["target"], [0.2, -0.2])  # 2 rad/s for 0.1 s


def test_a_stuck_arm_is_not_pressed_on(puppet: Any) -> None:
    guard = Guard(puppet(follows=0.0))
    guard.reset({})
    for _ in range(10):
        robot_state = guard.step(target(1.0, 0.0))
    np.testing.assert_allclose(robot_state.applied["target"], [0.5, 0.0])  # no farther than the lead


def test_an_arm_pushed_outside_its_range_is_led_back_inside(puppet: Any) -> None:
    guard = Guard(puppet(at=(3.0, 0.0)))
    guard.reset({})
    assert guard.step(target(0.0, 0.0)).applied["target"][0] == 1.0


def test_one_wrong_measurement_moves_no_goal(guard: Guard, inner: Any) -> None:
    """An encoder's glitch of half a turn must not send the arm after it."""
    inner.angle = np.float32([3.14, -3.14])
    inner.follows = 0.0
    guard.step(target(0, 0))
    robot_state = guard.step(target(0, 0))
    np.testing.assert_array_equal(robot_state.applied["target"], [0.0, 0.0])
    inner.follows = 1.0
    hold(guard, 5)


@pytest.mark.parametrize("offset", [2 * np.pi, -2 * np.pi, 0.9, -0.9])
@pytest.mark.parametrize("at", [0.0, 0.6])
def test_a_wrong_encoder_moves_no_held_goal_and_stops_the_robot(puppet: Any, offset: float, at: float) -> None:
    """A servo's wrap or a slipped horn: at rest, and while a client commands home."""

    class Shifted(puppet):  # type: ignore[misc]
        shift = 0.0

        def _robot_state(self) -> Any:
            state = super()._robot_state()
            return state._replace(sensors={"angle": state.sensors["angle"] + np.float32([self.shift, 0.0])})

    robot = Shifted(at=(at, 0.0))
    guard = Guard(robot)
    guard.reset({})
    robot.shift = offset
    with pytest.raises(RobotStopped, match=r"following error: command 'target' \[hip\] is .* allowed are 0\.55"):
        hold(guard, 10)
    assert guard.stopped is not None
    commands = np.array([[at, 0.0], *robot.told])
    assert len(robot.told) == TWO_JOINTS.limits.following_error_ticks + 1
    assert (np.abs(commands[:, 0]) <= at + 1e-6).all(), "never away from home"
    assert (np.abs(np.diff(commands[:, 0])) <= 0.2 + 1e-6).all()


def test_a_following_error_within_its_bound_is_no_reason_to_stop(puppet: Any) -> None:
    limits = Limits({"target": 2.0}, {"target": 0.5}, {"target": (0.8, 0.4)}, following_error_ticks=2)
    robot = puppet(replace(TWO_JOINTS, limits=limits))
    guard = Guard(robot)
    guard.reset({})
    robot.follows = 0.0
    for error in (0.79, 0.81, 0.81, 0.79, -0.81, 0.81, 0.5):  # never more than two readings in a row beyond it
        robot.angle = np.float32([error, 0.0])
        guard.step(target(0, 0))
    robot.angle = np.float32([0.0, 0.41])
    with pytest.raises(RobotStopped, match=r"'target' \[knee\] is -0\.41 rad from its measurement, allowed are 0\.4"):
        hold(guard, 3)


def test_a_simulation_may_be_pushed_unless_its_spec_sets_a_bound(puppet: Any) -> None:
    for limits, stops in ((TWO_JOINTS.limits, False), (Limits(max_following_error={"target": 1.0}), True)):
        robot = puppet(replace(TWO_JOINTS, limits=limits))
        robot.simulated, robot.follows = True, 0.0
        guard = Guard(robot)
        guard.reset({})
        robot.angle = np.float32([2.0, 0.0])
        if stops:
            with pytest.raises(RobotStopped, match="following error"):
                hold(guard, 5)
        else:
            hold(guard, 20)


def loaded(puppet: Any, effort_s: float) -> Any:
    """An arm that measures its currents, with a bound on them."""
    sensors = Spec("sensors", (*TWO_JOINTS.sensors, Field("current", (2,), "float32", -9, 9, "A", "", ("hip", "knee"))))
    limits = Limits({"target": 2.0}, max_effort={"current": (1.0, 2.0)}, effort_s=effort_s)
    robot = puppet(replace(TWO_JOINTS, sensors=sensors, limits=limits))
    robot.current = (0.0, 0.0)
    read = robot._robot_state
    robot._robot_state = lambda: read()._replace(sensors={**read().sensors, "current": np.float32(robot.current)})
    return robot


def test_an_effort_that_lasts_too_long_stops_the_robot_and_names_the_joint(puppet: Any) -> None:
    robot = loaded(puppet, 0.45)
    guard = Guard(robot)
    guard.reset({})
    robot.current = (0.9, -2.5)
    hold(guard, 5)  # at 10 Hz: 0.4 s from the first to the last reading
    robot.current = (0.9, -1.9)
    hold(guard, 1)
    robot.current = (0.9, -2.5)
    hold(guard, 5)
    with pytest.raises(RobotStopped, match=r"effort: sensor 'current' \[knee\] measured -2\.5 A .* allowed are 2"):
        hold(guard, 1)
    assert guard.stopped is not None
    robot.current = (1.0, 2.0)
    guard.reset({"clear_stop": "took the load off"})
    hold(guard, 20)


def test_an_effort_may_be_allowed_no_time(puppet: Any) -> None:
    robot = loaded(puppet, 0.0)
    guard = Guard(robot)
    guard.reset({})
    hold(guard, 3)
    robot.current = (-1.1, 0.0)
    with pytest.raises(RobotStopped, match=r"'current' \[hip\]"):
        hold(guard, 1)


def test_the_time_of_an_effort_is_that_of_the_stamps(puppet: Any) -> None:
    """A slow robot's readings are fewer."""
    robot = loaded(puppet, 0.45)
    guard = Guard(robot)
    guard.reset({})
    robot.current = (1.5, 0.0)
    hold(guard, 1)
    robot.stamp_ns += 10**9
    with pytest.raises(RobotStopped, match="effort"):
        hold(guard, 1)


@pytest.mark.parametrize("in_reset", [False, True])
@pytest.mark.parametrize("value", [10.1, -11.0])
def test_a_reading_outside_its_field_stops_and_reaches_nobody(
    guard: Guard, inner: Any, value: float, in_reset: bool
) -> None:
    inner.angle, inner.follows = np.float32([0.0, value]), 0.0
    with pytest.raises(RobotStopped, match=r"sensor 'angle' \[knee\] measured .* outside its range -10.* to 10"):
        guard.reset({}) if in_reset else guard.step(target(0, 0))
    assert guard.stopped is not None


def test_a_reading_a_rounding_beyond_its_field_passes(guard: Guard, inner: Any) -> None:
    inner.follows = 0.0
    inner.angle = np.nextafter(np.float32([10, -10]), np.float32([11, -11]))
    guard.step(target(0, 0))


@pytest.mark.parametrize("sensors", [{}, {"angle": np.zeros(3, np.float32)}, {"angle": np.float32(0)}])
def test_a_reading_of_the_wrong_shape_stops_and_names_its_sensor(
    guard: Guard, inner: Any, sensors: dict[str, Any]
) -> None:
    puppet_step = inner.step
    inner.step = lambda command: puppet_step(command)._replace(sensors=sensors)
    with pytest.raises(RobotStopped, match=r"'angle' (was not measured|has shape)"):
        guard.step(target(0, 0))


@pytest.mark.parametrize(
    ("applied", "text"),
    [
        ({"target": np.float32([np.nan, 0.0])}, "applied a value of 'target' that is not a finite number"),
        ({"target": np.zeros(3, np.float32)}, r"applied 'target' of shape \(3,\), its description says \(2,\)"),
        ({}, "does not say what it applied of command 'target'"),
    ],
)
@pytest.mark.parametrize("in_reset", [False, True])
def test_an_applied_command_that_is_none_is_the_drivers_fault(
    guard: Guard, inner: Any, applied: dict[str, Any], text: str, in_reset: bool
) -> None:
    """The next command was refused as illegal, as if its client had sent it."""
    puppet_state = inner._robot_state
    inner._robot_state = lambda: puppet_state()._replace(applied=applied)
    with pytest.raises(RobotStopped, match=text):
        guard.reset({}) if in_reset else guard.step(target(0, 0))
    assert guard.stopped is not None


@pytest.mark.parametrize("hurry", [0.0, 0.01, 0.09])
def test_a_driver_that_returns_too_early_moves_no_faster_than_its_limit(puppet: Any, hurry: float) -> None:
    """Limits go by the time that passed, not by the number of commands."""
    clock = ManualClock()

    class Hasty(puppet):  # type: ignore[misc]
        def step(self, command: Any) -> Any:
            clock.advance(max(hurry, 0.001))
            return super().step(command)

    robot = Hasty(at=(-1.0, 0.0))
    guard = Guard(robot, clock)
    guard.reset({})
    began = clock.now
    while clock.now < began + 0.4:
        guard.step(target(1.0, 0.0))
    assert robot.angle[0] + 1.0 <= 2.0 * (clock.now - began + 0.1) + 1e-5  # the first command has its whole period
    assert robot.angle[0] + 1.0 >= 2.0 * (clock.now - began) - 1e-5
    assert np.abs(np.diff([-1.0, *(told[0] for told in robot.told)])).max() <= 0.2 + 1e-6


def test_jitter_costs_no_speed_and_a_pause_gives_no_longer_stride(puppet: Any) -> None:
    clock, robot = ManualClock(), puppet(at=(-1.0, 0.0))
    guard = Guard(robot, clock)
    guard.reset({})
    for passed_s in (0.1, 0.14, 0.06, 0.13, 0.07, 5.0, 0.1):
        clock.advance(passed_s)
        guard.step(target(1.0, 0.0))
    np.testing.assert_allclose(np.diff([-1.0, *(told[0] for told in robot.told)]), 0.2, rtol=1e-5)


@pytest.mark.requirement("R1.2", "6.2.1-6")
@pytest.mark.parametrize("command", [target(0, 2), target(np.nan, 0), target(0), {}, {"targets": [0, 0]}])
def test_illegal_commands_move_nothing(guard: Guard, inner: Any, command: dict[str, np.ndarray]) -> None:
    with pytest.raises(IllegalAction):
        guard.step(command)
    assert inner.told == []
    guard.step(target(0, 0))  # and are no reason to stop


def test_a_stop_is_latched_until_a_reset_says_why_it_may_go(guard: Guard, inner: Any, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        guard.stop("a hand in the way")
        guard.stop("and another")
    assert str(guard.stopped) == "a hand in the way"
    assert inner.calls[-2:] == ["stop a hand in the way", "stop and another"]
    for attempt in (
        lambda: guard.step(target(0, 0)),
        lambda: guard.reset({}),
        lambda: guard.reset({"clear_stop": " "}),
    ):
        with pytest.raises(RobotStopped, match="a hand in the way"):
            attempt()
    assert inner.calls.count("reset") == 1
    with caplog.at_level(logging.WARNING):
        guard.reset({"clear_stop": "hand is gone"})
    assert "hand is gone" in caplog.text
    assert guard.stopped is None
    guard.step(target(0, 0))


@pytest.mark.parametrize(
    ("reason", "level"), [("a hand in the way", "ERROR"), (StopReason("the server was closed", orderly=True), "INFO")]
)
def test_a_stop_is_told_once_however_many_guards_there_are(puppet: Any, caplog: Any, reason: str, level: str) -> None:
    guard = Guard(Homing(Guard(puppet()), Automatic()))
    guard.reset({})
    with caplog.at_level(logging.DEBUG, "hal.guarding.stop_latch"):
        guard.stop(reason)
        guard.stop(StopReason("and another", orderly=True))
        told = [(record.levelname, record.getMessage()) for record in caplog.records]
        assert told == [(level, f"stopped: {reason}")]
        assert guard.stopped == StopReason.of(reason)
        caplog.clear()
        guard.reset({"clear_stop": "looked"})
        assert len([record for record in caplog.records if record.name == "hal.guarding.stop_latch"]) == 1


def test_a_stop_while_resetting_holds(puppet: Any) -> None:
    class Interrupted(puppet):  # type: ignore[misc]
        def reset(self, options: Any) -> Any:
            guard.stop("pressed meanwhile")
            return super().reset(options)

    guard = Guard(Interrupted())
    for attempt in (lambda: guard.reset({}), lambda: guard.reset({}), lambda: guard.step(target(0, 0))):
        with pytest.raises(RobotStopped, match="pressed meanwhile"):
            attempt()
    assert guard._robot.calls[-1] == "stop pressed meanwhile", "the driver's own reset may have cleared its stop"


def test_a_step_needs_a_reset_first(puppet: Any) -> None:
    with pytest.raises(EpisodeError, match="call reset first"):
        Guard(puppet()).step(target(0, 0))


def test_after_a_failed_reset_nothing_moves(guard: Guard, inner: Any) -> None:
    inner.age_ns = {"angle": 10**9}
    with pytest.raises(StaleReading):
        guard.reset({})
    inner.age_ns = {}
    with pytest.raises(EpisodeError):
        guard.step(target(0, 0))


def test_an_old_sample_is_an_error(guard: Guard, inner: Any) -> None:
    inner.age_ns = {"angle": 100_000_000, "unlisted": 10**12}
    guard.step(target(0, 0))  # exactly as old as it may be
    inner.age_ns = {"angle": 100_000_001}
    with pytest.raises(StaleReading) as stale:
        guard.step(target(0, 0))
    assert (stale.value.sensor, stale.value.age_s, stale.value.max_age_s) == ("angle", 0.100000001, 0.1)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_measurement_that_is_no_finite_number_stops_the_robot(guard: Guard, inner: Any, value: float) -> None:
    puppet_step = inner.step
    guard.step(target(0.1, 0.1))
    inner.step = lambda command: puppet_step(command)._replace(sensors={"angle": np.float32([value, 0.0])})
    with pytest.raises(RobotStopped, match="'angle' measured a value that is not a finite number; check its cable"):
        guard.step(target(0.1, 0.2))  # is measured at its end, and nobody is given it
    with pytest.raises(RobotStopped, match="not a finite number"):
        guard.step(target(0.1, 0.1))
    assert len(inner.told) == 2
    assert guard.stopped


def test_close_reaches_the_robot_and_twice_is_fine(guard: Guard, inner: Any) -> None:
    guard.close()
    guard.close()
    assert inner.calls[-1] == "close"
    assert guard.spec is inner.spec


def test_a_simulation_that_fails_ends_the_episode_by_a_fault_and_not_by_a_stop(inner: Any) -> None:
    inner.simulated = True
    guard = Guard(inner)
    guard.reset({})
    inner.angle = np.float32([np.nan, 0.0])
    assert np.isnan(guard.step(target(0, 0)).sensors["angle"][0])
    assert guard.stopped is None


# -- readings, steps and stops, on a clock that moves when a test moves it ---------------------------------------


class Readable(Puppet):
    """An arm that can be read, gives way and holds itself; ``during`` is called within each of its calls."""

    def __init__(self, spec: RobotSpec = TWO_JOINTS, simulated: bool = False) -> None:
        super().__init__(spec)
        self.simulated = simulated
        self.during: Callable[[], object] = lambda: None

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        self.during()
        return super().reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.during()
        return super().step(command)

    def read(self) -> RobotState:
        self.calls.append("read")
        self.during()
        return self._robot_state()

    def damp(self) -> bool:
        self.calls.append("damp")
        self.during()
        return True

    def hold_on_close(self) -> None:
        self.calls.append("hold")


class Lost(RobotError):
    """A robot that doesn't answer."""


def opened(arm: Readable, **options: Any) -> tuple[Guard, ManualClock]:
    clock = ManualClock(0.0)
    guard = Guard(arm, clock, **options)
    guard.reset({})
    return guard, clock


@pytest.mark.parametrize("fails", [False, True])
def test_before_its_first_reset_a_robot_is_read_and_what_is_wrong_stops_nothing(fails: bool) -> None:
    arm, clock = Readable(), ManualClock(5.0)
    guard = Guard(arm, clock)
    assert (guard.latest, guard.called_s, guard.unread) == (None, None, None)

    def during() -> None:
        if fails:
            raise Lost("no answer")
        arm.angle = np.float32([np.nan, 0.0])

    for attempt in range(1, 4):
        arm.during = during
        for clock.now in (10.0 * attempt, 10.0 * attempt + 0.99):
            guard.refresh()
            assert guard.latest is None
            assert arm.calls.count("read") == attempt, "tried again no sooner than a second later"
        assert ("no answer" if fails else "angle") in str(guard.unread)
        assert guard.stopped is None
    arm.during, arm.angle = lambda: None, np.float32([0.5, 0.0])
    clock.now = 31.0
    state = guard.read()
    assert state is guard.latest is not None
    assert (guard.read_s, guard.unread, guard.called_s) == (31.0, None, None)
    clock.now = 31.09
    guard.refresh()
    assert arm.calls == ["read"] * 4
    with pytest.raises(EpisodeError):
        guard.step(target(0, 0))


def test_a_robot_that_offers_no_reading_is_asked_once_a_second_before_its_first_reset() -> None:
    class Unready(Readable):
        def read(self) -> RobotState | None:  # type: ignore[override]
            self.calls.append("read")
            return None

    arm, clock = Unready(), ManualClock(0.0)
    guard = Guard(arm, clock)
    for clock.now, reads in ((0.0, 1), (0.9, 1), (1.1, 2)):
        guard.refresh()
        assert (guard.latest, guard.unread, arm.calls.count("read")) == (None, None, reads)


def test_what_is_read_and_what_a_step_returns_is_the_latest(puppet: Any) -> None:
    arm = Readable()
    guard, clock = opened(arm)
    for call in (guard.read, lambda: guard.step(target(0.1, 0.0))):
        clock.advance(0.25)
        state = call()
        assert state is not None
        assert guard.latest is state
        assert guard.read_s == clock.now
    blind, _ = opened(puppet())
    first = blind.latest
    assert blind.read() is None
    assert blind.latest is first is not None


def test_a_wrong_reading_stops_a_robot_and_is_left_out_where_it_is_stopped() -> None:
    arm = Readable()
    guard, _ = opened(arm)
    arm.angle = np.float32([np.nan, 0.0])
    with pytest.raises(RobotStopped):
        guard.read()
    number, latest = guard.latch.number, guard.latest
    assert guard.read() is None
    assert (guard.latch.number, guard.latest) == (number, latest)
    arm.angle = np.float32([0.3, 0.0])
    state = guard.read()
    assert state is guard.latest is not None
    assert state.sensors["angle"][0] == np.float32(0.3)


def test_a_simulation_is_read_as_it_is() -> None:
    arm = Readable(simulated=True)
    guard, _ = opened(arm)
    arm.angle = np.float32([np.nan, 0.0])
    guard.stop("enough")
    state = guard.read()
    assert state is guard.latest is not None
    assert np.isnan(state.sensors["angle"][0])


def test_a_robot_that_waits_is_read_ten_times_a_second() -> None:
    arm = Readable()
    guard, clock = opened(arm)
    for clock.now, reads in ((0.09, 0), (0.1, 1), (0.15, 1), (0.19, 1), (0.21, 2)):
        guard.refresh()
        assert arm.calls.count("read") == reads


@pytest.mark.parametrize("call", [lambda guard: guard.step(target(0, 0)), Guard.read, Guard.damp])
@pytest.mark.parametrize("fails", [False, True])
def test_a_call_of_the_driver_is_known_as_long_as_it_lasts(call: Any, fails: bool) -> None:
    arm, called = Readable(), []
    guard, clock = opened(arm)
    clock.advance(0.5)

    def during() -> None:
        called.append(guard.called_s)
        clock.advance(0.25)
        if fails:
            raise Lost("no answer")

    arm.during = during
    if fails:
        with pytest.raises(Lost):
            call(guard)
    else:
        call(guard)
    assert called == [0.5]
    assert guard.called_s is None


@pytest.mark.parametrize("call", [lambda guard: guard.step(target(0, 0)), Guard.read, Guard.damp])
def test_of_a_simulation_calls_are_known_where_that_is_asked_for(call: Any) -> None:
    arm, called = Readable(simulated=True), []
    guard, _ = opened(arm)
    arm.during = lambda: called.append(guard.called_s)
    call(guard)
    guard.watch_calls()
    call(guard)
    assert called == [None, 0.0]


def test_a_robot_gives_way_unless_it_is_stopped(puppet: Any) -> None:
    arm = Readable()
    guard, _ = opened(arm)
    assert guard.damp()
    assert arm.calls == ["reset", "damp"]
    arm.during = lambda: guard.stop("a hand")
    assert guard.damp()
    assert arm.calls[2:] == ["damp", "stop a hand", "stop a hand"], "the driver's own damping may have undone the first"
    assert not guard.damp()
    assert arm.calls.count("damp") == 2
    assert not opened(puppet())[0].damp()


@pytest.mark.parametrize("nested", [False, True])
def test_a_step_during_which_a_stop_comes_is_the_last_and_stops_the_driver_again(nested: bool) -> None:
    arm = Readable()
    inner, clock = Guard(arm, ManualClock()), ManualClock()
    guard = Guard(inner, clock) if nested else inner
    guard.reset({})
    arm.during = lambda: inner.stop("a hand")
    assert guard.step(target(0.1, 0.0)).applied["target"][0] == np.float32(0.1)
    assert arm.calls == ["reset", "stop a hand", "step", "stop a hand"]
    with pytest.raises(RobotStopped, match="a hand"):
        guard.step(target(0.1, 0.0))
    assert arm.calls.count("step") == 1


def test_a_stop_that_another_reset_cleared_ends_the_episode() -> None:
    guard, _ = opened(Readable())
    guard.stop("a hand")
    assert guard.latch.clear("it is gone", guard.latch.number)
    with pytest.raises(EpisodeError):
        guard.step(target(0, 0))


def test_a_wrong_reading_after_a_stop_says_the_stop() -> None:
    arm = Readable()
    guard, _ = opened(arm)

    def during() -> None:
        guard.stop("a hand in the way")
        arm.angle, arm.follows = np.float32([np.nan, 0.0]), 0.0

    arm.during = during
    with pytest.raises(RobotStopped, match="a hand in the way"):
        guard.step(target(0, 0))


def test_a_stop_within_a_reset_comes_before_the_driver_moves() -> None:
    class Stopper(RobotWrapper):
        def reset(self, options: Mapping[str, Any]) -> RobotState:
            self.stop("pressed meanwhile")
            return super().reset(options)

    arm = Readable()
    with pytest.raises(RobotStopped, match="pressed meanwhile"):
        Guard(Stopper(Guard(arm))).reset({})
    assert "reset" not in arm.calls


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_robot_that_lost_its_sensor_is_stopped_once(nested: bool, where: str) -> None:
    arm = Readable()
    guard = Guard(Guard(arm)) if nested else Guard(arm)
    guard.reset({})

    def during() -> None:
        raise StaleReading("angle", 1.0, 0.1)

    arm.during = during
    with pytest.raises(StaleReading):
        guard.reset({}) if where == "reset" else guard.step(target(0, 0))
    assert guard.stopped is not None
    assert "angle" in guard.stopped.text
    assert guard.latch.number == 1


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("holds", [{}, {"holds_stopped": False}, {"holds_stopped": True}])
@pytest.mark.parametrize("reason", [None, "a hand", StopReason("the server was closed", orderly=True)])
def test_a_robot_that_is_stopped_stays_held_when_it_is_closed(nested: bool, holds: Any, reason: Any) -> None:
    arm = Readable()
    inner = Guard(arm, **holds)
    guard = Guard(inner) if nested else inner
    if reason is not None:
        guard.stop(reason)
    guard.close()
    assert arm.calls.count("hold") == int(holds.get("holds_stopped", True) and reason == "a hand")
    assert arm.calls[-1] == "close"


@pytest.mark.parametrize(("reason", "holds"), [("a hand", True), (StopReason("the end", orderly=True), False)])
def test_a_stop_while_the_robot_is_closed_holds_it(reason: Any, holds: bool) -> None:
    class SlowToClose(Readable):
        def close(self) -> None:
            guard.stop(reason)  # as another thread does, while an arm is let down
            super().close()

    arm = SlowToClose()
    guard = Guard(arm)
    guard.stop(StopReason("the server was closed", orderly=True))
    guard.close()
    assert ("hold" in arm.calls) is holds


def test_who_writes_into_a_reading_moves_no_limit() -> None:
    arm = Readable()
    guard, clock = opened(arm)
    states = [guard.reset({})]
    for _ in range(4):
        for values in (*states[-1].applied.values(), *states[-1].sensors.values()):
            values[:] = 0.9
        clock.advance(0.1)
        states.append(guard.step(target(1.0, -1.0)))
    np.testing.assert_allclose(np.diff([[0, 0], *arm.told], axis=0), [[0.2, -0.2]] * 4, rtol=1e-5)


def test_a_reset_begins_to_count_anew(puppet: Any) -> None:
    arm = puppet(follows=0.0)
    guard = Guard(arm)
    for _ in range(3):
        arm.angle = np.zeros(2, np.float32)
        guard.reset({})
        arm.angle = np.float32([2.0, 0.0])
        hold(guard, TWO_JOINTS.limits.following_error_ticks)
    robot = loaded(puppet, 0.45)
    guard = Guard(robot)
    for _ in range(3):
        robot.current = (0.0, 0.0)
        guard.reset({})
        robot.current = (9.0, 0.0)
        hold(guard, 5)


def test_the_outer_of_two_guards_judges_neither_time_nor_force(puppet: Any) -> None:
    robot = loaded(puppet, 0.45)
    robot.current = (0.9, 0.0)
    strict = Limits({"target": 1.0}, {}, {"target": 0.001}, 0, max_effort={"current": 0.5}, effort_s=0.0)
    guard = Guard(Guard(robot), ManualClock(), limits=strict)
    guard.reset({})
    robot.follows = 0.0
    for _ in range(5):
        guard.step(target(1.0, 0.0))  # in no time, by the outer one's clock
    np.testing.assert_allclose(robot.told[-1], [0.5, 0.0], rtol=1e-5)


def test_a_simulation_has_its_own_time() -> None:
    arm = Readable(simulated=True)
    guard, _ = opened(arm)
    for _ in range(4):
        guard.step(target(1.0, 0.0))
    np.testing.assert_allclose([told[0] for told in arm.told], [0.2, 0.4, 0.6, 0.8], rtol=1e-5)


def test_a_simulation_that_applies_commands_later_is_led_as_if_at_once() -> None:
    limits = Limits({"target": 2.0}, max_acceleration={"target": 1.0})

    class Delayed(Readable):
        def _robot_state(self) -> RobotState:
            return super()._robot_state()._replace(applied={"target": np.zeros(2, np.float32)})

    ways = []
    for arm in (Delayed(simulated=True), Readable(simulated=True)):
        arm.spec = replace(TWO_JOINTS, limits=limits)
        guard, _ = opened(arm)
        for _ in range(12):
            guard.step(target(1.0, 0.0))
        ways.append(arm.told)
    np.testing.assert_array_equal(*ways)


@pytest.mark.parametrize("call", [lambda guard: guard.step(target(0, 0)), Guard.read])
def test_a_measurement_that_jumps_stops_a_robot_and_a_reset_begins_there(call: Any) -> None:
    arm = Readable(replace(TWO_JOINTS, max_rate={"angle": 5.0}, limits=Limits()))
    arm.follows = 0.0
    guard, clock = opened(arm)
    arm.angle = np.float32([3.0, 0.0])
    with pytest.raises(RobotStopped):
        call(guard)
    arm.angle = np.float32([-3.0, 0.0])
    assert guard.read() is not None, "a robot that is stopped may be carried anywhere"
    guard.reset({"clear_stop": "looked at it"})
    clock.advance(0.1)
    call(guard)


@pytest.mark.parametrize("simulated", [False, True])
def test_a_jump_stops_a_real_robot_once_and_no_simulation(simulated: bool) -> None:
    arm = Readable(replace(TWO_JOINTS, max_rate={"angle": 5.0}, limits=Limits()), simulated)
    guard = Guard(Guard(arm))
    guard.reset({})
    arm.follows, arm.angle = 0.0, np.float32([3.0, 0.0])
    if simulated:
        guard.step(target(0, 0))
    else:
        with pytest.raises(RobotStopped):
            guard.step(target(0, 0))
    assert guard.latch.number == int(not simulated)


@pytest.mark.parametrize("value", [np.nan, 99.0])
def test_a_simulation_begins_anywhere_but_not_where_it_has_failed(value: float) -> None:
    more = Spec("sensors", (Field("torque", (2,), "float32", -1, 1), *TWO_JOINTS.sensors))  # which it does not measure
    arm = Readable(replace(TWO_JOINTS, sensors=more), simulated=True)
    guard, _ = opened(arm)
    arm.angle = np.float32([value, 0.0])
    if np.isnan(value):
        with pytest.raises(RobotStopped):
            guard.reset({})
    else:
        assert guard.reset({}).sensors["angle"][0] == value


def test_no_command_is_computed_from_what_is_no_number() -> None:
    arm = Readable(simulated=True)
    guard, _ = opened(arm)
    arm.angle, arm.follows = np.float32([np.nan, 0.0]), 0.0
    guard.step(target(0, 0))
    with pytest.raises(RobotStopped):
        guard.step(target(1.0, 0.0))
    assert np.isfinite(arm.told).all()


def test_a_command_that_nothing_measures_is_limited_in_its_speed() -> None:
    arm = Readable(replace(TWO_JOINTS, limits=Limits({"target": 2.0}), measured_by={}, home={}))
    guard, clock = opened(arm)
    for _ in range(3):
        clock.advance(0.1)
        guard.step(target(1.0, -1.0))
    np.testing.assert_allclose(arm.told[-1], [0.6, -0.6], rtol=1e-5)


@given(st.lists(st.tuples(st.floats(0.0, 0.3), st.floats(-1, 1, width=32)), min_size=1, max_size=30))
def test_commands_in_any_rhythm_are_no_faster_than_the_limit(rhythm: list[tuple[float, float]]) -> None:
    """In any stretch of time: its length and half a period to catch up on, and a period for each end."""
    arm = Readable(replace(TWO_JOINTS, limits=Limits({"target": 2.0})))
    guard, clock = opened(arm)
    times, way = [0.0], [0.0]
    for passed_s, goal in rhythm:
        clock.advance(passed_s)
        guard.step(target(goal, 0.0))
        times.append(clock.now)
        way.append(float(arm.told[-1][0]))
    for begin in range(len(way)):
        for end in range(begin + 1, len(way)):
            since = times[end] - times[begin]
            assert abs(way[end] - way[begin]) <= 2.0 * (since + 0.15) + 1e-5


def test_after_a_pause_commands_in_no_time_catch_up_on_half_a_period() -> None:
    arm = Readable(replace(TWO_JOINTS, limits=Limits({"target": 2.0})))
    guard, clock = opened(arm)
    clock.advance(60.0)
    for _ in range(5):
        guard.step(target(1.0, 0.0))
    assert arm.told[-1][0] == pytest.approx(0.3)


@pytest.mark.parametrize(("periods", "rests"), [(3.5, False), (4.5, True)])
def test_a_command_that_is_led_begins_at_rest_after_four_periods(periods: float, rests: bool) -> None:
    arm = Readable(replace(TWO_JOINTS, limits=Limits({"target": 2.0}, max_acceleration={"target": 1.0})))
    guard, clock = opened(arm)
    for _ in range(6):
        clock.advance(0.1)
        guard.step(target(1.0, 0.0))
    clock.advance(periods * 0.1)
    guard.step(target(1.0, 0.0))
    strides = np.diff([told[0] for told in arm.told])
    assert (strides[-1] < strides[-2] / 2) == rests


def test_a_robot_gets_one_guard_and_the_innermost_is_found(puppet: Any) -> None:
    arm = puppet()
    for bare in (arm, RobotWrapper(arm)):
        guard = guarded(bare)
        assert isinstance(guard, Guard)
        assert guard.unwrapped is arm
    inner = Guard(arm)
    for wrapped in (inner, RobotWrapper(inner), Guard(RobotWrapper(inner))):
        assert guarded(wrapped) is wrapped
        assert innermost_guard(wrapped) is inner
    with pytest.raises(ValueError, match="guarded"):
        innermost_guard(RobotWrapper(arm))


# -- the limits themselves: one command, and rows of many ----------------------------------------------------

angles = st.lists(st.floats(-3, 3, width=32), min_size=2, max_size=2)
limits = st.none() | st.floats(0.01, 50)


def arm(velocity: float | None, lead: float | None, dtype: str = "float32") -> RobotSpec:
    return RobotSpec(
        name="arm",
        sensors=Spec("sensors", (Field("position", (2,), "float64", -9, 9),)),
        commands=Spec("commands", (Field("target", (2,), dtype, -3, 3),)),
        rate_hz=30.0,
        measured_by={"target": "position"},
        limits=Limits(
            {} if velocity is None else {"target": velocity}, {} if lead is None else {"target": (lead, 2 * lead)}
        ),
    )


def limit(spec: RobotSpec, goal: Any, applied: Any, measured: Any) -> np.ndarray:
    last = RobotState({"position": np.asarray(measured)}, {"target": np.asarray(applied, np.float32)}, 0)
    return CommandLimiter(spec).apply({"target": goal}, last).get("target", goal)


@given(limits, limits, angles, angles, angles, st.sampled_from(["float32", "float64"]), st.floats(0, 1.5))
def test_a_command_is_limited_alone_as_in_a_batch_to_the_last_bit(
    velocity: float | None,
    lead: float | None,
    goal: list[float],
    applied: list[float],
    measured: list[float],
    dtype: str,
    near: float,
) -> None:
    """Goals are drawn near the limit, where the quick test of a single command could round another way."""
    spec = arm(velocity, lead, dtype)
    start = np.array(applied)
    stride = near * min((velocity or 3.0) * spec.period_s, lead or 3.0)
    target = np.clip(start + np.sign(np.array(goal) - start) * stride, -3, 3).astype(dtype)
    positions = np.array([a + m / 100 for a, m in zip(applied, measured, strict=True)])
    rows = limit(spec, target[None], [applied], positions[None])
    np.testing.assert_array_equal(limit(spec, target, applied, positions), rows[0])


@pytest.mark.parametrize("where", ["applied", "measured"])
def test_a_reading_that_is_no_number_never_lets_a_command_through_unlimited(where: str) -> None:
    values = {"applied": [0.0, 0.0], "measured": [0.0, 0.0]}
    values[where][1] = np.nan
    target = np.zeros(2, np.float32)
    assert limit(arm(1.0, 1.0), target, values["applied"], values["measured"]) is not target


def test_an_ordinary_command_stays_the_same_array_and_a_fast_one_does_not() -> None:
    spec, still = arm(3.0, 0.5), np.zeros(2, np.float32)
    slow, fast = np.full(2, 0.099, np.float32), np.full(2, 0.101, np.float32)
    assert limit(spec, slow, still, still) is slow
    np.testing.assert_allclose(limit(spec, fast, still, still), 0.1)  # 3 rad/s for 1/30 s
    away = np.array([0.55, 0.0])
    np.testing.assert_array_equal(limit(spec, still, still, away), 0.0)  # no measurement moves a goal
    np.testing.assert_array_equal(limit(spec, -slow, still, away), [0.0, slow[1] * -1])  # nor lets it run farther
    np.testing.assert_array_equal(limit(spec, slow, still, away), slow)  # towards the arm it may


def test_a_command_that_is_no_vector_is_limited() -> None:
    scalar = Spec("commands", (Field("target", (), "float32", -3, 3),))
    spec = replace(arm(3.0, None), commands=scalar, measured_by={})
    assert limit(spec, np.float32(1.0), 0.0, [0.0, 0.0]) == pytest.approx(0.1)
