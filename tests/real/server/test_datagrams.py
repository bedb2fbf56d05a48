"""Strangers, thieves and bad networks at the UDP socket: nothing moves but what the lease's holder has sent, once.

The client here is written from docs/wire.md, with sockets and primitives alone.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import sys
import time

import msgpack
import numpy as np
import pytest
import zmq
from zmq.utils import z85

from real import MessageKind, RemoteRobot, Server
from real.control.lifecycle import State
from real.protocol.datagrams import RESEND_S, DatagramCodec
from real.protocol.messages import VERSION
from real.server.datagrams import latest_resend

STEP = 3


class Stranger:
    """A client whose every datagram a test chooses, written from docs/wire.md.

    Args:
        address: of the server.
        keys: folder of its keys, or None.
    """

    def __init__(self, address, keys=None):
        self.dealer = zmq.Context.instance().socket(zmq.DEALER)
        self.dealer.linger = 0
        if keys is not None:
            self.dealer.curve_publickey, self.dealer.curve_secretkey = _pair(keys)
            self.dealer.curve_serverkey = z85.encode(bytes.fromhex((keys / "server.key").read_text().split()[-1]))
        self.dealer.connect(address)
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.settimeout(20)
        host, port = address.removeprefix("tcp://").split(":")
        self.udp.connect((host, int(port)))
        self.session = self.sequence = self.counter = 0
        self.offer = None

    def close(self):
        self.dealer.close()
        self.udp.close()

    def ask(self, kind, detail=None):
        """Return kind and detail of the answer by ZeroMQ."""
        self.sequence += 1
        self.dealer.send(msgpack.packb([VERSION, kind, self.session, self.sequence, None, detail, None]))
        while True:
            assert self.dealer.poll(20_000)
            _, kind, session, sequence, _, detail, _ = msgpack.unpackb(self.dealer.recv_multipart()[0])
            if kind != MessageKind.EVENT:
                assert sequence == self.sequence
                self.session = session
                return kind, detail

    def take(self, how="no"):
        hello = {"digest": "", "name": "a stranger", "move": True, "replaces": 0, "take": how, "resume": False}
        kind, detail = self.ask(MessageKind.HELLO, hello)
        assert kind == MessageKind.WELCOME, detail
        self.offer, self.counter = detail["datagrams"], 0
        return self.offer

    def reset(self):
        kind, detail = self.ask(MessageKind.RESET, {"options": {}, "deadline_s": 20.0})
        assert kind == MessageKind.READING, detail

    def step(self, target, sequence=None, sent_ns=None, **fields):
        """Return the frame of a STEP, with the next sequence unless one is given."""
        if sequence is None:
            self.sequence = sequence = self.sequence + 1
        row = struct.pack("<2f", *target)
        fields = {"kind": STEP, "session": self.session, **fields}
        return msgpack.packb([VERSION, fields["kind"], fields["session"], sequence, sent_ns, None, row])

    def seal(self, message, offer=None):
        offer, self.counter = offer or self.offer, self.counter + 1
        head = offer["channel"] + self.counter.to_bytes(8, "big")
        if offer["key"] is None:
            return head + message
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return head + ChaCha20Poly1305(offer["key"]).encrypt(bytes(4) + head[8:], message, head)

    def answer(self, offer=None):
        """Return the message of the next datagram, unpacked; None for an empty one."""
        offer, datagram = offer or self.offer, self.udp.recv(2000)
        assert datagram[:8] == offer["channel"]
        message = datagram[16:]
        if offer["key"] is not None:
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

            nonce = (1).to_bytes(4, "big") + datagram[8:16]
            message = ChaCha20Poly1305(offer["key"]).decrypt(nonce, message, datagram[:16])
        return msgpack.unpackb(message) if message else None

    def order(self, message):
        """Send a step until a datagram answers it; return the answer's kind, sequence and detail."""
        self.udp.settimeout(0.5)
        for _ in range(40):
            self.udp.send(self.seal(message))
            with contextlib.suppress(TimeoutError):
                _, kind, _, sequence, _, detail, _ = self.answer()
                return kind, sequence, detail
        raise TimeoutError("no answer within 20 s")


def _pair(folder):
    secret = (folder / "secret.key").read_text().split()[-1]
    secret = z85.encode(bytes.fromhex(secret))
    return zmq.curve_public(secret), secret


@pytest.fixture
def stranger():
    made = []

    def make(*arguments):
        made.append(Stranger(*arguments))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
def keyed(request):
    if request.param:
        pytest.importorskip("cryptography")
    return request.param


