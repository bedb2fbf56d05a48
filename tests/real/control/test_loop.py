"""The control loop alone: rate, hold, watchdog, stop."""

import queue
import threading
import time

import numpy as np
import pytest

from hal import EpisodeError, IllegalAction, RobotState, RobotStopped
from real import ControlLoop, LoopSettings


class Answers:
    """The outcomes by token, waited for with a generous bound."""

    def __init__(self):
        self._queue = queue.SimpleQueue()

    def __call__(self, request_id, outcome):
        self._queue.put((request_id, outcome))

    def next(self, request_id):
        got, outcome = self._queue.get(timeout=10)
        assert got == request_id
        return outcome


@pytest.fixture
def answers():
    return Answers()


@pytest.fixture
def make_loop(robot, answers):
    loops = []

    def make(**settings):
        loops.append(ControlLoop(robot, answers, LoopSettings(**settings)))
        loops[-1].start()
        return loops[-1]

    yield make
    for loop in loops:
        loop.close()


def test_a_watchdog_shorter_than_two_periods_is_refused(robot, answers):
    with pytest.raises(ValueError, match=r"at least two periods, 0\.04 s"):
        ControlLoop(robot, answers, LoopSettings(watchdog_s=0.03))


def test_nothing_moves_before_a_reset(make_loop, robot, answers, target):
    loop = make_loop()
    loop.step(1, target(0.5, 0))
    assert isinstance(answers.next(1), EpisodeError)
    time.sleep(0.1)
    assert robot.commands == []


def test_holds_what_was_applied_last_at_the_robots_rate(make_loop, robot, answers, target, until):
    loop = make_loop(watchdog_s=100)
    loop.reset(0, {})
    assert isinstance(answers.next(0), RobotState)
    loop.step(1, target(0.5, -0.5))
    assert isinstance(answers.next(1), RobotState)
    at = len(robot.commands)
    began = time.monotonic()
    until(lambda: len(robot.commands) >= at + 10)
    assert time.monotonic() - began > 7 * robot.spec.period_s, "faster than its rate"
    assert set(robot.commands[at - 1 :]) == {(0.5, -0.5)}


def test_a_way_home_is_waited_for_until_its_deadline(make_loop, robot, answers, target):
    """An arm whose torque goes while it is on its way falls."""
    loop = make_loop(watchdog_s=100)
    loop.reset(0, {})
    answers.next(0)
    loop.step(1, target(1.0, 0))
    answers.next(1)
    began = time.monotonic()
    loop.park(0.8, velocity=0.01)  # a way of 100 s
    assert time.monotonic() - began >= 0.8
    assert 0.9 < robot.commands[-1][0] < 1.0


@pytest.mark.requirement("R6.6")
def test_silence_breaks_the_episode_and_a_reset_mends_it(make_loop, robot, answers, target, until, caplog):
    loop = make_loop(watchdog_s=0.1)
    loop.reset(0, {})
    answers.next(0)
    time.sleep(0.3)
    assert loop.broken is None, "nobody is late before the first command"
    loop.step(1, target(0.5, 0))
    answers.next(1)
    until(lambda: loop.broken)
    until(lambda: "no valid command for 0.1 s" in caplog.text)
    at = len(robot.commands)
    loop.step(2, target(-0.5, 0))
    refusal = answers.next(2)
    assert isinstance(refusal, EpisodeError)
    assert "held: no valid command for 0.1 s" in str(refusal)
    until(lambda: len(robot.commands) > at + 3)
    assert (-0.5, 0.0) not in robot.commands
    loop.reset(3, {})
    answers.next(3)
    loop.step(4, target(-0.5, 0))
    assert isinstance(answers.next(4), RobotState)


def test_illegal_commands_do_not_feed_the_watchdog(make_loop, answers, target, until):
    loop = make_loop(watchdog_s=0.1)
    loop.reset(0, {})
    answers.next(0)
    loop.step(1, target(0.5, 0))
    answers.next(1)
    refused = 0
    while loop.broken is None:
        loop.step(2, target(9, 0))
        refused += isinstance(answers.next(2), IllegalAction)
        assert refused < 1000
    assert refused > 0


def test_a_slow_step_is_not_the_clients_silence(make_loop, robot, answers, target):
    loop = make_loop(watchdog_s=0.1)
    loop.reset(0, {})
    answers.next(0)
    robot.on_step = lambda: time.sleep(0.25)
    for request_id in range(1, 4):
        loop.step(request_id, target(0.5, 0))
        assert isinstance(answers.next(request_id), RobotState)


