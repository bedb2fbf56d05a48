"""Text that UTF-8 can't carry, and faults of the server's own: the network thread outlives both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hal import Answer, Guard, Homing, ResetFailed, RobotError, RobotStopped
from hal.reset.confirmation import Automatic
from real import RemoteRobot, Server
from real.server.request_handler import RequestHandler
from tests.fakes import Integrator, until

SURROGATE = "\ud83d"
UNDECODABLE = "/dev/tty\udcff"

Target = Callable[..., dict[str, np.ndarray]]


class Judge(Automatic):
    """A confirmation whose answers are under the test's control."""

    note: Any = SURROGATE
    refuses = False

    def ask(self, request: Any) -> Answer:
        if self.refuses:
            raise ResetFailed(f"the fixture says {SURROGATE}")
        return Answer("fixture", SURROGATE)

    def judge(self, request: Any) -> Answer:
        return Answer("fixture", self.note, "success")


@pytest.fixture
def confirmation() -> Judge:
    return Judge()


@pytest.fixture(params=[True, False], ids=["lockstep", "real_time"])
def server(request: pytest.FixtureRequest, robot: Integrator, confirmation: Judge) -> Iterator[Server]:
    homing = Homing(Guard(robot), confirmation, on_event=lambda state, detail: server.report(state, detail))
    with Server(homing, lockstep=request.param, max_command_age_s=None, watchdog_s=30) as server:
        yield server
        assert not server.network_dead
        with_other = RemoteRobot(server.address)
        with_other.stop("still heard")
        with_other.close()
        assert server.stopped is not None


@pytest.fixture
def remote(server: Server) -> Iterator[RemoteRobot]:
    remote = RemoteRobot(server.address)
    yield remote
    remote.close()


def test_a_lone_surrogate_in_a_fixtures_note_arrives_escaped(remote: RemoteRobot, repeats: int) -> None:
    remote.reset({})
    for _ in range(repeats):
        answer = remote.judge("how was it?", 3.0)
        assert answer is not None
        assert answer.note == "\\ud83d"


def test_an_answer_that_is_none_is_an_error_for_its_client(remote: RemoteRobot, confirmation: Judge) -> None:
    confirmation.note = None
    remote.reset({})
    with pytest.raises(RobotError):
        remote.judge("how was it?", 3.0)


def test_a_lone_surrogate_in_a_refusal_reaches_the_client(
    remote: RemoteRobot, confirmation: Judge, repeats: int
) -> None:
    confirmation.refuses = True
    for _ in range(repeats):
        with pytest.raises(ResetFailed, match="ud83d"):
            remote.reset({})


def test_an_undecodable_name_in_a_drivers_exception_reaches_the_client(
    remote: RemoteRobot, robot: Integrator, target: Target, repeats: int
) -> None:
    def lost() -> None:
        raise OSError(UNDECODABLE)

    for _ in range(repeats):
        robot.on_step = lambda: None
        remote.reset({"clear_stop": "plugged in"})
        robot.on_step = lost
        with pytest.raises(RobotError, match="udcff"):
            remote.step(target(0.1, 0))
        assert "udcff" in str(remote.status()["why"])


def test_an_exception_without_a_text_reaches_the_client(remote: RemoteRobot, robot: Integrator, target: Target) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    def lost() -> None:
        raise Mute

    remote.reset({})
    robot.on_step = lost
    with pytest.raises(RobotError, match="Mute"):
        remote.step(target(0.1, 0))
    with pytest.raises(RobotStopped):
        remote.step(target(0.1, 0))


def test_a_client_can_stop_with_any_text(remote: RemoteRobot, server: Server) -> None:
    remote.stop(f"a {SURROGATE}\n2026-01-01 WARNING stop cleared\x1b[2J")
    reason = server.stopped
    assert reason is not None
    assert reason.isprintable(), "one line of the log, whatever the client sends"
    assert "ud83d" in reason


def test_a_fault_of_a_tick_or_of_an_answer_costs_no_more_than_itself(
    remote: RemoteRobot, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = []

    def fault(*_: object) -> None:
        faults.append(threading.current_thread().name)
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(RequestHandler, "tick", fault)
        until(lambda: len(faults) > 2)
        remote.reset({})
