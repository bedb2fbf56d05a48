"""Messages of a peer that is no client of ours cost that peer an error, and never the server."""

import msgpack
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from real import MessageKind, RemoteRobot, Server
from real.protocol import messages as wire
from real.protocol.handshake import load_keys
from real.server.server import LARGEST_REQUEST


@pytest.fixture
def server(robot):
    with Server(robot, lockstep=True) as server:
        yield server


class Peer:
    """A bare socket that sends what a test says.

    Args:
        address: of the server.
        keys: folder of its keys, or None.
    """

    def __init__(self, address, keys=None):
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        if keys is not None:
            load_keys(keys).secure(self.socket)
        self.socket.connect(address)

    def say(self, *frames):
        self.socket.send_multipart(frames)
        return self.hear()

    def hear(self, seconds=10):
        while True:
            assert self.socket.poll(int(seconds * 1000)), "no answer"
            message = wire.decode(self.socket.recv_multipart())
            if message.kind is not MessageKind.EVENT:
                return message

    def ask(self, kind, session=0, sequence=1, detail=None, frames=()):
        return self.say(*wire.encode(kind, session, sequence, detail, frames))

    def hello(self, **changes):
        detail = {"digest": "", "name": "peer", "move": True, "replaces": 0, "take": "no", "resume": False, **changes}
        return self.ask(MessageKind.HELLO, detail=detail)


@pytest.fixture
def peer(server):
    peer = Peer(server.address)
    yield peer
    peer.socket.close()


@pytest.fixture
def still_serves(server, robot, target):
    """Check that a client can still use the robot."""
    yield
    remote = RemoteRobot(server.address)
    remote.reset({})
    assert remote.step(target(0.5, 0)).sensors["steps"] == 1
    remote.close()


@pytest.mark.slow
@pytest.mark.usefixtures("still_serves")
def test_random_frames_are_answered_with_errors(peer):
    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.binary(max_size=300), min_size=1, max_size=22))
    def fuzz(frames):
        assert peer.say(*frames).kind is MessageKind.ERROR

    fuzz()


@pytest.mark.usefixtures("still_serves")
def test_well_formed_headers_with_random_contents_are_answered(peer):
    values = st.none() | st.booleans() | st.integers(0, 9) | st.floats() | st.text(max_size=9) | st.just({})
    keys = st.sampled_from(
        ["digest", "name", "move", "replaces", "take", "resume", "yes", "options", "deadline_s", "reason", "orderly"]
    )
    kinds = st.sampled_from([kind for kind in MessageKind if kind is not MessageKind.STOP])
    ends = (MessageKind.ERROR, MessageKind.WELCOME, MessageKind.MISMATCH, MessageKind.DONE)

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(kinds, st.integers(0, 3), values | st.dictionaries(keys, values), st.lists(st.binary(max_size=9)))
    def fuzz(kind, session, detail, frames):
        assert peer.ask(kind, session, 1, detail, frames[:3]).kind in ends

    fuzz()
    peer.ask(MessageKind.RELEASE, peer.hello(replaces=0).session)


@pytest.mark.usefixtures("still_serves")
@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([b""], "not readable msgpack"),
        ([msgpack.packb([7, 1, 0, 0, None])], "version is 4 here and 7 there"),
        ([b"x" * (wire.MAX_HEADER_BYTES + 1)], "a header of 65537 bytes"),
        ([b"x"] * 40, "frames, allowed are 1 to 18"),
        (wire.encode(MessageKind.READING, 0, 1), "a client does not send READING"),
        (wire.encode(MessageKind.STEP, 1, 1, None, [bytes(8)]), "does not hold the robot"),
        (wire.encode(MessageKind.RESET, 0, 1, {"options": {}, "deadline_s": 1.0}), "does not hold the robot"),
        (wire.encode(MessageKind.STOP, 0, 1, 5), "reason is None, expected a str"),
    ],
)
def test_each_malformed_message_is_told_what_is_wrong(peer, frames, problem):
    answer = peer.say(*frames)
    assert answer.kind is MessageKind.ERROR
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(answer.detail[2])


