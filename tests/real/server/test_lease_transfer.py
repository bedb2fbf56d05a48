"""The robot goes to another client by consent or an operator's word, and back to one that lost its cable."""

import threading
import time

import numpy as np
import pytest

from hal import ConnectionLost, EpisodeError, RobotError
from real import RemoteRobot, Server
from real.control.lifecycle import State
from real.protocol.keys import Role
from real.server.lease import LeaseTransfer, RequestId


@pytest.fixture
def server(robot):
    with Server(robot, watchdog_s=5, max_command_age_s=None) as server:
        yield server


@pytest.fixture
def client(server):
    clients = []

    def make(**settings):
        clients.append(RemoteRobot(server.address, **settings))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


class Asking(threading.Thread):
    """Another client that asks for the robot in a thread of its own."""

    def __init__(self, remote):
        super().__init__()
        self.remote, self.outcome = remote, None
        self.start()

    def run(self):
        try:
            self.outcome = self.remote.reset({})
        except ConnectionLost as error:
            self.outcome = error


def stepped_until(remote, done, target):
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end
        remote.step(target(0.1, 0))


def test_the_holder_says_yes(client, server, robot, target, caplog):
    caplog.set_level("INFO")
    asked = []
    first = client(on_wanted=lambda name: bool(asked.append(name)) or True)
    first.reset({})
    asking = Asking(client(take="ask"))
    with pytest.raises(ConnectionLost, match=r"handed over to 'process .*' by consent\); call reset"):
        stepped_until(first, lambda: False, target)
    asking.join(10)
    assert asking.outcome.sensors["steps"] == 0
    assert asked[0].startswith("process ")
    assert "asks process" in caplog.text
    assert "says yes to process" in caplog.text
    history = [each.after for each in server.lifecycle.history]
    assert history[-3:] == [State.HOLDING, State.RESETTING, State.READY], "it holds in between"


def test_the_holder_says_no(client, target):
    first = client()
    first.reset({})
    asking = Asking(client(take="ask"))
    stepped_until(first, lambda: not asking.is_alive(), target)
    assert "who says no" in str(asking.outcome)
    first.step(target(0, 0))


def test_a_silent_holder_loses_it_to_who_asks(robot, target):
    with Server(robot, lease_s=0.6, watchdog_s=0.1, max_command_age_s=None) as server:
        first, second = RemoteRobot(server.address), RemoteRobot(server.address, take="ask")
        first.reset({})
        second.reset({})
        second.step(target(0, 0))
        with pytest.raises(ConnectionLost, match="from a holder who was silent"):
            first.step(target(0, 0))
        first.close()
        second.close()


def test_a_holder_that_never_answers_is_a_no(client, monkeypatch):
    monkeypatch.setattr("real.server.lease.CONSENT_S", 0.7)
    client().reset({})
    with pytest.raises(ConnectionLost, match="did not answer"):
        client(take="ask", connect_timeout_s=10).reset({})


def test_taken_by_force_the_holder_is_told(client, target):
    first, second = client(), client(take="force")
    first.reset({})
    first.step(target(0.5, 0))
    second.reset({})
    with pytest.raises(ConnectionLost, match=r"took it as an operator; 'process .*' holds the robot now"):
        first.step(target(0, 0))
    second.step(target(0, 0))


def test_with_keys_only_an_operator_takes_it(robot, tmp_path, identities):
    mover, operator = identities("laptop"), identities("boss", Role.OPERATE)
    with Server(robot, keys=tmp_path / "server", watchdog_s=5, max_command_age_s=None) as server:
        first = RemoteRobot(server.address, keys=mover)
        first.reset({})
        with pytest.raises(ConnectionLost, match=r"laptop has the role move here.*allowed with operate"):
            RemoteRobot(server.address, keys=mover, take="force").reset({})
        second = RemoteRobot(server.address, keys=operator, take="force")
        second.reset({})
        first.close()
        second.close()


def test_take_is_one_of_three():
    with pytest.raises(ValueError, match="allowed are 'no', 'ask', 'force'"):
        RemoteRobot("tcp://127.0.0.1:1", take="please")


# -- back after a cut ------------------------------------------------------------------------------------


def lost(remote):
    """Break the connection as the client sees it; the server does not notice."""
    remote._drop("a test")


def test_a_client_that_is_back_in_time_goes_on(client, server, robot, target):
    remote = client()
    remote.reset({})
    before = remote.step(target(0.5, 0)).sensors["steps"]
    lost(remote)
    with pytest.raises(ConnectionLost):
        remote.step(target(0.6, 0))
    assert remote.resume() is True, "the last step had reached the robot"
    assert remote.step(target(0.7, 0)).sensors["steps"] > before, "the same episode"
    assert len(robot.resets) == 1
    assert 0.6 not in {round(first, 3) for first, _ in robot.commands}


def test_an_order_that_was_lost_is_said_to_be(client, target):
    remote = client()
    remote.reset({})
    remote.step(target(0.5, 0))
    remote._connection.sequence += 1  # as if one had been sent and had not come
    lost(remote)
    assert remote.resume() is False
    remote.step(target(0.6, 0))


def test_too_late_for_its_episode_it_is_told_why(robot, target, until):
    with Server(robot, watchdog_s=0.1, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.5, 0))
        lost(remote)
        until(lambda: server.broken)
        with pytest.raises(EpisodeError, match=r"held: no valid command for 0\.1 s; the robot is still yours"):
            remote.resume()
        remote.reset({})
        remote.step(target(0.5, 0))
        remote.close()


def test_too_late_for_its_session_it_is_told_why(client, target):
    first, second = client(), client(take="force")
    first.reset({})
    lost(first)
    second.reset({})
    with pytest.raises(ConnectionLost, match="took it as an operator"):
        first.resume()


def test_nothing_to_resume(client):
    remote = client()
    with pytest.raises(EpisodeError, match="nothing to resume"):
        remote.resume()
    remote.reset({})
    with pytest.raises(EpisodeError, match="nothing to resume"):
        remote.resume()


def test_the_question_has_its_times():
    now = [0.0]
    asked = LeaseTransfer(RequestId(b"", 0, 0), "tablet", 0.5, lambda: now[0])
    assert not asked.beat()
    now[0] = 0.6
    assert asked.beat()
    assert not asked.beat()
    assert not asked.expired
    now[0] = 10.1
    assert asked.expired


def test_hold_ends_another_clients_reset_and_latches_nothing(make_robot, until):
    robot = make_robot()
    begun, over = threading.Event(), threading.Event()
    robot.on_reset = lambda: (begun.set(), over.wait(10))
    with Server(robot) as server:
        mover, operator = RemoteRobot(server.address), RemoteRobot(server.address, take="force")
        errors = []

        def reset():
            try:
                mover.reset({})
            except RobotError as error:
                errors.append(error)

        thread = threading.Thread(target=reset)
        thread.start()
        assert begun.wait(10)
        with pytest.raises(ConnectionLost, match="held by"):
            RemoteRobot(server.address).hold()
        operator.hold()
        over.set()
        thread.join(10)
        until(lambda: server.lifecycle.state in ("holding", "ready"))
        assert server.stopped is None
        with pytest.raises(RobotError):
            mover.step({"target": np.zeros(2, np.float32)})
        robot.on_reset = lambda: None
        operator.reset({})
        for client in (mover, operator):
            client.close()
