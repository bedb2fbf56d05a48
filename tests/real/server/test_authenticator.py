"""Keys decide which clients connect and what their roles allow; others get an error, also over a real cable."""

import os
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import zmq

from hal import ConnectionLost, RobotError, RobotStopped, WireError
from real import Connection, MessageKind, RemoteRobot, Server, Watcher
from real.protocol.handshake import load_keys
from real.protocol.keys import Role, allow, load_pair, new_pair, revoke


@pytest.fixture
def server(robot, tmp_path, identities):
    with Server(robot, lockstep=True, keys=tmp_path / "server") as server:
        yield server


@pytest.fixture
def client(server):
    clients = []

    def make(keys, **settings):
        clients.append(RemoteRobot(server.address, keys=keys, **settings))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


def test_a_mover_moves(client, identities, target):
    remote = client(identities("laptop"))
    remote.reset({})
    assert remote.step(target(0.5, 0)).sensors["steps"] == 1


def test_what_goes_over_the_wire_is_not_readable(server, identities):
    """A client that speaks the wire without keys never gets past the greeting."""
    peer = zmq.Context.instance().socket(zmq.DEALER)
    peer.linger = 0
    peer.connect(server.address)
    peer.send(b"hello")
    assert not peer.poll(300)
    peer.close()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (lambda make, folder: make("stranger", None), "does not let this key in; .*keys allow FOLDER [0-9a-f]{64}"),
        (lambda make, folder: None, r"wants keys, and none were given"),
        (lambda make, folder: new_pair(folder / "x", "ab" * 32) and folder / "x", "its key is another than"),
    ],
    ids=["stranger", "no key", "another server's key"],
)
def test_who_is_not_let_in_is_told_why_and_soon(client, identities, tmp_path, keys, problem):
    remote = client(keys(identities, tmp_path), connect_timeout_s=5)
    began = time.monotonic()
    with pytest.raises(ConnectionLost, match=problem):
        remote.reset({})
    assert time.monotonic() - began < 2, "no waiting helps here, so none is done"
    with pytest.raises(ConnectionLost, match=rf"the stop was NOT confirmed.*{problem}"):
        remote.stop("now")


def test_keys_for_a_server_that_has_none(robot, identities):
    with Server(robot, lockstep=True) as bare:
        remote = RemoteRobot(bare.address, keys=identities("laptop"), connect_timeout_s=5)
        with pytest.raises(ConnectionLost, match="the server has no keys"):
            remote.reset({})
        remote.close()


def test_each_role_may_do_its_own_and_anyone_may_stop(server, client, identities, robot, target):
    mover = client(identities("laptop"))
    mover.reset({})
    for role in (Role.WATCH, Role.STOP):
        other = client(identities(role, role))
        with pytest.raises(ConnectionLost, match=rf"{role} has the role {role} here, which does not allow HELLO"):
            other.reset({})
        if role is Role.WATCH:
            assert other.spec == robot.spec
        else:
            with pytest.raises(ConnectionLost, match="allowed with move, operate, watch"):
                _ = other.spec
        other.stop(f"{role} saw something")
        with pytest.raises(RobotStopped, match=f"{role} saw something"):
            mover.step(target(0, 0))
        mover.reset({"clear_stop": "looked"})


@pytest.mark.parametrize("kind", [MessageKind.STEP, MessageKind.RESET, MessageKind.RELEASE])
def test_a_watcher_with_a_stolen_session_still_only_watches(server, client, identities, robot, target, kind):
    mover = client(identities("laptop"))
    mover.reset({})
    thief = Connection(server.address, keys=load_keys(identities("tablet", "watch")))
    thief.session = mover._session
    details = {"options": {}, "deadline_s": 1.0} if kind is MessageKind.RESET else None
    with pytest.raises(ConnectionLost, match=f"which does not allow {kind.name}"):
        thief.ask(kind, details, [bytes(8)], 2)
    thief.close()
    assert robot.commands == []
    mover.step(target(0.5, 0))


