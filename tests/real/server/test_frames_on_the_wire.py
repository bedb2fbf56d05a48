"""Commands for coming frames by a client that was written from docs/wire.md alone."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from zmq.utils import z85

from real import Server
from real.protocol.keys import Role, allow, load_pair, new_pair, revoke
from tests.fakes import Integrator, until
from tests.real.page_client import DONE, ERROR, READING, RELEASE, STATUS, STEP, WELCOME, PageClient

END = 9
AHEAD = 4


def row(value: float) -> bytes:
    return struct.pack("<2f", value, 0.0)


def applied(message_row: bytes) -> float:
    """The command row is behind the sensors: int64 steps, two float32 of the position."""
    return round(struct.unpack_from("<2f", message_row, 16)[0], 4)


@pytest.fixture
def server(robot: Integrator) -> Iterator[Server]:
    with Server(robot, control_hz=5.0, ahead=AHEAD, watchdog_s=5.0, max_command_age_s=10.0) as server:
        yield server


@pytest.fixture
def connect() -> Iterator[Callable[..., PageClient]]:
    clients: list[PageClient] = []

    def make(address: str, keys: tuple[str, str, str] | None = None) -> PageClient:
        clients.append(PageClient(address, 20.0, keys))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def mover(server: Server, connect: Callable[..., PageClient]) -> PageClient:
    client = connect(server.address)
    kind, detail = client.hello()
    assert (kind, detail["ahead"]) == (WELCOME, AHEAD)
    assert client.receive(client.reset())[0] == READING
    return client


def send(client: PageClient, frame: Any, value: float) -> int:
    return client.send(STEP, {"frame": frame}, row(value), time.monotonic_ns())


def test_a_stranger_drives_the_robot_with_commands_ahead(mover: PageClient, robot: Integrator) -> None:
    """It keeps three frames ahead: frame n's reading is answered with the command for frame n + 4."""
    send(mover, 4, 0.04)
    read: list[tuple[int, bool, float]] = []
    while len(read) < 12:
        kind, _, times, detail, row_ = mover.next()
        assert kind == READING, detail
        frame, is_held = detail[4:]
        assert (times is None) == is_held
        read.append((frame, is_held, applied(row_)))
        send(mover, frame + 4, (frame + 4) / 100)
    assert [frame for frame, _, _ in read] == list(range(1, 13)), "a reading for each frame, once and in order"
    assert [is_held for _, is_held, _ in read] == [True] * 3 + [False] * 9
    assert [value for _, _, value in read] == [0.0] * 3 + [frame / 100 for frame in range(4, 13)]


def test_old_clients_see_nothing_of_it(server: Server, connect: Callable[..., PageClient]) -> None:
    client = connect(server.address)
    client.hello()
    client.receive(client.reset())
    for n in range(1, 4):
        kind, detail = client.receive(client.send(STEP, None, row(n / 10), time.monotonic_ns()))
        assert (kind, len(detail)) == (READING, 4)
    assert "frames" in client.status()
    assert not client.socket.poll(300), "no reading comes unasked"


def test_a_server_without_the_setting_is_as_before(robot: Integrator, connect: Callable[..., PageClient]) -> None:
    with Server(robot, watchdog_s=5.0, max_command_age_s=10.0) as server:
        client = connect(server.address)
        _, welcome = client.hello()
        assert sorted(welcome) == ["resend_s", "stop"]
        assert "frames" not in client.status()
        client.receive(client.reset())
        kind, detail = client.receive(send(client, 1, 0.9))
        assert (kind, detail[0]) == (ERROR, "EpisodeError")
        assert "serve.ahead is 0" in detail[2]
        kind, _ = client.receive(client.send(STEP, None, row(0.1), time.monotonic_ns()))
        assert kind == READING
        client.close()
    assert {round(first, 4) for first, _ in robot.commands} <= {0.0, 0.1}


