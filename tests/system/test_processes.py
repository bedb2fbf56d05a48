"""Killed, frozen and interrupted processes: the robot is held, and whoever is left is told."""

import os
import signal
import time

import numpy as np
import pytest

from hal import ConnectionLost
from real import RemoteRobot, Server
from real.server.request_handler import RequestHandler

CLIENT = """
import sys, time
import numpy as np
from real import RemoteRobot
remote = RemoteRobot(sys.argv[1], connect_timeout_s=20)
remote.reset({})
print("moving", flush=True)
while True:
    remote.step({"target": np.array([0.5, 0], np.float32)})
"""

INTERRUPTED = """
import sys, time
import numpy as np
from real import RemoteRobot
remote = RemoteRobot(sys.argv[1], connect_timeout_s=20, step_timeout_s=60)
command = {"target": np.array([0.5, 0], np.float32)}
if sys.argv[2] == "step":
    remote.reset({})
print("waiting", flush=True)
try:
    remote.step(command) if sys.argv[2] == "step" else remote.reset({})
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(type(sys.stdin.readline()), flush=True)
remote.reset({"clear_stop": "after Ctrl-C"})
remote.step(command)
print("goes on", flush=True)
remote.close()
"""

SERVER = """
import importlib.util, logging, sys
from real import Server
spec = importlib.util.spec_from_file_location("helpers", sys.argv[1])
helpers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(helpers)
logging.basicConfig()
robot = helpers.Integrator()
try:
    with Server(robot, watchdog_s=5, max_command_age_s=None) as server:
        print(server.address, flush=True)
        server.serve_forever()
except KeyboardInterrupt:
    print("closed", robot.closed, robot.stops, flush=True)
"""


@pytest.fixture
def start_server(start):
    def run():
        server = start(SERVER, os.path.join(os.path.dirname(os.path.dirname(__file__)), "real", "conftest.py"))
        return server, server.line()

    return run


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_client_that_goes_silent_leaves_the_robot_held(start, robot, until, number):
    with Server(robot, watchdog_s=0.5, lease_s=0.5, max_command_age_s=None) as server:
        client = start(CLIENT, server.address)
        assert client.line() == "moving"
        until(lambda: (0.5, 0.0) in robot.commands)
        assert server.broken is None
        client.send(number)
        began = time.monotonic()
        until(lambda: server.broken)
        assert time.monotonic() - began < 3
        assert server.broken == "held: no valid command for 0.5 s"
        at = len(robot.commands)
        until(lambda: len(robot.commands) > at + 3)
        assert set(robot.commands[at:]) == {(0.5, 0.0)}, "holds what was applied last"
        time.sleep(0.5)
        other = RemoteRobot(server.address)  # and another client can have it
        other.reset({})
        other.step({"target": np.zeros(2, np.float32)})
        other.close()


def test_a_frozen_network_thread_does_not_keep_the_loop_from_holding(robot, target, until, monkeypatch):
    with Server(robot, watchdog_s=0.2, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address, step_timeout_s=0.3)
        remote.reset({})
        remote.step(target(0.5, 0))
        frozen, original = [], RequestHandler.receive
        monkeypatch.setattr(
            RequestHandler,
            "receive",
            lambda handler, *flags: (frozen.append(1), time.sleep(1.5), original(handler, *flags))[-1],
        )
        with pytest.raises(ConnectionLost):
            remote.step(target(0.6, 0))
        until(lambda: server.broken, 1.2)
        assert frozen
        monkeypatch.undo()
        remote.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_network_thread_leaves_the_robot_held_and_is_noticed(robot, target, until, monkeypatch):
    with Server(robot, watchdog_s=0.2, max_command_age_s=None) as server:
        remote = RemoteRobot(server.address, step_timeout_s=0.3)
        remote.reset({})
        remote.step(target(0.5, 0))
        assert not server.network_dead

        def end(handler):
            raise SystemExit

        monkeypatch.setattr(RequestHandler, "receive", end)
        with pytest.raises(ConnectionLost):
            remote.step(target(0.6, 0))
        until(lambda: server.broken, 1.2)
        assert server.network_dead
        at = len(robot.commands)
        until(lambda: len(robot.commands) > at + 3)
        assert set(robot.commands[at:]) == {(0.5, 0.0)}
        remote.close()
    assert not server.network_dead, "closed is not deaf"
    assert robot.closed == 1


def test_a_killed_server_is_a_lost_connection_with_advice(start_server, target):
    process, address = start_server()
    remote = RemoteRobot(address, step_timeout_s=0.5)
    remote.reset({})
    for _ in range(5):
        remote.step(target(0.1, 0))
    process.send(signal.SIGKILL)
    process.process.wait(10)
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match=r"rlenv-robot serve` running there\?"):
        remote.step(target(0.1, 0))
    assert time.monotonic() - began < 5
    with pytest.raises(ConnectionLost, match="call reset to connect again"):
        remote.step(target(0.1, 0))
    remote.close()


def test_ctrl_c_ends_a_server_and_stops_its_robot(start_server):
    process, _ = start_server()
    process.send(signal.SIGINT)
    assert process.line() == "closed 1 ['the server was closed']"
    assert process.process.wait(10) == 0


@pytest.mark.parametrize("where", ["step", "reset"])
def test_ctrl_c_in_a_wait_is_prompt_and_the_client_can_go_on(start, robot, until, where):
    inside = []

    def slow():
        inside.append(1)
        robot.stopping.wait(20)

    with Server(robot, lockstep=True) as server:
        setattr(robot, f"on_{where}", slow)
        client = start(INTERRUPTED, server.address, where)
        assert client.line() == "waiting"
        until(lambda: inside, 30)
        client.send(signal.SIGINT)
        assert client.line() == "interrupted"
        if where == "reset":
            assert server.stopped == "its client was interrupted during a reset"
        setattr(robot, f"on_{where}", lambda: None)
        robot.stopping.set()
        client.tell()
        assert client.line() == "<class 'str'>"
        assert client.line() == "goes on"