@pytest.fixture
def serve(robot, keyed, tmp_path, identities):
    """A server; and clients' folders of keys where there are any."""

    def serve(**settings):
        theirs = tmp_path / "server" if keyed else None
        return Server(robot, **{"watchdog_s": 20.0, "max_command_age_s": None, "keys": theirs, **settings})

    return serve


@pytest.fixture
def keys(keyed, identities):
    return lambda name, role="move": identities(name, role) if keyed else None


def moved(robot):
    return {round(float(command[0]), 6) for command in robot.commands} - {0.0}


def silent(client):
    """Whether no datagram comes, for a while."""
    client.udp.settimeout(0.1)
    try:
        client.udp.recv(2000)
    except TimeoutError:
        return True
    finally:
        client.udp.settimeout(20)
    return False


def test_a_strangers_client_moves_the_robot_by_the_page_alone(serve, robot, stranger, keys):
    with serve() as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.udp.send(client.seal(b""))
        assert client.answer() is None, "an empty message is answered by an empty one"
        client.reset()
        for n in range(1, 6):
            kind, sequence, detail = client.order(client.step((n / 10, 0)))
            assert (kind, sequence) == (MessageKind.READING, client.sequence), detail
        assert moved(robot) == {0.1, 0.2, 0.3, 0.4, 0.5}


def test_a_copy_is_answered_again_and_not_executed_again(serve, robot, stranger, keys):
    with serve(lockstep=True) as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.reset()
        message = client.step((0.5, 0))
        first = client.order(message)
        for _ in range(5):
            time.sleep(0.02)
            assert client.order(message) == first, "the same reading, of the same step"
        assert len(robot.commands) == 1
        assert client.order(client.step((0.6, 0)))[0] == MessageKind.READING
        client.udp.send(client.seal(message))
        assert silent(client), "an older step than the newest is not answered any more"
        assert len(robot.commands) == 2
        assert server.about()["datagrams"]["repeated"] == 6


def test_copies_of_a_step_are_no_sign_of_life(serve, robot, stranger, keys, until):
    """They come for as long as a network delays them; the robot holds when its watchdog says so."""
    with serve(watchdog_s=0.3) as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.reset()
        message = client.step((0.5, 0))
        assert client.order(message)[0] == MessageKind.READING

        def holds():
            client.udp.send(client.seal(message))
            return server.lifecycle.state is State.HOLDING

        until(holds)
        assert "no valid command for 0.3 s" in server.lifecycle.why
        assert server.about()["datagrams"]["repeated"] > 10


def test_a_command_that_was_long_on_its_way_gives_no_more_time(robot, target):
    """Silence begins when it was sent; when it comes, its client may be gone."""
    with Server(robot, watchdog_s=20, max_command_age_s=10) as server:
        remote = RemoteRobot(server.address, connect_timeout_s=20, step_timeout_s=20)
        remote.reset({})
        remote.step(target(0.25, 0))
        connection = remote._connection
        connection._shift_ns, connection._shift_until_ns = connection._shift_ns - 5_000_000_000, 2**62
        remote.step(target(0.5, 0))
        assert server._loop._watchdog.silence_s > 4.9
        remote.close()


@pytest.mark.parametrize(
    ("watchdog_s", "period_s", "latest_s"),
    [
        (0.2, 1 / 30, 0.0556),
        (0.2, 0.1, 0.0333),
        (0.2, 0.002, 0.066),
        (0.02, 0.01, 0.01),
        (20, 0.02, 0.1),
        (None, 0.02, 0.1),
    ],
)
def test_a_lost_step_costs_no_episode(watchdog_s, period_s, latest_s):
    """Its first copy, and a second one if that is lost too, come before the watchdog expires."""
    resend_s = latest_resend(watchdog_s, period_s)
    assert resend_s == pytest.approx(latest_s, abs=1e-4)
    if watchdog_s is not None and watchdog_s > 2 * (period_s + RESEND_S):
        assert period_s + resend_s + RESEND_S < watchdog_s


def test_replayed_doubled_and_reordered_datagrams_move_nothing(serve, robot, stranger, keys):
    with serve(lockstep=True) as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.reset()
        sent = []
        for n in range(1, 21):
            sent.append(client.seal(client.step((n / 100, 0))))
            client.udp.send(sent[-1])
            assert client.answer()[1] == MessageKind.READING
        dice = random.Random(1)
        for _ in range(500):
            client.udp.send(dice.choice(sent))
        assert client.order(client.step((0.9, 0)))[0] == MessageKind.READING
        assert len(robot.commands) == 21
        counts = server.about()["datagrams"]
        assert counts["refused"] + counts["dropped"] >= 500, "those that found no room to wait among them"


