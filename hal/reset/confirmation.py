"""The requests to a person or a machine at a reset and after an episode, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hal.errors import ResetFailed
from hal.field import JsonDict

__all__ = ["VERDICTS", "Answer", "Automatic", "ResetConfirmation", "ResetRequest", "VerdictRequest", "verdict_of"]

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
        """Return the answer once the scene is ready.

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
