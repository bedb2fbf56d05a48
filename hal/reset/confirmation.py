"""What is asked of a person or a fixture, and what they may answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from hal.errors import ResetFailed

__all__ = ["VERDICTS", "Answer", "Automatic", "ResetConfirmation", "ResetRequest", "VerdictRequest", "verdict_of"]

VERDICTS = ("success", "failure", "discard")
"""What a person may say of an episode: the task was done, it was not, or the episode is no data."""


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """What is asked of whoever resets the scene.

    Attributes:
        robot: the robot's name.
        episode: how many resets this robot was asked for before.
        deadline_s: how long the answer may take.
        message: what to do, for a person.
        verdict: whether the answer may also say how the episode went that ended with this reset.
    """

    robot: str
    episode: int
    deadline_s: float
    message: str = "bring the scene to its start"
    verdict: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As a machine is asked: ``{"ask": "reset", ...}`` with the attributes."""
        return {
            "ask": "reset", "robot": self.robot, "episode": self.episode, "deadline_s": self.deadline_s,
            "message": self.message, "verdict": self.verdict,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class VerdictRequest:
    """What is asked about an episode that has just ended; nothing moves for it.

    Attributes:
        robot: the robot's name.
        episode: which of its episodes, counted from 0.
        deadline_s: how long the answer may take.
        message: the question, for a person.
    """

    robot: str
    episode: int
    deadline_s: float
    message: str = "how did it go?"

    def to_dict(self) -> dict[str, Any]:
        """As a machine is asked: ``{"ask": "verdict", ...}`` with the attributes."""
        return {
            "ask": "verdict", "robot": self.robot, "episode": self.episode, "deadline_s": self.deadline_s,
            "message": self.message,
        }  # fmt: skip


class Answer(NamedTuple):
    """What was answered.

    Attributes:
        by: who answered: ``terminal``, ``fixture``, ``command``, ``gpio``, ``automatic``.
        note: anything they added.
        verdict: one of `VERDICTS` on the episode that ended, or None where nothing was said of it.
    """

    by: str
    note: str = ""
    verdict: str | None = None


class ResetConfirmation(Protocol):
    """Asks somebody to reset the scene and waits for the word that it is done. For one thread at a time."""

    def ask(self, request: ResetRequest) -> Answer:
        """Return when the scene is ready.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: the answer was no.
        """
        ...

    def judge(self, request: VerdictRequest) -> Answer:
        """Return what is said of the episode; at once and with no verdict, where this signal can't say any.

        Raises:
            DeadlineExceeded: no answer within ``request.deadline_s``.
            ResetFailed: nobody is there to be asked, or the answer can't be understood.
        """
        ...

    def close(self) -> None:
        """Let go of sockets and the like. Calling it twice is allowed."""
        ...


class Automatic:
    """The scene needs nobody: simulation, or a task that has no objects."""

    def ask(self, request: ResetRequest) -> Answer:
        """Ready at once."""
        return Answer("automatic")

    def judge(self, request: VerdictRequest) -> Answer:
        """No verdict: nobody looked."""
        return Answer("automatic")

    def close(self) -> None:
        """Nothing to close."""


def verdict_of(answer: Any, who: str) -> str | None:
    """The verdict in a machine's answer (``{"verdict": ...}``), or None.

    Raises:
        ResetFailed: it is none of `VERDICTS`.
    """
    verdict = answer.get("verdict") if isinstance(answer, dict) else None
    if verdict is None or verdict in VERDICTS:
        return verdict
    raise ResetFailed(f"{who} gave the verdict {verdict!r:.80}, allowed are {', '.join(VERDICTS)}, or none")
