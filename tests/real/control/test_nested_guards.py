"""Whatever a robot is wrapped in, no command reaches its driver out of range, too fast, or after a stop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Automatic, Guard, Homing, RobotError, RobotState, RobotStopped
from hal.guard import guarded, innermost_guard
from hal.homing import HomingSettings
from hal.wrapper import RobotWrapper
from real import ControlLoop, LoopSettings
from tests.fakes import TWO_JOINTS, Puppet, until

QUICK = HomingSettings(velocity=50.0, settle_s=0.1, deadline_s=5.0, tolerance=0.2)
"""A reset that asks for more than the robot's limits allow, so that the guard has to hold it."""

STRIDE = 2.0 / TWO_JOINTS.rate_hz
LEAD = 0.5

NESTINGS: dict[str, Any] = {
    "bare": lambda robot: robot,
    "Guard": Guard,
    "Guard(Guard)": lambda robot: Guard(Guard(robot)),
    "Homing": lambda robot: Homing(robot, Automatic(), QUICK),
    "Homing(Guard)": lambda robot: Homing(Guard(robot), Automatic(), QUICK),
    "Guard(Homing)": lambda robot: Guard(Homing(robot, Automatic(), QUICK)),
    "Guard(Homing(Guard))": lambda robot: Guard(Homing(Guard(robot), Automatic(), QUICK)),
    "RobotWrapper(Homing(RobotWrapper(Guard)))": lambda robot: RobotWrapper(
        Homing(RobotWrapper(Guard(robot)), Automatic(), QUICK)
    ),
}

anything = st.floats(-1e6, 1e6) | st.sampled_from([float("nan"), float("inf"), -1.0, 1.0, 0.0])
commands = st.lists(st.tuples(anything, anything), min_size=1, max_size=12)


class Recorder(Puppet):
    """A robot whose reset does not move it, and which says that it is simulated so that time may stand still."""

    simulated = True


def run_loop(robot: Any, values: list[tuple[float, float]]) -> list[RobotState | Exception]:
    """Return the outcomes of a reset and of steps, served in lockstep."""
    outcomes: list[RobotState | Exception] = []
    loop = ControlLoop(robot, lambda _, outcome: outcomes.append(outcome), LoopSettings(lockstep=True))
    loop.reset(0, {})
    loop.start()
    try:
        for number, value in enumerate(values, 1):
            until(lambda: len(outcomes) >= number)  # noqa: B023 (of several waiting commands the newest is followed)
            loop.step(number, {"target": np.array(value, np.float32)})
        until(lambda: len(outcomes) > len(values))
    finally:
        loop.close()
    return outcomes


def assert_legal(robot: Recorder, start: np.ndarray) -> None:
    """Every command that the driver got was in range, and no faster than its limit."""
    low, high = TWO_JOINTS.commands["target"].bounds
    applied = np.array([start, *robot.told])
    assert np.isfinite(applied).all()
    assert (applied[1:] >= low).all()
    assert (applied[1:] <= high).all()
    assert np.abs(np.diff(applied, axis=0)).max(initial=0.0) <= STRIDE * (1 + 1e-5)


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("nesting", NESTINGS.values(), ids=NESTINGS)
@settings(max_examples=25, deadline=None)
@given(values=commands, at=st.tuples(st.floats(-0.9, 0.9), st.floats(-0.9, 0.9)), follows=st.floats(0.6, 1.0))
def test_no_illegal_command_reaches_the_driver(
    nesting: Any, values: list[tuple[float, float]], at: tuple[float, float], follows: float
) -> None:
    robot = Recorder(at=at, follows=follows)
    start = robot.applied.copy()
    outcomes = run_loop(nesting(robot), values)
    assert_legal(robot, start)
    assert len(outcomes) == len(values) + 1
    assert all(isinstance(outcome, RobotState | RobotError) for outcome in outcomes)


@pytest.mark.parametrize("nesting", NESTINGS.values(), ids=NESTINGS)
def test_there_is_one_latch_and_the_loop_reads_it(nesting: Any) -> None:
    """A NaN latches the innermost guard; an outer one must not hide that from the loop."""
    robot = Recorder()
    outcomes: list[RobotState | Exception] = []
    loop = ControlLoop(nesting(robot), lambda _, outcome: outcomes.append(outcome), LoopSettings(lockstep=True))
    loop.reset(0, {})
    loop.start()
    try:
        until(lambda: outcomes)
        loop.stop("a hand")
        steps = len(robot.told)
        loop.step(1, {"target": np.zeros(2, np.float32)})
        until(lambda: len(outcomes) > 1)
        assert isinstance(outcomes[1], RobotStopped)
        assert loop.stopped == "a hand"
        assert len(robot.told) == steps
    finally:
        loop.close()


@pytest.mark.parametrize("nesting", NESTINGS.values(), ids=NESTINGS)
def test_the_innermost_guard_is_next_to_the_driver(nesting: Any) -> None:
    robot = Recorder()
    guard = innermost_guard(guarded(nesting(robot)))
    assert guard._robot is robot


def test_a_robot_without_a_guard_says_how_to_get_one() -> None:
    with pytest.raises(ValueError, match=r"hal\.guard\.guarded"):
        innermost_guard(RobotWrapper(Recorder()))
