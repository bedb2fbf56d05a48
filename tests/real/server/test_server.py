"""Server and client together, in lockstep: time stands still between commands."""

import logging
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from hal import (
    ConnectionLost,
    DeadlineExceeded,
    EpisodeError,
    Fault,
    Guard,
    Homing,
    IllegalAction,
    Image,
    ResetFailed,
    Robot,
    RobotError,
    RobotStopped,
    WireError,
)
from hal.reset.confirmation import Automatic
from real import RemoteRobot, Server
from tests.fakes import looked


@pytest.fixture
def server(robot):
    with Server(robot, lockstep=True) as server:
        yield server


@pytest.fixture
def remote(server):
    remote = RemoteRobot(server.address)
    yield remote
    remote.close()


def test_two_servers_of_one_robots_name_do_not_share_a_stop(make_robot, tmp_path):
    with Server(make_robot(), latch=tmp_path) as first:
        second = Server(make_robot(), latch=tmp_path)
        with pytest.raises(RobotError, match=r"another server .* serve\.latch"):
            second.start()
        first._loop.stop("a finger in the gripper")
        assert first.stopped
    with Server(make_robot(), latch=tmp_path) as third:
        assert "a finger in the gripper" in third.stopped


def test_is_a_robot(remote, robot):
    assert isinstance(remote, Robot)
    assert remote.spec == robot.spec


@pytest.mark.requirement("R1.1", "R6.6", "6.2.1-1", "B.6.2-3", "B.6.2-5")
def test_steps_cross_the_wire_exactly(remote, robot, target):
    first = remote.reset({"seed": 3, "start": {"target": np.array([0.25, -0.5])}})
    np.testing.assert_array_equal(first.sensors["position"], np.float32([0.25, -0.5]))
    assert robot.resets == [{"seed": 3, "start": {"target": [0.25, -0.5]}}]
    for n in range(1, 20):
        robot_state = remote.step(target(n / 20, -n / 20))
        np.testing.assert_array_equal(robot_state.sensors["position"], np.float32([n / 20, -n / 20]))
        np.testing.assert_array_equal(robot_state.applied["target"], robot_state.sensors["position"])
        assert robot_state.sensors["steps"] == n
        assert robot_state.sensors["steps"].shape == ()
    assert robot.commands == [tuple(np.float32([n / 20, -n / 20]).tolist()) for n in range(1, 20)]
    assert len(robot.threads) == 1, "one thread owns the robot"
    assert threading.get_ident() not in robot.threads


def test_arrays_are_the_callers_to_keep_and_write(remote, target):
    first = remote.reset({})
    second = remote.step(target(0.5, 0.5))
    second.sensors["position"] += 1
    np.testing.assert_array_equal(first.sensors["position"], [0, 0])


def test_images_faults_and_ages_arrive(remote, robot, target):
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    robot.images = {"top": Image(pixels, "rgb8", 5), "wrist": Image(b"\xff\xd8jpeg", "jpeg", 6)}
    robot.faults = (Fault("servo", "3", "servo 3 is hot"),)
    robot_state = remote.reset({})
    np.testing.assert_array_equal(robot_state.images["top"].data, pixels)
    assert robot_state.images["top"].stamp_ns == 5
    assert robot_state.images["wrist"] == Image(b"\xff\xd8jpeg", "jpeg", 6)
    assert [str(fault) for fault in robot_state.faults] == ["servo 3 is hot"]


@pytest.mark.requirement("R1.2")
def test_illegal_commands_move_nothing_and_the_episode_goes_on(remote, robot, target):
    remote.reset({})
    for command, code in [
        (target(5, 0), "range"),
        (target(np.nan, 0), "not_finite"),
        ({"target": np.zeros(3, np.float32)}, "shape"),
        ({}, "missing"),
        ({"goal": 1}, "unknown"),
    ]:
        with pytest.raises(IllegalAction) as caught:
            remote.step(command)
        assert caught.value.violation.code == code
    assert robot.commands == []
    assert remote.step(target(0.5, 0)).sensors["steps"] == 1


def test_step_before_reset(remote, target):
    with pytest.raises(EpisodeError, match="reset first"):
        remote.step(target(0, 0))


def test_closed_is_closed(server, target):
    remote = RemoteRobot(server.address)
    remote.reset({})
    remote.close()
    remote.close()
    for call in (lambda: remote.step(target(0, 0)), lambda: remote.reset({})):
        with pytest.raises(EpisodeError, match="closed"):
            call()


