"""Copies of steps: the server executes a step once, answers its copies again, and gives nobody else its answer."""

from __future__ import annotations

import pytest

from real import MessageKind, RemoteRobot, Server
from real.control.lifecycle import State
from real.protocol import messages as wire
from real.server.server import latest_resend
from tests.real.server.test_hostile import Peer

RESET = {"options": {}, "deadline_s": 20.0}


@pytest.fixture
def peers():
    """Make bare clients that are closed at the end."""
    made = []

    def make(address, keys=None):
        made.append(Peer(address, keys))
        return made[-1]

    yield make
    for each in made:
        each.socket.close()


def begin(peer, **hello):
    """Take the robot and reset it; return the session."""
    session = peer.hello(**hello).session
    assert peer.ask(MessageKind.RESET, session, 1, RESET).kind is MessageKind.READING
    return session


def row(robot, value):
    return [robot.spec.commands.pack({"target": (value, 0)})]


def test_the_client_that_may_move_is_told_when_to_send_again(robot, peers):
    with Server(robot, watchdog_s=0.2) as server:
        assert peers(server.address).hello().detail["resend_s"] == pytest.approx(0.06, abs=0.02)
        assert "resend_s" not in peers(server.address).hello(move=False).detail


@pytest.mark.parametrize("lockstep", [False, True], ids=["real time", "lockstep"])
def test_a_copy_is_answered_again_and_not_executed_again(robot, peers, lockstep):
    with Server(robot, watchdog_s=20, max_command_age_s=None, lockstep=lockstep) as server:
        peer = peers(server.address)
        session = begin(peer)
        first = peer.ask(MessageKind.STEP, session, 2, None, row(robot, 0.5))
        assert first.kind is MessageKind.READING
        for _ in range(5):
            assert peer.ask(MessageKind.STEP, session, 2, None, row(robot, 0.9)) == first, "the same reading"
        assert peer.ask(MessageKind.STEP, session, 3, None, row(robot, 0.6)).kind is MessageKind.READING
        assert "not executed" in peer.ask(MessageKind.STEP, session, 2, None, row(robot, 0.5)).detail[2]
        assert server.about()["repeated"] == 5
        assert {round(float(first), 3) for first, _ in robot.commands} - {0.0} == {0.5, 0.6}
        assert not lockstep or len(robot.commands) == 2


def test_copies_that_come_before_the_answer_are_not_answered(robot, peers):
    with Server(robot, watchdog_s=20, max_command_age_s=None) as server:
        peer = peers(server.address)
        session = begin(peer)
        step = wire.encode(MessageKind.STEP, session, 2, None, row(robot, 0.5))
        for _ in range(3):
            peer.socket.send_multipart(step)
        assert peer.hear().kind is MessageKind.READING
        assert peer.ask(MessageKind.STATUS, session, 3).kind is MessageKind.DONE
        assert server.about()["repeated"] == 2


def test_a_refusal_is_answered_again_too(robot, peers):
    with Server(robot, watchdog_s=20, max_command_age_s=None) as server:
        peer = peers(server.address)
        session = begin(peer)
        first = peer.ask(MessageKind.STEP, session, 2, None, row(robot, 9.0))
        assert first.detail[0] == "IllegalAction"
        assert peer.ask(MessageKind.STEP, session, 2, None, row(robot, 9.0)) == first


def test_copies_of_a_step_are_no_sign_of_life(robot, peers, until):
    """They come for as long as a network delays them; the robot holds when its watchdog says so."""
    with Server(robot, watchdog_s=0.3, max_command_age_s=None) as server:
        peer = peers(server.address)
        session = begin(peer)
        step = wire.encode(MessageKind.STEP, session, 2, None, row(robot, 0.5))

        def holds():
            peer.socket.send_multipart(step)
            return server.lifecycle.state is State.HOLDING

        until(holds)
        assert "no valid command for 0.3 s" in server.lifecycle.why
        assert server.about()["repeated"] > 3


def test_a_copy_of_a_client_that_lost_the_lease_is_refused(robot, peers):
    with Server(robot, watchdog_s=20, max_command_age_s=None) as server:
        old, new = peers(server.address), peers(server.address)
        session = begin(old)
        assert old.ask(MessageKind.STEP, session, 2, None, row(robot, 0.5)).kind is MessageKind.READING
        begin(new, take="force")
        assert "holds the robot now" in old.ask(MessageKind.STEP, session, 2, None, row(robot, 0.5)).detail[2]


def test_another_movers_key_gets_no_answer_of_the_sessions_steps(robot, peers, identities, tmp_path):
    keys = {name: identities(name) for name in ("owner", "thief")}
    with Server(robot, keys=tmp_path / "server", watchdog_s=20, max_command_age_s=None) as server:
        owner, thief = (peers(server.address, keys[name]) for name in ("owner", "thief"))
        session = begin(owner)
        assert owner.ask(MessageKind.STEP, session, 2, None, row(robot, 0.5)).kind is MessageKind.READING
        answer = thief.ask(MessageKind.STEP, session, 2, None, row(robot, 0.5))
        assert answer.kind is MessageKind.ERROR
        assert "belongs to the key" in answer.detail[2]


def test_a_stop_is_confirmed_while_the_holder_floods(robot, peers):
    """By its own rights, and as fast as it can: the rate at which messages are read is bounded."""
    with Server(robot, watchdog_s=20, max_command_age_s=None) as server:
        peer = peers(server.address)
        session = begin(peer)
        button = RemoteRobot(server.address, connect_timeout_s=20)
        step = wire.encode(MessageKind.STEP, session, 2, None, row(robot, 0.5))
        for _ in range(3000):
            peer.socket.send_multipart(step)
        button.stop("a test")
        assert server.stopped == "a test"
        button.close()


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
    if watchdog_s is not None and watchdog_s > 2 * (period_s + 0.01):
        assert period_s + resend_s + 0.01 < watchdog_s
