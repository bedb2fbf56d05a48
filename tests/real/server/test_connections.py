"""Connections that never greet, peers that vanish, and messages that never end: stops are read all the same."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from hal import Answer, ConnectionLost, EpisodeError
from real import Connection, MessageKind, RemoteRobot, Server
from real.protocol.handshake import load_keys
from real.protocol.messages import MAX_FRAMES, decode, encode, receive_frames, send_frames
from real.server.connections import PER_ADDRESS, PER_KEY, _borrowed, _Connection, wire_bytes
from real.server.request_handler import MOST_WAITING
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
def test_a_stop_button_that_stands_by_gets_through_though_no_descriptor_is_left(
    start: Callable[..., Any], repeats: int
) -> None:
    server = start(SERVER, "100")  # fewer than an address may have connections
    address = server.line()
    with closing(RemoteRobot(address, connect_timeout_s=20)) as button, ExitStack() as connections:
        button.stand_by()
        assert connect_half(address, connections) == HALF_OPEN
        newcomer = RemoteRobot(address, connect_timeout_s=0.5)
        with pytest.raises(ConnectionLost):
            newcomer.stop("locked out")
        for trial in range(repeats):
            time.sleep(0.025)  # more than 50 stops a second are a flood
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
        until(lambda: standing() >= before + HALF_OPEN)
        until(lambda: standing() <= before + HALF_OPEN + 5, 60)  # only the attacker's own ends are left
        time.sleep(0.1)
        with closing(RemoteRobot(server.address)) as newcomer:
            newcomer.stop("heard again")
    assert robot.stops[0] == "heard again"


def rss_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def raw_peer(address: str, kind: bytes) -> socket.socket:
    """Open a connection of ZMTP 3.0 without a library, after its handshake (https://rfc.zeromq.org/spec/23)."""
    host, port = address.removeprefix("tcp://").split(":")
    peer = socket.create_connection((host, int(port)), 10)
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    peer.sendall(greeting)
    while len(greeting) and (received := peer.recv(len(greeting))):
        greeting = greeting[len(received) :]
    ready = b"\x05READY" + b"\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    peer.sendall(b"\x04" + bytes([len(ready)]) + ready)
    return peer


def send_until_cut_off(peer: socket.socket, data: bytes) -> int:
    """Send the same again and again, 3 GiB at most; return how many bytes could be sent."""
    sent = 0
    with contextlib.suppress(OSError):
        while sent < 3 << 30:
            peer.sendall(data)
            sent += len(data)
    return sent


@pytest.mark.slow
def test_a_message_that_never_ends_takes_little_memory(robot: Integrator) -> None:
    frame = b"\x03" + (65536).to_bytes(8, "big") + bytes(65536)  # flags: more frames follow, long
    with Server(robot) as server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        before = rss_bytes()
        with raw_peer(server.address, b"DEALER") as peer:
            assert send_until_cut_off(peer, frame) < 1 << 30
        assert rss_bytes() - before < 512 << 20
        until(lambda: server.about()["cut_off"])
        remote.stop("heard")
        assert robot.stops == ["heard"]


def test_a_listener_that_subscribes_without_end_is_cut_off(robot: Integrator) -> None:
    topic = b"\x02" + (901).to_bytes(8, "big") + b"\x01" + bytes(900)
    with Server(robot, telemetry="tcp://127.0.0.1:*") as server:
        with raw_peer(server.telemetry, b"SUB") as peer:
            assert send_until_cut_off(peer, topic) < 1 << 30
        until(lambda: server.about()["cut_off"])


def test_a_person_is_asked_one_question_at_a_time(robot: Integrator) -> None:
    asked, answered = threading.Event(), threading.Event()

    def judge(message: str, deadline_s: float) -> Answer:
        asked.set()
        answered.wait(20)
        return Answer("a person", verdict="success")

    robot.judge = judge  # type: ignore[attr-defined]
    with Server(robot) as server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        connection = remote._connection
        assert connection is not None
        detail = {"message": "", "deadline_s": 20.0}
        waiting = threading.Thread(target=lambda: outcomes.append(remote.judge("", 20.0)))
        outcomes: list[Answer | None] = []
        waiting.start()
        assert asked.wait(10)
        with closing(Connection(server.address)) as other:
            other.session = connection.session
            for attempt in range(100):
                other.sequence = 1000 + attempt
                with pytest.raises(EpisodeError, match="being asked already"):
                    other.ask(MessageKind.JUDGE, detail, (), 5)
        assert sum(thread.name == "rlenv-robot verdict" for thread in threading.enumerate()) == 1
        answered.set()
        waiting.join(10)
        assert outcomes == [("a person", "", "success")]


def test_commands_that_wait_for_a_reset_are_bounded(robot: Integrator) -> None:
    going = threading.Event()
    with Server(robot) as server, closing(Connection(server.address)) as connection, ExitStack() as ends:
        ends.callback(going.set)  # a test that fails must not leave a robot in its reset
        hello = {"digest": "", "name": "x", "move": True, "replaces": 0, "take": "no", "resume": False}
        connection.session = connection.ask(MessageKind.HELLO, hello, (), 5).session
        robot.on_reset = lambda: (going.wait(20), None)[1]
        reset = {"options": {}, "deadline_s": 20.0}
        row = robot.spec.commands.pack({"target": (0.1, 0)})
        send_frames(connection.socket, encode(MessageKind.RESET, connection.session, 1, reset))
        refusals = 0
        for sent, sequence in enumerate(range(2, 1000), start=1):
            now = time.monotonic_ns()
            send_frames(connection.socket, encode(MessageKind.STEP, connection.session, sequence, None, [row], now))
            while refusals < sent - MOST_WAITING:  # at once: the server drops answers that a client leaves unread
                message = decode(receive_frames(connection.socket, MAX_FRAMES))
                refusals += message.kind is MessageKind.ERROR
        assert refusals == 998 - MOST_WAITING
        assert server._loop.count_waiting() == MOST_WAITING


@pytest.mark.slow
def test_one_address_gets_its_share_of_connections(robot: Integrator) -> None:
    with Server(robot) as server, closing(RemoteRobot(server.address)) as button, ExitStack() as connections:
        button.stand_by()
        for _ in range(PER_ADDRESS + 20):
            connections.enter_context(raw_peer(server.address, b"DEALER"))
        until(lambda: sum(server.about()["cut_off"].values()) >= 20)
        button.stop("heard")
    assert robot.stops[0] == "heard"


@pytest.mark.slow
def test_one_key_gets_its_share_of_connections_and_the_mover_goes_on(
    robot: Integrator, target: Any, identities: Callable[..., Path], tmp_path: Path
) -> None:
    """A hundred connections of a watcher; what is beyond its share is cut off, and other keys notice nothing."""
    watcher, mover = load_keys(identities("watcher", "watch")), identities("mover")
    status = encode(MessageKind.STATUS, 0, 1)
    with (
        Server(robot, keys=tmp_path / "server", watchdog_s=30.0, max_command_age_s=None) as server,
        closing(RemoteRobot(server.address, keys=mover, connect_timeout_s=20.0, step_timeout_s=20.0)) as remote,
        ExitStack() as connections,
    ):
        remote.reset({})
        for _ in range(100):
            connection = connections.enter_context(closing(Connection(server.address, keys=watcher)))
            send_frames(connection.socket, status)
        until(lambda: server.about()["cut_off"].get(f"more than {PER_KEY} of one key", 0) >= 100 - PER_KEY, 60.0)
        for n in range(20):
            remote.step(target(n / 20, 0))
        remote.stop("heard")
    assert len(robot.commands) >= 20
    assert robot.stops[0] == "heard"


LEFT_EARLY = """
import sys
from real import Server
from tests.fakes import Integrator
with Server(Integrator(), telemetry="tcp://127.0.0.1:*") as server:
    print(server.address, server.telemetry, server.about()["stop"], flush=True)
    for line in sys.stdin:
        print("alive", flush=True)
"""

PING = b"\x04\x0b\x04PING\x00\x01beat"
"""A heartbeat of ZMTP 3.1 with a time to live of 0.1 s (https://rfc.zeromq.org/spec/37)."""


@pytest.mark.process
@pytest.mark.parametrize(
    ("endpoint", "kind", "data"),
    [(1, b"SUB", b"\0\x02\x01x"), (0, b"DEALER", b"\0\x05hello"), (2, b"DEALER", b"\0\x05hello")],
    ids=["subscriptions", "control", "stops"],
)
def test_a_peer_that_leaves_in_the_midst_of_its_flood_does_not_abort_the_process(
    start: Callable[..., Any], endpoint: int, kind: bytes, data: bytes, repeats: int
) -> None:
    """libzmq's assertion `!_io_error` ended the server, where a full queue, a lost peer and a heartbeat met."""
    server = start(LEFT_EARLY)
    address = server.line().split()[endpoint]
    for _ in range(repeats):
        with contextlib.suppress(OSError), raw_peer(address, kind) as peer:  # it may be cut off, also as it greets
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                for _ in range(3000):
                    peer.send(data + PING)
            time.sleep(0.05)
    time.sleep(1.5)  # the server's own heartbeats came once a second
    server.tell()
    assert server.line() == "alive"


def test_heartbeats_do_not_count_as_a_backlog_and_floods_do() -> None:
    connection = _Connection(("10.0.0.1", 1), 0.0, 0, 2048)
    assert connection.backlog(300, 0, 0.02, 256.0) == 0, "the handshake"
    for second in range(1, 100_000):
        assert connection.backlog(300 + 80 * second, 0, float(second), 256.0) == 0, "a day of heartbeats"
    assert connection.backlog(8_000_300 + 300_000, 0, 100_000.0, 256.0) > 256 * 1024


def test_what_was_read_is_no_backlog(robot: Integrator) -> None:
    connection = _Connection(("10.0.0.1", 1), 0.0, 500, 0)
    message = [b"x" * 100, b"y" * 300]
    size = wire_bytes(message, sealed=False)
    assert size == 2 + 100 + 9 + 300
    assert wire_bytes(message, sealed=True) == size + 66
    for look in range(1, 1000):
        assert connection.backlog(look * size, 500 + look * size, look / 50, 256.0) <= 0


@pytest.mark.slow
def test_a_mover_sends_more_than_the_bound_of_unread_bytes_and_stays(robot: Integrator, target: Any) -> None:
    with Server(robot, lockstep=True) as server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        for n in range(15_000):  # half a MiB of commands from one connection
            remote.step(target(n % 2 / 10, 0))
        assert server.about()["cut_off"] == {}


def test_a_descriptor_that_belongs_to_a_file_by_now_costs_no_descriptor() -> None:
    with open(os.devnull) as file:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            with _borrowed(file.fileno()) as borrowed:
                assert borrowed is None
        assert len(os.listdir("/proc/self/fd")) == before
