"""Whatever ends a run of checks, the robot is stopped first, then closed, and no later call reaches it."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from plugins.kit.tests.robot_faults import Arm
from rlenv_kit import Deadlines, check_robot
from rlenv_kit.report import Failed
from rlenv_kit.supervisor import CallLog, PlannedCheck, Supervisor
from tests.fakes import until

pytestmark = pytest.mark.requirement("R4.3", "R6.6")


class Watched(Arm):
    """Record the calls, and run a test's function in the n-th step."""

    steps = 0
    at = 40

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.freed = threading.Event()

    def step(self, command: Any) -> Any:
        self.steps += 1
        self.calls.append("step")
        if self.steps == self.at:
            self.happens()
        return super().step(command)

    def happens(self) -> None:
        """Do nothing unusual."""

    def stop(self, reason: str) -> None:
        self.calls.append("stop")
        super().stop(reason)

    def close(self) -> None:
        self.calls.append("close")
        super().close()

    def ended_safely(self) -> bool:
        """Return whether a stop and then a close are the last calls."""
        last = len(self.calls) - 1 - self.calls[::-1].index("step")
        return self.calls[last + 1 : last + 3] == ["stop", "close"]


class Interrupted(Watched):
    def happens(self) -> None:
        raise KeyboardInterrupt


class Exits(Watched):
    def happens(self) -> None:
        raise SystemExit(0)


class Hangs(Watched):
    def happens(self) -> None:
        self.freed.wait(60)


class Loops(Watched):
    def happens(self) -> None:
        while True:
            pass


def test_an_interrupt_stops_and_closes_the_robot() -> None:
    robot = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        check_robot(robot)
    assert robot.ended_safely(), robot.calls[-5:]


def test_ctrl_c_while_the_robot_steps_stops_and_closes_it() -> None:
    class Signalled(Watched):
        def happens(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            self.freed.wait(0.5)

    robot = Signalled()
    with pytest.raises(KeyboardInterrupt):
        check_robot(robot)
    steps = robot.steps
    assert robot.ended_safely() or "stop" in robot.calls[-3:], robot.calls[-5:]
    assert robot.closed
    time.sleep(0.1)
    assert robot.steps == steps, "a step came after the interrupt"


def test_an_exit_in_a_driver_is_a_finding_and_the_robot_is_stopped_and_closed() -> None:
    robot = Exits()
    report = check_robot(robot)
    assert "SystemExit(0)" in str(report)
    assert robot.ended_safely(), robot.calls[-5:]


@pytest.mark.parametrize("kind", [Hangs, pytest.param(Loops, marks=pytest.mark.slow)])
def test_a_call_that_hangs_is_a_finding_and_nothing_moves_after_it(kind: type[Watched]) -> None:
    robot, before = kind(), set(threading.enumerate())
    report = check_robot(robot, deadlines=Deadlines(step=0.5))
    (finding,) = report.failures
    assert "did not return within 0.5 s" in finding.message
    assert robot.calls[-2:] == ["stop", "close"]
    steps = robot.steps
    robot.freed.set()
    until(lambda: not set(threading.enumerate()) - before)
    assert robot.steps == steps, "a step came after the run was given up"


def test_a_robot_that_cannot_be_stopped_is_not_moved_any_further() -> None:
    class Unstoppable(Watched):
        def stop(self, reason: str) -> None:
            self.calls.append("stop")

    robot = Unstoppable()
    report = check_robot(robot)
    assert [check.key for check in report.failures] == ["stop"]
    assert robot.calls.count("step") <= 5, "only the steps that should have been refused"


def test_a_check_that_needs_a_failed_one_is_not_made() -> None:
    made: list[str] = []

    def fails() -> None:
        made.append("first")
        raise Failed("it is broken", "it must not be")

    plan = [
        PlannedCheck("first", "the first holds", "R1", fails),
        PlannedCheck("second", "the second holds", "R1", lambda: made.append("second"), ("first",)),
        PlannedCheck("third", "the third holds", "R1", lambda: made.append("third"), ("second",)),
        PlannedCheck("apart", "another holds", "R1", lambda: made.append("apart")),
    ]
    checks = Supervisor(CallLog(Deadlines()), None, lambda: None).run(plan)
    assert made == ["first", "apart"]
    assert [check.passed for check in checks] == [False, None, None, True]
    assert [check.number for check in Supervisor(CallLog(Deadlines()), None, tuple).run(plan, only=4)] == [4]


class Pauses(Watched):
    def happens(self) -> None:
        time.sleep(0.4)


def test_after_the_time_limit_the_robot_is_stopped_and_closed_and_the_report_names_the_rest() -> None:
    robot = Pauses()
    report = check_robot(robot, deadlines=Deadlines(step=10.0, total=0.3))
    assert robot.calls[-2:] == ["stop", "close"]
    assert robot.steps <= robot.at, "a step came after the time limit"
    (finding,) = report.failures
    assert "the run reached its time limit of 0.3 s, in this check" in finding.message
    assert not report.passed
    assert "did not return" not in str(report), "a call that began before the time limit has its own deadline"
    numbers = [check.number for check in report.unreached]
    assert numbers == [*range(finding.number + 1, len(report.checks) + 1)], "all that follow, and no other"
    assert f"{len(numbers)} not reached" in report.summary
    (line,) = (line for line in report.lines(verbose=False) if line.startswith("unreached"))
    assert all(f"#{check.number} {check.name}" in line for check in report.unreached)


def test_no_step_is_made_when_the_time_is_over_before() -> None:
    robot = Watched()
    report = check_robot(robot, deadlines=Deadlines(total=0.0))
    assert (robot.steps, robot.calls) == (0, ["stop", "close"])
    assert [check.passed for check in report.checks[:2]] == [False, None]
    assert len(report.unreached) == len(report.checks) - 1


def test_a_subject_that_is_not_made_in_time_is_a_finding() -> None:
    report = check_robot(Watched, deadlines=Deadlines(total=0.0))
    assert not report.passed
    assert "before the subject was made" in str(report)


def test_a_check_that_makes_no_calls_is_left_after_the_time_limit() -> None:
    freed = threading.Event()

    def waits() -> None:
        freed.wait(60)

    plan = [PlannedCheck("waits", "it waits", "R1", waits)]
    (check,) = Supervisor(CallLog(Deadlines(step=0.1, total=0.1)), None, freed.set).run(plan)
    assert check.passed is False
    assert "reached its time limit" in check.message