@pytest.mark.parametrize("kind", [kind for kind in MessageKind if kind != MessageKind.STEP])
def test_a_datagram_brings_steps_alone(serve, robot, stranger, keys, kind):
    with serve() as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.reset()
        answer, _, detail = client.order(client.step((0.5, 0), kind=int(kind)))
        assert answer == MessageKind.ERROR
        assert "steps alone" in detail[2]
        assert server.stopped is None
        assert moved(robot) == set()


def test_the_channel_of_a_client_that_lost_the_lease_moves_nothing(serve, robot, stranger, keys):
    with serve() as server:
        old, new = stranger(server.address, keys("laptop")), stranger(server.address, keys("operator", "operate"))
        old.take()
        old.reset()
        new.take("force")
        new.reset()
        kind, _, detail = old.order(old.step((0.5, 0)))
        assert kind == MessageKind.ERROR
        assert "'a stranger' holds the robot now" in detail[2]
        assert new.order(new.step((0.25, 0)))[0] == MessageKind.READING
        assert 0.5 not in moved(robot)


def test_another_movers_key_with_the_sessions_number_moves_nothing(robot, stranger, identities, tmp_path):
    pytest.importorskip("cryptography")
    with Server(robot, keys=tmp_path / "server", watchdog_s=20, max_command_age_s=None) as server:
        thief, owner = stranger(server.address, identities("thief")), stranger(server.address, identities("owner"))
        thief.take()
        assert thief.ask(MessageKind.RELEASE)[0] == MessageKind.DONE
        owner.take()
        owner.reset()
        kind, _, detail = thief.order(thief.step((0.5, 0), sequence=10_000, session=owner.session))
        assert kind == MessageKind.ERROR
        assert "belongs to the key" in detail[2]
        assert owner.order(owner.step((0.25, 0)))[0] == MessageKind.READING
        assert 0.5 not in moved(robot)


def test_a_key_that_is_taken_off_the_list_moves_nothing_in_mid_episode(robot, stranger, identities, tmp_path):
    pytest.importorskip("cryptography")
    with Server(robot, keys=tmp_path / "server", watchdog_s=20, max_command_age_s=None) as server:
        client = stranger(server.address, identities("laptop"))
        client.take()
        client.reset()
        assert client.order(client.step((0.25, 0)))[0] == MessageKind.READING
        (tmp_path / "server" / "allowed.keys").write_text("")
        time.sleep(0.3)
        kind, _, detail = client.order(client.step((0.5, 0)))
        assert kind == MessageKind.ERROR
        assert "not on the server's list" in detail[2]
        assert 0.5 not in moved(robot)


def test_a_role_that_may_not_move_is_offered_no_channel(robot, stranger, identities, tmp_path):
    with Server(robot, keys=tmp_path / "server") as server:
        watcher = stranger(server.address, identities("watcher", "watch"))
        hello = {"digest": "", "name": "w", "move": False, "replaces": 0, "take": "no", "resume": False}
        kind, detail = watcher.ask(MessageKind.HELLO, hello)
        assert kind == MessageKind.WELCOME
        assert "datagrams" not in detail


