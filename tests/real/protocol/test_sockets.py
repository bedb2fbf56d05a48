"""Events of a socket's connections must never block ZeroMQ's I/O thread, which all connections of a process share."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from real import Server
from real.protocol.sockets import SocketMonitor
from tests.fakes import Integrator

EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED


def answers(context: zmq.Context) -> bool:
    """Whether two new sockets of the process can still talk."""
    with context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.linger = other.linger = 0
        one.connect(f"tcp://127.0.0.1:{other.bind_to_random_port('tcp://127.0.0.1')}")
        return bool(one.poll(2000, zmq.POLLOUT)) and one.send(b"") is None and bool(other.poll(2000))


def knock(address: str, times: int) -> None:
    """Connect and leave again."""
    host, port = address.removeprefix("tcp://").split(":")
    for _ in range(times):
        with contextlib.suppress(OSError):  # nobody listens there just now
            socket.create_connection((host, int(port)), 1).close()


@contextmanager
def knocking(address: str) -> Iterator[None]:
    """Connect and leave again, all the while."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            knock(address, 1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_events_that_nobody_reads_block_no_connection() -> None:
    context = zmq.Context.instance()
    with context.socket(zmq.ROUTER) as router:
        monitor = SocketMonitor(router, EVENTS)
        router.bind("tcp://127.0.0.1:*")
        knock(router.getsockopt_string(zmq.LAST_ENDPOINT), 1500)  # ZeroMQ's limits for two ends are 2,000 messages
        assert answers(context)
        assert {event for event, _ in monitor.events()} == {zmq.EVENT_ACCEPTED, zmq.EVENT_DISCONNECTED}
        monitor.close()
        monitor.close()
        knock(router.getsockopt_string(zmq.LAST_ENDPOINT), 10)
        assert answers(context)


def test_a_monitor_can_be_closed_after_its_socket() -> None:
    with zmq.Context.instance().socket(zmq.ROUTER) as router:
        monitor = SocketMonitor(router, EVENTS)
    monitor.close()


@pytest.mark.slow
@pytest.mark.parametrize("lockstep", [False, True])
def test_strangers_that_come_while_a_server_closes_block_no_connection(lockstep: bool) -> None:
    for _ in range(8):
        with Server(Integrator(), lockstep=lockstep) as server, knocking(server.address), knocking(server.address):
            time.sleep(0.03)
            server.close()
        assert answers(zmq.Context.instance())
