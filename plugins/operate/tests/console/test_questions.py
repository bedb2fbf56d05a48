"""Questions: a person's answer reaches the robot's server that asked, with the person's name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Answer, DeadlineExceeded, Fixture, Guard, Homing, HomingSettings, ResetFailed
from hal.reset.confirmation import ResetRequest, VerdictRequest
from rlenv_operate.console.questions import FixtureSocket, Question, QuestionBox, question_of
from tests.fakes import ManualClock, Puppet, until


@pytest.fixture
def box() -> QuestionBox:
    return QuestionBox()


@pytest.fixture
def socket(box: QuestionBox) -> Iterator[FixtureSocket]:
    socket = FixtureSocket("tcp://127.0.0.1:*", box)
    socket.start()
    yield socket
    socket.close()


class Asking(threading.Thread):
    """The robot's side: `hal.Fixture`, which waits for the answer."""

    def __init__(self, address: str, request: ResetRequest | VerdictRequest) -> None:
        super().__init__(daemon=True)
        self._fixture, self._request = Fixture(address), request
        self.outcome: Answer | Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            request = self._request
            self.outcome = (
                self._fixture.ask(request) if isinstance(request, ResetRequest) else self._fixture.judge(request)
            )
        except Exception as error:
            self.outcome = error
        finally:
            self._fixture.close()


def test_reset_done_is_answered_with_the_name_and_the_verdict_before_it(
    box: QuestionBox, socket: FixtureSocket
) -> None:
    asking = Asking(socket.address, ResetRequest("so101", 3, 30.0, "cube to A", verdict=True))
    until(lambda: box.pending is not None)
    question = box.pending
    assert question is not None
    assert (question.kind, question.text, question.verdict) == ("reset", "cube to A", True)
    assert "success" in box.answer_verdict("ann", "success")
    assert box.chosen_verdict == "success"
    box.answer_reset("ann", ready=True, note="cube at A")
    asking.join(10)
    assert asking.outcome == Answer("fixture", "ann: cube at A", "success")
    assert box.pending is None


@pytest.mark.parametrize("frozen_s", [0.0, 61.0])
def test_a_late_reset_done_moves_nothing(
    box: QuestionBox, socket: FixtureSocket, monkeypatch: pytest.MonkeyPatch, frozen_s: float
) -> None:
    """The robot's process is frozen between the answer's arrival and its use; nobody but the reset can notice."""
    clock, robot, taken = ManualClock(), Puppet(at=(0.5, 0.0)), []
    monkeypatch.setattr("hal.reset.confirmation.time", SimpleNamespace(monotonic=clock))

    class Frozen(Fixture):
        def ask(self, request: ResetRequest) -> Answer:
            taken.append(super().ask(request))
            clock.advance(frozen_s)
            return taken[-1]

    homing, outcomes = Homing(Guard(robot), Frozen(socket.address), HomingSettings(signal_deadline_s=60.0)), []

    def reset() -> None:
        try:
            outcomes.append(homing.reset({}))
        except DeadlineExceeded as error:
            outcomes.append(error)

    thread = threading.Thread(target=reset)
    thread.start()
    until(lambda: box.pending is not None)
    box.answer_reset("ann", ready=True)
    thread.join(10)
    homing.close()
    assert taken == [Answer("fixture", "ann")]
    assert isinstance(outcomes[0], DeadlineExceeded) == bool(frozen_s)
    assert bool(robot.told) != bool(frozen_s)


def test_a_refusal_gives_its_reason(box: QuestionBox, socket: FixtureSocket) -> None:
    asking = Asking(socket.address, ResetRequest("so101", 3, 30.0))
    until(lambda: box.pending is not None)
    box.answer_reset("bob", ready=False, note="the cube is lost")
    asking.join(10)
    assert isinstance(asking.outcome, ResetFailed)
    assert "bob: the cube is lost" in str(asking.outcome)


def test_a_verdict_is_answered(box: QuestionBox, socket: FixtureSocket) -> None:
    asking = Asking(socket.address, VerdictRequest("so101", 4, 30.0, "is it clean?"))
    until(lambda: box.pending is not None)
    assert box.answer_verdict("ann", "discard") == "discard"
    asking.join(10)
    assert asking.outcome == Answer("fixture", "ann", "discard")


def test_a_question_that_nobody_answers_ends(box: QuestionBox, socket: FixtureSocket) -> None:
    asking = Asking(socket.address, ResetRequest("so101", 3, 0.2))
    asking.join(10)
    assert isinstance(asking.outcome, DeadlineExceeded)
    until(lambda: box.pending is None)
    with pytest.raises(ValueError, match="not ask for a reset"):
        box.answer_reset("ann", ready=True)


def test_an_answer_to_a_question_that_has_gone_reaches_no_later_one(box: QuestionBox) -> None:
    first, second = (Question(name, "reset", "", False, float("inf")) for name in ("1", "2"))
    box.ask(first)
    box.answer_reset("ann", ready=True)
    box.ask(second)
    assert box.take_reply("1") is None
    assert box.take_reply("2") is None
    box.withdraw("1")
    assert box.pending == second


def test_a_deadline_closes_a_question() -> None:
    clock = ManualClock()
    box = QuestionBox(clock)
    box.ask(Question("1", "verdict", "", False, clock.now + 5.0))
    assert box.pending is not None
    clock.advance(6.0)
    assert box.pending is None
    with pytest.raises(ValueError, match="not ask for a verdict"):
        box.answer_verdict("ann", "success")


def test_the_fixture_stays_on_this_machine(box: QuestionBox) -> None:
    for address in ("tcp://*:5570", "tcp://10.0.0.7:5570", "tcp://0.0.0.0:5570", "udp://127.0.0.1:5570"):
        with pytest.raises(ValueError, match="this machine"):
            FixtureSocket(address, box)


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_other_bytes_are_no_question(frame: bytes) -> None:
    assert question_of(frame, 0.0) is None


@pytest.mark.parametrize("deadline_s", ["NaN", "-1", "0", "1e9", '"5"x', "null"])
def test_a_question_has_a_deadline(deadline_s: str) -> None:
    assert question_of(f'{{"ask": "reset", "id": "1", "deadline_s": {deadline_s}}}'.encode(), 0.0) is None