@pytest.mark.parametrize("role", [Role.MOVE, Role.OPERATE])
@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        (MessageKind.STEP, None),
        (MessageKind.RESET, {"options": {}, "deadline_s": 1.0}),
        (MessageKind.JUDGE, {"message": "", "deadline_s": 1.0}),
        (MessageKind.CONSENT, {"yes": True}),
        (MessageKind.RELEASE, None),
        (MessageKind.END, {"reason": "stolen"}),
        (MessageKind.HELLO, {"resume": True}),
        (MessageKind.HELLO, {"resume": False}),
    ],
)
def test_another_movers_key_with_the_sessions_number_gets_nowhere(
    server, client, identities, robot, target, role, kind, detail, repeats
):
    mover = client(identities("laptop"))
    mover.reset({})
    thief = Connection(server.address, keys=load_keys(identities("thief", role)))
    if kind is MessageKind.HELLO:
        detail = {"digest": "", "name": "thief", "move": True, "replaces": mover._session, "take": "no"} | detail
    else:
        thief.session = mover._session
    row = robot.spec.commands.pack({"target": (0.9, 0)})
    refusal = "held by" if detail and detail.get("resume") is False else "belongs to the key"
    for attempt in range(repeats):
        thief.sequence = 1000 + 10 * attempt
        with pytest.raises(ConnectionLost, match=refusal):
            thief.ask(kind, detail, [row], 2)
        mover.step(target(0.5, 0))
    thief.close()
    assert set(robot.commands) == {(0.5, 0.0)}
    assert len(robot.commands) == repeats


def test_a_key_taken_off_the_list_loses_its_rights_in_mid_episode(server, client, identities, tmp_path, target, until):
    remote = client(identities("laptop"))
    remote.reset({})
    key = load_pair(tmp_path / "laptop").public
    (tmp_path / "server" / "allowed.keys").write_text("# nobody\n")

    def refused():
        try:
            remote.step(target(0, 0))
        except ConnectionLost as error:  # by its right, or by its connection that is cut
            return "not on the server's list" in str(error) or "does not let this key in" in str(error)

    until(refused, 2)
    allow(tmp_path / "server", key, Role.MOVE, "laptop")
    time.sleep(0.3)
    remote.reset({})


@pytest.fixture
def paced(tmp_path, identities, make_robot):
    """A server in real time, with telemetry; its clients' steps have a period of 50 ms."""
    settings = {"telemetry": "tcp://127.0.0.1:*", "watchdog_s": 30, "max_command_age_s": None}
    with Server(make_robot(), keys=tmp_path / "server", **settings) as server:
        yield server


@pytest.mark.parametrize("how", ["revoked", "expired", "lesser role"])
def test_a_mover_that_lost_its_right_is_cut_off_and_its_session_ends_in_hold(
    paced, identities, tmp_path, target, until, how
):
    """The watchdog is far too long to be what holds here."""
    folder, keys = tmp_path / "server", identities("laptop")
    key = load_pair(keys).public
    if how == "expired":
        allow(folder, key, Role.MOVE, "laptop", datetime.now(UTC) + timedelta(seconds=2))
    remote = RemoteRobot(paced.address, keys=keys, connect_timeout_s=5)
    bystander = Connection(paced.address, keys=load_keys(identities("tablet", "watch")))
    bystander.wait_until_connected(5)
    assert bystander.ask(MessageKind.STATUS, None, [], 5).detail["holder"] is None
    remote.reset({})
    remote.step(target(0.5, 0))
    assert paced.lifecycle.state == "running"
    if how == "revoked":
        assert [entry.name for entry in revoke(folder, "laptop")] == ["laptop"]
    elif how == "lesser role":
        allow(folder, key, Role.WATCH, "laptop")
    until(lambda: paced.lifecycle.state == "holding", 6)
    why = {"revoked": "is not on the server's list", "expired": "expired at 20", "lesser role": "only the role watch"}
    assert why[how] in paced.lifecycle.why
    assert paced.about()["holder"] is None
    if how == "lesser role":
        with pytest.raises(ConnectionLost, match="has the role watch here"):
            remote.step(target(0.5, 0))
    else:
        until(lambda: paced.about()["cut_off"].get("a key was revoked or expired"), 6)
        with pytest.raises(ConnectionLost):
            remote.step(target(0.5, 0))
        with pytest.raises(ConnectionLost, match="does not let this key in"):
            remote.reset({})
    assert bystander.ask(MessageKind.STATUS, None, [], 5).detail["state"] == "holding"
    bystander._handshake.update()
    assert bystander._handshake.stands, "a connection whose key is known to be good is not cut"
    allow(folder, key, Role.MOVE, "laptop")
    remote.close()
    back = RemoteRobot(paced.address, keys=keys, connect_timeout_s=5)
    back.reset({})
    back.close()
    bystander.close()


