"""Each state of a session with a served arm, in real time against the real server."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal.errors import ConnectionLost, EpisodeError, IllegalAction, RobotError, RobotStopped
from real import RemoteRobot
from real.server.server import Server
from rlenv_lerobot.session import ServedSession, SessionSettings
from sim.robots.so101 import REST
from tests.fakes import until

RAISED = (0.2, -1.2, 0.9, 0.4, -1.2, 0.5)


@contextmanager
def connected(server: Server, **settings: Any) -> Iterator[ServedSession]:
    session = ServedSession(SessionSettings(address=server.address, **settings))
    with closing(session):
        session.connect()
        yield session


@pytest.fixture
def session(server: Server) -> Iterator[ServedSession]:
    with connected(server) as session:
        yield session


def goal(*joints: float) -> dict[str, np.ndarray]:
    return {"joint_target": np.array(joints, np.float32)}


def pose(session: ServedSession) -> np.ndarray:
    return np.asarray(session.observe().sensors["joint_position"])


def go(session: ServedSession, *joints: float, seconds: float = 8.0, until_applied: bool = True) -> None:
    """Send one goal until it is applied, or else until the session ends."""
    end_s, wanted = time.monotonic() + seconds, goal(*joints)
    while not (
        np.array_equal(session.command(wanted).applied["joint_target"], wanted["joint_target"]) and until_applied
    ):
        assert time.monotonic() < end_s, "the goal was never applied"


def fall_silent(server: Server) -> None:
    until(lambda: server.lifecycle.state.value == "holding", 2.0)


def test_connecting_moves_nothing(session: ServedSession) -> None:
    np.testing.assert_allclose(session._known().applied["joint_target"], REST, atol=1e-5)
    time.sleep(0.3)
    np.testing.assert_allclose(pose(session), REST, atol=0.12)  # a servo sags under the arm's weight


def test_features_are_there_before_connecting_and_take_nothing(server: Server) -> None:
    session = ServedSession(SessionSettings(address=server.address))
    assert session.spec.name == "so101"
    assert session.cameras == {}
    assert server.about()["holder"] is None
    assert server.lifecycle.state.value == "disarmed"


def test_the_first_goals_are_approached_and_later_ones_taken(session: ServedSession) -> None:
    before = session._known().applied["joint_target"]
    strides = []
    for _ in range(6):
        state = session.command(goal(*RAISED))
        strides.append(np.abs(state.applied["joint_target"] - before).max())
        before = state.applied["joint_target"]
    assert max(strides) < 0.11, "an approach of 1 rad/s uses at most 0.1 s for a command"
    assert sum(strides) > 0.1
    go(session, *RAISED)
    near = np.array(RAISED) + 0.1
    np.testing.assert_allclose(session.command(goal(*near)).applied["joint_target"], near, atol=1e-6)


def test_an_observation_is_fresh_at_any_pace(session: ServedSession) -> None:
    first = session.observe()
    assert session.observe() is first, "a fresh reading costs no period"
    time.sleep(0.1)
    assert session.observe().stamp_ns - first.stamp_ns > 0.08e9


def test_who_only_observes_keeps_the_episode_and_holds(server: Server, session: ServedSession) -> None:
    go(session, *REST)
    for _ in range(10):
        time.sleep(0.06)
        session.observe()
    assert server.lifecycle.state.value == "running"


@pytest.mark.parametrize("seconds", [0.6, pytest.param(60.0, marks=pytest.mark.soak)])
def test_after_a_pause_an_episode_begins_where_the_arm_holds(
    server: Server, session: ServedSession, seconds: float
) -> None:
    go(session, *RAISED)
    time.sleep(seconds)
    fall_silent(server)
    held = pose(session)
    assert server.lifecycle.state.value == "ready"
    np.testing.assert_allclose(held, RAISED, atol=0.15)
    back = session.command(goal(*REST))
    assert np.abs(back.applied["joint_target"] - RAISED).max() < 0.11, "the way back is approached too"
    assert server.lifecycle.state.value == "running"


def test_an_action_after_a_pause_needs_no_observation(server: Server, session: ServedSession) -> None:
    go(session, *RAISED)
    fall_silent(server)
    assert np.abs(session.command(goal(*REST)).applied["joint_target"] - RAISED).max() < 0.11


def test_a_stop_ends_the_session_and_stays(server: Server, session: ServedSession) -> None:
    go(session, *RAISED)
    with closing(RemoteRobot(server.address)) as button:
        button.stop("a hand is in the way")
    with pytest.raises(RobotStopped, match="a hand is in the way"):
        session.command(goal(*REST))
    time.sleep(0.06)
    with pytest.raises(RobotStopped, match="a hand is in the way"):
        session.observe()
    session.close()
    assert server.lifecycle.state.value == "stopped"
    with pytest.raises(RobotStopped, match="a hand is in the way"), connected(server):
        pass


def test_a_stop_in_a_pause_is_not_cleared_by_what_follows(server: Server, session: ServedSession) -> None:
    go(session, *RAISED)
    fall_silent(server)
    with closing(RemoteRobot(server.address)) as button:
        button.stop("a hand is in the way")
    with pytest.raises(RobotStopped, match="a hand is in the way"):
        session.command(goal(*REST))
    assert server.lifecycle.state.value == "stopped"


def test_a_stop_that_somebody_cleared_in_a_pause_ends_the_session(server: Server, session: ServedSession) -> None:
    go(session, *RAISED)
    fall_silent(server)
    latch = server._loop.latch
    server._loop.stop("a hand is in the way")
    with latch.resetting({"clear_stop": "the hand is gone"}) as clearance:
        clearance.use()
    server._loop.lifecycle.go(type(server.lifecycle.state).RESETTING, "cleared", clears=server._loop.stops)
    server._loop.lifecycle.go(type(server.lifecycle.state).HOLDING, "cleared")
    with pytest.raises(RobotError, match="somebody cleared that stop"):
        session.command(goal(*REST))


def test_clearing_a_stop_takes_its_number(server: Server) -> None:
    with closing(RemoteRobot(server.address)) as button:
        button.stop("a hand is in the way")
        number = button.last_stop
    for wrong in ({}, {"stop_number": 0}):
        with pytest.raises(RobotStopped), connected(server, clear_stop="the hand is gone", **wrong):
            pass
    assert server.lifecycle.state.value == "stopped"
    with connected(server, clear_stop="the hand is gone", stop_number=number) as session:
        go(session, *REST)


def test_another_client_holds_the_robot(server: Server, session: ServedSession) -> None:
    with pytest.raises(ConnectionLost, match="process"), connected(server):
        pass
    go(session, *RAISED)


@pytest.mark.parametrize("pause_s", [0.0, 0.6])
def test_another_client_takes_the_robot(server: Server, session: ServedSession, pause_s: float) -> None:
    go(session, *RAISED)
    time.sleep(pause_s)
    with connected(server, take="force") as other:
        with pytest.raises(ConnectionLost):
            session.command(goal(*REST))
        np.testing.assert_allclose(pose(other), RAISED, atol=0.15)


def test_the_server_ends(server: Server, session: ServedSession) -> None:
    go(session, *RAISED)
    server.close()
    began_s = time.monotonic()
    with pytest.raises(ConnectionLost):
        session.command(goal(*REST))
    assert time.monotonic() - began_s < 3.0
    session.close()


def test_closing_releases_the_robot_which_holds(server: Server) -> None:
    with connected(server) as session:
        go(session, *RAISED)
    assert server.about()["holder"] is None
    assert server.lifecycle.state.value == "holding"
    np.testing.assert_allclose(server._loop.latest.applied["joint_target"], RAISED, atol=1e-6)
    with pytest.raises(EpisodeError, match="call connect first"):
        session.observe()
    with closing(session):
        session.connect()
        go(session, *REST)


def test_closing_can_latch_a_stop(server: Server) -> None:
    with connected(server, at_end="stop") as session:
        go(session, *REST)
    assert server.stopped == "LeRobot disconnected"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 9.0])
def test_an_illegal_goal_is_not_sent(session: ServedSession, wrong: float) -> None:
    go(session, *REST)
    with pytest.raises(IllegalAction):
        session.command(goal(wrong, *REST[1:]))
    np.testing.assert_allclose(session.observe().applied["joint_target"], REST, atol=1e-6)


def test_images_come_with_the_observation(serve: Callable[..., Server], pictures: Path) -> None:
    server = serve(f'[cameras.top]\nsource = "{pictures}"\nwidth = 64\nheight = 48\n')
    with connected(server) as session:
        assert session.cameras == {"top": (48, 64)}
        image = session.images(session.observe())["top"]
        assert image.shape == (48, 64, 3)
        assert image.dtype == np.uint8
        right = image[:, -4:].reshape(-1, 3).mean(axis=0)
        np.testing.assert_allclose(right, (200, 0, 0), atol=12)  # RGB, through JPEG
    with connected(server, images=False) as session:
        assert session.cameras == {}


def test_a_lost_image_is_an_error(serve: Callable[..., Server], pictures: Path) -> None:
    more = f'[cameras.top]\nsource = "{pictures}"\nwidth = 64\nheight = 48\nloop = false\nfps = 15\nmax_age_s = 0.3\n'
    with connected(serve(more)) as session, pytest.raises(RobotError, match="no fresh image of top"):
        go(session, *REST, seconds=10.0, until_applied=False)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [({"approach": 0.0}, "approach is 0.0"), ({"approach": math.nan}, "approach"), ({"at_end": "fall"}, "'hold'"),
     ({"max_reading_age_s": -1.0}, "max_reading_age_s")],
)  # fmt: skip
def test_settings_say_what_is_allowed(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        SessionSettings(address="tcp://127.0.0.1:5555", **wrong)