WRONG: list[Any] = ["3", 2.0, True, None, -1, 0, 2**53 + 1, 2**63, 2**64 - 1, [1], {"frame": 1}, b"1"]


def test_what_is_no_frame_moves_nothing(mover: PageClient, robot: Integrator) -> None:
    for wrong in WRONG:
        kind, detail = mover.receive(send(mover, wrong, 0.9))
        assert (kind, detail[0]) == (ERROR, "WireError"), (wrong, detail)
    for damaged in ({}, [], "frame", 7, {"Frame": 1}):
        kind, detail = mover.receive(mover.send(STEP, damaged, row(0.9), time.monotonic_ns()))
        assert (kind, detail[0]) == (ERROR, "WireError"), (damaged, detail)
    kind, detail = mover.receive(send(mover, 50, 0.9))
    assert (kind, detail[0]) == (ERROR, "EpisodeError")
    assert "too far ahead" in detail[2]
    assert detail[3]["frame"] == 0
    assert all(first == 0.0 for first, _ in robot.commands)
    kind, detail = mover.receive(send(mover, 1, 0.1))
    assert (kind, detail[4:]) == (READING, [1, False])


def test_a_late_command_is_told_the_present_frame(mover: PageClient, robot: Integrator) -> None:
    send(mover, 1, 0.1)
    while mover.next()[3][4] < 3:
        pass
    kind, detail = mover.receive(send(mover, 2, 0.9))
    assert (kind, detail[0]) == (ERROR, "CommandTooOld")
    assert detail[3]["frame"] >= 3
    assert detail[3]["begun"] is False
    assert mover.status()["frames"]["late"] == 1
    assert 0.9 not in {round(first, 4) for first, _ in robot.commands}


def test_copies_on_a_second_connection_are_executed_once_and_answered_on_both(
    server: Server, mover: PageClient, connect: Callable[..., PageClient], robot: Integrator
) -> None:
    other = connect(server.address)
    other.session = mover.session
    for frame in range(1, 6):
        first, second = (mover, other) if frame % 2 else (other, mover)
        other.sequence = mover.sequence = max(mover.sequence, other.sequence)
        send(first, frame, frame / 10)
        second.sequence = first.sequence - 1
        send(second, frame, frame / 10)
        time.sleep(0.02)
    for client in (mover, other):
        frames = {}
        while len(frames) < 5:
            kind, _, _, detail, row_ = client.next()
            assert kind == READING, detail
            if not detail[5]:
                frames[detail[4]] = applied(row_)
        assert frames == {frame: pytest.approx(frame / 10) for frame in range(1, 6)}
    assert mover.status()["repeated"] == 5
    frame, other.sequence = server.about()["frames"]["frame"], other.sequence - 3
    send(other, frame + 3, 0.95)  # an old sequence, whatever it holds
    until(lambda: server.about()["repeated"] == 6)
    time.sleep(0.1)
    assert 0.95 not in {round(first, 4) for first, _ in robot.commands}


def test_a_strangers_copies_get_no_readings(server: Server, mover: PageClient, connect: Callable[..., Any]) -> None:
    thief = connect(server.address)
    thief.session = mover.session + 1
    kind, detail = thief.receive(send(thief, 1, 0.9))
    assert (kind, detail[0]) == (ERROR, "ConnectionLost")
    kind, detail = mover.receive(send(mover, 1, 0.1))
    assert (kind, detail[4]) == (READING, 1)
    assert not thief.socket.poll(50)