def test_a_late_or_unstamped_step_is_refused_as_by_zeromq(serve, robot, stranger, keys):
    with serve(max_command_age_s=0.1) as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.reset()
        assert "when it was sent" in client.order(client.step((0.5, 0)))[2][2]
        late = client.step((0.5, 0), sent_ns=time.monotonic_ns() - 10**9)
        assert client.order(late)[2][0] == "CommandTooOld"
        assert moved(robot) == set()
        assert server.about()["late_commands"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
def test_strangers_datagrams_end_in_the_kernel_and_are_counted(serve, robot, stranger, keys):
    with serve() as server:
        client, other = stranger(server.address, keys("laptop")), stranger(server.address)
        for length in (0, 7, 8, 16, 100, 3000):
            other.udp.send(bytes(length))
        assert server.about()["datagrams"] == {"dropped": 6, "refused": 0, "repeated": 0}
        client.take()
        client.reset()
        for _ in range(100):
            other.udp.send(random.Random(1).randbytes(60))
        assert client.order(client.step((0.5, 0)))[0] == MessageKind.READING
        assert server.about()["datagrams"] == {"dropped": 106, "refused": 0, "repeated": 0}


class Walker:
    """A client in a thread of its own that steps all the while; remembers its datagrams."""

    def __init__(self, address, keys, monkeypatch):
        self.sent = []
        seal = DatagramCodec.seal

        def remembered(codec, message):
            datagram = seal(codec, message)
            if codec._out == bytes(4):
                self.sent.append(datagram)
            return datagram

        monkeypatch.setattr(DatagramCodec, "seal", remembered)
        self.remote = RemoteRobot(address, keys=keys, step_timeout_s=20, connect_timeout_s=20)
        self.remote.reset({})
        self.steps = 0

    def step(self):
        self.steps += 1
        self.remote.step({"target": np.array([self.steps % 1000 / 1000, 0], np.float32)})


def mutated(dice, sent):
    """A datagram that was sent, changed in one of many ways; never one that is new and sound."""
    datagram = bytearray(dice.choice(sent))
    way = dice.randrange(7)
    if way == 0:
        for _ in range(dice.choice((1, 1, 2, 9))):
            datagram[dice.randrange(len(datagram))] ^= 1 << dice.randrange(8)
    elif way == 1:
        datagram = datagram[: dice.randrange(len(datagram))]
    elif way == 2:
        datagram += dice.randbytes(dice.randrange(1, 1300))
    elif way == 3:  # a counter that is new
        datagram[8:16] = dice.randrange(2**64).to_bytes(8, "big")
    elif way == 4:  # another's ciphertext under this one's head
        datagram[16:] = dice.choice(sent)[16:]
        datagram[8:16] = (dice.randrange(2**32) + 10**6).to_bytes(8, "big")
    elif way == 5:
        datagram[16:] = dice.randbytes(dice.randrange(200))
    return bytes(datagram)  # way 6: as it was


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_mutated_datagrams_move_nothing_and_no_step_is_executed_twice(
    robot, identities, tmp_path, monkeypatch, until, count
):
    pytest.importorskip("cryptography")
    dice = random.Random(count)
    with (
        Server(robot, keys=tmp_path / "server", lockstep=True) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief,
    ):
        host, port = server.address.removeprefix("tcp://").split(":")
        thief.connect((host, int(port)))
        walker = Walker(server.address, identities("laptop"), monkeypatch)
        walker.step()
        for n in itertools.count(1):
            thief.send(mutated(dice, walker.sent))
            if n % 20 == 0:
                walker.step()
            if n == count:
                break
        walker.step()
        counts = server.about()["datagrams"]
        assert [round(float(command[0]) * 1000) for command in robot.commands] == [
            n % 1000 for n in range(1, walker.steps + 1)
        ], "each step of its owner once, in order, and nothing else"
        assert counts["refused"] + counts["dropped"] + counts["repeated"] >= 0.99 * count
        assert server.lifecycle.state is State.RUNNING
        assert walker.remote.about()["steps_by"] == "datagrams"
        walker.remote.close()


def test_a_stop_is_confirmed_while_a_holder_floods_the_socket(serve, robot, stranger, keys):
    """By its own rights, and as fast as it can: the rate at which datagrams are read is bounded."""
    with serve() as server:
        client = stranger(server.address, keys("laptop"))
        client.take()
        client.reset()
        button = RemoteRobot(server.address, keys=keys("button", "stop"), connect_timeout_s=20)
        client.udp.setblocking(False)
        for _ in range(3000):
            try:
                client.udp.send(client.seal(client.step((0.5, 0))))
            except BlockingIOError:
                break
        button.stop("a test")
        assert server.stopped == "a test"
        button.close()


def test_a_port_that_another_program_has_leaves_zeromq(robot, target):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", port))
        with Server(robot, address=f"tcp://127.0.0.1:{port}", watchdog_s=20) as server:
            assert server.about()["datagrams"] is None
            remote = RemoteRobot(server.address, connect_timeout_s=20, step_timeout_s=20)
            remote.reset({})
            remote.step(target(0.5, 0))
            assert remote.about()["steps_by"] == "ZeroMQ: the server offers none"
            remote.close()


def test_a_robot_whose_rows_are_too_large_is_served_by_zeromq(make_robot, target):
    from dataclasses import replace

    from hal import Field, Spec

    robot = make_robot()
    position, steps = robot.spec.sensors
    large = Spec("large", (replace(position, shape=(2,)), steps, Field("noise", (200,), "float64")))
    robot.spec = replace(robot.spec, sensors=large)
    with Server(robot) as server:
        assert server.about()["datagrams"] is None
