"""The state never contradicts the latch, however the robot was stopped, and a refused reset leaves a stop as it was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import (
    Answer,
    Automatic,
    Guard,
    Homing,
    HomingSettings,
    IllegalAction,
    ResetFailed,
    RobotState,
    RobotStopped,
    StaleReading,
)  # fmt: skip
from hal.guard import innermost_guard
from real import ControlLoop, LoopSettings
from real.control.lifecycle import State
from tests.fakes import TWO_JOINTS, Puppet, until


class Arm(Puppet):
    """A driver with a watchdog in its device, which measures NaN or raises where a test says so."""

    def __init__(self) -> None:
        super().__init__(replace(TWO_JOINTS, rate_hz=100.0))
        self.armed, self.blind = False, False
        self.on_stop: Callable[[], None] = lambda: None
        self.on_step: Callable[[], None] = lambda: None

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self.on_step()
        robot_state = super().step(command)
        time.sleep(0.0005)
        return robot_state._replace(sensors={"angle": np.float32([np.nan, 0])}) if self.blind else robot_state

    def stop(self, reason: str) -> None:
        super().stop(reason)
        self.on_stop()

    def arm_watchdog(self, timeout_s: float) -> bool:
        self.armed = True
        return True

    def disarm_watchdog(self) -> None:
        self.armed = False


class Person:
    """A person who confirms the scene unless a test says otherwise, and may run a test's function meanwhile."""

    def __init__(self) -> None:
        self.refuses, self.asked = False, 0
        self.meanwhile: Callable[[], None] = lambda: None

    def ask(self, request: Any) -> Answer:
        self.asked += 1
        self.meanwhile()
        if self.refuses:
            raise ResetFailed("NO, stay away")
        return Answer("a person")

    def judge(self, request: Any) -> Answer:
        return Answer("a person")

    def close(self) -> None:
        pass


NESTINGS: dict[str, Callable[[Any, Any], Any]] = {
    "Homing(Guard)": lambda arm, person: Homing(Guard(arm), person, QUICK),
    "Guard(Homing(Guard))": lambda arm, person: Guard(Homing(Guard(arm), person, QUICK)),
    "Guard(Guard(Homing(Guard(Guard))))": lambda arm, person: Guard(Guard(Homing(Guard(Guard(arm)), person, QUICK))),
}
QUICK = HomingSettings(settle_s=0.02, tolerance=0.2)


@pytest.fixture
def arm() -> Arm:
    return Arm()


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
def outcomes() -> list[Any]:
    return []


@pytest.fixture(params=NESTINGS.values(), ids=NESTINGS)
def loop(request: pytest.FixtureRequest, arm: Arm, person: Person, outcomes: list[Any]) -> Iterator[ControlLoop]:
    robot = request.param(arm, person)
    loop = ControlLoop(
        robot, lambda _, outcome: outcomes.append(outcome), LoopSettings(paced_by_robot=True, watchdog_s=60.0)
    )
    loop.start()
    yield loop
    arm.on_stop = arm.on_step = lambda: None
    loop.close()


def reset(loop: ControlLoop, outcomes: list[Any], **options: Any) -> Any:
    outcomes.clear()
    loop.reset(0, options)
    until(lambda: outcomes)
    return outcomes[0]


def assert_stopped(loop: ControlLoop, arm: Arm, reason: str) -> None:
    """Stopped in the latch, in the state and in the device, and the loop asks nothing of the driver."""
    until(lambda: not arm.armed)
    assert reason in str(loop.stopped)
    assert loop.lifecycle.state is State.STOPPED
    assert reason in loop.lifecycle.why
    calls = len(arm.calls)
    time.sleep(0.05)
    assert len(arm.calls) == calls, "the loop is not idle"
    assert loop._thread.is_alive()


def test_a_measurement_that_is_no_number_is_a_stop_everywhere(loop: ControlLoop, arm: Arm, outcomes: list[Any]) -> None:
    assert isinstance(reset(loop, outcomes), RobotState)
    assert arm.armed
    arm.blind = True
    until(lambda: loop.stopped)
    assert_stopped(loop, arm, "not a finite number")
    arm.blind = False
    assert isinstance(reset(loop, outcomes), RobotStopped)
    assert isinstance(reset(loop, outcomes, clear_stop="a new cable"), RobotState)


def test_a_measurement_that_is_no_number_during_homing_is_a_stop_everywhere(
    loop: ControlLoop, arm: Arm, person: Person, outcomes: list[Any]
) -> None:
    person.meanwhile = lambda: setattr(arm, "blind", True)
    assert isinstance(reset(loop, outcomes), RobotStopped)
    assert_stopped(loop, arm, "not a finite number")


def test_a_stop_of_the_guard_itself_shows_in_the_state_at_once(
    loop: ControlLoop, arm: Arm, outcomes: list[Any]
) -> None:
    reset(loop, outcomes)
    innermost_guard(loop._robot).stop("a wrapper's thread saw smoke")
    assert loop.lifecycle.state is State.STOPPED
    assert_stopped(loop, arm, "smoke")


@pytest.mark.parametrize("error", [RobotStopped("its own button"), OSError("bus"), KeyError("angle")])
def test_a_driver_that_stops_itself_or_fails_is_stopped_for_all(
    loop: ControlLoop, arm: Arm, outcomes: list[Any], error: Exception
) -> None:
    def fail() -> None:
        raise error

    reset(loop, outcomes)
    arm.on_step = fail
    until(lambda: loop.stopped)
    assert_stopped(loop, arm, "button" if isinstance(error, RobotStopped) else type(error).__name__)


