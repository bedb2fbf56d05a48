"""Who says that the scene is ready for the next episode (clause B.6.2: a person or a fixture)."""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TextIO

from hal.errors import DeadlineExceeded, ResetFailed

__all__ = ["Answer", "Automatic", "Fixture", "ResetRequest", "Signal", "Terminal"]


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """What is asked of whoever resets the scene.

    Attributes:
        robot: the robot's name.
        episode: how many resets this robot was asked for before.
        deadline_s: how long the answer may take.
        message: what to do, for a person.
    """

    robot: str
    episode: int
    deadline_s: float
    message: str = "bring the scene to its start"


class Answer(NamedTuple):
    """The scene is ready. ``by`` says who said so, ``note`` anything they added."""

    by: str
    note: str = ""


class Signal(Protocol):
    """Asks somebody to reset the scene and waits for the word that it is done."""

    def ask(self, request: ResetRequest) -> Answer:
        """Return when the scene is ready.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: the answer was no.
        """
        ...

    def close(self) -> None:
        """Let go of sockets and the like. Twice is fine."""
        ...


class Automatic:
    """The scene needs nobody: simulation, or a task that has no objects."""

    def ask(self, request: ResetRequest) -> Answer:
        """Ready at once."""
        return Answer("automatic")

    def close(self) -> None:
        """Nothing to close."""


class Terminal:
    """A person at a terminal, over ssh too: Enter (or ``y``, ``yes``, ``ok``) when ready; anything else refuses.

    What was typed before the question counts for nothing at a real terminal: an early Enter must not move a robot.

    Args:
        source: where answers are read, a stream with a file descriptor; by default standard input.
        target: where the question is written; by default standard error.
    """

    def __init__(self, source: TextIO | None = None, target: TextIO | None = None) -> None:
        self._source, self._target = source, target

    def ask(self, request: ResetRequest) -> Answer:
        """Write the request and wait for a line."""
        source = _descriptor(self._source or sys.stdin)
        _forget_input(source)
        target = self._target or sys.stderr
        target.write(f"[{request.robot}] episode {request.episode}: {request.message}; Enter when ready, n to refuse: ")
        target.flush()
        answer = _read_line(source, request.deadline_s)
        if answer.lower() not in _READY:
            raise ResetFailed(f"the person at the terminal refused the reset: {answer!r}")
        return Answer("terminal", answer)

    def close(self) -> None:
        """The streams are not ours to close."""


_READY = {"", "y", "yes", "ok", "ready"}
_CLOSED = "the terminal is closed, so nobody can say that the scene is ready; use another signal"


def _descriptor(source: TextIO | None) -> int:
    if source is not None:  # as it is where there is no terminal
        with contextlib.suppress(OSError, ValueError):
            return source.fileno()
    raise ResetFailed(_CLOSED)


def _forget_input(source: int) -> None:
    if os.isatty(source):
        import termios  # only where there are terminals

        termios.tcflush(source, termios.TCIFLUSH)


def _read_line(source: int, deadline_s: float) -> str:
    """A line, byte by byte: a buffered reader would hide the next line from select, and wait for an end forever."""
    line = bytearray()
    end = time.monotonic() + deadline_s
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([source], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise DeadlineExceeded("nobody pressed Enter", deadline_s, "reset again when somebody is there")
        byte = os.read(source, 1)
        if not byte:
            raise ResetFailed(_CLOSED)
        line += byte
    return line.decode(errors="replace").strip()


_LARGEST_ANSWER = 65536
"""Bytes; a fixture's answer is a sentence."""


class Fixture:
    """A machine that resets the scene, spoken to in JSON over ZeroMQ (it binds a REP or ROUTER socket).

    Asked: ``{"ask": "reset", "id": ..., "robot": ..., "episode": ..., "deadline_s": ..., "message": ...}``.
    Answers: ``{"id": <the same>, "ready": true, "note": ""}``, or ``"ready": false`` with the reason as note.
    Answers with another id are late ones from before, and dropped.

    Args:
        address: a ZeroMQ endpoint such as ``tcp://127.0.0.1:5556`` or ``ipc://fixture``.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket: Any = None

    def _open(self) -> Any:
        import zmq

        if self._socket is not None:
            return self._socket
        socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_ANSWER)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            socket.close()
            hint = "wanted is an endpoint such as tcp://127.0.0.1:5556"
            raise ResetFailed(f"the fixture's address {self.address!r} can't be used ({error}); {hint}") from error
        self._socket = socket
        return socket

    def ask(self, request: ResetRequest) -> Answer:
        """Send the request and wait for its own answer.

        Raises:
            DeadlineExceeded: no answer in time.
            ResetFailed: the fixture said no, or its address is no address.
        """
        socket = self._open()
        asked = uuid.uuid4().hex
        body = {"ask": "reset", "id": asked, "robot": request.robot, "episode": request.episode,
                "deadline_s": request.deadline_s, "message": request.message}  # fmt: skip
        socket.send_multipart([b"", json.dumps(body).encode()])
        end = time.monotonic() + request.deadline_s
        while (left := end - time.monotonic()) > 0:
            if socket.poll(max(1, int(left * 1000))):
                answer = _parse(socket.recv_multipart()[-1])
                if answer.get("id") == asked:
                    return self._judge(answer)
        self.close()  # an unanswered request must not reach the fixture later
        hint = f"is the fixture at {self.address} running?"
        raise DeadlineExceeded("the fixture did not answer", request.deadline_s, hint)

    def _judge(self, answer: dict[str, Any]) -> Answer:
        note = str(answer.get("note", ""))
        if answer.get("ready") is not True:
            raise ResetFailed(f"the fixture at {self.address} could not reset the scene: {note or 'no reason given'}")
        return Answer("fixture", note)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _parse(frame: bytes) -> dict[str, Any]:
    """A fixture's answer; one that isn't a JSON object counts as no answer."""
    try:
        answer = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
