"""A client's steps by datagrams: each is executed once, whatever is lost; and without them it goes on by ZeroMQ."""

from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import ConnectionLost, Fault, RobotStopped
from real import RemoteRobot, Server
from real.client.datagrams import LOSSY_S, ResendTimer
from real.control.lifecycle import State
from real.protocol.datagrams import RESEND_S
from tests.real.relay import Relay

PATIENT = {"step_timeout_s": 20.0, "connect_timeout_s": 20.0}


def targets(robot):
    """Return each new target that the robot was given, in order; a tick without a command repeats the last one."""
    went = [round(float(command[0]), 6) for command in robot.commands]
    return [value for n, value in enumerate(went) if value != (went[n - 1] if n else 0.0)]


@pytest.fixture
def serve(robot):
    """A server of a robot with all the time in the world."""

    def serve(**settings):
        return Server(robot, **{"watchdog_s": 20.0, "max_command_age_s": None, **settings})

    return serve


def steps(remote, target, count, first=1):
    return [int(remote.step(target(n / 100, 0)).sensors["steps"]) for n in range(first, first + count)]


@pytest.mark.parametrize("lockstep", [False, True], ids=["real time", "lockstep"])
def test_steps_go_by_datagrams_and_everything_else_by_zeromq(serve, robot, target, lockstep):
    with serve(lockstep=lockstep) as server, Relay(server.address, datagrams=True) as relay:
        remote = RemoteRobot(relay.address, **PATIENT)
        remote.reset({})
        steps(remote, target, 5)
        assert len(relay.datagrams_of_client) >= 1 + 5, "a probe and five steps"
        assert remote.about()["steps_by"] == "datagrams"
        assert remote.about()["server"]["datagrams"]["refused"] == 0
        remote.stop("a test")
        with pytest.raises(RobotStopped):
            remote.step(target(0.5, 0))
        remote.close()
    assert targets(robot)[:5] == [0.01, 0.02, 0.03, 0.04, 0.05]


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "sealed"])
def test_half_of_all_datagrams_lost_costs_time_alone(serve, robot, target, identities, tmp_path, keyed):
    keys, theirs = None, None
    if keyed:
        pytest.importorskip("cryptography")
        keys, theirs = identities("laptop"), tmp_path / "server"
    with serve(keys=theirs) as server, Relay(server.address, seed=3, datagrams=True) as relay:
        remote = RemoteRobot(relay.address, keys=keys, **PATIENT)
        remote.reset({})
        assert remote._connection.no_datagrams is None
        relay.loses_datagrams = 0.5
        counted = steps(remote, target, 20)
        relay.loses_datagrams = 0.0
        assert counted == sorted(set(counted)), "every answer is a new one"
        assert server.about()["datagrams"]["repeated"] > 0
        remote.close()
    assert targets(robot)[:20] == [n / 100 for n in range(1, 21)], "each once, and in order"


def test_a_port_that_nobody_has_is_known_at_once(serve, robot, target, caplog):
    with serve() as server, Relay(server.address) as relay:
        remote = RemoteRobot(relay.address, **PATIENT)
        remote.reset({})
        steps(remote, target, 3)
        assert remote.about()["steps_by"] == "ZeroMQ: nobody has this port of UDP there"
        assert "let UDP through" in caplog.text
        remote.close()
    assert targets(robot)[:3] == [0.01, 0.02, 0.03]


def test_a_firewall_that_lets_no_datagram_through_is_gone_around(serve, robot, target):
    with serve() as server, Relay(server.address, datagrams=True) as relay:
        relay.loses_datagrams = 1.0
        remote = RemoteRobot(relay.address, **PATIENT)
        remote.reset({})
        steps(remote, target, 3)
        assert "firewall" in remote.about()["steps_by"]
        remote.close()
    assert targets(robot)[:3] == [0.01, 0.02, 0.03]


def test_a_server_that_offers_none_is_used_as_before(serve, robot, target):
    with serve(datagrams=False) as server:
        remote = RemoteRobot(server.address, **PATIENT)
        remote.reset({})
        steps(remote, target, 3)
        assert remote.about()["steps_by"] == "ZeroMQ: the server offers none"
        assert server.about()["datagrams"] is None
        remote.close()
    assert targets(robot)[:3] == [0.01, 0.02, 0.03]