ENDS: dict[str, Callable[[PageClient, Callable[..., PageClient]], Any]] = {
    "STOP": lambda mover, connect: connect(mover.address).stop("a hand"),
    "END": lambda mover, connect: mover.ask(END, {"reason": "enough"}),
    "RELEASE": lambda mover, connect: mover.ask(RELEASE),
    "RESET": lambda mover, connect: mover.receive(mover.reset()),
    "a lost lease": lambda mover, connect: connect(mover.address).hello("force"),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_an_episode_drops_what_waits(
    mover: PageClient, connect: Callable[..., PageClient], robot: Integrator, server: Server, name: str
) -> None:
    send(mover, 1, 0.1)
    while mover.next()[3][5]:  # until frame 1, with its command
        pass
    frame = server.about()["frames"]["frame"]
    send(mover, frame + 3, 0.8)
    send(mover, frame + 4, 0.9)
    until(lambda: server.about()["frames"]["waiting"] == 2)
    ENDS[name](mover, connect)
    time.sleep(1.0)
    assert max(first for first, _ in robot.commands) < 0.101, f"{name} came after frame {frame}"
    assert server.about()["frames"]["waiting"] == 0


@pytest.mark.parametrize("name", ["END", "RELEASE"])
def test_the_status_right_after_an_end_says_that_the_robot_holds(
    mover: PageClient, connect: Callable[..., PageClient], server: Server, name: str
) -> None:
    """At 5 Hz the control thread looks at the order up to 0.2 s later."""
    watcher = connect(server.address)
    for _ in range(3):
        send(mover, 1, 0.1)
        while mover.next()[3][5]:
            pass
        assert watcher.ask(STATUS)[1]["state"] == "running"
        assert mover.ask(*((END, {"reason": "enough"}) if name == "END" else (RELEASE,)))[0] == DONE
        status = watcher.ask(STATUS)[1]
        assert status["state"] == "holding"
        assert ("ended: enough" if name == "END" else "released") in status["why"]
        assert server.broken is None, "nobody is to reset"
        if name == "RELEASE":
            mover.hello()
        assert mover.receive(mover.reset())[0] == READING


def test_a_revoked_key_drops_what_waits(robot: Integrator, tmp_path: Path, connect: Callable[..., PageClient]) -> None:
    pair = new_pair(tmp_path / "server")
    client_pair = new_pair(tmp_path / "client", pair.public)
    secret = load_pair(tmp_path / "client").secret
    allow(tmp_path / "server", client_pair.public, Role.MOVE, "client")
    settings = {"keys": tmp_path / "server", "ahead": 10, "watchdog_s": 30.0, "max_command_age_s": 20.0}
    with Server(robot, control_hz=5.0, **settings) as server:  # ten frames take two seconds
        keys = (z85.encode(bytes.fromhex(key)).decode() for key in (pair.public, client_pair.public, secret))
        client = connect(server.address, tuple(keys))
        client.hello("no")
        client.receive(client.reset())
        send(client, 1, 0.1)
        for frame in range(8, 12):
            send(client, frame, 0.9)
        until(lambda: server.about()["frames"]["waiting"] >= 4)
        revoke(tmp_path / "server", "client")
        until(lambda: server.about()["holder"] is None)
        until(lambda: server.about()["frames"]["waiting"] == 0, 0.5)
        time.sleep(2.2)
        assert all(first < 0.11 for first, _ in robot.commands)


def test_a_stop_in_two_copies_is_one_stop(
    server: Server, mover: PageClient, connect: Callable[..., PageClient]
) -> None:
    """A copy that comes after the stop was cleared does not stop the robot again."""
    button, detail = connect(server.address), {"reason": "a hand", "orderly": False, "numbered": True, "once": 7}
    _, first = button.ask(4, detail)
    port = mover.status()["stop"].rpartition(":")[2]
    _, copy = connect(f"tcp://127.0.0.1:{port}").ask(4, detail)
    assert first == copy
    assert first["first"] is True
    assert mover.receive(mover.reset("looked", first["stop_number"]))[0] == READING
    assert button.ask(4, detail) == (DONE, first)
    assert server.stopped is None
    _, again = button.ask(4, {**detail, "once": 8})
    assert again["stop_number"] == first["stop_number"] + 1
    assert server.stopped == "a hand"