def test_stop_is_latched_until_a_reset_clears_it(remote, robot, target):
    remote.reset({})
    remote.stop("a hand in the way")
    assert robot.stops == ["a hand in the way"]
    with pytest.raises(RobotStopped, match="a hand in the way") as caught:
        remote.step(target(0.1, 0))
    assert caught.value.reason == "a hand in the way"
    with pytest.raises(RobotStopped, match="clear_stop"):
        remote.reset({})
    remote.reset({"clear_stop": "the hand is gone"})
    assert remote.step(target(0.1, 0)).sensors["steps"] == 1


def test_anyone_may_stop_but_only_one_may_move(server, remote, robot, target):
    remote.reset({})
    with_other = RemoteRobot(server.address)
    with pytest.raises(ConnectionLost, match="held by 'process"):
        with_other.reset({})
    with_other.stop("seen from over there")
    with pytest.raises(RobotStopped, match="over there"):
        remote.step(target(0, 0))
    remote.close()
    with_other.reset(looked(with_other))  # given back, so free now
    with_other.close()


def test_a_silent_holder_can_be_replaced(robot, target):
    with Server(robot, lockstep=True, lease_s=0.05) as server:
        crashed, fresh = RemoteRobot(server.address), RemoteRobot(server.address)
        crashed.reset({})
        time.sleep(0.1)
        fresh.reset({})
        with pytest.raises(ConnectionLost, match="does not hold the robot"):
            crashed.step(target(0, 0))
        fresh.step(target(0, 0))
        crashed.close()
        fresh.step(target(0, 0))
        fresh.close()


def test_stop_while_another_thread_waits_in_step(remote, robot, target, until):
    remote.reset({})
    inside = threading.Event()

    def slow() -> None:
        inside.set()
        robot.stopping.wait(10)

    robot.on_step = slow
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(remote.step(target(0.1, 0))))
    thread.start()
    assert inside.wait(10)
    began = time.monotonic()
    remote.stop("now")
    assert time.monotonic() - began < 0.9, "the stop must not wait for the step"
    thread.join(10)
    assert len(outcome) == 1
    with pytest.raises(RobotStopped, match="now"):
        remote.step(target(0.2, 0))


def test_stop_while_a_reset_is_under_way(remote, robot, target):
    inside = threading.Event()

    def slow() -> None:
        inside.set()
        robot.stopping.wait(10)

    robot.on_reset = slow
    caught = []

    def reset() -> None:
        try:
            remote.reset({})
        except RobotStopped as error:
            caught.append(error)

    thread = threading.Thread(target=reset)
    thread.start()
    assert inside.wait(10)
    remote.stop("the arm is going the wrong way")
    thread.join(10)
    assert "wrong way" in str(caught[0])
    robot.on_reset = lambda: None
    with pytest.raises(RobotStopped):
        remote.reset({})
    remote.reset({"clear_stop": "looked"})


def test_a_robot_that_raises_is_stopped_and_the_server_lives(remote, robot, target):
    remote.reset({})

    def broken() -> None:
        raise OSError("servo 2 does not answer")

    robot.on_step = broken
    with pytest.raises(RobotError, match="OSError: servo 2 does not answer"):
        remote.step(target(0.1, 0))
    robot.on_step = lambda: None
    with pytest.raises(RobotStopped, match="fault in step: OSError: servo 2"):
        remote.step(target(0.1, 0))
    remote.reset({"clear_stop": "cable plugged in"})
    remote.step(target(0.1, 0))


def test_a_failed_reset_says_why_and_can_be_tried_again(remote, robot, target):
    def refuse() -> None:
        raise ResetFailed("the person said no")

    robot.on_reset = refuse
    with pytest.raises(ResetFailed, match="the person said no"):
        remote.reset({})
    with pytest.raises(EpisodeError, match="step before reset"):
        remote.step(target(0, 0))
    robot.on_reset = lambda: None
    remote.reset({})


def test_a_reset_without_end_is_stopped_at_its_deadline(server, robot):
    robot.on_reset = lambda: robot.stopping.wait(20)
    remote = RemoteRobot(server.address, reset_timeout_s=0.3)
    with pytest.raises(DeadlineExceeded, match=r"did not end within 0\.3 s"):
        remote.reset({})
    assert "longer than 0.3 s" in robot.stops[0]
    remote.close()


