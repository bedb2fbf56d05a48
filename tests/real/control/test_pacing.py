"""The loop keeps a robot's period, also where the robot says that it does so itself."""

from __future__ import annotations

import logging
import queue
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import Guard, RobotState
from hal.errors import CommandTooOld
from hal.robots.so101 import SO101
from real import ControlLoop, LoopSettings
from real.control.commands import CommandQueue, Reset, Step
from real.control.lifecycle import State
from real.control.pacing import Pacing, RobotPacing, pacing_for
from tests.fakes import INTEGRATOR, Integrator, ManualClock, WaitingQueue, until


def paced(hurry_s: float, seconds: float, jitter: tuple[float, ...] = (0.0,)) -> tuple[int, ManualClock]:
    """Return how many periods of 0.1 s begin while a robot returns after ``hurry_s``."""
    clock = ManualClock()
    pacing = RobotPacing(0.0, 0.1, clock, clock.advance)
    commands: CommandQueue[Any] = CommandQueue()
    began, ticks = clock.now, 0
    while clock.now < began + seconds:
        pacing.next_tick(commands, lambda _: None)
        clock.advance(hurry_s + jitter[ticks % len(jitter)])
        ticks += 1
    return ticks, clock


@pytest.mark.parametrize("hurry_s", [0.0, 0.001, 0.05])
def test_a_robot_that_returns_early_is_waited_for(hurry_s: float, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ticks, _ = paced(hurry_s, 10.0)
    assert ticks <= 100 / 0.95 + 3
    assert len([record for record in caplog.records if "returns before the end" in record.message]) == 1


def test_a_robot_that_keeps_its_period_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for jitter in ((0.0,), (0.05, -0.05), (0.0, 0.04, -0.04), (-0.003,)):
            ticks, clock = paced(0.1, 20.0, jitter)
            assert clock.now == pytest.approx(100 + ticks * (0.1 + sum(jitter) / len(jitter)), abs=0.11)
    assert not caplog.records


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> WaitingQueue:
    """The queue of every `CommandQueue` that the test makes."""
    waiting = WaitingQueue()
    monkeypatch.setattr("real.control.commands.SimpleQueue", lambda: waiting)
    return waiting


def pacing_at_10_hz(clock: ManualClock, ticks: int = 1, fetch: Any = None, **settings: Any) -> Pacing:
    return pacing_for(LoopSettings(**settings), 10.0, ticks, fetch, clock, clock.advance)


@pytest.mark.parametrize("by_command", [False, True])
def test_the_clock_gives_each_period_its_tick(waiting: WaitingQueue, by_command: bool) -> None:
    clock, commands = ManualClock(0.0), CommandQueue[Any]()
    pacing = pacing_at_10_hz(clock)
    assert pacing.real_time
    times = []
    for number in range(8):
        if number == 5:
            pacing.restart()
        if by_command:
            commands.put(Step(number, {}))
            assert pacing.next_tick(commands, lambda _: None) == Step(number, {})
        else:
            pacing.wait_for_period()
        times.append(clock.now)
        clock.advance(0.03)
    assert times == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.43, 0.53, 0.63])
    assert set(waiting.waits) <= {0}


@pytest.mark.parametrize("by_robot", [False, True])
def test_an_idle_loop_shows_ten_times_a_second_that_it_lives(waiting: WaitingQueue, by_robot: bool) -> None:
    commands = CommandQueue[Any]()
    pacing = pacing_at_10_hz(ManualClock(), paced_by_robot=by_robot)
    assert pacing.wait_for_command(commands) is None
    commands.put(Reset(0, {}, 0))
    assert pacing.wait_for_command(commands) == Reset(0, {}, 0)
    assert waiting.waits == [0.1, 0.1]


@pytest.mark.parametrize(("ticks", "window_s"), [(1, 0.05), (2, 0), (4, 0)])
def test_a_robots_own_period_waits_half_of_it_for_an_answer(waiting: WaitingQueue, ticks: int, window_s: float) -> None:
    clock, commands, times = ManualClock(0.0), CommandQueue[Any](), []
    pacing = pacing_at_10_hz(clock, ticks, paced_by_robot=True)
    assert pacing.real_time
    for number in range(5):
        if number == 3:
            pacing.restart()
        assert pacing.next_tick(commands, lambda _: None) is None
        times.append(clock.now)
    assert times == pytest.approx([0.0, 0.0, 0.09, 0.09, 0.09])
    assert waiting.waits == [window_s] * 5


def test_a_tick_whose_command_has_come_before_waits_for_none(waiting: WaitingQueue) -> None:
    commands = CommandQueue[Any]()
    pacing = pacing_at_10_hz(ManualClock(0.0), 1, paced_by_robot=True)
    assert pacing.next_tick(commands, lambda _: None, is_ready=True) is None
    assert waiting.waits == [0]


