"""Ask a person for the verdict on an episode: part of the record and, where the task asks for it, of the reward."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hal import Robot, RobotError
from hal.field import JsonDict
from hal.reset.confirmation import Answer, ResetConfirmation, VerdictRequest
from hal.reset.record import ResetRecord
from hal.wrapper import RobotWrapper
from rlenv_robot.tasks.task import Task, VerdictTask

__all__ = ["DEADLINE_S", "Verdicts", "asker"]

_log = logging.getLogger(__name__)

DEADLINE_S = 60.0
"""Seconds that a person may take to answer; after that the episode has no verdict, and everything continues."""

Ask = Callable[[int], "Answer | None"]
"""Asks for the verdict on the episode of a number; returns None where nobody can be asked."""


def asker(robot: Robot, task: Task, judge: ResetConfirmation | None) -> Ask | None:
    """Return the function that asks for a verdict at the end of each episode, or None.

    Args:
        robot: asked where the task's reward wants a verdict: whoever resets its scene (`hal.Homing.judge`).
        task: may be a `VerdictTask`.
        judge: asked after every episode, instead of whoever is at the robot.
    """
    question = task.verdict_question if isinstance(task, VerdictTask) else ""
    if judge is not None:
        words = [question] if question else []
        return lambda number: judge.judge(VerdictRequest(robot.spec.name, number, DEADLINE_S, *words))
    if not isinstance(task, VerdictTask):
        return None
    at_robot = RobotWrapper(robot)  # whose default is that nobody can be asked
    return lambda number: at_robot.judge(question, DEADLINE_S)


class Verdicts:
    """Collect the verdicts and resets of one robot's episodes.

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
        """Note a reset that did not succeed, for the record of the next episode."""
        if record is not None:
            self._failed.append(self._ours(record))

    def begin(self, record: ResetRecord | None) -> None:
        """Begin an episode with its reset."""
        self._answer = None
        self._resets = [*self._failed, *([self._ours(record)] if record is not None else [])]
        self._failed = []
        self._begun = record

    def _ours(self, record: ResetRecord) -> ResetRecord:
        """Return a reset's record, without its verdict if that is on another client's episode."""
        if self._begun is not None and record.judged == self._begun.episode:
            return record
        return record.without_verdict()

    def end(self, number: int) -> str | None:
        """Ask for the verdict on an episode and return it; None if nobody answers or asking fails."""
        if self._ask is None:
            return None
        try:
            self._answer = self._ask(number)
        except RobotError as error:
            _log.warning("episode %d has no verdict: %s", number, error)
        return None if self._answer is None else self._answer.verdict

    def to_dict(self) -> JsonDict:
        """Return the entries of the episode's record: ``reset``, ``failed_resets``, ``verdict``, ``judged_by``."""
        plain: JsonDict = {}
        resets = [record.to_dict() for record in self._resets]
        if self._begun is not None and resets:
            plain["reset"] = resets.pop()
        if resets:
            plain["failed_resets"] = resets
        if self._answer is not None and self._answer.verdict is not None:
            plain |= {"verdict": self._answer.verdict, "judged_by": self._answer.by}
        return plain
