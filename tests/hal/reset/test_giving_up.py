"""A request for the scene ends when nobody wants its answer any more, and a later yes moves nothing."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from hal import Answer, Guard, Homing, HomingSettings, ResetFailed, ResetRequest, RobotStopped
from hal.reset.command import Command
from hal.reset.confirmation import VerdictRequest
from hal.reset.fixture import Fixture
from hal.reset.terminal import Terminal
from tests.fakes import until


class Person:
    """A person who answers when the test says so; the answer to a request that was given up reaches nobody."""

    def __init__(self, *, cancellable: bool) -> None:
        self.asked, self.says_yes, self.answered = threading.Event(), threading.Event(), threading.Event()
        if cancellable:
            self.cancel = self.says_yes.set  # the worst: it says yes in the very moment

    def ask(self, request: ResetRequest) -> Answer:
        self.asked.set()
        self.says_yes.wait(20)
        self.answered.set()
        return Answer("a person")

    def judge(self, request: VerdictRequest) -> Answer:
        return Answer("a person")

    def close(self) -> None:
        pass


def in_background(reset: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    outcomes: list[Any] = []

    def run() -> None:
        try:
            outcomes.append(reset())
        except Exception as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcomes


@pytest.mark.parametrize("cancellable", [True, False])
@pytest.mark.parametrize("how", ["stop", "cancel_reset"])
def test_a_later_yes_moves_nothing(puppet: Any, how: str, cancellable: bool) -> None:
    robot, person = puppet(at=(0.5, 0.0)), Person(cancellable=cancellable)
    homing = Homing(Guard(robot), person)
    thread, outcomes = in_background(lambda: homing.reset({}))
    assert person.asked.wait(10)
    getattr(homing, how)("enough")
    thread.join(10)
    assert not thread.is_alive(), "it does not wait for the person"
    assert isinstance(outcomes[0], RobotStopped if how == "stop" else ResetFailed)
    assert "enough" in str(outcomes[0])
    person.says_yes.set()
    assert person.answered.wait(10)
    assert robot.told == []
    assert homing.reset({"clear_stop": "looked"}).stamp_ns > 0, "and the next reset is asked for anew"


def test_a_reset_given_up_on_the_way_home_holds(puppet: Any) -> None:
    class Leaves(puppet):  # type: ignore[misc]
        def step(self, command: Any) -> Any:
            if len(self.told) == 3:
                homing.cancel_reset("its client is gone")
            return super().step(command)

    robot = Leaves(at=(0.9, 0.0))
    homing = Homing(Guard(robot), Person(cancellable=True), HomingSettings(velocity=0.5))
    homing._signal.says_yes.set()  # type: ignore[attr-defined]
    with pytest.raises(ResetFailed, match="its client is gone"):
        homing.reset({})
    assert len(robot.told) == 4


@pytest.mark.process
def test_a_stop_ends_a_program_that_ignores_sigterm_with_all_that_it_started(tmp_path: Path, puppet: Any) -> None:
    """The child in a session of its own, too."""
    pids = tmp_path / "pids"
    script = f"trap '' TERM; setsid sleep 60 & sleep 60 & echo $$ >> {pids}; setsid sh -c 'echo $$ >> {pids}; sleep 60'"
    robot = puppet(at=(0.5, 0.0))
    homing = Homing(Guard(robot), Command(["/bin/sh", "-c", script]))
    thread, outcomes = in_background(lambda: homing.reset({}))
    until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    before = of_a_reset()
    assert len(before) >= 3
    homing.stop("a hand")
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(outcomes[0], RobotStopped)
    until(lambda: not of_a_reset())
    assert robot.told == []


def of_a_reset() -> list[str]:
    """Return the processes that carry the mark of a request of this process."""
    marked, mine = [], f"PYTEST_CURRENT_TEST={os.environ['PYTEST_CURRENT_TEST']}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            text = environ.read_bytes()
        except OSError:
            continue
        if b"RLENV_ROBOT_RESET=" in text and mine in text:
            marked.append(environ.parent.name)
    return marked


def test_a_cancelled_question_at_a_terminal_ends() -> None:
    source, target = os.pipe()
    with os.fdopen(source) as stdin, open(os.devnull, "w") as stderr:
        terminal = Terminal(stdin, stderr)
        thread, outcomes = in_background(lambda: terminal.ask(ResetRequest("arm", 0, 60.0)))
        while thread.is_alive():
            terminal.cancel()
            time.sleep(0.01)
        assert isinstance(outcomes[0], ResetFailed)
    os.close(target)


def test_a_cancelled_request_to_a_fixture_ends_and_its_answer_is_for_nobody() -> None:
    with zmq.Context.instance().socket(zmq.ROUTER) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        fixture = Fixture(f"tcp://127.0.0.1:{port}")
        thread, outcomes = in_background(lambda: fixture.ask(ResetRequest("arm", 0, 60.0)))
        assert router.poll(10_000)
        while thread.is_alive():
            fixture.cancel()
            time.sleep(0.01)
        assert isinstance(outcomes[0], ResetFailed)
        fixture.close()
