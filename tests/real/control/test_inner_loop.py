"""The robot's own loop runs faster than its clients command."""

import time
from dataclasses import replace

import numpy as np
import pytest

from hal import EpisodeError, IllegalAction, RobotStopped
from hal.limits import Limits
from real import ControlLoop, LoopSettings, RemoteRobot, Server
from real.control.lifecycle import State


@pytest.fixture
def fast(make_robot, robot):
    """A robot of 400 Hz."""
    return make_robot(replace(robot.spec, rate_hz=400.0))


@pytest.fixture
def served(fast):
    with Server(fast, control_hz=50.0, lockstep=True) as server:
        remote = RemoteRobot(server.address, step_timeout_s=5)
        yield remote
        remote.close()


def test_clients_see_their_own_rate(served, robot):
    assert served.spec == robot.spec
    assert served.spec.digest == robot.spec.digest, "who expects the slow robot is served"


def test_a_step_is_eight_ticks_on_a_straight_line(served, fast, target):
    served.reset({})
    robot_state = served.step(target(0.8, -0.4))
    assert robot_state.sensors["steps"] == 8
    line = [(round(0.1 * n, 6), round(-0.05 * n, 6)) for n in range(1, 9)]
    assert [tuple(round(value, 6) for value in command) for command in fast.commands] == line
    np.testing.assert_array_equal(robot_state.applied["target"], np.float32([0.8, -0.4]))


def test_limits_hold_for_every_tick(make_robot, robot, target):
    """4 units a second are 0.01 a tick, and a client that asks for more gets no more."""
    spec = replace(robot.spec, rate_hz=400.0, limits=Limits(max_velocity={"target": 4.0}))
    fast = make_robot(spec)
    with Server(fast, control_hz=50.0, lockstep=True) as server:
        remote = RemoteRobot(server.address, step_timeout_s=5)
        remote.reset({})
        robot_state = remote.step(target(1.0, 0.04))
        np.testing.assert_allclose(robot_state.applied["target"], [0.08, 0.04], rtol=1e-5)
        np.testing.assert_allclose(np.diff([0, *(first for first, _ in fast.commands)]), 0.01, rtol=1e-4)
        remote.close()


def test_an_illegal_command_moves_nothing_and_the_episode_goes_on(fast, target, until):
    with Server(fast, control_hz=50.0, watchdog_s=5, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote._commands.pack(target(9, 0))
        with pytest.raises(IllegalAction):
            remote.step(target(9, 0))
        assert set(fast.commands) <= {(0.0, 0.0)}
        remote.step(target(0.5, 0))
        assert fast.commands[-1] == (0.5, 0.0)
        remote.close()


@pytest.mark.requirement("R6.6")
def test_the_loop_goes_on_by_itself_and_holds_after_silence(fast, target, until):
    with Server(fast, control_hz=50.0, watchdog_s=0.3, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.5, 0))
        at, began = len(fast.commands), time.monotonic()
        until(lambda: len(fast.commands) >= at + 40)
        assert time.monotonic() - began > 0.08, "40 ticks of 2.5 ms, and not as fast as it can"
        until(lambda: server.lifecycle.state is State.HOLDING)
        assert set(fast.commands[at:]) == {(0.5, 0.0)}
        with pytest.raises(EpisodeError, match="no valid command for"):
            remote.step(target(0, 0))
        remote.close()


def test_a_client_keeps_its_rate_over_a_network_that_takes_time(fast, target):
    """Its answers come ticks later than the period's end, and it is not a period later for that."""
    with Server(fast, control_hz=50.0, watchdog_s=5, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0, 0))
        first = remote.step(target(0, 0)).sensors["steps"]
        for n in range(20):
            time.sleep(0.004)
            last = remote.step(target(n / 40, 0)).sensors["steps"]
        ticks = int(last - first)
        assert ticks >= 20 * 8 - 4, "periods were cut short"
        assert ticks <= 20 * 8 + 8 * 8, "a period was lost nearly every time"
        remote.close()


def test_a_stop_in_mid_period_answers_the_step(fast, target):
    with Server(fast, control_hz=50.0, lockstep=True) as server:
        remote = RemoteRobot(server.address, step_timeout_s=5)
        remote.reset({})
        fast.on_step = lambda: len(fast.commands) == 3 and server._loop.stop("a hand")
        with pytest.raises(RobotStopped, match="a hand"):
            remote.step(target(0.8, 0))
        assert len(fast.commands) == 4, "the tick under way, and none after it"
        remote.close()


def test_a_reset_in_mid_period_is_said_to_the_step(fast, target):
    outcomes = []
    loop = ControlLoop(fast, lambda *outcome: outcomes.append(outcome), LoopSettings(control_hz=1.0, watchdog_s=9))
    loop.start()
    loop.reset("a", {})
    loop.step("b", target(0.5, 0))
    end = time.monotonic() + 5
    while not fast.commands and time.monotonic() < end:
        time.sleep(0.001)
    loop.step("c", target(0.6, 0))
    while len(outcomes) < 2 and time.monotonic() < end:
        time.sleep(0.001)
    loop.reset("d", {})
    while len(outcomes) < 4 and time.monotonic() < end:
        time.sleep(0.001)
    loop.close()
    told = dict(outcomes)
    assert "newer command came within its period" in str(told["b"])
    assert "ended by another order" in str(told["c"])
    assert [request_id for request_id, _ in outcomes] == ["a", "b", "c", "d"]
