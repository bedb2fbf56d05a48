"""The control loop around its steps: what it reports, what its observer is told, how it begins and how it ends."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import CommandTooOld, Guard, IllegalAction, RobotError, RobotState, RobotStopped, StaleReading, StopReason
from real import ControlLoop, LoopSettings, RemoteRobot, Server
from real.control import loop as loop_module
from real.control.lifecycle import State
from real.control.realtime import RealTime
from tests.fakes import Integrator, until

Target = Callable[..., dict[str, np.ndarray]]


class Observer:
    """Record what a server's observer is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def ordered(self, *values: Any) -> None:
        self.calls.append(("ordered", *values))

    def answered(self, *values: Any) -> None:
        self.calls.append(("answered", *values))


class Bench:
    """Loops of one robot, their answers, and their end."""

    def __init__(self, robot: Integrator) -> None:
        self.robot, self.answers, self.loops = robot, queue.SimpleQueue[Any](), list[ControlLoop]()

    def make(self, robot: Any = None, *, observer: Any = None, **settings: Any) -> ControlLoop:
        answer = lambda request_id, outcome: self.answers.put((request_id, outcome))  # noqa: E731
        made = LoopSettings(**settings) if settings else None
        self.loops.append(ControlLoop(robot or self.robot, answer, made, observer=observer))
        return self.loops[-1]

    def start(self, robot: Any = None, **settings: Any) -> ControlLoop:
        loop = self.make(robot, **settings)
        loop.start()
        return loop

    def ready(self, robot: Any = None, **settings: Any) -> ControlLoop:
        """Start a loop, and reset its robot."""
        loop = self.start(robot, **settings)
        loop.reset(0, {})
        assert isinstance(self.next(0), RobotState)
        return loop

    def next(self, request_id: Any) -> Any:
        got, outcome = self.answers.get(timeout=10)
        assert got == request_id
        return outcome


@pytest.fixture
def bench(robot: Integrator) -> Iterator[Bench]:
    bench = Bench(robot)
    yield bench
    for loop in bench.loops:
        loop.close()


# -- reports ---------------------------------------------------------------------------------------------------


def test_a_loop_without_settings_has_the_defaults(bench: Bench) -> None:
    assert bench.make().spec == bench.robot.spec


def test_lockstep_needs_no_watchdog(bench: Bench) -> None:
    loop = bench.make(lockstep=True, watchdog_s=0.001, max_command_age_s=0.1)
    assert loop.broken is None
    assert loop.ages.max_age_s is None, "nor do commands grow old where time stands still"
    with pytest.raises(ValueError, match="two periods"):
        bench.make(watchdog_s=0.001)


