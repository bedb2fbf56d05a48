"""A client that steps ahead: its rate on a slow link, what it does with late frames, and what it says of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import CommandTooOld, ConnectionLost, EpisodeError, IllegalAction, RobotStopped
from real import RemoteRobot, Server
from real.client.frames import with_advice
from real.control.lifecycle import State
from tests.fakes import INTEGRATOR, Integrator, until
from tests.real.relay import Relay

Target = Callable[..., dict[str, np.ndarray]]


class Link:
    """A served robot, its client, and the network between them."""

    def __init__(self, ends: ExitStack, ahead: int, allowed: int = 10, hz: float = 20.0, **settings: Any) -> None:
        self.robot = Integrator(replace(INTEGRATOR, rate_hz=4 * hz))
        given = {"watchdog_s": 1.0, "max_command_age_s": 0.5, **settings}
        self.server = ends.enter_context(Server(self.robot, control_hz=hz, ahead=allowed, **given))
        self.relay = ends.enter_context(Relay(self.server.address, seed=1))
        self.client = RemoteRobot(self.relay.address, ahead=ahead, step_timeout_s=5.0, connect_timeout_s=5.0)
        ends.callback(self.client.close)


@pytest.fixture
def link() -> Iterator[Callable[..., Link]]:
    with ExitStack() as ends:
        yield lambda *arguments, **settings: Link(ends, *arguments, **settings)


def test_the_reading_is_of_the_next_frame_and_the_command_of_a_later_one(link: Any, target: Target) -> None:
    end = link(3, hz=5.0)
    end.client.reset({})
    applied = [float(end.client.step(target(n / 100, 0)).applied["target"][0]) for n in range(1, 11)]
    assert [round(value, 4) for value in applied] == [0, 0, 0, *(n / 100 for n in range(1, 8))]
    ahead = end.client.about()["ahead"]
    assert ahead == {"frames": 3, "delay_s": pytest.approx(0.6), "held": 0, "skipped": 0, "late": 0}


@pytest.mark.slow
def test_a_slow_link_keeps_the_rate(link: Any, target: Target) -> None:
    """A round trip takes four periods. Without ahead a third of the rate is left at best."""
    end = link(8)
    end.relay.delay_s = 0.1
    end.client.reset({})
    end.client.step(target(0, 0))
    began, frame = time.monotonic(), end.client._frames.frame
    for n in range(60):
        end.client.step(target(n / 100, 0))
    took_s = time.monotonic() - began
    assert end.client._frames.frame - frame == 60 + end.client._frames.skipped
    assert took_s < 60 / 20 * 1.2, "a robot of 20 Hz"
    assert took_s > 60 / 20 * 0.8 - 0.5


@pytest.mark.slow
def test_a_stall_of_one_connection_delays_nothing(link: Any, target: Target) -> None:
    """TCP sends a lost packet again after a while, and all behind it waits; the other connection goes on."""
    end = link(4)
    end.client.reset({})
    end.client.step(target(0, 0))
    until(lambda: len(end.server._handler._paths.peers) == 2)
    stalled = end.relay._ways[:2]
    assert stalled[0].source is not None
    for way in stalled:
        way.pass_on = lambda now, crumbs: None  # what it reads waits
    began = time.monotonic()
    for n in range(20):
        end.client.step(target(n / 100, 0))
    assert time.monotonic() - began < 1.6
    assert end.client._frames.holds <= 4, "a busy machine may be late"
    assert end.server.lifecycle.state is State.RUNNING
    for way in stalled:
        del way.pass_on


@pytest.mark.slow
def test_late_commands_hold_and_the_episode_goes_on(link: Any, target: Target) -> None:
    """A stall of both connections, longer than the frames ahead: the robot holds, and nothing late is executed."""
    end = link(2, watchdog_s=3.0)
    end.client.reset({})
    for n in range(10):
        end.client.step(target(n / 100, 0))
    refused = []
    tell = end.server._loop.frames._tell
    end.server._loop.frames._tell = lambda request_id, outcome: (
        refused.append((request_id.frame, outcome)), tell(request_id, outcome)
    )  # fmt: skip
    end.relay.silent = True
    threading.Timer(0.5, lambda: setattr(end.relay, "silent", False)).start()
    for n in range(10, 40):
        end.client.step(target(n / 100, 0))
    about = end.client.about()
    assert about["holds"] == about["ahead"]["held"] > 0
    assert about["server"]["frames"]["held"] >= about["holds"]
    assert about["ahead"]["late"] + about["ahead"]["skipped"] > 0
    assert about["server"]["state"] == "running"
    assert all(isinstance(outcome, CommandTooOld) for _, outcome in refused), refused


def test_a_status_amid_an_episode_loses_no_reading(link: Any, target: Target) -> None:
    end = link(2)
    end.client.reset({})
    frames = []
    for n in range(12):
        end.client.step(target(n / 100, 0))
        frames.append(end.client._frames.frame)
        end.client.about()
    assert frames == sorted(set(frames))
    assert frames[-1] - frames[0] == 11 + end.client._frames.skipped


def test_an_illegal_command_is_refused_here_and_not_sent(link: Any, target: Target) -> None:
    end = link(2)
    end.client.reset({})
    end.client.step(target(0.1, 0))
    sequence = end.client._connection.sequence
    with pytest.raises(IllegalAction):
        end.client.step(target(9, 0))
    assert end.client._connection.sequence == sequence
    end.client.step(target(0.2, 0))


def test_more_frames_than_the_server_allows_are_refused_and_the_robot_is_given_back(link: Any) -> None:
    end = link(6, allowed=4)
    with pytest.raises(EpisodeError, match=r"steps 6 frames ahead .* allows 4 \(serve\.ahead\)"):
        end.client.reset({})
    assert end.server.about()["holder"] is None
    other = link(6, allowed=0)
    with pytest.raises(EpisodeError, match=r"allows 0"):
        other.client.reset({})


@pytest.mark.parametrize("ahead", [-1, 11, 2.5, True])
def test_a_wrong_number_is_refused(ahead: Any) -> None:
    with pytest.raises(ValueError, match="allowed are 0"):
        RemoteRobot("tcp://127.0.0.1:9", ahead=ahead)


def test_silence_ends_the_episode_and_a_reset_begins_the_next(link: Any, target: Target) -> None:
    end = link(2, watchdog_s=0.2)
    end.client.reset({})
    for n in range(5):
        end.client.step(target(n / 100, 0))
    until(lambda: end.server.lifecycle.state is State.HOLDING)
    with pytest.raises(EpisodeError, match="no valid command"):  # noqa: PT012 (the error may be on its way)
        for _ in range(5):
            end.client.step(target(0.9, 0))
    end.client.reset({})
    assert 4 <= end.client.step(target(0.5, 0)).sensors["steps"] < 8, "it read the first frame"
    assert max(first for first, _ in end.robot.commands) < 0.9


def test_a_stop_reaches_the_robot_once_and_the_next_reset_clears_it(link: Any, target: Target) -> None:
    end = link(2)
    end.client.reset({})
    end.client.step(target(0.1, 0))
    until(lambda: end.client._stops._second.stands)
    number = end.server.about()["stop_number"]
    end.client.stop("a hand")
    assert end.client.last_stop == end.server.about()["stop_number"] == number + 1
    with pytest.raises(RobotStopped):
        end.client.step(target(0.2, 0))
    end.client.reset({"clear_stop": "looked"})
    end.client.step(target(0.1, 0))
    time.sleep(0.1)
    assert end.server.stopped is None


def test_a_stop_gets_through_where_its_first_connection_is_stalled(link: Any, target: Target) -> None:
    end = link(2)
    end.client.reset({})
    end.client.step(target(0.1, 0))
    until(lambda: end.client._stops._second.stands)
    main = end.client._stops._main
    main.send = lambda parts, is_copy=False: None
    began = time.monotonic()
    end.client.stop("a hand")
    assert time.monotonic() - began < 0.4, "before a new connection is tried"
    assert end.server.stopped == "a hand"


def test_a_lost_connection_goes_on_in_the_same_episode(link: Any, target: Target) -> None:
    end = link(2, watchdog_s=5.0)
    end.client.reset({})
    for n in range(5):
        end.client.step(target(n / 100, 0))
    end.client._drop("a test")
    with pytest.raises(ConnectionLost, match="the connection was lost"):
        end.client.step(target(0.9, 0))
    assert isinstance(end.client.resume(), bool)
    for n in range(5, 15):
        robot_state = end.client.step(target(n / 100, 0))
    assert robot_state.applied["target"][0] > 0.04
    assert end.server.lifecycle.state is State.RUNNING


def test_the_episodes_metadata_tell_the_delay() -> None:
    server = Server(rr.robot("so101", "twin"), ahead=4, watchdog_s=5.0, max_command_age_s=1.0)
    with server, rr.make("so101-reach", robot=server.address, ahead=3) as env:
        obs, frames = env.reset(), []
        for _ in range(4):
            action = {"joint_target": obs["observation"]["joint_goal"]}
            obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
            frames.append(obs["frame_no"])
        info = env.world.episode_info()
    assert frames == [1, 2, 3, 4]
    assert info["controller"]["ahead"]["frames"] == 3
    assert info["controller"]["ahead"]["delay_s"] == pytest.approx(0.1)


def test_ahead_is_for_robots_on_the_network() -> None:
    with pytest.raises(ValueError, match="ahead is for a robot on the network"):
        rr.make("so101-reach", ahead=3)


# -- What an error on a slow link says ----------------------------------------------------------------------------

SLOW = (0, 100_000_000, 100_000_000, 200_000_000)


@pytest.mark.parametrize(
    ("exchange", "period_s", "ahead", "says"),
    [
        (SLOW, 1 / 30, 0, "200 ms of a control period of 33 ms, and commands go 0 frames ahead: set ahead to 8 here"),
        (SLOW, 1 / 100, 0, "even ahead 10 would be too little"),
        (SLOW, 1 / 30, 9, ""),
        (SLOW, 1 / 2, 0, ""),
        (None, 1 / 30, 0, ""),
    ],
)  # fmt: skip
def test_an_error_on_a_slow_link_names_the_remedy(exchange: Any, period_s: float, ahead: int, says: str) -> None:
    for error in (CommandTooOld(0.2, 0.1), EpisodeError("held: no valid command for 0.2 s; call reset")):
        before = str(error)
        told = with_advice(error, exchange, period_s, ahead)
        assert type(told) is type(error)
        assert str(told).startswith(before)
        assert says in str(told)
        assert bool(says) == (str(told) != before)
    other = EpisodeError("step before reset")
    assert str(with_advice(other, exchange, period_s, ahead)) == "step before reset"


@pytest.mark.slow
def test_a_step_on_a_slow_link_without_ahead_names_ahead(link: Any, target: Target) -> None:
    end = link(0, watchdog_s=0.2, max_command_age_s=0.1)
    end.relay.delay_s = 0.15
    end.client.reset({})
    with pytest.raises((EpisodeError, CommandTooOld), match=r"A round trip takes 3\d\d ms.* set ahead to \d+ here"):  # noqa: PT012
        for n in range(10):
            end.client.step(target(n / 100, 0))
