"""A robot whose client falls silent holds, parks or damps, by choice; a stop wins over each of them."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import Automatic, EpisodeError, Guard, Homing, HomingSettings, RobotState
from real import ControlLoop, LoopSettings, RemoteRobot, Server
from real.control.lifecycle import State
from real.control.settings import DEAF_S
from tests.fakes import Integrator, LatchingPuppet, until

AWAY = (0.9, -0.9)


class Arm(LatchingPuppet):
    """A driver that can damp its motors."""

    def __init__(self) -> None:
        super().__init__()
        self.on_damp = lambda: None

    def damp(self) -> bool:
        self.on_damp()
        self.calls.append("damp")
        return True


class Served:
    """An arm in its control loop, away from home, whose client goes silent after one command."""

    def __init__(self, **settings: Any) -> None:
        self.arm, self.outcomes = Arm(), []
        homing = Homing(Guard(self.arm), Automatic(), HomingSettings(velocity=40.0, settle_s=0.02))
        answer: Callable[[Any, Any], None] = lambda _, outcome: self.outcomes.append(outcome)  # noqa: E731
        self.loop = ControlLoop(homing, answer, LoopSettings(paced_by_robot=True, watchdog_s=0.05, **settings))
        self.loop.start()
        self._over = threading.Event()
        self.listens = True
        self._network = threading.Thread(target=self._look, name="a network thread")
        self._network.start()

    def _look(self) -> None:
        """Look after the driver as the thread does that reads stops."""
        while not self._over.wait(0.02):
            if self.listens:
                self.loop.check_driver()

    def ask(self, what: Callable[[], None]) -> Any:
        self.outcomes.clear()
        what()
        until(lambda: self.outcomes)
        return self.outcomes[0]

    def go_silent(self) -> None:
        reset = {"start": {"target": AWAY}, "clear_stop": "the next trial"}
        outcome = self.ask(lambda: self.loop.reset(0, reset))
        assert isinstance(outcome, RobotState), outcome
        assert isinstance(self.ask(lambda: self.loop.step(1, {"target": np.float32(AWAY)})), RobotState)

    def close(self) -> None:
        self._over.set()
        self._network.join()
        self.loop.close()


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    served: list[Served] = []

    def make(**settings: Any) -> Served:
        served.append(Served(**settings))
        return served[-1]

    yield make
    for each in served:
        each.close()


def test_by_default_a_silent_robot_holds(serve: Callable[..., Served]) -> None:
    served = serve()
    served.go_silent()
    until(lambda: served.loop.lifecycle.state is State.HOLDING)
    count = len(served.arm.told)
    until(lambda: len(served.arm.told) > count + 20)
    np.testing.assert_array_equal(served.arm.told[-1], np.float32(AWAY))
    assert served.loop.lifecycle.why == "held: no valid command for 0.05 s"


def test_a_silent_robot_parks_slowly_and_then_holds(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="park", park_velocity=1.0)
    served.go_silent()
    began = len(served.arm.told)
    until(lambda: np.array_equal(served.arm.told[-1], [0.0, 0.0]))
    assert served.loop.lifecycle.state is State.HOLDING
    assert "it goes home slowly" in served.loop.lifecycle.why
    way = np.array([AWAY, *served.arm.told[began:]])
    assert np.abs(np.diff(way, axis=0)).max() <= 1.0 / 100 + 1e-6
    count = len(served.arm.told)
    until(lambda: len(served.arm.told) > count + 5)
    np.testing.assert_array_equal(served.arm.told[-1], [0.0, 0.0])
    refused = served.ask(lambda: served.loop.step(2, {"target": np.float32(AWAY)}))
    assert isinstance(refused, EpisodeError)
    assert "this episode is broken" in str(refused)
    served.go_silent()


def test_a_client_that_comes_ends_the_way_home(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="park", park_velocity=0.2)
    served.go_silent()
    until(lambda: served.arm.told[-1][0] < 0.89)
    served.loop.finish()
    until(lambda: served.loop.nothing_waits())
    time.sleep(0.05)
    count = len(served.arm.told)
    time.sleep(0.05)
    assert len(served.arm.told) == count
    assert served.arm.told[-1][0] > 0.5


def test_where_no_stop_could_be_read_a_silent_robot_stays(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="park", park_velocity=1.0)
    reset = {"start": {"target": AWAY}}
    served.ask(lambda: served.loop.reset(0, reset))
    served.listens = False
    end = time.monotonic() + DEAF_S + 0.2
    while time.monotonic() < end:
        served.ask(lambda: served.loop.step(1, {"target": np.float32(AWAY)}))
    until(lambda: served.loop.lifecycle.state is State.HOLDING)
    assert "it stays, since no stop could be read" in served.loop.lifecycle.why
    count = len(served.arm.told)
    until(lambda: len(served.arm.told) > count + 20)
    np.testing.assert_array_equal(served.arm.told[-1], np.float32(AWAY))


def test_a_way_home_ends_where_the_network_dies(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="park", park_velocity=0.3)
    served.go_silent()
    until(lambda: served.arm.told[-1][0] < 0.89)
    served.listens = False
    time.sleep(DEAF_S + 0.3)
    held = served.arm.told[-1].copy()
    assert held[0] > 0.1
    time.sleep(0.1)
    np.testing.assert_array_equal(served.arm.told[-1], held)


def test_a_silent_robot_gives_way_where_its_driver_offers_that(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="damp")
    served.go_silent()
    until(lambda: "damp" in served.arm.calls)
    until(lambda: served.loop.lifecycle.state is State.HOLDING)
    assert "it is damped" in served.loop.lifecycle.why
    count = len(served.arm.told)
    time.sleep(0.1)
    assert len(served.arm.told) == count, "nothing is told to motors that give way"
    assert isinstance(served.ask(lambda: served.loop.step(2, {"target": np.float32(AWAY)})), EpisodeError)
    served.go_silent()
    assert len(served.arm.told) > count


def test_a_robot_that_gives_way_is_not_parked_at_the_end(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="damp")
    served.go_silent()
    until(lambda: "damp" in served.arm.calls)
    until(lambda: served.loop.lifecycle.state is State.HOLDING)
    count = len(served.arm.told)
    served.loop.park(1.0)
    assert len(served.arm.told) == count
    assert served.loop.stopped is None, "a driver that is damped refuses steps, which would be a fault"


@pytest.mark.parametrize("setting", ["damp", "park"])
def test_what_a_robot_can_not_do_is_refused_at_once(setting: Any) -> None:
    robot = Integrator()
    robot.spec = replace(robot.spec, home={})
    with pytest.raises(ValueError, match=f"on_silence is '{setting}', and .* allowed: 'hold'"):
        ControlLoop(robot, lambda *_: None, LoopSettings(on_silence=setting))
    with pytest.raises(ValueError, match="on_silence is 'limp', allowed are 'hold', 'damp', 'park'"):
        LoopSettings(on_silence="limp")  # type: ignore[arg-type]


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("setting", ["park", "damp"])
def test_a_stop_wins_over_what_follows_a_silence(serve: Callable[..., Served], trials: int, setting: str) -> None:
    served = serve(on_silence=setting, park_velocity=1.0)
    arm, loop, dice, moved = served.arm, served.loop, random.Random(1), []
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for trial in range(trials):
            served.go_silent()
            time.sleep(0.045 + dice.random() * 0.02)  # about when the watchdog expires
            loop.stop("EMERGENCY")
            confirmed = len(arm.told)
            time.sleep(0.01)
            until(lambda: loop.nothing_waits())
            assert loop.lifecycle.state is State.STOPPED
            assert arm.calls[-1] == "stop EMERGENCY", "a stop is the last that the driver is told"
            if len(arm.told) > confirmed:
                moved.append(trial)
    finally:
        sys.setswitchinterval(interval_s)
    assert not moved
    assert arm.refused <= trials


def test_a_stop_during_the_damping_is_passed_on_again(serve: Callable[..., Served]) -> None:
    served = serve(on_silence="damp")
    served.arm.on_damp = lambda: served.loop.stop("EMERGENCY") and None
    served.go_silent()
    until(lambda: served.loop.lifecycle.state is State.STOPPED)
    until(lambda: served.arm.calls[-1] == "stop EMERGENCY" and "damp" in served.arm.calls)


def test_a_server_parks_a_robot_whose_client_is_gone(robot: Integrator, target: Callable[..., Any]) -> None:
    with Server(robot, on_silence="park", park_velocity=5.0) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(1.0, 1.0))
        until(lambda: robot.commands[-1] == (0.0, 0.0))
        assert server.lifecycle.state is State.HOLDING
        remote.close()
