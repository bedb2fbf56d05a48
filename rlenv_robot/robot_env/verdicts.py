"""How an episode went, said by a person at its end: part of the record and, where the task asks, of the reward."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

from hal import Robot, RobotError
from hal.reset.confirmation import Answer, ResetConfirmation, VerdictRequest
from hal.reset.record import ResetRecord
from rlenv_robot.tasks.task import Task, VerdictTask

__all__ = ["DEADLINE_S", "Verdicts", "asker"]

_log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""How long a person may take; then the episode has no verdict, and everything goes on."""

Ask = Callable[[int], "Answer | None"]
"""Asks about the episode of this number; None where nobody can be asked."""


def asker(robot: Robot, task: Task, judge: ResetConfirmation | None) -> Ask | None:
    """Who is asked at the end of each episode, or None.

    Args:
        robot: asked where the task's reward wants a verdict: whoever resets its scene (`hal.Homing.judge`).
        task: may be a `VerdictTask`.
        judge: asked after every episode, instead of whoever is at the robot.
    """
    question = task.verdict_question if isinstance(task, VerdictTask) else ""
    if judge is not None:
        words = [question] if question else []
        return lambda number: judge.judge(VerdictRequest(robot.spec.name, number, DEADLINE_S, *words))
    at_robot = getattr(robot, "judge", None)
    if not isinstance(task, VerdictTask) or at_robot is None:
        return None
    return lambda number: cast("Answer | None", at_robot(question, DEADLINE_S))


class Verdicts:
    """What is known of the verdicts and resets of one robot's episodes.

    Args:
        ask: see `asker`.
    """

    def __init__(self, ask: Ask | None) -> None:
        self._ask = ask
        self._answer: Answer | None = None
        self._failed: list[ResetRecord] = []
        self._resets: list[ResetRecord] = []
        self._begun: ResetRecord | None = None

    def reset_failed(self, record: ResetRecord | None) -> None:
        """A reset did not reach its end; the next episode's record tells of it."""
        if record is not None:
            self._failed.append(self._ours(record))

    def begin(self, record: ResetRecord | None) -> None:
        """An episode begins with this reset."""
        self._answer = None
        self._resets = [*self._failed, *([self._ours(record)] if record is not None else [])]
        self._failed = []
        self._begun = record

    def _ours(self, record: ResetRecord) -> ResetRecord:
        """The record, without a verdict on an episode that was somebody else's."""
        if self._begun is not None and record.judged == self._begun.episode:
            return record
        return record.without_verdict()

    def end(self, number: int) -> str | None:
        """Ask how the episode went. Whatever goes wrong with that, the episode stays as it is, without a verdict."""
        if self._ask is None:
            return None
        try:
            self._answer = self._ask(number)
        except RobotError as error:
            _log.warning("episode %d has no verdict: %s", number, error)
        return None if self._answer is None else self._answer.verdict

    def to_dict(self) -> dict[str, Any]:
        """For the episode's record: ``reset``, ``failed_resets`` and ``verdict`` with ``judged_by``, where known."""
        plain: dict[str, Any] = {}
        resets = [record.to_dict() for record in self._resets]
        if self._begun is not None and resets:
            plain["reset"] = resets.pop()
        if resets:
            plain["failed_resets"] = resets
        if self._answer is not None and self._answer.verdict is not None:
            plain |= {"verdict": self._answer.verdict, "judged_by": self._answer.by}
        return plain
