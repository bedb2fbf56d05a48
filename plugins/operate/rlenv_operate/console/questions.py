"""Show visitors the questions of the robot's server and of the console's own episodes, and return their replies."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import zmq

from hal import Answer, DeadlineExceeded
from real.protocol.text import printable
from rlenv_operate.console.access import is_loopback

__all__ = ["FixtureSocket", "Question", "QuestionBox", "Reply", "question_of"]

_log = logging.getLogger(__name__)

_POLL_MS = 50
_LARGEST_QUESTION = 65536
_LONGEST_S = 86400.0


@dataclass(frozen=True, slots=True)
class Question:
    """An open question.

    Attributes:
        id: identifies the question.
        kind: ``reset`` asks whether the scene is ready, ``verdict`` for the verdict on an episode.
        text: the question, one line.
        verdict: whether the reply to a ``reset`` also carries the verdict on the previous episode.
        until_s: monotonic clock after which the question is closed, seconds.
        owner: the id of the only visitor who may answer; empty for a question of the robot's server.
    """

    id: str
    kind: Literal["reset", "verdict"]
    text: str
    verdict: bool
    until_s: float
    owner: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """A person's reply.

    Attributes:
        by: the person's name.
        ready: whether the scene is ready; always True for a ``verdict``.
        note: a remark.
        verdict: ``success``, ``failure``, ``discard``, or None.
    """

    by: str
    ready: bool = True
    note: str = ""
    verdict: str | None = None


class QuestionBox:
    """Hold the open question until it is answered or expires. All methods are thread-safe.

    A new question replaces an open one, since the robot asks only one at a time.

    Args:
        now: monotonic clock, seconds.

    Attributes:
        on_change: called after each change of the open question.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._changed = now, threading.Condition()
        self._open: Question | None = None
        self._verdict: str | None = None
        self._reply: tuple[str, Reply] | None = None
        self.on_change: Callable[[], None] = lambda: None

    @property
    def pending(self) -> Question | None:
        """The open question, or None."""
        question = self._open
        return None if question is None or self._now() >= question.until_s else question

    @property
    def chosen_verdict(self) -> str | None:
        """The verdict that the next "reset done" will carry, or None."""
        return self._verdict

    def ask(self, question: Question) -> None:
        """Open a question."""
        with self._changed:
            self._open, self._reply, self._verdict = question, None, None
            self._changed.notify_all()
        self.on_change()

    def withdraw(self, question_id: str) -> None:
        """Close a question that is no longer waited for."""
        with self._changed:
            if self._open is None or self._open.id != question_id:
                return
            self._open = None
            self._changed.notify_all()
        self.on_change()

    def take_reply(self, question_id: str, timeout_s: float = 0.0) -> Reply | None:
        """Return the reply to a question once, or None if there is none in time or the question was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._open is None or self._open.id != question_id, timeout_s)
            if self._reply is None or self._reply[0] != question_id:
                return None
            reply, self._reply = self._reply[1], None
            return reply

    def answer_reset(self, by: str, *, ready: bool, note: str = "") -> None:
        """Reply that the scene is ready, or why it is not.

        Raises:
            ValueError: no such question is open.
        """
        with self._changed:
            question = self._expect("reset")
            verdict = self._verdict if question.verdict else None
            self._settle(question, Reply(by, ready, note, verdict))
        self.on_change()

    def answer_verdict(self, by: str, verdict: str, note: str = "") -> str:
        """Reply with a verdict, or keep it for the open reset question that asks for one too.

        Returns:
            What happens with the verdict, as a message for the person.

        Raises:
            ValueError: no question asks for a verdict.
        """
        with self._changed:
            question = self.pending
            if question is not None and question.kind == "reset" and question.verdict:
                self._verdict = verdict
                taken = f"{verdict}; it goes with the next 'reset done'"
            else:
                self._settle(self._expect("verdict"), Reply(by, True, note, verdict))
                taken = verdict
        self.on_change()
        return taken

    def _expect(self, kind: str) -> Question:
        question = self.pending
        if question is None or question.kind != kind:
            raise ValueError("the robot does not ask for a " + ("reset" if kind == "reset" else "verdict") + " now")
        return question

    def _settle(self, question: Question, reply: Reply) -> None:
        self._open, self._verdict, self._reply = None, None, (question.id, reply)
        self._changed.notify_all()

    # -- the verdict on an episode of the console's own ---------------------------------------------------

    def judge(self, text: str, deadline_s: float, owner: str = "") -> Answer:
        """Ask the owner of an episode for a verdict, and wait for it.

        Args:
            text: the question.
            deadline_s: longest wait, seconds.
            owner: the id of the visitor whose episode it was.

        Raises:
            DeadlineExceeded: nobody replied, or the question was closed (`give_up`).
        """
        question = Question(f"own {time.monotonic_ns()}", "verdict", text, False, self._now() + deadline_s, owner)
        self.ask(question)
        try:
            reply = self.take_reply(question.id, deadline_s)
        finally:
            self.withdraw(question.id)
        if reply is None:
            raise DeadlineExceeded("nobody at the console judged the episode", deadline_s, "give a verdict in time")
        return Answer(reply.by, reply.note, reply.verdict)

    def give_up(self) -> None:
        """Close the question for a verdict on an episode of the console, if one is open, without a verdict."""
        question = self._open
        if question is not None and question.owner:
            self.withdraw(question.id)


class FixtureSocket:
    """Answer the questions of a robot's server, in the role of the fixture of ``[reset] signal = "fixture"``.

    Args:
        address: to bind, on loopback, since the questions carry no key: ``tcp://127.0.0.1:5570`` or ``ipc://``.
        box: takes the questions.
        now: monotonic clock, seconds.

    Raises:
        ValueError: the address is not local, or can't be bound.
    """

    def __init__(self, address: str, box: QuestionBox, now: Callable[[], float] = time.monotonic) -> None:
        host = address.removeprefix("tcp://").rpartition(":")[0]
        if not (address.startswith("ipc://") or (address.startswith("tcp://") and is_loopback(host))):
            raise ValueError(
                f"the fixture's address is {address!r}; the protocol has no keys, so it must be on this machine, such "
                "as tcp://127.0.0.1:5570 or ipc://console"
            )
        self._box, self._now, self._closing = box, now, threading.Event()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_QUESTION)
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self._socket.close()
            raise ValueError(f"can't listen at {address}: {error}") from None
        self.address: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._asked: tuple[list[bytes], Question] | None = None
        self._thread = threading.Thread(target=self._run, name="rlenv-robot operate console fixture", daemon=True)

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def close(self) -> None:
        """End the thread and close the socket. Safe to call more than once."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            if self._socket.poll(_POLL_MS):
                self._receive(self._socket.recv_multipart())
            if self._asked is not None:
                self._answer(*self._asked)

    def _receive(self, frames: list[bytes]) -> None:
        question = question_of(frames[-1], self._now())
        if question is None:
            _log.warning("a question of the robot's server could not be read")
            return
        self._asked = frames[:-1], question
        self._box.ask(question)

    def _answer(self, envelope: list[bytes], question: Question) -> None:
        reply = self._box.take_reply(question.id)
        if reply is not None:
            note = f"{reply.by}: {reply.note}" if reply.note else reply.by
            answer = {"id": question.id, "ready": reply.ready, "note": note, "verdict": reply.verdict}
            self._socket.send_multipart([*envelope, json.dumps(answer).encode()])
            self._asked = None
        elif self._now() >= question.until_s:
            self._box.withdraw(question.id)
            self._asked = None


def question_of(frame: bytes, now_s: float) -> Question | None:
    """Parse a message of a robot's server (`hal.Fixture`); return None if it is not a question."""
    try:
        data: Any = json.loads(frame)
        kind, question_id, deadline_s = data["ask"], data["id"], float(data["deadline_s"])
        if kind not in ("reset", "verdict") or type(question_id) is not str or not 0 < deadline_s <= _LONGEST_S:
            return None
        text = printable(str(data.get("message", "")), 1000)
        return Question(question_id[:100], kind, text, data.get("verdict") is True, now_s + deadline_s)
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None