def test_reports_of_the_guard_are_passed_on(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard(bench.robot)
    loop = bench.make(guard)
    assert (loop.unread, loop.held_back, loop.latest, loop.reading_age_s, loop.stops) == (None, None, None, None, 0)
    monkeypatch.setattr(Guard, "held_back", property(lambda guard: {"commands": 3}))
    guard.reset({})
    time.sleep(0.02)
    assert loop.unread is None, "a reset has read it"
    assert loop.held_back == {"commands": 3}
    assert loop.reading_age_s is not None
    assert 0.02 <= loop.reading_age_s < 10
    assert bench.make(guard, lockstep=True).reading_age_s == 0.0, "time stands still"
    guard.unread = "unplugged"
    assert loop.unread == "unplugged"


def test_stops_are_counted_and_kept_and_a_new_loop_begins_with_them(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loop = bench.make()
    loop.keep_stops(tmp_path)
    assert (loop.lifecycle.state, loop.stopped) == (State.DISARMED, None)
    assert loop.stop_file == {"path": str(tmp_path / "stop-integrator.json"), "failure": None}
    before = loop.stops
    loop.stop("a hand")
    assert loop.stops == before + 1
    assert loop.wait_until_kept(10) is None
    loop.close()
    loop.close_stop_file()
    caplog.clear()
    again = bench.make(Integrator())
    assert again.stop_file is None
    again.keep_stops(tmp_path)
    assert again.lifecycle.state is State.STOPPED
    assert "a hand" in str(again.stopped)
    assert any(message.startswith("stopped: a hand") for message in caplog.messages)
    assert any(message.startswith("integrator: disarmed -> stopped: a hand") for message in caplog.messages)
    again.close_stop_file()


def test_the_observer_is_told_each_order_before_its_answer(bench: Bench, target: Target) -> None:
    observer = Observer()
    loop = bench.make(observer=observer)
    loop.start()
    loop.reset("r", {})
    bench.next("r")
    command = target(0.5, 0)
    loop.step("s", command, 7)
    outcome = bench.next("s")
    assert observer.calls[0] == ("ordered", "r", None, None)
    assert observer.calls[2] == ("ordered", "s", command, 7)
    assert observer.calls[3] == ("answered", "s", outcome)


def test_the_end_of_an_episode_has_its_reason_and_breaks_nothing(bench: Bench) -> None:
    for why in ("the client released the robot", None):
        loop = bench.ready()
        loop.finish() if why is None else loop.finish(why)
        until(lambda loop=loop: loop.lifecycle.state is State.HOLDING)
        assert why is None or loop.lifecycle.why == why
        assert loop.lifecycle.why
        assert loop.broken is None
        loop.close()


def test_a_driver_that_failed_to_stop_is_reported_until_the_stop_is_cleared(bench: Bench) -> None:
    def fail(reason: str) -> None:
        bench.robot.stops.append(reason)
        raise OSError("no such device")

    loop = bench.ready()
    bench.robot.stop = fail  # type: ignore[method-assign]
    assert loop.driver_trouble is None
    assert "no such device" in str(loop.stop("a hand"))
    assert "no such device" in str(loop.driver_trouble)
    loop.reset(1, {"clear_stop": "looked"})
    assert isinstance(bench.next(1), RobotState)
    assert loop.driver_trouble is None


def test_the_progress_of_a_reset_is_taken_up_while_it_is_under_way_alone(bench: Bench) -> None:
    loop = bench.make()
    loop.report("asked for the scene")
    assert loop.lifecycle.state is State.DISARMED
    loop.lifecycle.go(State.ARMING, "a reset")
    loop.report("asked for the scene")
    assert loop.lifecycle.state is State.RESETTING
    assert loop.lifecycle.why == "the robot was opened and read; asked for the scene"


def test_a_reset_is_given_up_while_it_is_under_way_alone(bench: Bench) -> None:
    given_up: list[str] = []
    bench.robot.cancel_reset = given_up.append  # type: ignore[attr-defined]
    loop = bench.make()
    loop.cancel_reset("nobody wants it")
    assert given_up == []
    for state in (State.ARMING, State.RESETTING):
        loop.lifecycle.go(state, "a reset")
        loop.cancel_reset("nobody wants it")
    assert given_up == ["nobody wants it"] * 2


# -- ticks -----------------------------------------------------------------------------------------------------


def test_refused_commands_leave_no_tick_unfilled(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=100)
    loop.step(1, target(0.5, 0))
    bench.next(1)
    count = len(bench.robot.commands)
    for number in range(20):
        loop.step(number, target(9, 0))
        assert isinstance(bench.next(number), IllegalAction)
    assert len(bench.robot.commands) >= count + 15
    assert loop.loop_timing.to_dict() != bench.make().loop_timing.to_dict(), "ticks are counted"


def test_silence_counts_from_the_time_at_which_a_command_was_sent(bench: Bench, target: Target) -> None:
    waits = []
    for age_s in (0.0, 0.9):
        loop = bench.ready(Integrator(), watchdog_s=1.0, max_command_age_s=5.0)
        loop.step(1, target(0.5, 0), time.monotonic_ns() - int(age_s * 1e9))
        assert isinstance(bench.next(1), RobotState)
        began = time.monotonic()
        until(lambda loop=loop: loop.broken)
        waits.append(time.monotonic() - began)
        loop.close()
    assert waits[0] > waits[1] + 0.5


def test_a_command_that_grows_too_old_half_way_is_given_up(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=0.3, max_command_age_s=0.25, control_hz=bench.robot.spec.rate_hz / 4)
    slow = iter([0.6])
    bench.robot.on_step = lambda: time.sleep(next(slow, 0.0))
    loop.step(1, target(0.5, 0), time.monotonic_ns())
    assert isinstance(bench.next(1), CommandTooOld)
    until(lambda: loop.broken)
    time.sleep(0.1)
    assert bench.robot.commands[-1][0] < 0.5, "no further than the tick that was slow"


@pytest.mark.parametrize("granted", [True, False])
def test_real_time_is_asked_for_where_a_priority_is_set_and_the_log_says_what_came_of_it(
    bench: Bench, granted: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    def ask(priority: int) -> RealTime:
        asked.append(priority)
        return RealTime(granted, "so it is")

    monkeypatch.setattr(loop_module, "ask_real_time", ask)
    caplog.set_level(logging.INFO)
    assert bench.make(priority=0).real_time.message == "not asked for"
    loop = bench.ready(priority=7)
    assert asked == [7]
    assert (loop.real_time.granted, loop.real_time.message) == (granted, "so it is")
    (record,) = [record for record in caplog.records if "so it is" in record.getMessage()]
    assert record.levelno == (logging.INFO if granted else logging.WARNING)


def test_a_thread_that_works_gives_signs_of_life_and_a_long_reset_is_no_hang(bench: Bench) -> None:
    loop = bench.start()
    entered, go = threading.Event(), threading.Event()
    for _ in range(4):  # it waits for orders
        time.sleep(0.2)
        assert loop.heartbeat.silence(0.7) is None
    bench.robot.on_reset = lambda: (entered.set(), go.wait(10))
    loop.reset(0, {})
    assert entered.wait(10)
    for _ in range(6):
        time.sleep(0.2)
        assert loop.heartbeat.silence(0.7) is None
    go.set()
    bench.next(0)


# -- the end ---------------------------------------------------------------------------------------------------


def test_a_loop_that_never_began_ends_at_once(bench: Bench) -> None:
    loop = bench.make()
    began = time.monotonic()
    loop.park(5.0)
    loop.close()
    assert time.monotonic() - began < 2.0
    assert (bench.robot.stops, bench.robot.closed, loop.abandoned) == ([], 1, None)


def test_an_end_stops_the_robot_in_good_order(bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop = bench.ready()
    loop.keep_stops(tmp_path)
    loop.close()
    assert loop.latch.reason == StopReason("the server was closed", orderly=True)
    assert [str(reason) for reason in bench.robot.stops] == ["the server was closed"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    loop.close_stop_file()
    again = bench.make(Integrator())
    again.keep_stops(tmp_path)
    assert again.stopped is None, "an orderly end leaves no stop"
    again.close_stop_file()


def test_a_driver_that_hangs_in_a_step_is_left_alone_in_time(
    bench: Bench, target: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loop_module, "CLOSE_S", 1.5)
    entered, go = threading.Event(), threading.Event()
    loop = bench.ready(watchdog_s=100)
    loop.keep_stops(tmp_path)
    bench.robot.on_step = lambda: (entered.set(), go.wait(10))
    loop.step(1, target(0.5, 0))
    assert entered.wait(10)
    began = time.monotonic()
    loop.close(timeout_s=2.0)
    assert 0.4 < time.monotonic() - began < 1.4
    assert "did not return in time from a step" in str(loop.abandoned)
    loop.close_stop_file()
    again = bench.make(Integrator())
    again.keep_stops(tmp_path)
    assert again.stopped is not None, "the driver was left alone, so the end was none in good order"
    again.close_stop_file()
    go.set()


def test_parking_gives_up_a_reset_that_waits(bench: Bench) -> None:
    entered, given_up = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        given_up.wait(10)
        raise RobotStopped("given up")

    bench.robot.cancel_reset = lambda why: given_up.set()  # type: ignore[attr-defined]
    bench.robot.on_reset = wait
    loop = bench.start()
    loop.reset(0, {})
    assert entered.wait(10)
    loop.park(5.0)
    assert given_up.is_set()


# -- resets that fail, orders out of an episode, parking -------------------------------------------------------


def test_a_reset_that_fails_says_so_and_leaves_the_robot_as_it_was(bench: Bench) -> None:
    def fail() -> None:
        raise RobotError("no answer")

    loop = bench.start()
    bench.robot.on_reset = fail
    loop.reset(0, {})
    assert "no answer" in str(bench.next(0))
    assert (loop.lifecycle.state, loop.lifecycle.why) == (State.DISARMED, "the reset failed: no answer")
    bench.robot.on_reset = lambda: None
    loop.reset(1, {})
    assert isinstance(bench.next(1), RobotState)
    bench.robot.on_reset = fail
    loop.reset(2, {})
    bench.next(2)
    assert loop.lifecycle.state is State.HOLDING
    assert loop.stopped is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RobotStopped("its own button"), "its own button"),
        (StaleReading("position", 1.0, 0.1), "'position'"),
        (OSError("no such device"), "fault in reset: OSError: no such device"),
    ],
)
def test_a_reset_whose_robot_stops_or_can_t_be_trusted_stops_it(bench: Bench, error: Exception, told: str) -> None:
    def fail() -> None:
        raise error

    loop = bench.start()
    bench.robot.on_reset = fail
    loop.reset(0, {})
    assert isinstance(bench.next(0), Exception)
    assert told in str(loop.stopped)
    assert loop.lifecycle.state is State.STOPPED


def test_nothing_is_reset_while_the_driver_s_stop_has_not_returned(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()
    loop = bench.ready()
    bench.robot.stop = lambda reason: go.wait(20)  # type: ignore[method-assign, assignment, return-value]
    loop.stop("a hand")
    assert "stopped: a hand" in caplog.messages, "logged although the driver has not returned"
    assert "integrator: ready -> stopped: a hand" in caplog.messages
    assert loop.lifecycle.state is State.STOPPED
    loop.reset(1, {"clear_stop": "looked"})
    refusal = bench.next(1)
    assert "nothing was reset: " in str(refusal)
    assert len(bench.robot.resets) == 1
    go.set()


@pytest.mark.parametrize("cleared", [False, True])
def test_a_stop_at_the_end_of_a_reset_ends_the_episode_before_it_begins(bench: Bench, cleared: bool) -> None:
    def stop_late(timeout_s: float) -> bool:
        loop.stop("a hand")
        if cleared:
            loop.latch.clear("looked", loop.stops)
        return True

    bench.robot.arm_watchdog = stop_late  # type: ignore[attr-defined]
    bench.robot.disarm_watchdog = lambda: None  # type: ignore[attr-defined]
    loop = bench.start(watchdog_s=1.0)
    loop.reset(0, {})
    refusal = bench.next(0)
    assert isinstance(refusal, RobotStopped)
    assert ("stopped during the reset" if cleared else "a hand") in str(refusal)


def test_a_reset_clears_no_stop_that_it_was_not_told_of(bench: Bench) -> None:
    loop = bench.start()
    before = loop.stops
    loop.stop("a hand")
    loop.reset(0, {"clear_stop": "looked"}, before)
    assert isinstance(bench.next(0), RobotStopped)
    assert loop.stopped == "a hand"
    loop.reset(1, {"clear_stop": "looked"})
    assert isinstance(bench.next(1), RobotState)


def test_a_command_out_of_an_episode_is_refused_with_the_reason(bench: Bench, target: Target) -> None:
    loop = bench.start()
    loop.step(1, target(0.5, 0))
    assert "step before reset" in str(bench.next(1))
    loop.reset(2, {})
    bench.next(2)
    loop.stop("a hand")
    loop.step(3, target(0.5, 0))
    refusal = bench.next(3)
    assert isinstance(refusal, RobotStopped)
    assert "a hand" in str(refusal)
    assert (0.5, 0.0) not in bench.robot.commands


def test_an_end_without_an_episode_changes_nothing(bench: Bench) -> None:
    loop = bench.start()
    loop.finish("the client went")
    loop.step(1, {})  # answered after it
    bench.next(1)
    assert loop.lifecycle.state is State.DISARMED


def test_a_device_s_own_watchdog_rests_out_of_episodes(bench: Bench) -> None:
    calls: list[str] = []
    bench.robot.arm_watchdog = lambda timeout_s: calls.append(f"arm {timeout_s:g}") or True  # type: ignore[attr-defined, func-returns-value]
    bench.robot.disarm_watchdog = lambda: calls.append("rest")  # type: ignore[attr-defined]
    loop = bench.ready(watchdog_s=5.0)
    assert calls == ["arm 5"]
    loop.reset(1, {})
    bench.next(1)
    assert calls == ["arm 5", "rest", "arm 5"], "a reset may wait for a person"
    loop.finish("the end")
    until(lambda: calls[3:] == ["rest"])
    loop.finish("again")
    time.sleep(0.2)
    assert calls[3:] == ["rest"], "once"


def test_a_stop_that_its_file_may_lose_says_so(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = bench.make()
    assert loop.wait_until_kept(0.1) is None
    loop.keep_stops(tmp_path)
    assert loop.latch.file is not None
    monkeypatch.setattr(loop.latch.file, "lost_if", lambda seconds: f"the disk failed for {seconds:g} s")
    assert loop.wait_until_kept(0.1) == "this stop would be lost if the disk failed for 0.1 s"
    monkeypatch.undo()
    loop.close_stop_file()


def test_parking_goes_home_and_says_so(bench: Bench, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    loop = bench.ready(watchdog_s=100)
    loop.step(1, target(0.1, 0))
    bench.next(1)
    states: list[tuple[str, str]] = []
    bench.robot.on_step = lambda: states.append((loop.lifecycle.state, loop.lifecycle.why))
    loop.park(10.0, velocity=1.0)
    assert bench.robot.commands[-1] == (0.0, 0.0)
    assert states[-1] == (State.RESETTING, "the server ends: the robot goes to its home")
    assert "parking: the robot rests at its home" in caplog.text


@pytest.mark.parametrize("state", ["never reset", "stopped"])
def test_a_robot_that_was_never_reset_or_is_stopped_is_not_parked(bench: Bench, state: str) -> None:
    loop = bench.start() if state == "never reset" else bench.ready(watchdog_s=100)
    if state == "stopped":
        loop.stop("a hand")
        time.sleep(0.1)
    count, began = len(bench.robot.commands), time.monotonic()
    loop.park(5.0)
    assert time.monotonic() - began < 2.0, "nobody waits for it"
    assert len(bench.robot.commands) == count
    assert loop.stopped == ("a hand" if state == "stopped" else None)


def test_a_stop_on_the_way_to_parking_ends_the_way(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=100)
    loop.step(1, target(0.5, 0))
    bench.next(1)

    def fail() -> None:
        raise OSError("no such device")

    bench.robot.on_step = fail
    began = time.monotonic()
    loop.park(5.0)
    assert time.monotonic() - began < 2.0
    assert "fault in parking: OSError: no such device" in str(loop.stopped)


# -- what a tick leaves behind -----------------------------------------------------------------------------------


def test_a_driver_that_hangs_is_stopped_once(bench: Bench, target: Target) -> None:
    entered, go = threading.Event(), threading.Event()
    loop = bench.ready(watchdog_s=100)
    bench.robot.on_step = lambda: (entered.set(), go.wait(20))
    loop.step(1, target(0.5, 0))
    assert entered.wait(10)

    def stopped() -> bool:
        loop.check_driver()
        return loop.stopped is not None

    until(stopped)
    assert "has not returned from a step" in str(loop.stopped)
    before = loop.stops
    for _ in range(5):
        loop.check_driver()
    assert loop.stops == before
    go.set()


def test_the_episode_runs_from_its_first_command_on(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=100)
    time.sleep(0.1)  # ticks that hold are no command
    assert loop.lifecycle.state is State.READY
    loop.step(1, target(0.5, 0))
    bench.next(1)
    assert (loop.lifecycle.state, loop.lifecycle.why) == (State.RUNNING, "the first command of the episode")


def test_a_slow_robot_is_not_the_silence_of_its_client(bench: Bench, target: Target) -> None:
    """A command of several ticks that a slow robot carries out: the client's turn begins with its answer."""
    loop = bench.ready(watchdog_s=0.4, max_command_age_s=5.0, control_hz=bench.robot.spec.rate_hz / 2)
    slow = iter([0.0, 0.6])
    bench.robot.on_step = lambda: time.sleep(next(slow, 0.0)) if loop.lifecycle.state is State.RUNNING else None
    loop.step(1, target(0.1, 0))
    bench.next(1)
    slow = iter([0.0, 0.6])
    loop.step(2, target(0.2, 0))
    assert isinstance(bench.next(2), RobotState)
    time.sleep(0.15)
    assert loop.broken is None
    until(lambda: loop.broken)


def test_a_fast_robot_s_client_is_silent_from_the_beginning_of_its_command(bench: Bench, target: Target) -> None:
    """An answer at the end of a command of many ticks is no sign of life of its client."""
    loop = bench.ready(watchdog_s=0.6, control_hz=bench.robot.spec.rate_hz / 10)
    loop.step(1, target(0.1, 0))
    assert isinstance(bench.next(1), RobotState)
    began = time.monotonic()
    until(lambda: loop.broken)
    assert time.monotonic() - began < 0.55, "0.2 s of the time passed before the answer"


def old(loop: ControlLoop, number: int, target: Target) -> None:
    loop.step(number, target(0.5, 0), time.monotonic_ns() - 10**10)


def wrong(loop: ControlLoop, number: int, target: Target) -> None:
    loop.reset(number, {"start": 5})


@pytest.mark.parametrize("order", [old, wrong])
def test_a_refused_order_leaves_its_tick_filled(bench: Bench, target: Target, order: Callable[..., None]) -> None:
    loop = bench.ready(watchdog_s=100, max_command_age_s=0.5)
    loop.step(0, target(0.1, 0))
    bench.next(0)
    count = len(bench.robot.commands)
    for number in range(20):
        order(loop, number, target)
        assert isinstance(bench.next(number), RobotError)
    assert len(bench.robot.commands) >= count + 15


def test_ticks_without_a_command_count_and_pauses_do_not(bench: Bench) -> None:
    loop = bench.ready(watchdog_s=100)
    until(lambda: loop.loop_timing.periods > 5)
    loop.finish()
    time.sleep(0.6)
    loop.reset(1, {})
    bench.next(1)
    before = loop.loop_timing.periods
    until(lambda: loop.loop_timing.periods > before + 5)
    assert loop.loop_timing.longest_s < 0.5


def test_a_long_reset_is_followed_at_the_robot_s_own_rate(bench: Bench) -> None:
    loop = bench.ready(watchdog_s=100)
    bench.robot.on_reset = lambda: time.sleep(0.6)
    loop.reset(1, {})
    bench.next(1)
    began = time.monotonic()
    time.sleep(0.1)
    assert len(bench.robot.commands) <= 3 + (time.monotonic() - began) * bench.robot.spec.rate_hz


def test_a_silence_is_logged_once(bench: Bench, target: Target, caplog: pytest.LogCaptureFixture) -> None:
    loop = bench.ready(watchdog_s=0.1)
    loop.step(1, target(0.1, 0))
    bench.next(1)
    until(lambda: loop.broken)
    time.sleep(0.2)
    assert len([message for message in caplog.messages if message.startswith("integrator held: ")]) == 1


@pytest.mark.parametrize("gives_way", [True, False])
def test_nothing_is_commanded_after_a_robot_gave_way(bench: Bench, target: Target, gives_way: bool) -> None:
    calls: list[tuple[str, int]] = []

    def call(name: str, outcome: bool = True) -> bool:
        calls.append((name, len(bench.robot.commands)))
        return outcome

    bench.robot.damp = lambda: call("damp", gives_way)  # type: ignore[attr-defined]
    bench.robot.arm_watchdog = lambda timeout_s: call("arm")  # type: ignore[attr-defined]
    bench.robot.disarm_watchdog = lambda: call("rest")  # type: ignore[attr-defined]
    loop = bench.ready(watchdog_s=0.1, on_silence="damp")
    loop.step(1, target(0.1, 0))
    bench.next(1)
    until(lambda: loop.check_driver() or loop.broken)
    assert [name for name, _ in calls] == ["arm", "rest", "damp"]
    assert str(loop.broken).endswith("; it is damped") is gives_way
    time.sleep(0.2)
    assert (len(bench.robot.commands) == calls[-1][1]) is gives_way


def test_nothing_goes_home_where_no_stop_was_ever_read(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=0.1, on_silence="park")
    loop.step(1, target(0.5, 0))
    bench.next(1)
    until(lambda: loop.broken)
    assert str(loop.broken).endswith("; it stays, since no stop could be read")
    time.sleep(0.1)
    assert bench.robot.commands[-1] == (0.5, 0.0)


def test_a_way_home_ends_for_good_where_no_stop_can_be_read_and_with_a_reset(
    bench: Bench, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    loop = bench.ready(watchdog_s=0.1, on_silence="park", park_velocity=0.05)
    loop.step(1, target(0.5, 0))
    bench.next(1)
    until(lambda: loop.check_driver() or loop.broken)
    until(lambda: loop.check_driver() or bench.robot.commands[-1][0] < 0.49)
    until(lambda: "integrator stays on its way home, since no stop could be read" in caplog.messages)
    at = bench.robot.commands[-1]
    for _ in range(10):
        loop.check_driver()
        time.sleep(0.02)
    assert bench.robot.commands[-1] == at
    loop.reset(2, {"start": {"target": [0.5, 0.0]}})
    bench.next(2)
    loop.step(3, target(0.5, 0))
    bench.next(3)
    until(lambda: loop.check_driver() or loop.broken)
    until(lambda: loop.check_driver() or bench.robot.commands[-1][0] < 0.49)
    loop.reset(4, {})
    bench.next(4)
    loop.step(5, target(0.3, 0))
    bench.next(5)
    assert bench.robot.commands[-1] == pytest.approx((0.3, 0.0))


def test_an_error_in_a_step_stops_the_robot_and_says_where(bench: Bench, target: Target) -> None:
    def fail() -> None:
        raise OSError("no such device")

    loop = bench.ready(watchdog_s=100)
    bench.robot.on_step = fail
    until(lambda: loop.stopped is not None)
    assert loop.stopped == "fault in hold: OSError: no such device"
    bench.robot.on_step = lambda: None
    loop.reset(1, {"clear_stop": "looked"})
    bench.next(1)
    command = target(0.1, 0)
    bench.robot.step = lambda values: fail() if values["target"][0] > 0 else Integrator.step(bench.robot, values)  # type: ignore[method-assign, assignment]
    loop.step(2, command)
    assert isinstance(bench.next(2), Exception)
    assert loop.stopped == "fault in step: OSError: no such device"


def test_nobody_knows_where_a_robot_is_after_a_reset_that_failed(bench: Bench, target: Target) -> None:
    def fail() -> None:
        raise RobotError("no answer")

    loop = bench.ready(watchdog_s=100)
    loop.step(1, target(0.5, 0))
    bench.next(1)
    bench.robot.on_reset = fail
    loop.reset(2, {})
    bench.next(2)
    count = len(bench.robot.commands)
    loop.park(5.0)
    assert len(bench.robot.commands) == count
    assert loop.stopped is None


def test_parking_gives_up_a_command_half_way(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=100, control_hz=bench.robot.spec.rate_hz / 25)
    loop.step(1, target(0.2, 0))
    until(lambda: bench.robot.commands and bench.robot.commands[-1][0] > 0)
    loop.park(5.0)
    assert "given up half way" in str(bench.next(1))


def test_a_slow_step_does_not_make_an_old_command_younger(bench: Bench, target: Target) -> None:
    loop = bench.ready(watchdog_s=1.0, max_command_age_s=5.0)
    slow = iter([0.1])
    bench.robot.on_step = lambda: time.sleep(next(slow, 0.0))
    loop.step(1, target(0.1, 0), time.monotonic_ns() - 700_000_000)
    bench.next(1)
    began = time.monotonic()
    until(lambda: loop.broken)
    assert time.monotonic() - began < 0.7


def test_in_lockstep_a_robot_is_read_by_its_steps_alone_and_parked_from_its_start(robot: Integrator) -> None:
    calls: list[str] = []
    robot.read = lambda: calls.append("read")  # type: ignore[attr-defined]
    robot.arm_watchdog = lambda timeout_s: calls.append("arm") or True  # type: ignore[attr-defined, func-returns-value]
    robot.disarm_watchdog = lambda: calls.append("rest")  # type: ignore[attr-defined]
    server = Server(robot, lockstep=True)
    with server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({"start": {"target": [0.5, 0.0]}})
        assert calls == []
        server.close(lower_s=10.0)
    assert robot.commands[-1] == (0.0, 0.0)
    assert calls == []


def test_a_thread_that_has_ended_gives_no_sign_of_life(bench: Bench) -> None:
    loop = bench.ready(watchdog_s=100)
    assert loop.heartbeat.silence(1.5) is None
    loop.close()
    assert loop.heartbeat.silence(1.5) is None
    until(lambda: loop.heartbeat.silence(1.5) is not None, 8.0)


def test_a_new_loop_has_asked_for_nothing_and_left_nothing_alone(bench: Bench) -> None:
    loop = bench.make()
    assert loop.real_time == RealTime(False, "not asked for")
    assert loop.abandoned is None
    loop.start()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "rlenv-robot control"]
    assert thread.daemon, "a driver that hangs must not keep the process alive"


def test_a_file_that_is_closed_before_its_loop_ends_leaves_a_stop(bench: Bench, tmp_path: Path) -> None:
    loop = bench.make()
    loop.keep_stops(tmp_path)
    loop.close_stop_file()
    again = bench.make(Integrator())
    again.keep_stops(tmp_path)
    assert again.stopped is not None
    again.close_stop_file()


def test_a_stop_of_the_driver_that_does_not_return_holds_up_no_answer(bench: Bench, target: Target) -> None:
    entered, go, end = threading.Event(), threading.Event(), threading.Event()
    loop = bench.ready(watchdog_s=100)
    bench.robot.on_step = lambda: (entered.set(), go.wait(10))
    bench.robot.stop = lambda reason: end.wait(20)  # type: ignore[method-assign, assignment, return-value]
    loop.step(1, target(0.1, 0))
    assert entered.wait(10)
    loop.stop("a hand")
    go.set()
    try:
        assert isinstance(bench.next(1), RobotState | RobotStopped)
    finally:
        end.set()
