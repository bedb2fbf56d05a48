"""Asks whoever is at the robot how an episode went, while everything else goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from hal.robot import Robot
from hal.signals.signal import VERDICTS, Answer

__all__ = ["Judging", "answer_from_list", "answer_to_list"]

_log = logging.getLogger(__name__)

_NOTE = 1000
"""Characters of a note that are passed on."""


class Judging:
    """Puts the question on a thread of its own: the control loop holds on, and a stop is heard.

    Args:
        robot: asked by its method ``judge``, if it has one (`hal.Homing.judge`).
        answer: given the token and what came of it; from another thread.
    """

    def __init__(self, robot: Robot, answer: Callable[[Any, Answer | Exception], None]) -> None:
        self._judge: Callable[[str, float], Answer | None] | None = getattr(robot, "judge", None)
        self._answer = answer

    def ask(self, request_id: Any, message: str, deadline_s: float) -> None:
        """Ask, and return at once."""
        threading.Thread(
            target=self._ask, args=(request_id, message, deadline_s), name="rlenv-robot verdict", daemon=True
        ).start()

    def _ask(self, request_id: Any, message: str, deadline_s: float) -> None:
        try:
            said = None if self._judge is None else self._judge(message, deadline_s)
        except Exception as error:  # whatever a signal raises, the client waits for an answer
            _log.warning("the question how the episode went came to nothing: %s", error)
            self._answer(request_id, error)
        else:
            self._answer(request_id, Answer("nobody") if said is None else said)


def answer_to_list(answer: Answer) -> list[Any]:
    """By, note and verdict, for the wire."""
    return [answer.by[:_NOTE], answer.note[:_NOTE], answer.verdict]


def answer_from_list(plain: Any) -> Answer | None:
    """The inverse; None for what is no answer."""
    match plain:
        case [str(by), str(note), verdict] if verdict is None or verdict in VERDICTS:
            return Answer(by, note, verdict)
    return None
