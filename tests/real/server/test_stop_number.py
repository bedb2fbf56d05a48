"""A reset clears the stop that its sender knew of, by its number, and no later one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from hal import IllegalAction, RobotStopped, WireError
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
        with pytest.raises(WireError, match="stop_number"):  # also where nothing is stopped just now
            reset()
        third = stop("third")
        with pytest.raises(WireError, match="ERROR RobotStopped"):
            reset()
        assert server.lifecycle.state is State.STOPPED
        assert len(robot.resets) == 1
        for blank in ("", "  ", None):  # a reset that clears nothing needs no number
            with pytest.raises(RobotStopped, match="third"):
                reset(options={"clear_stop": blank})
        reset(stop_number=third)
        assert server.stopped is None


def test_a_stop_answers_its_number_where_it_is_asked_for(server: Server) -> None:
    with closing(Connection(server.address)) as one, closing(Connection(server.address)) as other:

        def stop(connection: Connection, **detail: Any) -> Any:
            return connection.ask(MessageKind.STOP, {"reason": "x", "orderly": False, **detail}, (), 10.0).detail

        assert stop(one) is None, "a client that does not ask for the number gets none"
        number = one.ask(MessageKind.STATUS, None, (), 10.0).detail["stop_number"]
        assert stop(other, numbered=True) == {"stop_number": number + 1, "first": False, "trouble": None}
        assert stop(other, numbered=False) is None


def test_numbers_of_a_new_server_are_above_those_of_an_earlier_one(robot: Integrator) -> None:
    numbers = []
    for _ in range(3):
        with Server(Integrator()) as server, closing(RemoteRobot(server.address, connect_timeout_s=20.0)) as remote:
            numbers.append(remote.status()["stop_number"])
            remote.stop("smoke")
            numbers.append(remote.status()["stop_number"])
    assert numbers == sorted(set(numbers))


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
    mover.reset(CLEARS)  # it was told of both now
    assert server.stopped is None


def test_a_mover_clears_no_stop_of_which_nobody_told_it(server: Server, connect: Callable[[], RemoteRobot]) -> None:
    mover, button = connect(), connect()
    button.stop("before the mover connects")
    for reason in ("before the mover connects", "in an episode"):
        with pytest.raises(RobotStopped, match=reason) as told:
            mover.reset(CLEARS)
        assert told.value.stop_number == button.status()["stop_number"]
        assert server.lifecycle.state is State.STOPPED
        mover.reset(CLEARS)  # it was told now
        assert server.stopped is None
        button.stop("in an episode")
    mover.reset({**CLEARS, "stop_number": button.status()["stop_number"]})
    assert server.stopped is None


def test_a_mover_knows_its_own_stop_unless_another_one_was_latched_before(
    server: Server, connect: Callable[[], RemoteRobot]
) -> None:
    mover, button = connect(), connect()
    mover.reset({})
    mover.stop("its own")
    mover.reset(CLEARS)
    button.stop("another one")
    mover.stop("its own")
    with pytest.raises(RobotStopped, match="another one"):
        mover.reset(CLEARS)
    mover.reset(CLEARS)
    assert server.stopped is None


@pytest.mark.parametrize("number", ["7", 1.5, True, -1])
def test_a_number_that_is_none_is_refused_here(connect: Callable[[], RemoteRobot], number: Any) -> None:
    with pytest.raises(IllegalAction, match="stop_number"):
        connect().reset({**CLEARS, "stop_number": number})


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
        with pytest.raises(RobotStopped):
            mover.reset(CLEARS)  # and so it is told of the older one
        resets = len(robot.resets)
        presses.append(f"newer {trial}")
        with pytest.raises(RobotStopped):
            mover.reset(CLEARS)
        if server.stopped is None or len(robot.resets) > resets:
            undone.append(trial)
        mover.reset({**CLEARS, "stop_number": button.status()["stop_number"]})
    print(f"a stop that overtakes a reset: {len(undone)} of {repeats} undone")
    assert not undone


def test_a_client_clears_the_stop_that_its_person_has_seen_and_no_later_one(
    server: Server, connect: Callable[[], RemoteRobot]
) -> None:
    mover, button = connect(), connect()
    button.stop("first")
    seen = button.status()["stop_number"]
    button.stop("second")
    with pytest.raises(RobotStopped):
        mover.reset({**CLEARS, "stop_number": seen})
    assert server.lifecycle.state is State.STOPPED
    mover.reset({**CLEARS, "stop_number": button.status()["stop_number"]})
    assert server.lifecycle.state is State.READY