def test_datagrams_that_end_in_mid_episode_hold_the_robot_and_the_next_reset_goes_around(serve, target, until):
    with serve(watchdog_s=0.2) as server, Relay(server.address, datagrams=True) as relay:
        remote = RemoteRobot(relay.address, step_timeout_s=1.0, connect_timeout_s=20.0)
        remote.reset({})
        steps(remote, target, 3)
        relay.loses_datagrams = 1.0
        with pytest.raises(ConnectionLost, match="no answer to step"):
            steps(remote, target, 1000)
        until(lambda: server.lifecycle.state is State.HOLDING)
        remote.reset({})
        steps(remote, target, 3)
        assert "firewall" in remote.about()["steps_by"]
        remote.close()


def test_a_resumed_session_has_a_channel_of_its_own(serve, robot, target):
    with serve() as server, Relay(server.address, datagrams=True) as relay:
        remote = RemoteRobot(relay.address, step_timeout_s=0.5, connect_timeout_s=20.0)
        remote.reset({})
        steps(remote, target, 3)
        first = relay.datagrams_of_client[-1][:8]
        relay.silent = True
        with pytest.raises(ConnectionLost):
            remote.step(target(0.5, 0))
        relay.silent = False
        relay.reset()
        assert remote.resume() is False
        steps(remote, target, 3, first=10)
        assert relay.datagrams_of_client[-1][:8] != first
        assert remote.about()["steps_by"] == "datagrams"
        remote.close()
    assert targets(robot)[:6] == [0.01, 0.02, 0.03, 0.1, 0.11, 0.12]


def test_a_holder_that_steps_by_datagrams_learns_that_another_client_asks(serve, target):
    asked = []
    with serve() as server:
        holder = RemoteRobot(server.address, on_wanted=lambda name: bool(asked.append(name)), **PATIENT)
        holder.reset({})
        other = RemoteRobot(server.address, take="ask", **PATIENT)
        refused = []

        def ask():
            with pytest.raises(ConnectionLost) as told:
                other.reset({})
            refused.append(str(told.value))

        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive():
            holder.step(target(0.1, 0))
        thread.join()
        assert len(asked) == 1
        assert "says no" in refused[0]
        assert holder.about()["steps_by"] == "datagrams"
        other.close()
        holder.close()


def test_an_answer_too_large_for_a_datagram_comes_by_zeromq(serve, robot, target):
    robot.faults = tuple(Fault("sensor", f"number {n}", "x" * 100) for n in range(20))
    with serve() as server:
        remote = RemoteRobot(server.address, **PATIENT)
        remote.reset({})
        assert remote.step(target(0.5, 0)).faults == robot.faults
        robot.faults = ()
        assert remote.step(target(0.25, 0)).faults == ()
        assert remote.about()["steps_by"] == "datagrams"
        remote.close()
    assert targets(robot)[:2] == [0.5, 0.25]


# -- When a step is sent again ---------------------------------------------------------------------------------


class Walk:
    """Steps of a client whose answers take as long as a test says."""

    def __init__(self, latest_s=0.06):
        self.timer, self.now_s = ResendTimer(latest_s), 1000.0

    def steps(self, *took_s):
        for each in took_s:
            began_s, self.now_s = self.now_s, self.now_s + each
            self.timer.note(began_s, self.now_s)
        return self.timer.first_s


def test_where_no_answer_is_late_no_copy_is_sent():
    dice, walk = random.Random(1), Walk()
    walk.steps(*(dice.uniform(0.0325, 0.0341) for _ in range(50)))
    for _ in range(1000):
        took_s = dice.uniform(0.0325, 0.0341)
        assert took_s < walk.timer.first_s < 0.045
        walk.steps(took_s)


def test_after_a_late_answer_copies_go_out_early_for_a_while():
    walk = Walk()
    assert walk.steps() == RESEND_S, "nothing is known yet"
    calm_s = walk.steps(*[0.0333] * 50)
    assert calm_s > 0.0333
    assert walk.steps(0.070) == RESEND_S
    assert walk.steps(*[0.0333] * int(LOSSY_S / 0.0333 - 5)) == RESEND_S
    assert walk.steps(*[0.0333] * 10) == calm_s, "and calm again"


def test_a_fast_robots_copies_are_no_later_on_a_lossy_network():
    walk = Walk()
    calm_s = walk.steps(*[0.002] * 50)
    assert calm_s < RESEND_S
    assert walk.steps(0.05) <= RESEND_S


@given(st.lists(st.floats(0.0, 30.0), max_size=60), st.floats(0.001, 1.0))
def test_a_copy_is_never_later_than_the_server_says(took_s, latest_s):
    walk = Walk(latest_s)
    for each in took_s:
        assert 0 < walk.steps(each) <= max(latest_s, RESEND_S)