def test_only_the_newest_of_several_commands_is_executed(make_loop, robot, answers, target):
    loop = make_loop(watchdog_s=10)
    entered, go = threading.Event(), threading.Event()
    loop.reset(0, {})
    answers.next(0)
    robot.on_step = lambda: (entered.set(), go.wait(10))
    assert entered.wait(10)
    for request_id, value in ((1, 0.1), (2, 0.2), (3, 0.3)):
        loop.step(request_id, target(value, 0))
    go.set()
    assert "newer order" in str(answers.next(1))
    assert "newer order" in str(answers.next(2))
    np.testing.assert_allclose(answers.next(3).applied["target"], [0.3, 0])
    assert not {np.float32(0.1).item(), np.float32(0.2).item()} & {first for first, _ in robot.commands}


def test_a_robot_that_paces_itself_waits_for_the_clients_answer(robot, make_loop, answers, target):
    """The command computed from the last reading makes it into the very next period."""
    robot.on_step = lambda: time.sleep(robot.spec.period_s)
    loop = make_loop(paced_by_robot=True, watchdog_s=10)
    loop.reset(0, {})
    answers.next(0)
    for request_id in range(1, 11):
        loop.step(request_id, target(request_id / 20, 0))
        assert answers.next(request_id).sensors["steps"] <= 3 * request_id


def test_stop_is_at_once_and_ends_the_holding(make_loop, robot, answers, target):
    loop = make_loop(watchdog_s=10)
    loop.reset(0, {})
    answers.next(0)
    inside = threading.Event()
    robot.on_step = lambda: (inside.set(), robot.stopping.wait(10))
    assert inside.wait(10)
    began = time.monotonic()
    loop.stop("enough")
    assert time.monotonic() - began < 1
    time.sleep(0.1)
    at = len(robot.commands)
    time.sleep(0.1)
    assert len(robot.commands) == at, "a stopped robot gets no more commands"
    loop.step(1, target(0.1, 0))
    assert isinstance(answers.next(1), RobotStopped)


def test_a_stop_is_not_cleared_by_a_reset_asked_for_before(make_loop, robot, answers):
    """The reset waits in the queue, with its clear_stop, while the next stop comes."""
    loop = make_loop(lockstep=True)
    inside, go = threading.Event(), threading.Event()
    robot.on_reset = lambda: (inside.set(), go.wait(10))
    loop.reset(1, {})
    assert inside.wait(10)
    loop.reset(2, {"clear_stop": "an older one"})
    loop.stop("a newer one")
    go.set()
    assert isinstance(answers.next(1), RobotStopped)
    assert "a newer one" in str(answers.next(2))
    assert loop.stopped == "a newer one"
    loop.reset(3, {"clear_stop": "looked"})
    assert isinstance(answers.next(3), RobotState)


def test_a_stop_that_the_robots_own_reset_does_not_notice_still_counts(make_loop, robot, answers):
    loop = make_loop()
    robot.on_reset = lambda: (loop.stop("mid-reset"), robot.stopping.clear())
    loop.reset(0, {})
    outcome = answers.next(0)
    assert isinstance(outcome, RobotStopped)
    assert "mid-reset" in str(outcome)
    assert loop.stopped == "mid-reset"


def test_a_fault_while_holding_stops_the_robot_and_the_loop_survives(make_loop, robot, answers, target, until):
    loop = make_loop()
    loop.reset(0, {})
    answers.next(0)

    def broken():
        raise OSError("bus error")

    robot.on_step = broken
    until(lambda: loop.stopped)
    assert loop.stopped == "fault in hold: OSError: bus error"
    robot.on_step = lambda: None
    loop.reset(1, {"clear_stop": "bus is back"})
    assert isinstance(answers.next(1), RobotState)


def test_a_driver_that_never_returns_does_not_hang_the_close(robot, answers, caplog):
    loop = ControlLoop(robot, answers, LoopSettings(lockstep=True))
    loop.start()
    inside, go = threading.Event(), threading.Event()
    robot.on_reset = lambda: (inside.set(), go.wait(10))
    loop.reset(0, {})
    assert inside.wait(10)
    loop.close(timeout_s=0.1)
    assert "did not return" in caplog.text
    go.set()
    loop.close()
    assert robot.closed == 1


def test_a_bug_in_the_loop_stops_the_robot_and_is_survived(robot, answers, until):
    def answer(request_id, outcome):
        if request_id == "bad":
            raise ZeroDivisionError("a bug")
        answers(request_id, outcome)

    loop = ControlLoop(robot, answer, LoopSettings(watchdog_s=10))
    loop.start()
    loop.reset("bad", {})
    until(lambda: loop.stopped)
    assert "ZeroDivisionError" in loop.stopped
    loop.reset("good", {"clear_stop": "mended"})
    assert isinstance(answers.next("good"), RobotState)
    loop.close()
