from __future__ import annotations

import io
import json
import os
import pty
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import pytest
import zmq

from hal import Automatic, DeadlineExceeded, Fixture, ResetFailed, ResetRequest, Terminal

REQUEST = ResetRequest("arm", 3, deadline_s=5.0, message="put the cube back")
BRIEF = ResetRequest("arm", 3, deadline_s=0.05)


def test_automatic_confirms_at_once() -> None:
    assert Automatic().ask(REQUEST).by == "automatic"


# -- terminal ------------------------------------------------------------------------------------------------


@contextmanager
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """A reader and a writer joined to it."""
    robot_state, writing = os.pipe()
    with os.fdopen(robot_state) as reader, os.fdopen(writing, "w") as writer:
        yield reader, writer


def typed(text: str, request: ResetRequest = REQUEST) -> Any:
    with pipe() as (reader, writer):
        writer.write(text)
        writer.flush()
        return Terminal(reader, io.StringIO()).ask(request)


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("text", ["\n", "y\n", " OK \n", "ready\r\n"])
def test_a_person_confirms(text: str) -> None:
    assert typed(text).by == "terminal"


@pytest.mark.parametrize("text", ["n\n", "No\n", "wait\n", "\xff\n"])
def test_any_other_word_refuses(text: str) -> None:
    with pytest.raises(ResetFailed, match="refused"):
        typed(text)


def test_the_question_names_robot_episode_and_what_to_do() -> None:
    with pipe() as (reader, writer):
        writer.write("\n")
        writer.flush()
        shown = io.StringIO()
        Terminal(reader, shown).ask(REQUEST)
    assert "[arm] episode 3: put the cube back" in shown.getvalue()


@pytest.mark.parametrize("text", ["", "y"])  # an unfinished line is no answer either
def test_silence_ends_at_the_deadline(text: str) -> None:
    with pytest.raises(DeadlineExceeded, match=r"0\.05 s"):
        typed(text, BRIEF)


def test_lines_typed_together_answer_one_question_each() -> None:
    with pipe() as (reader, writer):
        writer.write("y\nn\n")
        writer.flush()
        terminal = Terminal(reader, io.StringIO())
        assert terminal.ask(BRIEF).note == "y"
        with pytest.raises(ResetFailed, match="refused"):
            terminal.ask(BRIEF)


def test_a_closed_terminal_is_an_error() -> None:
    with pipe() as (reader, writer):
        writer.close()
        with pytest.raises(ResetFailed, match="use another signal"):
            Terminal(reader, io.StringIO()).ask(REQUEST)
    with pytest.raises(ResetFailed, match="use another signal"):
        Terminal(io.StringIO("\n"), io.StringIO()).ask(REQUEST)


def test_an_enter_typed_before_the_question_is_ignored() -> None:
    person, screen = pty.openpty()
    try:
        with os.fdopen(screen, "r") as source:
            os.write(person, b"\n")
            assert select.select([source], [], [], 10.0)[0], "the terminal has not got the Enter"
            with pytest.raises(DeadlineExceeded):
                Terminal(source, io.StringIO()).ask(BRIEF)
            answer = threading.Timer(0.1, os.write, (person, b"\n"))
            answer.start()
            assert Terminal(source, io.StringIO()).ask(REQUEST).by == "terminal"
            answer.join()
    finally:
        os.close(person)


# -- fixture -------------------------------------------------------------------------------------------------

Behaviour = Callable[[dict[str, Any]], list[bytes]]


@contextmanager
def machine(behaviour: Behaviour, kind: int = zmq.ROUTER) -> Iterator[str]:
    """A fixture in a thread, on a real socket; it sends whatever ``behaviour`` makes of each request."""
    context = zmq.Context()
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            if socket.poll(20):
                *envelope, body = socket.recv_multipart()
                for answer in behaviour(json.loads(body)):
                    socket.send_multipart([*envelope, answer])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}"
    finally:
        done.set()
        thread.join()
        socket.close()
        context.term()


