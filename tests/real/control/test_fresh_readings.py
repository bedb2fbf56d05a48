"""A robot that can be read without a step is read while nothing steps it, and a reading that hangs is noticed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hal import Answer, Automatic, Guard, Homing, HomingSettings, ResetFailed, RobotState, RobotStopped
from real import RemoteRobot, Server
from real.control.lifecycle import State
from real.telemetry.state import Watcher
from rlenv_robot.robot_models import find_robot_model
from tests.fakes import Integrator, ManualClock, until

QUICK = HomingSettings(settle_s=0.02)


class Readable(Integrator):
    """A robot that somebody moves by hand while nothing commands it."""

    simulated = False

    def __init__(self) -> None:
        super().__init__()
        self.hand, self.reads = np.zeros(2, np.float32), 0
        self.on_read: Callable[[], None] = lambda: None

    def read(self) -> RobotState:
        self.on_read()
        self.threads.add(threading.get_ident())
        self.reads += 1
        state = self._read()
        return state._replace(sensors={**state.sensors, "position": self._position + self.hand})


class Person:
    """Takes its time, and then refuses."""

    def __init__(self) -> None:
        self.answers = threading.Event()

    def ask(self, request: Any) -> Answer:
        self.answers.wait(20)
        raise ResetFailed("not yet")

    def judge(self, request: Any) -> Answer:
        return Answer("a person")

    def close(self) -> None:
        self.answers.set()


@pytest.fixture
def arm() -> Iterator[Readable]:
    arm = Readable()
    yield arm
    arm.on_read = lambda: None


def measured(server: Server) -> float:
    latest = server._loop.latest
    assert latest is not None
    return float(latest.sensors["position"][0])


def test_after_a_stop_and_between_episodes_readings_are_fresh(arm: Readable) -> None:
    with Server(Homing(Guard(arm), Automatic(), QUICK)) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        steps = len(arm.commands)
        remote.stop("a hand in the way")
        arm.hand = np.float32([0.3, 0.0])
        until(lambda: measured(server) == pytest.approx(0.3))
        assert len(arm.commands) <= steps + 20
        steps = len(arm.commands)
        until(lambda: arm.reads > 3)
        assert len(arm.commands) == steps, "reading moves nothing"
        assert server.about()["reading_age_s"] < 5.0
        assert server.lifecycle.state is State.STOPPED
        remote.reset({"clear_stop": "it is gone"})
        remote.close()  # released
        arm.hand = np.float32([-0.2, 0.0])
        until(lambda: measured(server) == pytest.approx(-0.2, abs=1e-6))
        assert len(arm.threads) == 1, "on the thread that steps"


def test_while_a_person_is_asked_readings_are_fresh(arm: Readable) -> None:
    person = Person()
    server = Server(Homing(Guard(arm), person, QUICK), telemetry="tcp://127.0.0.1:*")
    with server:
        server._loop.reset(1, {})
        until(lambda: arm.reads > 3)
        arm.hand = np.float32([0.4, 0.0])
        with Watcher(server.telemetry, arm.spec) as watcher:
            until(lambda: watcher.next().sensors["position"][0] == pytest.approx(0.4))
        assert arm.commands == []
        assert server.lifecycle.state in (State.ARMING, State.RESETTING)
        person.answers.set()


def test_a_robot_is_read_before_its_first_reset_and_nothing_moves_or_is_begun(arm: Readable) -> None:
    arm.hand = np.float32([0.3, 0.0])
    with Server(Homing(Guard(arm), Automatic(), QUICK), telemetry="tcp://127.0.0.1:*") as server:
        until(lambda: server._loop.latest is not None and measured(server) == pytest.approx(0.3))
        arm.hand = np.float32([0.5, 0.0])
        with Watcher(server.telemetry, arm.spec) as watcher:
            until(lambda: watcher.next().sensors["position"][0] == pytest.approx(0.5))
        assert server.lifecycle.state is State.DISARMED
        assert (arm.resets, arm.commands) == ([], [])
        remote = RemoteRobot(server.address)
        remote.stop("a hand in the way")  # also then
        arm.hand = np.float32([0.7, 0.0])
        until(lambda: measured(server) == pytest.approx(0.7))
        assert (arm.resets, arm.commands) == ([], [])
        remote.close()


@pytest.mark.parametrize("what", ["raises", "measures NaN"])
def test_a_robot_that_can_not_be_read_yet_is_not_stopped_for_that_and_is_tried_again(arm: Readable, what: str) -> None:
    clock = ManualClock()
    guard = Guard(arm, clock)
    if what == "raises":
        arm.on_read = _switched_off
    else:
        arm.hand = np.float32([np.nan, 0.0])
    guard.refresh()
    guard.refresh()
    assert guard.latest is None
    assert guard.stopped is None
    assert ("switched off" if what == "raises" else "finite") in str(guard.unread)
    arm.on_read, arm.hand = lambda: None, np.zeros(2, np.float32)
    reads = arm.reads
    guard.refresh()
    assert arm.reads == reads, "not at once"
    clock.advance(1.0)
    guard.refresh()
    assert guard.latest is not None
    assert guard.unread is None


def _switched_off() -> None:
    raise OSError("switched off")


@pytest.mark.parametrize("where", ["sim", "twin"])
def test_a_served_simulation_is_read_when_nothing_steps_it(where: str) -> None:
    robot = find_robot_model("so101").make_served_simulation(where)
    with Server(Homing(Guard(robot), Automatic(), QUICK), paced_by_robot=True) as server:
        until(lambda: server._loop.latest is not None)
        lying = server._loop.latest.sensors["joint_position"]
        until(lambda: server.about()["reading_age_s"] < 0.5)
        remote = RemoteRobot(server.address, reset_timeout_s=60)
        remote.stop("enough")
        time.sleep(1.0)
        until(lambda: server.about()["reading_age_s"] < 0.5)
        np.testing.assert_array_equal(server._loop.latest.sensors["joint_position"], lying)
        remote.close()


def test_a_robot_that_can_not_be_read_has_its_age_said(robot: Integrator, target: Callable[..., Any]) -> None:
    with Server(robot) as server:
        assert server.about()["reading_age_s"] is None
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.stop("enough")
        time.sleep(0.3)
        assert server.about()["reading_age_s"] >= 0.2
        remote.close()


def test_a_wrong_reading_of_a_stopped_robot_is_left_out_and_others_stop_it(arm: Readable) -> None:
    guard = Guard(arm)
    guard.reset({})
    arm.hand = np.float32([np.nan, 0.0])
    guard.stop("enough")
    number = guard.latch.number
    assert guard.read() is None
    assert guard.latch.number == number
    assert guard.latest is not None
    assert np.isfinite(guard.latest.sensors["position"]).all()
    arm.hand = np.zeros(2, np.float32)
    guard.reset({"clear_stop": "looked"})
    arm.hand = np.float32([np.nan, 0.0])
    with pytest.raises(RobotStopped, match="not a finite number"):
        guard.read()
    assert guard.stopped is not None


@pytest.mark.parametrize("when", ["stopped", "asking"])
def test_a_reading_that_hangs_is_noticed_and_others_are_answered(arm: Readable, when: str) -> None:
    release = threading.Event()
    confirmation: Any = Person() if when == "asking" else Automatic()
    with Server(Homing(Guard(arm), confirmation, QUICK)) as server:
        remote = RemoteRobot(server.address)
        if when == "stopped":
            remote.reset({})
            remote.stop("enough")
        arm.on_read = lambda: release.wait(20) and None
        if when == "asking":
            server._loop.reset(1, {})
            until(lambda: server.lifecycle.state is State.STOPPED)
            assert "has not returned" in server.lifecycle.why
        else:
            until(lambda: server._loop._driver.hangs is not None)
        assert remote.status()["state"] == "stopped"
        remote.stop("and again")
        arm.on_read = lambda: None
        release.set()
        if when == "asking":
            confirmation.answers.set()
        remote.close()
