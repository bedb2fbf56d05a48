"""Stops have a socket and a thread of their own: whatever the others do, a stop is read and acted on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from hal import ConnectionLost, RobotError
from real import Connection, MessageKind, RemoteRobot, Server
from real.protocol import messages as wire
from real.protocol.handshake import load_keys
from real.protocol.messages import receive_frames, send_frames
from real.server import stop_endpoint
from real.server.request_handler import RequestHandler
from tests.fakes import Integrator, looked, until
from tests.real.server.test_connections import raw_peer

STOP = {"reason": "a test", "orderly": False}


@pytest.fixture
def server(robot: Integrator) -> Iterator[Server]:
    with Server(robot) as server:
        yield server


@pytest.fixture
def endpoint(server: Server) -> str:
    return str(server.about()["stop"])


@pytest.fixture
def peer(endpoint: str) -> Iterator[zmq.Socket[bytes]]:
    with zmq.Context.instance().socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.connect(endpoint)
        yield peer


@pytest.mark.requirement("R6.6")
def test_a_stop_is_acted_on_while_the_network_thread_is_busy(
    server: Server, robot: Integrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, over = threading.Event(), threading.Event()

    def receive(*_: object) -> None:
        busy.set()
        over.wait(30)

    try:
        with closing(RemoteRobot(server.address)) as button:
            button.stand_by()
            monkeypatch.setattr(RequestHandler, "receive", receive)
            with zmq.Context.instance().socket(zmq.DEALER) as other:
                other.linger = 0
                other.connect(server.address)
                other.send(b"keeps the network thread")
                assert busy.wait(10)
                button.stop("by its own way")
                assert robot.stops == ["by its own way"]
    finally:
        over.set()


def test_the_welcome_and_the_status_announce_the_endpoint(server: Server, endpoint: str) -> None:
    hello = {"digest": "", "name": "x", "move": True, "replaces": 0, "take": "no", "resume": False}
    with closing(Connection(server.address)) as connection:
        assert connection.ask(MessageKind.HELLO, hello, (), 5).detail["stop"] == endpoint
        assert connection.ask(MessageKind.STATUS, None, (), 5).detail["stop"] == endpoint
    assert endpoint != server.address


def test_a_mover_stops_by_the_endpoint_too(server: Server, robot: Integrator, endpoint: str) -> None:
    with closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        standing = remote._stops._main
        assert standing is not None
        assert standing.address == endpoint
        until(lambda: standing.stands)
        remote.stop("here")
    assert robot.stops[0] == "here"


def test_where_the_endpoint_cannot_be_reached_stops_go_to_the_control_socket(
    server: Server, robot: Integrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server._handler, "_stop_address", "tcp://127.0.0.1:1")
    monkeypatch.setattr(server, "_stop_address", "tcp://127.0.0.1:1")
    with closing(RemoteRobot(server.address, connect_timeout_s=0.5)) as button:
        button.stand_by()
        assert button._stops._main is not None
        assert button._stops._main.address == server.address
        button.stop("the old way")
    with closing(RemoteRobot(server.address)) as remote:
        remote.reset(looked(remote))
        remote.stop("before anything stands")
    assert robot.stops[:2] == ["the old way", "before anything stands"]


@pytest.mark.parametrize(
    "message",
    [
        wire.encode(MessageKind.STATUS, 0, 1),
        wire.encode(MessageKind.RESET, 1, 1, {"options": {}, "deadline_s": 1.0}),
        wire.encode(MessageKind.STOP, 0, 1, {"reason": 5, "orderly": False}),
        [b"no msgpack"],
    ],
)
def test_what_is_no_stop_is_refused_and_ends_its_connection(
    server: Server, robot: Integrator, peer: zmq.Socket[bytes], message: list[Any]
) -> None:
    peer.send_multipart(message)
    assert peer.poll(10_000)
    assert wire.decode(peer.recv_multipart()).kind is MessageKind.ERROR
    until(lambda: server.about()["cut_off"].get("no stop"))
    assert not robot.stops


def test_more_than_one_frame_is_no_stop(server: Server, robot: Integrator, endpoint: str) -> None:
    (frame,) = wire.encode(MessageKind.STOP, 0, 1, STOP)
    with raw_peer(endpoint, b"DEALER") as peer:  # libzmq's own peer may abort where it is cut off in mid-message
        peer.sendall(b"\x01" + bytes((len(frame),)) + frame + b"\0\0")
        until(lambda: server.about()["cut_off"].get("no stop"))
    assert not robot.stops


def test_a_frame_that_is_too_large_for_a_stop_ends_its_connection(server: Server, endpoint: str) -> None:
    with closing(Connection(endpoint)) as connection, pytest.raises(ConnectionLost):
        connection.ask(MessageKind.STOP, {"reason": "x" * stop_endpoint.LARGEST_STOP, "orderly": False}, (), 0.3)
    with closing(Connection(endpoint)) as connection:
        assert connection.ask(MessageKind.STOP, STOP, (), 5).kind is MessageKind.DONE


def test_a_connection_that_stops_without_end_stops_and_is_cut_off(
    server: Server, robot: Integrator, peer: zmq.Socket[bytes]
) -> None:
    message = wire.encode(MessageKind.STOP, 0, 1, STOP)
    for _ in range(500):
        peer.send_multipart(message)
    until(lambda: any("stops a second" in why for why in server.about()["cut_off"]))
    assert robot.stops
    with closing(RemoteRobot(server.address)) as other:
        other.stand_by()
        other.stop("still heard")
        until(lambda: "still heard" in robot.stops)


def test_a_stop_button_learns_the_endpoint_and_nothing_else(
    robot: Integrator, identities: Callable[..., Path], tmp_path: Path
) -> None:
    button, stranger = identities("button", "stop"), identities("stranger", None)
    with Server(robot, keys=tmp_path / "server") as server:
        with closing(Connection(server.address, keys=load_keys(button))) as connection:
            assert connection.ask(MessageKind.STATUS, None, (), 5).detail == {"stop": server.about()["stop"]}
        with closing(RemoteRobot(server.address, keys=button)) as remote:
            remote.stand_by()
            assert remote._stops._main is not None
            assert remote._stops._main.address == server.about()["stop"]
            remote.stop("pressed")
        refused = closing(Connection(server.about()["stop"], keys=load_keys(stranger)))
        with refused as connection, pytest.raises(ConnectionLost, match="does not let this key in"):
            connection.ask(MessageKind.STOP, STOP, (), 5)
    assert robot.stops[0] == "pressed"


def test_a_key_that_was_taken_off_the_list_stops_no_more(
    robot: Integrator, identities: Callable[..., Path], tmp_path: Path
) -> None:
    button = identities("button", "stop")
    refusals: list[RobotError] = []
    with (
        Server(robot, keys=tmp_path / "server") as server,
        closing(Connection(server.about()["stop"], keys=load_keys(button))) as connection,
    ):
        connection.ask(MessageKind.STOP, STOP, (), 5)
        (tmp_path / "server" / "allowed.keys").write_text("")

        def refused() -> bool:
            try:
                connection.ask(MessageKind.STOP, STOP, (), 1)
            except RobotError as error:
                refusals.append(error)
            return bool(refusals)

        until(refused)
    assert "list" in str(refusals[0])


def test_a_key_that_sends_no_stops_again_and_again_gets_no_new_connection(
    robot: Integrator, identities: Callable[..., Path], tmp_path: Path
) -> None:
    """Nor does it keep others from stopping; its own connection that stands may still stop."""
    bad, good = identities("bad", "stop"), identities("good", "stop")
    with (
        Server(robot, keys=tmp_path / "server") as server,
        closing(RemoteRobot(server.address, keys=bad, connect_timeout_s=20.0)) as standing,
        closing(RemoteRobot(server.address, keys=good, connect_timeout_s=20.0)) as button,
    ):
        standing.stand_by()
        endpoint = server.about()["stop"]
        with zmq.Context.instance().socket(zmq.DEALER) as noise:
            noise.linger = 0
            load_keys(bad).secure(noise)
            noise.connect(endpoint)
            for _ in range(20 * stop_endpoint.MOST_WRONGS):
                with suppress(zmq.Again):  # it is cut off, and connects again
                    noise.send(b"no stop", zmq.NOBLOCK)
                time.sleep(0.0002)

            def is_shut_out() -> bool:
                with suppress(zmq.Again):
                    noise.send(b"no stop", zmq.NOBLOCK)
                with closing(Connection(endpoint, keys=load_keys(bad))) as newcomer:
                    try:
                        newcomer.ask(MessageKind.STOP, STOP, (), 1.0)
                    except ConnectionLost:
                        return True
                return False

            until(is_shut_out, 30.0)
        button.stop("by a good key")
        standing.stop("by the connection that stands")
    assert "by a good key" in robot.stops
    assert "by the connection that stands" in robot.stops


def test_a_fault_in_one_stop_does_not_end_the_thread(
    server: Server, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with closing(Connection(endpoint)) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(stop_endpoint, "stop_robot", bug)
            with pytest.raises(ConnectionLost):
                connection.ask(MessageKind.STOP, STOP, (), 0.3)
        assert connection.ask(MessageKind.STOP, STOP, (), 5).kind is MessageKind.DONE
    assert not server.network_dead


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_whose_stops_are_not_read_any_more_says_so(robot: Integrator, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise SystemExit

    with Server(robot) as server:
        monkeypatch.setattr(stop_endpoint.StopEndpoint, "_receive", dies)
        with zmq.Context.instance().socket(zmq.DEALER) as peer:
            peer.linger = 0
            peer.connect(server.about()["stop"])
            peer.send(b"")
            until(lambda: server.network_dead)


@pytest.mark.requirement("R6.6")
def test_a_reset_that_waited_to_be_read_while_a_stop_came_does_not_clear_it(
    server: Server, robot: Integrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops overtake what waits at the control socket; a reset that was sent before must not undo them."""
    over, busy = threading.Event(), threading.Event()
    tick = RequestHandler.tick

    def blocked(handler: RequestHandler) -> None:
        if not over.is_set():
            busy.set()
            over.wait(30)
        tick(handler)

    with closing(RemoteRobot(server.address)) as button, closing(Connection(server.address)) as mover:
        hello = {"digest": "", "name": "x", "move": True, "replaces": 0, "take": "no", "resume": False}
        mover.session = mover.ask(MessageKind.HELLO, hello, (), 5).session
        button.stand_by()
        button.stop("an older stop")
        older = button.status()["stop_number"]
        monkeypatch.setattr(RequestHandler, "tick", blocked)
        try:
            assert busy.wait(10)
            detail = {"options": {"clear_stop": "looked"}, "deadline_s": 5.0, "stop_number": older}
            send_frames(mover.socket, wire.encode(MessageKind.RESET, mover.session, 5, detail))
            time.sleep(0.1)  # it waits at the control socket
            button.stop("EMERGENCY")
        finally:
            over.set()
        mover.socket.rcvtimeo = 10_000
        assert wire.decode(receive_frames(mover.socket, 18)).kind is MessageKind.ERROR
        assert server.stopped is not None
        assert not robot.commands
        with closing(RemoteRobot(server.address, take="force")) as other:
            other.reset(looked(other))
    assert robot.resets