@pytest.mark.parametrize(
    ("kind", "detail", "frames", "problem"),
    [
        (MessageKind.STEP, None, [bytes(7)], "has 7 bytes, it must have 8"),
        (MessageKind.STEP, None, [], "a step has one row, got 0"),
        (MessageKind.RESET, {"options": [], "deadline_s": 1.0}, [], r"options is \[\], expected a dict"),
        (MessageKind.RESET, {"options": {}, "deadline_s": float("nan")}, [], "deadline of nan"),
    ],
)
def test_the_holder_is_told_what_is_wrong_with_its_message(peer, kind, detail, frames, problem):
    session = peer.hello(replaces=0).session
    assert "does not hold the robot" in peer.ask(kind, 0, 1, detail, frames).detail[2], "rights come first"
    answer = peer.ask(kind, session, 1, detail, frames)
    assert answer.kind is MessageKind.ERROR
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(answer.detail[2])
    peer.ask(MessageKind.RELEASE, session)


@pytest.mark.usefixtures("still_serves")
def test_a_frame_too_large_to_take_ends_its_senders_connection_only(server, peer):
    peer.socket.send_multipart([bytes(LARGEST_REQUEST + 1)])
    assert not peer.socket.poll(300)


def test_a_sequence_is_executed_once(peer, robot):
    session = peer.hello().session
    assert peer.ask(MessageKind.RESET, session, 1, {"options": {}, "deadline_s": 5.0}).kind is MessageKind.READING
    row = robot.spec.commands.pack({"target": (0.5, 0)})
    first = peer.ask(MessageKind.STEP, session, 2, None, [row])
    assert first.kind is MessageKind.READING
    other_row = robot.spec.commands.pack({"target": (-0.5, 0)})
    assert peer.ask(MessageKind.STEP, session, 2, None, [other_row]) == first, "a copy is answered again"
    for sequence in (1, 0):
        answer = peer.ask(MessageKind.STEP, session, sequence, None, [row])
        assert answer.kind is MessageKind.ERROR
        assert "not executed (again)" in answer.detail[2]
    assert peer.ask(MessageKind.STEP, session + 1, 9, None, [row]).kind is MessageKind.ERROR
    assert len(robot.commands) == 1
    assert peer.ask(MessageKind.STEP, session, 3, None, [row]).kind is MessageKind.READING


@pytest.mark.requirement("R1.2")
def test_the_robots_side_refuses_what_a_client_did_not_check(peer, robot):
    session = peer.hello().session
    peer.ask(MessageKind.RESET, session, 1, {"options": {}, "deadline_s": 5.0})
    for sequence, value, code in ((2, (9, 0), "range"), (3, (0, float("nan")), "not_finite")):
        answer = peer.ask(MessageKind.STEP, session, sequence, None, [robot.spec.commands.pack({"target": value})])
        assert (answer.detail[0], answer.detail[3]["code"]) == ("IllegalAction", code)
    assert robot.commands == []


def test_watching_gives_no_right_to_move(peer, robot):
    welcome = peer.hello(move=False)
    assert (welcome.kind, welcome.session) == (MessageKind.WELCOME, 0)
    assert peer.ask(MessageKind.STEP, 0, 2, None, [bytes(8)]).kind is MessageKind.ERROR


def test_a_bug_in_a_handler_is_answered_and_survived(peer, monkeypatch, caplog):
    def bug(*_, **__):
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("real.server.lease.Lease.take", bug)
        assert "ZeroDivisionError" in peer.hello().detail[2]
    assert "could not be handled" in caplog.text
    assert peer.hello().kind is MessageKind.WELCOME


def test_a_new_holder_begins_with_a_reset(peer, robot):
    """It does not go on in the episode of the one before."""
    old = peer.hello().session
    assert peer.ask(MessageKind.RESET, old, 1, {"options": {}, "deadline_s": 5.0}).kind is MessageKind.READING
    new = peer.hello(replaces=old).session
    answer = peer.ask(MessageKind.STEP, new, 1, None, [bytes(8)])
    assert answer.detail[0] == "EpisodeError"
    assert robot.commands == []