def test_in_lockstep_time_stands_still_and_the_reader_fetches(waiting: WaitingQueue) -> None:
    clock, commands, fetched = ManualClock(0.0), CommandQueue[Any](), []

    def fetch() -> None:
        fetched.append(len(fetched))
        if len(fetched) == 3:
            commands.put(Step(1, {}))

    pacing = pacing_at_10_hz(clock, fetch=fetch, lockstep=True)
    assert not pacing.real_time
    assert pacing.wait_for_command(commands) == Step(1, {})
    assert fetched == [0, 1, 2]
    commands.put(Step(2, {}))
    assert pacing.wait_for_command(commands) == Step(2, {})
    assert len(fetched) == 3, "what waits already is taken first"
    commands.put(Step(3, {}))
    assert pacing.next_tick(commands, lambda _: None) == Step(3, {})
    assert pacing.next_tick(commands, lambda _: None) is None
    pacing.wait_for_period()
    pacing.restart()
    assert clock.now == 0.0
    assert waiting.waits == [None, None, 0, 0, 0]
    alone = pacing_at_10_hz(clock, lockstep=True)
    with pytest.raises(queue.Empty):
        alone.wait_for_command(commands)
    commands.put(Step(4, {}))
    assert alone.wait_for_command(commands) == Step(4, {})


class ReturnsAtOnce:
    """A real arm whose driver does not wait for the end of its period, although its server was told so."""

    def __init__(self, stamps: bool) -> None:
        self.spec = SO101
        self._stamps, self._stamp_ns = stamps, 0
        self.at = np.zeros(6, np.float32)
        self.log: list[tuple[float, float]] = []

    def reset(self, options: Any) -> RobotState:
        return self._state()

    def step(self, command: Any) -> RobotState:
        self.at = np.array(command["joint_target"])
        self.log.append((time.monotonic(), float(self.at[0])))
        return self._state()

    def _state(self) -> RobotState:
        self._stamp_ns += 33_333_333  # as if each step took its period
        values = {"joint_position": self.at.copy(), "joint_goal": np.clip(self.at, *SO101.sensors["joint_goal"].bounds)}
        sensors = {field.name: values.get(field.name, np.zeros(field.shape, np.float32)) for field in SO101.sensors}
        stamp_ns = time.monotonic_ns() if self._stamps else self._stamp_ns
        return RobotState(sensors, {"joint_target": self.at.copy()}, stamp_ns)

    def stop(self, reason: str) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("stamps", [True, False], ids=["true stamps", "nominal stamps"])
def test_a_driver_that_returns_at_once_keeps_the_speed_limit_for_two_seconds(stamps: bool) -> None:
    arm, outcomes = ReturnsAtOnce(stamps), []
    loop = ControlLoop(
        Guard(arm), lambda _, outcome: outcomes.append(outcome), LoopSettings(paced_by_robot=True, watchdog_s=5.0)
    )
    loop.start()
    loop.reset(0, {})
    until(lambda: outcomes)
    began, number, goal = time.monotonic(), 0, 1.5
    while time.monotonic() < began + 2.0:
        number += 1
        goal = -goal if abs(arm.at[0] - goal) < 0.05 else goal
        loop.step(number, {"joint_target": np.float32([goal, 0, 0, 0, 0, 0])})
        until(lambda: len(outcomes) > number)  # noqa: B023
    loop.close()
    assert len(arm.log) <= 2.0 * 30 / 0.95 + 0.1 * (time.monotonic() - began) * 30 + 8
    times, angles = np.array(arm.log).T
    way = np.abs(np.diff(angles, prepend=0.0)).cumsum()
    lead = way - 4.0 * (times - times[0])
    assert (lead - np.minimum.accumulate(lead)).max() <= 4.0 * 2.6 / 30, "never faster than its limit for long"
    assert np.abs(np.diff(angles)).max() <= 4.0 / 30 + 1e-5


@pytest.fixture
def paused() -> Any:
    """A loop of 400 Hz whose clients command at 10 Hz, driven by hand with a clock of its own."""
    clock = ManualClock()
    robot = Integrator(replace(INTEGRATOR, rate_hz=400.0))
    outcomes: dict[Any, Any] = {}
    settings = LoopSettings(control_hz=10.0, watchdog_s=0.3, max_command_age_s=0.1)
    loop = ControlLoop(robot, outcomes.__setitem__, settings, now=clock, sleep=clock.advance)
    loop._reset(Reset(0, {}, 0))
    return loop, robot, clock, outcomes


@pytest.mark.parametrize("pause_s", [0.11, 0.5, 3.0])
def test_after_a_pause_the_rest_of_an_old_command_is_not_executed(paused: Any, pause_s: float) -> None:
    loop, robot, clock, outcomes = paused
    loop._step(Step(1, {"target": np.float32([0.8, 0.0])}))
    for _ in range(10):
        clock.advance(1 / 400)
        loop._hold()
    at = robot.commands[-1]
    clock.advance(pause_s)
    for _ in range(100):
        loop._hold()
        clock.advance(1 / 400)
    assert set(robot.commands[11:]) == {at}, "it holds where it was"
    assert isinstance(outcomes[1], CommandTooOld)
    assert loop.ages.refused == 1
    assert loop.lifecycle.state is State.HOLDING, "the client was silent as well"


def test_a_short_pause_interrupts_no_command(paused: Any) -> None:
    loop, robot, clock, outcomes = paused
    loop._step(Step(1, {"target": np.float32([0.8, 0.0])}))
    for _ in range(39):
        clock.advance(0.05)
        loop._hold()
    assert robot.commands[-1] == (np.float32(0.8), 0.0)
    assert isinstance(outcomes[1], RobotState)
