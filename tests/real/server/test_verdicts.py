"""A client asks a person over the wire to judge an episode; meanwhile the robot holds, and stops work."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from typing import Any

import pytest

from hal import Answer, Automatic, ConnectionLost, DeadlineExceeded, Guard, Homing, ResetFailed, RobotError, WireError
from hal.reset.confirmation import VerdictRequest
from real.client.robot import RemoteRobot
from real.protocol.messages import MessageKind, answer_from_list, decode, encode, receive_frames, send_frames
from real.server.server import Server
from tests.fakes import until


@pytest.fixture
def judge(robot: Any) -> Any:
    """Give the robot a person who judges; return the list of questions."""

    def install(answer: Any) -> list[Any]:
        asked: list[Any] = []

        def judging(message: str, deadline_s: float) -> Answer | None:
            asked.append((message, deadline_s))
            return answer()  # type: ignore[no-any-return]

        robot.judge = judging
        return asked

    return install


def raises(error: Exception) -> Any:
    def answer() -> None:
        raise error

    return answer


@pytest.mark.parametrize("lockstep", [True, False])
def test_the_answer_comes_back(robot: Any, judge: Any, lockstep: bool) -> None:
    asked = judge(lambda: Answer("terminal", "s", "success"))
    with Server(robot, lockstep=lockstep) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        assert remote.judge("is it red?", 3.0) == ("terminal", "s", "success")
        remote.close()
    assert asked == [("is it red?", 3.0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [DeadlineExceeded("nobody pressed Enter", 3.0), ResetFailed("the terminal is closed"), KeyError("bug")]
)
def test_what_goes_wrong_there_is_told_here_and_the_robot_goes_on(robot: Any, judge: Any, error: Exception) -> None:
    judge(raises(error))
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        with pytest.raises(RobotError, match=str(error).strip("'").split(";")[0][:20]):
            remote.judge("", 3.0)
        assert server.stopped is None
        remote.reset({})
        remote.close()


def test_while_a_person_thinks_the_loop_goes_on_and_a_stop_is_heard(robot: Any, judge: Any, until: Any) -> None:
    thinking = threading.Event()

    def think() -> Answer:
        thinking.wait(20)
        return Answer("terminal")

    asked = judge(think)
    with Server(robot) as server:
        remote, other = RemoteRobot(server.address), RemoteRobot(server.address)
        remote.reset({})
        waiting = threading.Thread(target=remote.judge, args=("", 20.0))
        waiting.start()
        until(lambda: asked)
        before = len(robot.commands)
        until(lambda: len(robot.commands) > before + 3)  # held, period by period
        other.stop("smoke")
        assert server.stopped == "smoke"
        thinking.set()
        waiting.join(20)
        remote.close()


def test_a_robot_with_nobody_beside_it_says_so(robot: Any) -> None:
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address)
        assert remote.judge("", 1.0) is None  # no connection, no episode
        remote.reset({})
        answer = remote.judge("", 1.0)
        assert answer == ("nobody", "", None)
        remote.close()


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, 1e9, float("nan")])
def test_no_question_stands_for_ever(robot: Any, judge: Any, deadline_s: float) -> None:
    asked = judge(lambda: Answer("terminal"))
    with Server(robot, lockstep=True) as server:
        remote = RemoteRobot(server.address)
        remote.reset({})
        before = time.monotonic()
        with pytest.raises(WireError, match=r"a verdict's deadline of .* allowed are 0 to 3600"):
            remote.judge("", deadline_s)
        assert time.monotonic() - before < 10
        remote.close()
    assert asked == []


@pytest.mark.parametrize("plain", [None, [], ["a"], ["a", "b", "maybe"], ["a", 1, None], {"by": "a"}])
def test_what_is_no_answer_is_none(plain: Any) -> None:
    assert answer_from_list(plain) is None


def test_the_question_of_a_client_that_is_gone_keeps_nobody_from_the_robot(robot: Any) -> None:
    """Its lease ends with its silence, though the person was given an hour, and the next reset waits for nobody."""
    asked = threading.Event()

    class Person(Automatic):
        def __init__(self) -> None:
            self._cancelled = threading.Event()

        def judge(self, request: VerdictRequest) -> Answer:
            asked.set()
            if not self._cancelled.wait(60):
                raise AssertionError("nobody gave the question up")
            raise ResetFailed("given up")

        def cancel(self) -> None:
            self._cancelled.set()

    homing = Homing(Guard(robot), Person())
    with Server(homing, lease_s=0.2) as server:
        gone = RemoteRobot(server.address)
        gone.reset({})
        connection = gone._connection
        assert connection is not None
        question = {"message": "", "deadline_s": 3600.0}
        send_frames(connection.socket, encode(MessageKind.JUDGE, connection.session, 100, question))
        assert asked.wait(10)
        connection.close()  # without a goodbye, as a client that is killed
        with closing(RemoteRobot(server.address)) as other:

            def granted() -> bool:
                try:
                    other.reset({})
                except ConnectionLost:
                    return False
                return True

            until(granted)
        gone._session, gone._connection = 0, None
        gone.close()


def test_a_client_that_waits_for_an_answer_is_kept_waiting(robot: Any, judge: Any) -> None:
    """The server says that it is alive, so a long question needs no longer silence than any other request."""
    answered = threading.Event()
    judge(lambda: (answered.wait(20), Answer("a person"))[1])
    with Server(robot) as server, closing(RemoteRobot(server.address)) as remote:
        remote.reset({})
        connection = remote._connection
        assert connection is not None
        question = {"message": "", "deadline_s": 60.0}
        send_frames(connection.socket, encode(MessageKind.JUDGE, connection.session, 100, question))
        connection.socket.rcvtimeo = 10_000
        kinds = [decode(receive_frames(connection.socket, 18)).kind for _ in range(2)]
        assert kinds == [MessageKind.EVENT, MessageKind.EVENT]
        answered.set()
        while (message := decode(receive_frames(connection.socket, 18))).kind is MessageKind.EVENT:
            pass
        assert message.kind is MessageKind.DONE
