"""Every way between the states is known, logged and drawn; every other is refused with the reason."""

import itertools
import logging
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hal import Answer, ConnectionLost, EpisodeError, Guard, Homing, Limits, ResetFailed, RobotStopped
from hal.homing import HomingSettings
from real import RemoteRobot, Server
from real.control.driver import park
from real.control.lifecycle import WAYS, Lifecycle, State
from tests.fakes import INTEGRATOR, Integrator

PAGE = Path(__file__).resolve().parents[3] / "docs" / "bridge.md"


def led_to(state):
    """A life that was led to a state by legal ways."""
    lifecycle = Lifecycle("arm")
    paths = [[State.DISARMED]]
    while paths[0][-1] is not state:
        path = paths.pop(0)
        paths += [[*path, after] for after in sorted(WAYS[path[-1]]) if after not in path]
    for step in paths[0][1:]:
        lifecycle.go(step, "a test")
    return lifecycle


@pytest.mark.parametrize(("before", "after"), list(itertools.product(State, State)))
def test_each_way_is_logged_or_refused(before, after, caplog):
    caplog.set_level(logging.INFO)
    lifecycle = led_to(before)
    past = lifecycle.history
    caplog.clear()
    if after in WAYS[before]:
        lifecycle.go(after, "because")
        assert (lifecycle.state, lifecycle.why) == (after, "because")
        assert lifecycle.history[-1][1:] == (before, after, "because")
        assert f"arm: {before} -> {after}: because" in caplog.text
    else:
        with pytest.raises(EpisodeError, match=f"arm is {before} .* can't be {after} next .because.; from {before}"):
            lifecycle.go(after, "because")
        assert (lifecycle.state, lifecycle.history, caplog.text) == (before, past, "")


@pytest.mark.parametrize("before", list(State))
def test_a_stop_is_legal_everywhere_and_keeps_its_first_reason(before):
    lifecycle = led_to(before)
    lifecycle.stop("first")
    lifecycle.stop("second")
    assert lifecycle.state is State.STOPPED
    assert lifecycle.why == ("a test" if before is State.STOPPED else "first")


def test_the_page_draws_exactly_these_ways():
    rows = re.findall(r"^\| `(\w+)` \| [^|]* \| ([^|]*) \|$", PAGE.read_text(), re.MULTILINE)
    drawn = {State(name): frozenset(map(State, re.findall(r"`(\w+)`", ways))) for name, ways in rows if name in WAYS}
    assert drawn == WAYS


@pytest.fixture
def states():
    def of(server):
        return [str(each.after) for each in server.lifecycle.history]

    return of


def test_a_whole_life(robot, target, states, until):
    events = []
    homed = Homing(robot, _Asked(), HomingSettings(settle_s=0.01), lambda *event: server.report(*event))
    server = Server(homed, watchdog_s=0.2, max_command_age_s=None)
    with server:
        assert server.lifecycle.state is State.DISARMED
        assert robot.resets == [], "a server that starts touches nothing"
        remote = RemoteRobot(server.address, on_event=lambda *event: events.append(event))
        remote.reset({})
        assert server.lifecycle.state is State.READY
        remote.step(target(0.1, 0))
        assert server.lifecycle.state is State.RUNNING
        until(lambda: server.lifecycle.state is State.HOLDING)
        remote.reset({})
        remote.step(target(0.1, 0))
        remote.stop("enough")
        assert server.lifecycle.state is State.STOPPED
        with pytest.raises(RobotStopped):
            remote.reset({})
        assert server.lifecycle.state is State.STOPPED
        remote.reset({"clear_stop": "looked"})
        remote.step(target(0.1, 0))
        remote.close()
        until(lambda: server.lifecycle.why == "its client released the robot")
    one = ["ready", "running"]
    assert states(server) == [
        "arming", "resetting", *one, "holding", "resetting", *one, "stopped", "resetting", *one, "holding", "stopped",
    ]  # fmt: skip
    assert [state for state, _ in events[:3]] == ["asked", "ready", "homing"]


class _Asked:
    """The scene is ready at once."""

    def ask(self, request):
        return Answer(by="test")

    def close(self):
        pass


