"""Connections that never greet, peers that vanish, and messages that never end: stops are read all the same."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from hal import ConnectionLost
from real import RemoteRobot, Server
from tests.fakes import Integrator, until

SERVER = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
from real import Server
from tests.fakes import Integrator
robot = Integrator()
with Server(robot) as server:
    print(server.address, flush=True)
    for line in sys.stdin:
        print(len(robot.stops), flush=True)
"""

HALF_OPEN = 1200


def connect_half(address: str, connections: ExitStack) -> int:
    """Open TCP connections that send nothing, and return how many stand."""
    host, port = address.removeprefix("tcp://").split(":")
    number = 0
    for _ in range(HALF_OPEN):
        half = connections.enter_context(socket.socket())
        half.setblocking(False)
        half.connect_ex((host, int(port)))
        number += 1
    return number


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Let this process open enough connections for the attack."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * HALF_OPEN:
        pytest.skip(f"this process may open {hard} files, the attack needs {2 * HALF_OPEN}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * HALF_OPEN), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.usefixtures("descriptors")
def test_a_stop_button_that_stands_by_gets_through_though_no_descriptor_is_left(start: Callable[..., Any]) -> None:
    server = start(SERVER, "256")
    address = server.line()
    with closing(RemoteRobot(address, connect_timeout_s=20)) as button, ExitStack() as connections:
        button.stand_by()
        assert connect_half(address, connections) == HALF_OPEN
        newcomer = RemoteRobot(address, connect_timeout_s=0.5)
        with pytest.raises(ConnectionLost):
            newcomer.stop("locked out")
        for trial in range(int(os.environ.get("RLENV_TRIALS", "5"))):
            button.stop(f"trial {trial}")
            server.tell()
            assert int(server.line()) == trial + 1, "by the connection that stands, and once"


@pytest.mark.slow
@pytest.mark.usefixtures("descriptors")
def test_connections_that_never_greet_are_given_up(robot: Integrator) -> None:
    def standing() -> int:
        return sum(os.path.islink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))

    with Server(robot) as server, ExitStack() as connections:
        before = standing()
        connect_half(server.address, connections)
        until(lambda: standing() > before + HALF_OPEN + 200)
        until(lambda: standing() <= before + HALF_OPEN + 5, 60)  # only the attacker's own ends are left
        time.sleep(0.1)
        with closing(RemoteRobot(server.address)) as newcomer:
            newcomer.stop("heard again")
    assert robot.stops[0] == "heard again"
