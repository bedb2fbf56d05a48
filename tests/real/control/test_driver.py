"""A driver hangs when it has been in one step for too long, and no sooner."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Automatic, Guard, Homing, HomingSettings, RobotState
from real import Server
from real.control.driver import HANGS_S, DriverWatch, park
from real.control.lifecycle import State
from tests.fakes import Integrator, ManualClock, Puppet, until


def look_for(watch: DriverWatch, clock: ManualClock, seconds: float) -> str | None:
    """Look ten times a second for so long."""
    hangs = None
    for _ in range(round(seconds / 0.1)):
        clock.advance(0.1)
        hangs = watch.look()
    return hangs


def test_only_a_step_that_does_not_end_is_one_that_hangs() -> None:
    clock, calls = ManualClock(), [None]
    watch = DriverWatch(lambda: calls[0], clock)
    assert look_for(watch, clock, 5 * HANGS_S) is None, "it was never called"
    for _ in range(3):
        calls[0] = clock()  # type: ignore[call-overload]
        assert look_for(watch, clock, 0.8 * HANGS_S) is None
    calls[0] = clock()  # type: ignore[call-overload]
    assert "check its cable" in str(look_for(watch, clock, 1.1 * HANGS_S))
    calls[0] = None
    assert watch.look() is None


@pytest.mark.parametrize("frozen_s", [0.5, 3.0, 3600.0])
def test_a_frozen_process_does_not_blame_its_driver(frozen_s: float) -> None:
    clock, calls = ManualClock(), [None]
    watch = DriverWatch(lambda: calls[0], clock)
    watch.look()
    calls[0] = clock()  # type: ignore[call-overload]
    clock.advance(frozen_s)
    assert watch.look() is None, "the driver has not had its chance to return"
    assert watch.look() is None
    assert look_for(watch, clock, 1.1 * HANGS_S) is not None


class Hanging(Puppet):
    """A real arm whose driver hangs in its third step from a reset on, until it is released."""

    def __init__(self) -> None:
        super().__init__(at=(0.5, 0.0))
        self.hangs_at, self.release = 3, threading.Event()

    def step(self, command: Any) -> Any:
        time.sleep(self.spec.period_s / 5)
        if len(self.told) >= self.hangs_at:
            self.release.wait(20)
        return super().step(command)._replace(stamp_ns=time.monotonic_ns())


@pytest.fixture
def arm() -> Iterator[Hanging]:
    arm = Hanging()
    yield arm
    arm.release.set()


def test_a_driver_that_hangs_on_the_way_home_is_stopped(arm: Hanging) -> None:
    outcomes: list[Any] = []
    with Server(Homing(Guard(arm), Automatic(), HomingSettings(velocity=0.5)), watchdog_s=1.0) as server:
        server._loop._tell = lambda _, outcome: outcomes.append(outcome)
        server._loop.reset(1, {})
        until(lambda: server.lifecycle.state is State.STOPPED)
        assert "driver has not returned from a step" in server.lifecycle.why
        steps = len(arm.told)
        arm.release.set()
        until(lambda: outcomes)
        assert len(arm.told) <= steps + 1, "the step under way, and none after it"


def test_a_driver_that_hangs_while_it_is_parked_is_stopped(arm: Hanging) -> None:
    arm.hangs_at = 10**6
    outcomes: list[Any] = []
    settings = HomingSettings(velocity=20.0, settle_s=0.01)
    server = Server(Homing(Guard(arm), Automatic(), settings), watchdog_s=1.0)
    with server:
        server._loop._tell = lambda _, outcome: outcomes.append(outcome)
        server._loop.reset(1, {"start": {"target": np.float32([0.5, 0.0])}})
        until(lambda: outcomes)
        arm.hangs_at = len(arm.told) + 3
        closing = threading.Thread(target=server.close, args=(5.0, 0.2))
        closing.start()
        until(lambda: server.lifecycle.state is State.STOPPED)
        assert "driver has not returned from a step" in server.lifecycle.why
        arm.release.set()
        closing.join(20)
        assert not closing.is_alive()


@given(st.floats(0.1, 20.0), st.floats(0.01, 0.5))
def test_parking_lasts_until_its_deadline_and_a_period_longer_at_most(deadline_s: float, period_s: float) -> None:
    clock, robot = ManualClock(0.0), Integrator()

    def step(command: Any) -> RobotState:
        clock.advance(period_s)
        return robot.step(command)

    park(robot.spec, step, {"target": np.ones(2, np.float32)}, deadline_s, velocity=1e-3, now=clock)
    assert deadline_s <= clock.now < deadline_s + period_s
