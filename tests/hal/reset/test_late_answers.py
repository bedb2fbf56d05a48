"""A yes after the reset's deadline moves nothing, whoever gives it: the reset itself measures the deadline."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import zmq

from hal import Answer, Automatic, DeadlineExceeded, Guard, Homing, HomingSettings, ResetConfirmation, ResetRequest
from hal.reset.command import Command
from hal.reset.confirmation import VerdictRequest
from hal.reset.fixture import Fixture, Gpio
from hal.reset.terminal import Terminal
from tests.fakes import ManualClock

pytestmark = pytest.mark.requirement("R6.6")

DEADLINE_S = 60.0


class Stranger:
    """A confirmation of a user's own, which looks at no deadline."""

    def ask(self, request: ResetRequest) -> Answer:
        return Answer("a stranger")

    def judge(self, request: VerdictRequest) -> Answer:
        return Answer("a stranger")

    def close(self) -> None:
        pass


class Frozen:
    """Hand requests on; between the answer and its use the process is frozen for some time, as by SIGSTOP.

    The confirmation's own clock does not notice, because its last look at it lies before.
    """

    def __init__(self, confirmation: ResetConfirmation, clock: ManualClock, seconds: float) -> None:
        self._confirmation, self._clock, self._seconds = confirmation, clock, seconds
        self.answer: Answer | None = None

    def ask(self, request: ResetRequest) -> Answer:
        self.answer = self._confirmation.ask(request)
        self._clock.advance(self._seconds)
        return self.answer

    def judge(self, request: VerdictRequest) -> Answer:
        return self._confirmation.judge(request)

    def close(self) -> None:
        self._confirmation.close()


@contextlib.contextmanager
def terminal() -> Iterator[ResetConfirmation]:
    source, target = os.pipe()
    with os.fdopen(source) as reader, os.fdopen(target, "w") as writer:
        writer.write("yes\n")
        writer.flush()
        yield Terminal(reader, io.StringIO())


@contextlib.contextmanager
def fixture() -> Iterator[ResetConfirmation]:
    with zmq.Context() as context, context.socket(zmq.REP) as machine:
        machine.setsockopt(zmq.LINGER, 0)
        port = machine.bind_to_random_port("tcp://127.0.0.1")

        def answer() -> None:
            request = json.loads(machine.recv())
            machine.send(json.dumps({"id": request["id"], "ready": True}).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        yield Fixture(f"tcp://127.0.0.1:{port}")
        thread.join(10)


@contextlib.contextmanager
def command() -> Iterator[ResetConfirmation]:
    yield Command([sys.executable, "-c", "pass"])


@contextlib.contextmanager
def gpio() -> Iterator[ResetConfirmation]:
    bindings, line = ModuleType("gpiod"), ModuleType("gpiod.line")
    line.Direction = SimpleNamespace(INPUT="input")  # type: ignore[attr-defined]
    line.Edge = SimpleNamespace(RISING="rising")  # type: ignore[attr-defined]

    def wait_edge_events(timeout: timedelta) -> bool:
        return True

    lines = SimpleNamespace(wait_edge_events=wait_edge_events)
    bindings.LineSettings = dict  # type: ignore[attr-defined]
    bindings.request_lines = lambda *_, **__: contextlib.nullcontext(lines)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "gpiod", bindings)
        patch.setitem(sys.modules, "gpiod.line", line)
        yield Gpio("/dev/gpiochip0", 17)


@contextlib.contextmanager
def stranger() -> Iterator[ResetConfirmation]:
    yield Stranger()


CONFIRMATIONS: list[Callable[[], contextlib.AbstractContextManager[ResetConfirmation]]] = [
    terminal, fixture, command, gpio, stranger,
]  # fmt: skip


@pytest.mark.parametrize("confirmation", CONFIRMATIONS)
@pytest.mark.parametrize("frozen_s", [DEADLINE_S - 1.0, DEADLINE_S + 1.0])
def test_a_yes_counts_up_to_the_deadline_and_moves_nothing_after_it(
    puppet: Any, monkeypatch: pytest.MonkeyPatch, confirmation: Any, frozen_s: float
) -> None:
    clock, robot = ManualClock(), puppet(at=(0.5, 0.0))
    monkeypatch.setattr("hal.reset.confirmation.time", SimpleNamespace(monotonic=clock))
    with confirmation() as inner:
        frozen = Frozen(inner, clock, frozen_s)
        homing = Homing(Guard(robot), frozen, HomingSettings(signal_deadline_s=DEADLINE_S))
        if frozen_s > DEADLINE_S:
            with pytest.raises(DeadlineExceeded, match=r"came too late and moves nothing; reset again"):
                homing.reset({})
        else:
            homing.reset({})
        homing.close()
    record = homing.last_reset
    assert record is not None
    assert frozen.answer is not None, "the confirmation said yes"
    assert record.outcome == ("late" if frozen_s > DEADLINE_S else "done")
    assert bool(robot.told) == (frozen_s < DEADLINE_S), "the arm goes home on a yes in time alone"


def test_a_class_derived_from_the_automatic_confirmation_has_the_deadline_too(
    puppet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, robot = ManualClock(), puppet(at=(0.5, 0.0))
    monkeypatch.setattr("hal.reset.confirmation.time", SimpleNamespace(monotonic=clock))

    class Waits(Automatic):
        def ask(self, request: ResetRequest) -> Answer:
            clock.advance(request.deadline_s + 1.0)
            return super().ask(request)

    homing = Homing(Guard(robot), Waits(), HomingSettings(signal_deadline_s=DEADLINE_S))
    with pytest.raises(DeadlineExceeded):
        homing.reset({})
    assert robot.told == []


def test_a_stranger_that_never_answers_is_given_up(puppet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, robot, freed = ManualClock(), puppet(at=(0.5, 0.0)), threading.Event()
    monkeypatch.setattr("hal.reset.confirmation.time", SimpleNamespace(monotonic=clock))

    class Deaf(Stranger):
        def ask(self, request: ResetRequest) -> Answer:
            clock.advance(10 * request.deadline_s)
            freed.wait(60)
            return Answer("a stranger")

    homing = Homing(Guard(robot), Deaf(), HomingSettings(signal_deadline_s=DEADLINE_S))
    with pytest.raises(DeadlineExceeded, match="no answer came within 60 s"):
        homing.reset({})
    freed.set()
    assert homing.last_reset is not None
    assert homing.last_reset.outcome == "late"
    assert robot.told == []