def test_a_stop_that_the_driver_fails_in_is_latched_and_the_loop_can_end(
    loop: ControlLoop, arm: Arm, outcomes: list[Any]
) -> None:
    def fail() -> None:
        raise OSError("no bus")

    reset(loop, outcomes)
    arm.on_stop = fail
    loop.stop("smoke")
    assert_stopped(loop, arm, "smoke")
    assert "no bus" in str(loop.driver_trouble)
    loop.close()
    assert arm.calls[-1] == "close"


def test_an_illegal_start_does_not_use_up_the_reason(loop: ControlLoop, arm: Arm, outcomes: list[Any]) -> None:
    reset(loop, outcomes)
    loop.stop("smoke")
    assert not isinstance(reset(loop, outcomes, clear_stop="steam", start={"target": (9, 9)}), RobotState)
    assert_stopped(loop, arm, "smoke")
    assert isinstance(reset(loop, outcomes), RobotStopped)


@pytest.mark.parametrize("options", [{"start": 5}, {"start": {"aim": 1}}, {"seed": "x"}, {"start": {"target": (9, 9)}}])
def test_a_clients_mistake_in_a_reset_stops_nothing(
    loop: ControlLoop, arm: Arm, outcomes: list[Any], options: dict[str, Any]
) -> None:
    assert isinstance(reset(loop, outcomes, **options), IllegalAction)
    assert (loop.lifecycle.state, arm.calls) == (State.DISARMED, [])
    reset(loop, outcomes)
    assert isinstance(reset(loop, outcomes, **options), IllegalAction)
    assert (loop.lifecycle.state, loop.stopped) == (State.READY, None)
    outcomes.clear()
    loop.step(1, {"target": np.float32([0.01, 0.0])})
    until(lambda: outcomes)
    assert isinstance(outcomes[0], RobotState), "its episode goes on"


@pytest.mark.parametrize("when", ["way home", "episode"])
def test_a_sample_that_is_too_old_is_a_stop_in_a_reset_as_in_an_episode(
    loop: ControlLoop, arm: Arm, outcomes: list[Any], when: str
) -> None:
    def grow_old() -> None:
        arm.age_ns = {"angle": 10**9}

    if when == "episode":
        reset(loop, outcomes)
    arm.on_step = grow_old
    if when == "way home":
        assert isinstance(reset(loop, outcomes), StaleReading)
    until(lambda: loop.stopped)
    assert_stopped(loop, arm, "'angle' is 1000.0 ms old")
    arm.age_ns, arm.on_step = {}, lambda: None
    assert isinstance(reset(loop, outcomes), RobotStopped)
    assert isinstance(reset(loop, outcomes, clear_stop="a new cable"), RobotState)


def test_a_refused_reset_leaves_the_stop_and_touches_nothing(
    loop: ControlLoop, arm: Arm, person: Person, outcomes: list[Any]
) -> None:
    reset(loop, outcomes)
    loop.stop("a finger in the gripper")
    until(lambda: not arm.armed)
    person.refuses, moves, resets = True, len(arm.told), arm.calls.count("reset")
    assert isinstance(reset(loop, outcomes, clear_stop="it is out"), ResetFailed)
    assert_stopped(loop, arm, "finger")
    asked = person.asked
    person.refuses = False
    assert isinstance(reset(loop, outcomes), RobotStopped)
    assert person.asked == asked
    assert (len(arm.told), arm.calls.count("reset")) == (moves, resets)
    assert isinstance(reset(loop, outcomes, clear_stop="it is out now"), RobotState)
    assert loop.stopped is None


def test_a_stop_while_the_person_is_asked_about_an_older_one_stays(
    loop: ControlLoop, arm: Arm, person: Person, outcomes: list[Any]
) -> None:
    reset(loop, outcomes)
    loop.stop("an older one")
    until(lambda: not arm.armed)  # a step that was under way has returned
    moves = len(arm.told)
    person.meanwhile = lambda: loop.stop("a newer one")
    assert isinstance(reset(loop, outcomes, clear_stop="looked"), RobotStopped)
    assert len(arm.told) == moves
    until(lambda: "stop a newer one" in arm.calls)
    assert_stopped(loop, arm, "an older one")


def test_a_failing_driver_does_not_use_up_the_reason(loop: ControlLoop, arm: Arm, outcomes: list[Any]) -> None:
    reset(loop, outcomes)
    loop.stop("smoke")
    arm.age_ns = {"angle": 10**10}
    assert not isinstance(reset(loop, outcomes, clear_stop="steam"), RobotState)
    assert_stopped(loop, arm, "smoke")
    assert arm.calls[-1] == "stop smoke", "the driver's own reset may have cleared its stop"


def test_a_latch_that_is_cleared_elsewhere_begins_no_motion(loop: ControlLoop, arm: Arm, outcomes: list[Any]) -> None:
    """Clearing ends the stop and begins no episode: what was held before is not resumed."""
    reset(loop, outcomes)
    latch = innermost_guard(loop._robot).latch
    loop.stop("smoke")
    until(lambda: not arm.armed)
    moves = len(arm.told)
    assert latch.clear("steam", latch.number)
    outcomes.clear()
    loop.step(1, {"target": np.zeros(2, np.float32)})
    until(lambda: outcomes)
    assert isinstance(outcomes[0], Exception)
    assert len(arm.told) == moves


def test_a_confirmation_by_nobody_clears_at_once(arm: Arm) -> None:
    homing = Homing(Guard(arm), Automatic(), QUICK)
    homing.reset({})
    homing.stop("smoke")
    homing.reset({"clear_stop": "steam"})
    assert innermost_guard(homing).stopped is None