@pytest.mark.slow
def test_a_long_reset_is_no_lost_connection_and_tells_its_progress(make_robot, target, monkeypatch):
    """Longer than the client bears a silent server; the server's beat keeps it waiting."""
    monkeypatch.setattr("real.client.robot._GRACE_S", 1.2)
    robot = make_robot()
    robot.on_reset = lambda: time.sleep(2.0)
    events = []
    homing = Homing(robot, Automatic(), on_event=lambda state, detail: server.report(state, detail))
    with Server(homing, lockstep=True) as server:
        remote = RemoteRobot(server.address, on_event=lambda state, detail: events.append(state))
        remote.reset({})
        remote.close()
    assert [state for state in events if state != "reset"] == ["asked", "ready", "homing", "reached", "settled"]


def test_a_reading_that_breaks_the_spec_is_a_fault(remote, robot, target):
    robot._read = lambda: robot.__class__._read(robot)._replace(sensors={"position": np.zeros(2, np.float32)})
    with pytest.raises(WireError, match="steps is missing"):
        remote.reset({})
    del robot._read
    with pytest.raises(RobotStopped, match="does not fit its spec"):
        remote.reset({})


def test_options_that_are_not_plain_are_refused_with_reason(remote):
    with pytest.raises(WireError, match="numbers, text, lists and mappings"):
        remote.reset({"who": object()})
    remote.reset({})


def test_close_from_another_thread_ends_a_wait(server, robot, target):
    remote = RemoteRobot(server.address, step_timeout_s=30)
    remote.reset({})
    inside = threading.Event()
    robot.on_step = lambda: (inside.set(), robot.stopping.wait(1.5))
    caught = []

    def step() -> None:
        try:
            remote.step(target(0.1, 0))
        except EpisodeError as error:
            caught.append(str(error))

    thread = threading.Thread(target=step)
    thread.start()
    assert inside.wait(10)
    remote.close()
    thread.join(10)
    assert "closed while step was waiting" in caught[0]


def test_closing_the_server_stops_and_closes_the_robot(robot, target):
    server = Server(robot, lockstep=True).start()
    remote = RemoteRobot(server.address, step_timeout_s=0.5)
    remote.reset({})
    server.close()
    server.close()
    assert robot.stops == ["the server was closed"]
    assert robot.closed == 1
    with pytest.raises(ConnectionLost, match="rlenv-robot serve"):
        remote.step(target(0, 0))
    with pytest.raises(ConnectionLost, match="call reset to connect again"):
        remote.step(target(0, 0))
    remote.close()


def test_an_orderly_end_is_no_error_and_a_fault_is_one_once(robot, caplog, target):
    def told(level):
        return [
            record.getMessage() for record in caplog.records if record.levelno >= level and "stopped: " in record.msg
        ]

    caplog.set_level(logging.INFO)
    for fault in (False, True):
        caplog.clear()
        server = Server(Homing(Guard(robot), Automatic())).start()
        with closing(RemoteRobot(server.address)) as remote:
            remote.reset({})
            if fault:
                robot.on_step = lambda: 1 // 0
                with pytest.raises(RobotError, match="ZeroDivisionError"):
                    remote.step(target(0, 0))
            server.close()
        if fault:
            (line,) = told(logging.INFO)
            assert (told(logging.ERROR), "ZeroDivisionError" in line) == ([line], True)
        else:
            assert told(logging.INFO) == ["stopped: the server was closed"]
            assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_only_a_simulation_is_served_without_a_watchdog(make_robot):
    class Arm(make_robot):
        simulated = False

    with pytest.raises(ValueError, match="'integrator' does not say that it is one: serve it without lockstep"):
        Server(Homing(Guard(Arm()), Automatic()), lockstep=True)
    Server(Homing(Guard(make_robot()), Automatic()), lockstep=True).close()


def test_a_server_never_started_closes(robot):
    server = Server(robot)
    with pytest.raises(RobotError, match=r"before start\(\)"):
        _ = server.address
    server.close()
    with pytest.raises(RobotError, match="make a new one"):
        server.start()


def test_a_taken_address_is_said(server, make_robot):
    second = Server(make_robot(), address=server.address)
    with pytest.raises(RobotError, match="another server running there"):
        second.start()
    second.close()


def test_serve_forever_ends_with_close(robot, until):
    server = Server(robot, lockstep=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    until(lambda: server._address is not None)
    server.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_client_that_closes_leaves_the_robot_at_rest(robot, target, until):
    with Server(robot) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        remote.step(target(0.5, 0))
        remote.close()
        time.sleep(0.1)
        at = len(robot.commands)
        time.sleep(0.4)
        assert len(robot.commands) == at
        assert server.broken is None, "nobody is missed who said goodbye"