def test_a_revoked_watcher_gets_no_telemetry_and_others_go_on(paced, identities, tmp_path, until):
    spec = RemoteRobot(paced.address, keys=identities("laptop")).spec
    guest = Watcher(paced.telemetry, spec, keys=identities("guest", "watch"))
    tablet = Watcher(paced.telemetry, spec, keys=identities("tablet", "watch"))
    with guest, tablet:
        assert guest.next(5) is not None
        assert tablet.next(5) is not None
        revoke(tmp_path / "server", "guest")
        until(lambda: silent(guest), 10)
        until(lambda: not silent(tablet), 10)
        assert silent(guest), "ZeroMQ tried again by now, and was refused"


def silent(watcher):
    """Whether nothing comes for half a second; the rate is 20 Hz."""
    try:
        watcher.next(0.5)
    except RobotError:
        return True
    return False


def test_beyond_loopback_neither_end_goes_without_keys(robot, tmp_path, identities):
    with pytest.raises(WireError, match="no keys were given"):
        Server(robot, address="tcp://0.0.0.0:*")
    with pytest.raises(WireError, match="no keys were given"):
        RemoteRobot("tcp://10.0.0.7:5555")
    with Server(robot, address="tcp://0.0.0.0:*", keys=tmp_path / "server", lockstep=True) as server:
        port = server.address.rsplit(":", 1)[1]
        remote = RemoteRobot(f"tcp://127.0.0.1:{port}", keys=identities("laptop"))
        remote.reset({})
        remote.close()


def test_a_server_that_cannot_bind_leaves_no_door_open(robot, tmp_path, identities):
    with Server(robot, keys=tmp_path / "server", lockstep=True) as server:
        second = Server(robot, address=server.address, keys=tmp_path / "server", lockstep=True)
        with pytest.raises(RobotError, match="can't listen"):
            second.start()


OVER_THERE = """
import sys
import numpy as np
from hal import ConnectionLost
from real import RemoteRobot
remote = RemoteRobot(sys.argv[1], keys=sys.argv[2] or None, connect_timeout_s=10)
try:
    remote.reset({})
    print(remote.step({"target": np.array([0.5, 0], np.float32)}).sensors["position"].tolist(), flush=True)
    remote.close()
except ConnectionLost as error:
    print(error, flush=True)
"""


def test_from_another_machine(network, start_command, identities, robot, tmp_path):
    with Server(robot, address=f"tcp://{network.here}:*", keys=tmp_path / "server", lockstep=True) as server:
        for keys, answer in ((identities("laptop"), "[0.5, 0.0]"), (identities("stranger", None), "not let this key")):
            process = start_command(*network.command(OVER_THERE, server.address, os.fspath(keys)))
            assert answer in process.line()
            assert process.process.wait(10) == 0
    np.testing.assert_array_equal(robot.commands, [[0.5, 0.0]])
