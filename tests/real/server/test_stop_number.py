"""A reset clears the stop that its sender knew of, by its number, and no later one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import numpy as np
import pytest

from hal import RobotStopped, WireError
from real import Connection, MessageKind, RemoteRobot, Server
from real.client import connection as client_connection
from real.control.lifecycle import State
from real.protocol.messages import send_frames
from tests.fakes import Integrator

CLEARS = {"clear_stop": "looked"}


@pytest.fixture
def server(robot: Integrator) -> Iterator[Server]:
    with Server(robot, watchdog_s=30.0, max_command_age_s=None) as server:
        yield server


@pytest.fixture
def connect(server: Server) -> Iterator[Callable[[], RemoteRobot]]:
    remotes: list[RemoteRobot] = []

    def connect() -> RemoteRobot:
        remotes.append(RemoteRobot(server.address, connect_timeout_s=20.0, step_timeout_s=20.0))
        return remotes[-1]

    yield connect
    for remote in remotes:
        remote.close()


def test_a_reset_says_which_stop_it_clears(server: Server, robot: Integrator) -> None:
    """By the wire alone."""
    with closing(Connection(server.address)) as mover, closing(Connection(server.address)) as button:
        hello = {"digest": "", "name": "x", "move": True, "replaces": 0, "take": "no", "resume": False}
        mover.session = mover.ask(MessageKind.HELLO, hello, (), 10.0).session

        def stop(reason: str) -> int:
            button.ask(MessageKind.STOP, {"reason": reason, "orderly": False}, (), 10.0)
            number = button.ask(MessageKind.STATUS, None, (), 10.0).detail["stop_number"]
            assert type(number) is int
            return number

        def reset(**detail: Any) -> Any:
            return mover.ask(MessageKind.RESET, {"options": CLEARS, "deadline_s": 10.0, **detail}, (), 10.0)

        first, second = stop("first"), stop("second")
        assert second > first
        for stale in (first, 0, 2**62):
            with pytest.raises(RobotStopped, match="first"):
                reset(stop_number=stale)
            assert mover.stop_number == second, "the refusal tells the newest one"
            assert server.lifecycle.state is State.STOPPED
        for wrong in ("7", 1.5, True, None):
            with pytest.raises(WireError, match="stop_number"):
                reset(stop_number=wrong)
        assert robot.resets == []
        reset(stop_number=second)
        assert server.stopped is None
        stop("third")
        for _ in range(20):  # a client of an older version may be refused where its reset comes at once
            with suppress(RobotStopped):
                reset()
                break
        assert server.stopped is None


def test_a_stop_that_a_mover_was_not_told_of_stays(server: Server, connect: Callable[[], RemoteRobot]) -> None:
    mover, button = connect(), connect()
    mover.reset({})
    button.stop("first")
    with pytest.raises(RobotStopped, match="first"):
        mover.step({"target": np.float32((0.1, 0.0))})
    button.stop("second, pressed while somebody looked at the first")
    with pytest.raises(RobotStopped):
        mover.reset(CLEARS)
    assert server.stopped is not None
    mover.reset(CLEARS)  # it was told of that one now
    assert server.stopped is None


def test_a_mover_clears_the_newest_stop_where_it_was_told_of_none(
    server: Server, connect: Callable[[], RemoteRobot]
) -> None:
    mover, button = connect(), connect()
    button.stop("before the mover connects")
    mover.reset(CLEARS)
    button.stop("in an episode")
    button.stop("and again")
    mover.reset(CLEARS)
    mover.stop("its own")
    mover.reset(CLEARS)
    assert server.stopped is None


def test_a_stop_that_overtakes_a_reset_on_its_way_stays(
    server: Server, connect: Callable[[], RemoteRobot], robot: Integrator, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reset leaves its client, and comes to the server after the stop was confirmed, at an idle socket."""
    mover, button = connect(), connect()
    button.stand_by()
    mover.reset({})
    presses: list[str] = []
    original = send_frames

    def delayed(socket: Any, frames: Any, flags: int = 0) -> None:
        if presses and frames[0][2] == MessageKind.RESET:
            button.stop(presses.pop())
        original(socket, frames, flags)

    monkeypatch.setattr(client_connection, "send_frames", delayed)
    undone = []
    for trial in range(repeats):
        button.stop("older")
        resets = len(robot.resets)
        presses.append(f"newer {trial}")
        with pytest.raises(RobotStopped):
            mover.reset(CLEARS)
        if server.stopped is None or len(robot.resets) > resets:
            undone.append(trial)
        mover.reset(CLEARS)
    print(f"a stop that overtakes a reset: {len(undone)} of {repeats} undone")
    assert not undone


def test_a_client_clears_the_stop_that_its_person_has_seen_and_no_later_one(
    server: Server, connect: Callable[[], RemoteRobot]
) -> None:
    mover, button = connect(), connect()
    button.stop("first")
    seen = button.status()["stop_number"]
    button.stop("second")
    mover.see_stop(seen)
    with pytest.raises(RobotStopped):
        mover.reset(CLEARS)
    assert server.lifecycle.state is State.STOPPED
    mover.see_stop(button.status()["stop_number"])
    mover.reset(CLEARS)
    assert server.lifecycle.state is State.READY