def test_a_robot_that_can_not_be_opened_stays_disarmed(robot, states):
    def broken():
        raise ConnectionLost("no such port")

    robot.on_reset = broken
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        for _ in range(2):
            with pytest.raises(ConnectionLost, match="no such port"):
                remote.reset({})
        assert server.lifecycle.state is State.DISARMED
        assert states(server) == ["arming", "disarmed"] * 2
        remote.close()


def test_a_later_reset_that_fails_holds(robot):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})

        def refused():
            raise ResetFailed("the person said no")

        robot.on_reset = refused
        with pytest.raises(ResetFailed):
            remote.reset({})
        assert server.lifecycle.state is State.HOLDING
        assert "the person said no" in server.lifecycle.why
        remote.close()


def test_a_fault_stops(robot, target):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        robot.on_step = lambda: 1 / 0
        with pytest.raises(Exception, match="ZeroDivisionError"):
            remote.step(target(0, 0))
        assert server.lifecycle.state is State.STOPPED
        assert "fault in" in server.lifecycle.why
        remote.close()


# -- the end -------------------------------------------------------------------------------------------------


def test_lowering_is_slow_and_arrives(robot, target, states):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.3, -0.3))
        at = len(robot.commands)
        server.close(lower_s=5)
        way = np.array(robot.commands[at - 1 :])
        assert np.abs(np.diff(way, axis=0)).max() <= 1.5 / 50 + 1e-6, "1.5 rad/s at 50 Hz"
        np.testing.assert_array_equal(way[-1], [0, 0])
        assert states(server)[-2:] == ["resetting", "stopped"]
        remote.close()


@pytest.mark.parametrize("why", ["never reset", "stopped", "failed reset"])
def test_what_must_not_move_is_not_lowered(robot, target, why):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        if why != "never reset":
            remote.reset({})
            remote.step(target(0.3, 0))
        if why == "stopped":
            remote.stop("a hand in the way")
        if why == "failed reset":
            robot.on_reset = lambda: (_ for _ in ()).throw(ResetFailed("jammed"))
            with pytest.raises(ResetFailed):
                remote.reset({})
        at = len(robot.commands)
        server.close(lower_s=5)
        assert (0.0, 0.0) not in robot.commands[at:]
        remote.close()


def test_a_server_is_lowered_no_faster_than_told(robot, target):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.2, 0.2))
        at = len(robot.commands)
        server.close(lower_s=5, velocity=0.5)
        way = np.diff([[0.2, 0.2], *robot.commands[at:]], axis=0)
        assert np.abs(way).max() <= 0.5 / 50 + 1e-6, "a period of 1/50 s"
        assert robot.commands[-1] == (0.0, 0.0)
        remote.close()


def test_lowering_has_a_deadline(robot):
    clock = itertools.count()
    outcome = park(
        robot.spec, robot.step, {"target": np.ones(2, np.float32)}, 10, velocity=0.001, now=lambda: next(clock)
    )
    assert outcome == "the home was not reached within 10 s"


def test_lowering_ends_when_the_arm_has_followed():
    spec = replace(INTEGRATOR, limits=Limits({"target": 2.0}, max_acceleration={"target": 4.0}))
    robot = Integrator(spec)
    guard = Guard(robot)
    guard.reset({"start": {"target": (0.8, 0.8)}})
    outcome = park(spec, guard.step, {"target": np.full(2, 0.8, np.float32)}, 30.0, velocity=1.5)
    assert outcome == "the robot rests at its home"
    assert robot.commands[-1] == (0.0, 0.0)


def test_a_stop_ends_the_lowering(robot, target, until):
    server = Server(robot, max_command_age_s=None).start()
    remote = RemoteRobot(server.address)
    remote.reset({})
    remote.step(target(1, 1))
    closing = threading.Thread(target=lambda: server.close(lower_s=30))
    began = time.monotonic()
    robot.on_step = lambda: time.sleep(0.05)
    closing.start()
    until(lambda: server.lifecycle.state is State.RESETTING)
    remote.stop("no, stay there")
    closing.join(10)
    assert time.monotonic() - began < 5
    assert server.lifecycle.why == "no, stay there"
    assert robot.commands[-1][0] > 0.5, "it stayed"
    remote.close()