@contextmanager
def fixture_at(address: str) -> Iterator[Fixture]:
    fixture = Fixture(address)
    try:
        yield fixture
    finally:
        fixture.close()
        fixture.close()


def answer(**body: Any) -> bytes:
    return json.dumps(body).encode()


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("kind", [zmq.REP, zmq.ROUTER])
def test_a_fixture_gets_the_request_and_answers(kind: int) -> None:
    seen: list[dict[str, Any]] = []

    def reset(request: dict[str, Any]) -> list[bytes]:
        seen.append(request)
        return [answer(id=request["id"], ready=True, note="cube at A")]

    with machine(reset, kind) as address, fixture_at(address) as fixture:
        assert fixture.ask(REQUEST) == ("fixture", "cube at A", None)
        fixture.ask(REQUEST)
    assert seen[0]["id"] != seen[1]["id"]
    assert seen[0] | {"id": ""} == {
        "ask": "reset", "id": "", "robot": "arm", "episode": 3, "deadline_s": 5.0, "message": "put the cube back",
        "verdict": False,
    }  # fmt: skip


@pytest.mark.parametrize("ready", [False, None, 1, "true"])
def test_only_true_confirms(ready: object) -> None:
    def refuse(request: dict[str, Any]) -> list[bytes]:
        return [answer(id=request["id"], ready=ready, note="gripper jammed")]

    with (
        machine(refuse) as address,
        fixture_at(address) as fixture,
        pytest.raises(ResetFailed, match="could not reset the scene: gripper jammed"),
    ):
        fixture.ask(REQUEST)


def test_late_and_invalid_answers_are_dropped() -> None:
    def babble(request: dict[str, Any]) -> list[bytes]:
        late = answer(id="before", ready=False)
        return [late, b"\xff\x00", b"[1]", b"[" * 60_000, b"{}", answer(id=request["id"], ready=True)]

    with machine(babble) as address, fixture_at(address) as fixture:
        assert fixture.ask(REQUEST).by == "fixture"


def test_a_late_answer_does_not_answer_the_next_request() -> None:
    asked: list[str] = []
    expired = threading.Event()

    def slow(request: dict[str, Any]) -> list[bytes]:
        asked.append(request["id"])
        if len(asked) == 1:
            expired.wait(10)
        return [answer(id=request["id"], ready=True, note=str(len(asked)))]

    with machine(slow) as address, fixture_at(address) as fixture:
        with pytest.raises(DeadlineExceeded, match=r"did not answer within 0\.1 s"):
            fixture.ask(ResetRequest("arm", 0, deadline_s=0.1))
        expired.set()
        assert fixture.ask(REQUEST).note == "2"


def test_a_fixture_that_starts_late_never_gets_an_expired_request() -> None:
    with zmq.Context() as context, context.socket(zmq.REP) as late:
        port = late.bind_to_random_port("tcp://127.0.0.1")
        late.unbind(f"tcp://127.0.0.1:{port}")
        with fixture_at(f"tcp://127.0.0.1:{port}") as fixture:
            with pytest.raises(DeadlineExceeded):
                fixture.ask(BRIEF)
            late.bind(f"tcp://127.0.0.1:{port}")
            assert late.poll(500) == 0


def test_without_an_answer_the_error_names_the_address() -> None:
    with (
        fixture_at("tcp://127.0.0.1:9") as fixture,
        pytest.raises(DeadlineExceeded, match=r"at tcp://127\.0\.0\.1:9 running"),
    ):
        fixture.ask(BRIEF)


def test_a_bad_address_is_refused_at_once_each_time() -> None:
    with fixture_at("localhost") as fixture:
        for _ in range(2):
            with pytest.raises(ResetFailed, match="address 'localhost' can't be used"):
                fixture.ask(REQUEST)


def test_closing_before_the_first_request_is_allowed() -> None:
    Fixture("tcp://127.0.0.1:9").close()
    Terminal().close()
    Automatic().close()
