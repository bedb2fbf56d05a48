"""The client's side: what it says when the other side is not there, or is another."""

import dataclasses
import time

import pytest
import zmq

from hal import ConnectionLost, Field, ResetFailed, Robot, RobotStopped, SpecMismatch, WireError
from real import RemoteRobot, Server
from real.client import stops
from real.client.connection import ask_first


@pytest.fixture
def nobody():
    """An address at which nobody listens."""
    socket = zmq.Context.instance().socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    socket.close(0)
    return f"tcp://127.0.0.1:{port}"


def test_nothing_is_opened_by_making_one(nobody, robot):
    remote = RemoteRobot(nobody, expect=robot.spec)
    assert isinstance(remote, Robot)
    assert remote.spec is robot.spec
    remote.close()


def test_nobody_listens(nobody, robot):
    remote = RemoteRobot(nobody, connect_timeout_s=0.2)
    for call in (lambda: remote.spec, lambda: remote.reset({})):
        began = time.monotonic()
        with pytest.raises(ConnectionLost, match=r"within 0\.2 s; is `rlenv-robot serve` running there\?") as caught:
            call()
        assert nobody in str(caught.value)
        assert time.monotonic() - began < 5
    with pytest.raises(ConnectionLost, match="the stop was NOT confirmed"):
        remote.stop("now")
    remote.close()


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(WireError, match="other machines"):
        RemoteRobot("tcp://10.0.0.7:5555")
    for setting in ("connect_timeout_s", "step_timeout_s", "reset_timeout_s"):
        with pytest.raises(ValueError, match=f"{setting} is 0, it must be above 0"):
            RemoteRobot("tcp://127.0.0.1:5555", **{setting: 0})


def test_another_robot_is_refused_with_every_difference(robot):
    narrow = Field("target", (2,), "float32", -0.5, 0.5, "rad", "goal", ("a", "b"))
    commands = dataclasses.replace(robot.spec.commands, fields=(narrow,))
    expected = dataclasses.replace(robot.spec, commands=commands, rate_hz=60.0)
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address, expect=expected)
        with pytest.raises(SpecMismatch) as caught:
            remote.reset({})
        assert caught.value.difference == (
            "commands.target: low: -0.5 here, -1.0 there",
            "commands.target: high: 0.5 here, 1.0 there",
            "rate_hz: 60.0 here, 50.0 there",
        )
        assert server.address in str(caught.value)
        remote.close()
        right = RemoteRobot(server.address, expect=robot.spec)  # the refused one took nothing
        right.reset({})
        right.close()


def test_a_reworded_meaning_is_no_difference(robot):
    fields = tuple(dataclasses.replace(field, meaning="in other words") for field in robot.spec.sensors)
    expected = dataclasses.replace(robot.spec, sensors=dataclasses.replace(robot.spec.sensors, fields=fields))
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address, expect=expected)
        remote.reset({})
        remote.close()


def test_after_a_server_came_back_a_reset_connects_again(robot, make_robot, target):
    first = Server(robot, lockstep=True).start()
    address = first.address
    remote = RemoteRobot(address, step_timeout_s=0.3, connect_timeout_s=5)
    remote.reset({})
    first.close()
    with pytest.raises(ConnectionLost):
        remote.step(target(0, 0))
    with Server(make_robot(), address=address, lockstep=True):
        with pytest.raises(ConnectionLost, match="call reset to connect again"):
            remote.step(target(0, 0))
        remote.reset({})
        assert remote.step(target(0.5, 0)).sensors["steps"] == 1
        remote.close()


def test_a_client_that_gave_up_waiting_takes_its_own_robot_back(robot, target):
    """The server still lives and holds the lease for it."""
    with Server(robot, lockstep=True, lease_s=1000) as server:
        remote = RemoteRobot(server.address, step_timeout_s=0.2)
        remote.reset({})
        robot.on_step = lambda: time.sleep(0.6)
        with pytest.raises(ConnectionLost, match=r"no answer to step .* within 0\.2 s"):
            remote.step(target(0.5, 0))
        robot.on_step = lambda: None
        remote.reset({})
        assert remote.step(target(0.25, 0)).sensors["steps"] == 1
        remote.close()


def test_a_reset_that_fails_does_not_use_up_the_stop_that_was_asked_for_here(robot, target):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.stop("a hand in the way")

        def refuse():
            raise ResetFailed("NO, stay away")

        robot.on_reset = refuse
        with pytest.raises(ResetFailed):
            remote.reset({"clear_stop": "it is gone"})
        robot.on_reset = lambda: None
        with pytest.raises(RobotStopped, match="a hand in the way"):
            remote.reset({})
        with pytest.raises(RobotStopped, match="a hand in the way"):
            remote.step(target(0, 0))
        remote.reset({"clear_stop": "it is gone"})
        remote.step(target(0, 0))
        remote.close()


def test_a_stop_during_the_reset_that_clears_an_older_one_stays(robot):
    with Server(robot, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.stop("an older one")
        robot.on_reset = lambda: remote.stop("a newer one")
        with pytest.raises(RobotStopped):
            remote.reset({"clear_stop": "looked"})
        robot.on_reset = lambda: None
        with pytest.raises(RobotStopped):
            remote.reset({})
        remote.reset({"clear_stop": "looked again"})
        remote.close()


def test_a_stop_that_is_sent_again_counts_once_and_is_cleared_as_one(robot, monkeypatch):
    def lose_the_answer(*request):
        ask_first(*request)
        raise ConnectionLost("the answer came too late")

    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.stand_by()
        before = remote.status()["stop_number"]
        monkeypatch.setattr(stops, "ask_first", lose_the_answer)
        remote.stop("a hand in the way")
        assert remote.last_stop == remote.status()["stop_number"] == before + 1
        with pytest.raises(RobotStopped, match="a hand in the way"):
            remote.reset({})
        remote.reset({"clear_stop": "no hand there now"})
        remote.close()
