"""Ask the person at the robot for a verdict on an episode."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from hal.errors import EpisodeError
from hal.reset.confirmation import Answer
from hal.robot import Robot
from real.protocol.text import error_text, printable

__all__ = ["Judging"]

_log = logging.getLogger(__name__)


class Judging:
    """Ask the person at the robot for a verdict on a separate thread, while the loop holds and stops are read.

    Args:
        robot: answers by its method ``judge``, if it has one (`hal.homing.Homing.judge`); ``cancel_judge`` ends it.
        answer: called on another thread with the request id and the outcome.
    """

    def __init__(self, robot: Robot, answer: Callable[[Any, Answer | Exception], None]) -> None:
        self._judge: Callable[[str, float], Answer | None] | None = getattr(robot, "judge", None)
        self._cancel: Callable[[], None] | None = getattr(robot, "cancel_judge", None)
        self._answer = answer
        self._asks = threading.Lock()

    def ask(self, request_id: Any, message: str, deadline_s: float) -> None:
        """Ask for a verdict, without waiting for the answer.

        Raises:
            EpisodeError: another question is still open; a person answers one at a time.
        """
        if not self._asks.acquire(blocking=False):
            raise EpisodeError("the person at the robot is being asked already, and has not answered yet")
        threading.Thread(
            target=self._ask, args=(request_id, message, deadline_s), name="rlenv-robot verdict", daemon=True
        ).start()

    def cancel(self) -> None:
        """Cancel the open question, after its client stopped waiting for the answer."""
        if self._cancel is not None:
            self._cancel()

    def _ask(self, request_id: Any, message: str, deadline_s: float) -> None:
        try:
            answer = None if self._judge is None else self._judge(message, deadline_s)
        except Exception as error:  # whatever a confirmation raises, the client waits for an answer
            _log.warning("the question how the episode went was not answered: %s", printable(error_text(error), 1000))
            outcome: Answer | Exception = error
        else:
            outcome = Answer("nobody") if answer is None else answer
        self._asks.release()
        self._answer(request_id, outcome)
