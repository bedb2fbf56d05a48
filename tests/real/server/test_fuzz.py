"""A server survives mutated messages of every kind while a robot moves; the robot and its client go on.

What a flood of them costs the loop in regularity is `benchmarks/loop.py`'s question.
"""

import itertools
import socket
import threading
from contextlib import closing

import numpy as np
import pytest
import zmq

from hal import RobotError
from real import Connection, MessageKind, RemoteRobot, Server
from real.control.lifecycle import State
from real.protocol import messages as wire
from real.protocol.messages import receive_frames
from real.server import request_handler
from real.server.turns import MOST_MESSAGES
from tests.real.mutations import Mutator
from tests.real.relay import Relay

LOOP_HZ = 500.0


@pytest.fixture
def recorded(make_robot, target, monkeypatch):
    """One message of every kind that a client sends; those of a session as it really sent them."""
    heard = []

    def received(socket, most):
        heard.append(receive_frames(socket, most))
        return heard[-1]

    monkeypatch.setattr(request_handler, "receive_frames", received)
    with Server(make_robot()) as server:
        remote = RemoteRobot(server.address)
        remote.reset({"seed": 1, "start": {"target": [0.1, 0.2]}})
        remote.step(target(0.5, 0))
        remote.end_episode("recorded")
        remote.status()
        with closing(Connection(server.address)) as button:  # a client's own stops go to the endpoint for stops
            button.ask(MessageKind.STOP, {"reason": "recorded", "orderly": False}, (), 5.0)
        remote.close()
    monkeypatch.undo()
    heard += [
        wire.encode(MessageKind.CONSENT, 3, 9, {"yes": True}),
        wire.encode(MessageKind.JUDGE, 3, 9, {"question": "well?"}),
    ]
    kinds = {wire.decode(frames).kind for frames in heard}
    assert kinds == {kind for kind in MessageKind if kind < MessageKind.WELCOME}
    return heard


class Walker:
    """A client that steps all the while, never to the same place twice in turn."""

    def __init__(self, address, keys=None):
        self.remote = RemoteRobot(address, keys=keys, step_timeout_s=20, connect_timeout_s=20)
        self.remote.reset({})
        self.steps, self.error = 0, None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._walk)
        self._thread.start()

    def _walk(self):
        try:
            for n in itertools.count(1):
                if self._over.is_set():
                    return
                self.remote.step({"target": np.array([n % 100 / 100, 0], np.float32)})
                self.steps = n
        except RobotError as error:
            self.error = error

    def end(self):
        self._over.set()
        self._thread.join(30)
        self.remote.close()


@pytest.fixture
def fast(make_robot):
    from dataclasses import replace

    robot = make_robot()
    robot.spec = replace(robot.spec, rate_hz=LOOP_HZ)
    return robot


def serve(robot, **settings):
    """No age of commands and a patient watchdog: a busy machine is not what is tested."""
    return Server(robot, control_hz=50, watchdog_s=10, max_command_age_s=None, **settings)


def goes_on(server, walker, robot):
    """Check that the same client moved the robot all the while, that each step was done, and that it still moves."""
    before = walker.steps
    while walker.steps < before + 3 and walker.error is None:
        walker._over.wait(0.01)
    walker.end()
    assert walker.error is None
    assert [each.after for each in server.lifecycle.history][:3] == [State.ARMING, State.READY, State.RUNNING]
    assert State.STOPPED not in [each.after for each in server.lifecycle.history]
    went = iter([round(float(command[0]), 6) for command in robot.commands])
    assert all(n % 100 / 100 in went for n in range(1, walker.steps + 1)), "to each place that was ordered, in order"


UNANSWERED = MOST_MESSAGES - 4
"""Messages that this client has under way at most: a few less than the server lets wait."""


def hurled(server, mutator, count):
    """Send that many messages and return how many were answered, which must be all of them."""
    peer = zmq.Context.instance().socket(zmq.DEALER)
    peer.linger = 0
    peer.connect(server.address)
    answered = sent = 0
    try:
        while answered < count:
            while sent < count and sent - answered < UNANSWERED:
                peer.send_multipart(mutator.message())
                sent += 1
            assert peer.poll(20_000), f"no answer to {sent - answered} of {sent} messages: {server.about()}"
            answer = wire.decode(peer.recv_multipart())
            answered += answer.kind is not MessageKind.EVENT
            if answer.kind is MessageKind.ERROR:
                assert len(answer.detail[2]) > 10
    finally:
        peer.close()
    return answered


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_each_mutated_message_is_answered_and_the_one_who_moves_the_robot_goes_on(fast, recorded, count, caplog):
    with serve(fast) as server:
        walker = Walker(server.address)
        assert hurled(server, Mutator(recorded, seed=count), count) == count
        goes_on(server, walker, fast)
    assert "could not be handled" not in caplog.text, "refused by a check, not by chance"


@pytest.mark.parametrize("secret", [False, True], ids=["open", "with keys"])
@pytest.mark.parametrize("count", [150, pytest.param(5_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_mutated_handshakes_cost_their_connection_alone(fast, identities, tmp_path, secret, count):
    """The first bytes of a real client's connection, before anybody knows who it is."""
    keys = identities("laptop") if secret else None
    with serve(fast, keys=tmp_path / "server" if secret else None) as server:
        greeting = overheard(server.address, keys)
        walker = Walker(server.address, keys)
        mutator = Mutator([[greeting]], seed=count)
        for _ in range(count):
            with socket.create_connection(port_of(server.address), 5) as peer:
                peer.sendall(mutator.stream(greeting))
        goes_on(server, walker, fast)
        other = RemoteRobot(server.address, keys=keys, take="no", connect_timeout_s=10)
        other.reset({})
        other.close()


def port_of(address):
    host, _, port = address.removeprefix("tcp://").partition(":")
    return host, int(port)


def overheard(address, keys):
    """Return the bytes that a client sends its server, from the first one on."""
    with Relay(address) as relay:
        robot = RemoteRobot(relay.address, keys=keys)
        robot.status()
        robot.close()
    assert relay.said[:1] == b"\xff", "a ZMTP greeting"
    return bytes(relay.said[:2000])
