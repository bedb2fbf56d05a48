"""The requests to a person or a machine at a reset and after an episode, and their answers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, runtime_checkable

from hal.errors import DeadlineExceeded, ResetFailed
from hal.field import JsonDict

__all__ = [
    "VERDICTS", "Answer", "Automatic", "Cancellable", "ResetConfirmation", "ResetRequest", "VerdictRequest",
    "ask_until", "verdict_of",
]  # fmt: skip

CHECK_S = 0.02
"""Time between two checks whether a request's answer is still needed, in seconds."""

_CANCEL_S = 3.0
"""Longest wait for a cancelled request to end, seconds: a program gets one second between SIGTERM and SIGKILL."""

VERDICTS = ("success", "failure", "discard")
"""The verdicts on an episode: the task was done, the task was not done, or the episode is not to be used as data."""


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A request to a person or a machine to reset the scene.

    Attributes:
        robot: the name of the robot.
        episode: number of resets requested from this robot before.
        deadline_s: longest time for the answer, seconds.
        message: the instruction for a person.
        verdict: whether the answer may also give a verdict on the episode before this reset.
    """

    robot: str
    episode: int
    deadline_s: float
    message: str = "bring the scene to its start"
    verdict: bool = False

    def to_dict(self) -> JsonDict:
        """Return the request as a machine receives it: ``{"ask": "reset", ...}`` with the attributes."""
        return {
            "ask": "reset", "robot": self.robot, "episode": self.episode, "deadline_s": self.deadline_s,
            "message": self.message, "verdict": self.verdict,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """A request for a verdict on the episode that has just ended; nothing moves for it.

    Attributes:
        robot: the name of the robot.
        episode: the number of the episode, counted from 0.
        deadline_s: longest time for the answer, seconds.
        message: the question to a person.
    """

    robot: str
    episode: int
    deadline_s: float
    message: str = "how did it go?"

    def to_dict(self) -> JsonDict:
        """Return the request as a machine receives it: ``{"ask": "verdict", ...}`` with the attributes."""
        return {
            "ask": "verdict", "robot": self.robot, "episode": self.episode, "deadline_s": self.deadline_s,
            "message": self.message,
        }  # fmt: skip


class Answer(NamedTuple):
    """The answer of a person or a machine to a request.

    Attributes:
        by: the source of the answer: ``terminal``, ``fixture``, ``command``, ``gpio`` or ``automatic``.
        note: a remark with the answer.
        verdict: one of `VERDICTS` on the episode that ended, or None for no verdict.
    """

    by: str
    note: str = ""
    verdict: str | None = None


class ResetConfirmation(Protocol):
    """Ask a person or a machine to reset the scene, and wait for the answer. For one thread at a time."""

    def ask(self, request: ResetRequest) -> Answer:
        """Return the answer once the scene is ready; an answer after ``request.deadline_s`` does not count.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: the answer was a refusal.
        """
        ...

    def judge(self, request: VerdictRequest) -> Answer:
        """Return the verdict on the episode; at once and without a verdict if this confirmation can't give any.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: nobody can be asked, or the answer can't be understood.
        """
        ...

    def close(self) -> None:
        """Release sockets and other resources. Safe to call more than once."""
        ...


@runtime_checkable
class Cancellable(Protocol):
    """A confirmation with requests that can be cancelled before their deadline. Implementing it is optional."""

    def cancel(self) -> None:
        """End the request in progress, if any, which then raises. May be called from any thread."""
        ...


def ask_until(
    confirmation: ResetConfirmation, request: ResetRequest, lock: threading.Lock, check: Callable[[], None]
) -> Answer:
    """Ask on another thread, and cancel the request as soon as its answer is no longer needed.

    This function owns the request's deadline: it measures it on this process's monotonic clock from the call on, and
    refuses any later answer. A confirmation's own deadline only gives a better error. The answer to a cancelled request
    is dropped.

    Args:
        confirmation: the confirmation to ask; if it is `Cancellable`, its request is ended too.
        request: the request to ask.
        lock: held while the confirmation is asked; waiting for the lock counts towards the deadline.
        check: raises if the answer is no longer needed; called every `CHECK_S`, and after the answer.

    Raises:
        DeadlineExceeded: no answer came within ``request.deadline_s``.
        ResetFailed: as `ResetConfirmation.ask`.
        Exception: whatever ``check`` raises.
    """
    if type(confirmation) is Automatic:  # a class derived from it may wait
        check()
        return confirmation.ask(request)
    end = time.monotonic() + request.deadline_s
    outcomes: SimpleQueue[Answer | BaseException] = SimpleQueue()
    given_up, asked = threading.Event(), threading.Event()

    def ask() -> None:
        with lock:
            if given_up.is_set():
                return
            asked.set()
            try:
                outcomes.put(confirmation.ask(request))
            except BaseException as error:
                outcomes.put(error)

    thread = threading.Thread(target=ask, name="rlenv-robot confirmation", daemon=True)
    thread.start()
    try:
        while True:
            check()
            with contextlib.suppress(Empty):
                outcome = outcomes.get(timeout=CHECK_S)
                break
            if time.monotonic() > end + _CANCEL_S:  # until then the confirmation's own error may come
                outcome = DeadlineExceeded("no answer came", request.deadline_s, "reset again when somebody is there")
                break
        check()
    finally:
        given_up.set()
        cancelled_by = time.monotonic() + _CANCEL_S
        while asked.is_set() and thread.is_alive() and time.monotonic() < cancelled_by:
            if isinstance(confirmation, Cancellable):
                confirmation.cancel()
            else:
                break
            thread.join(CHECK_S)
    if isinstance(outcome, BaseException):
        raise outcome
    if time.monotonic() > end:
        hint = f"the answer of {outcome.by!r} came too late and moves nothing; reset again"
        raise DeadlineExceeded("the reset was not confirmed", request.deadline_s, hint)
    return outcome


class Automatic:
    """Confirm every reset at once, for scenes that need no reset: a simulation, or a task without objects."""

    def ask(self, request: ResetRequest) -> Answer:
        """Return the answer that the scene is ready, at once."""
        return Answer("automatic")

    def judge(self, request: VerdictRequest) -> Answer:
        """Return no verdict, since nobody watched the episode."""
        return Answer("automatic")

    def close(self) -> None:
        """Do nothing."""


def verdict_of(answer: object, source: str) -> str | None:
    """Return the verdict in a machine's answer (``{"verdict": ...}``), or None for an answer without one.

    Args:
        answer: the parsed answer.
        source: the name of the machine, for the message.

    Raises:
        ResetFailed: the verdict is none of `VERDICTS`.
    """
    verdict = answer.get("verdict") if isinstance(answer, dict) else None
    if verdict is None or verdict in VERDICTS:
        return verdict
    raise ResetFailed(f"{source} gave the verdict {verdict!r:.80}, allowed are {', '.join(VERDICTS)}, or none")
