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
"""Time between two checks that a request's answer is still wanted, seconds."""

_CANCEL_S = 3.0
"""Longest wait for a cancelled request to end, seconds: a program gets one second between SIGTERM and SIGKILL."""

VERDICTS = ("success", "failure", "discard")
"""The verdicts on an episode: the task was done, the task was not done, or the episode is no data."""


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """A request to reset the scene.

    Attributes:
        robot: the name of the robot.
        episode: number of resets that were requested of this robot before.
        deadline_s: longest time for the answer, seconds.
        message: the instruction for a person.
        verdict: whether the answer may also give a verdict on the episode that ended with this reset.
    """

    robot: str
    episode: int
    deadline_s: float
    message: str = "bring the scene to its start"
    verdict: bool = False

    def to_dict(self) -> JsonDict:
        """Return the request to a machine: ``{"ask": "reset", ...}`` with the attributes."""
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
        """Return the request to a machine: ``{"ask": "verdict", ...}`` with the attributes."""
        return {
            "ask": "verdict", "robot": self.robot, "episode": self.episode, "deadline_s": self.deadline_s,
            "message": self.message,
        }  # fmt: skip


class Answer(NamedTuple):
    """The answer to a request.

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
        """Return the answer once the scene is ready. An answer after ``request.deadline_s`` counts as none.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: the answer was a refusal.
        """
        ...

    def judge(self, request: VerdictRequest) -> Answer:
        """Return the verdict on the episode; at once and without a verdict where this confirmation can't give any.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: nobody can be asked, or the answer can't be understood.
        """
        ...

    def close(self) -> None:
        """Release sockets and other resources. Calling it twice is allowed."""
        ...


@runtime_checkable
class Cancellable(Protocol):
    """A confirmation whose request can be given up before its deadline. Confirmations may leave this out."""

    def cancel(self) -> None:
        """End the request that is under way, which then raises; from any thread. Without a request do nothing."""
        ...


def ask_until(
    confirmation: ResetConfirmation, request: ResetRequest, lock: threading.Lock, check: Callable[[], None]
) -> Answer:
    """Ask on another thread, and give the request up as soon as nobody wants its answer any more.

    This function owns the request's deadline: it measures it on this process's monotonic clock from the call on, and
    refuses an answer that it takes later, whoever gives the answer. A confirmation's own deadline only gives a better
    error. An answer to a request that was given up is dropped.

    Args:
        confirmation: asked; where it is `Cancellable`, its request is ended too.
        request: to be asked.
        lock: held while the confirmation is asked; the wait for it counts.
        check: raises where the answer is no longer wanted; called every `CHECK_S`, and after the answer.

    Raises:
        DeadlineExceeded: no answer was taken within ``request.deadline_s``.
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
    """Confirm every reset at once, for scenes that nobody needs to reset: a simulation, or a task without objects."""

    def ask(self, request: ResetRequest) -> Answer:
        """Return at once that the scene is ready."""
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
