"""Carry out the calls of a service one after another, on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["ServiceQueue"]

_log = logging.getLogger(__name__)

_WAITING_CALLS = 8
"""Calls of one service that wait at most; further ones are refused at once."""


class ServiceQueue:
    """Carry out the calls of one service.

    Args:
        name: full name of the service.
        answer: returns success and message; what it raises becomes a failed call with its message.
    """

    def __init__(self, name: str, answer: Callable[[], tuple[bool, str]]) -> None:
        self._name, self._answer, self._waiting = name, answer, threading.Semaphore(_WAITING_CALLS)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"rlenv-robot ROS 2 {name}")

    def call(self, reply: Callable[[bool, str], None]) -> None:
        """Carry out a call, and reply with success and message."""
        if not self._waiting.acquire(blocking=False):
            reply(False, f"{_WAITING_CALLS} calls of {self._name} wait already; call again after their answers")
            return
        self._pool.submit(self._run, reply).add_done_callback(self._done)

    def _run(self, reply: Callable[[bool, str], None]) -> None:
        try:
            success, message = self._answer()
        except Exception as error:  # the caller must hear of whatever failed
            _log.warning("the service %s failed: %s", self._name, error)
            success, message = False, str(error) or type(error).__name__
        reply(success, message)

    def _done(self, future: Future[None]) -> None:
        self._waiting.release()
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.warning("the answer of the service %s could not be sent: %s", self._name, error)

    def close(self) -> None:
        """Refuse further calls, and drop those that wait."""
        self._pool.shutdown(wait=False, cancel_futures=True)
