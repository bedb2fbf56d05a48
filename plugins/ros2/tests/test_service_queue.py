"""Calls of a service: one after another, a few waiting, and an answer for each."""

from __future__ import annotations

import threading

from rlenv_ros2.service_queue import ServiceQueue
from tests.fakes import until


def test_calls_wait_for_one_another_and_too_many_are_refused_at_once() -> None:
    free, answers = threading.Event(), list[tuple[bool, str]]()

    def answer() -> tuple[bool, str]:
        assert free.wait(10)
        return True, "done"

    queue = ServiceQueue("/stop", answer)
    for _ in range(12):
        queue.call(lambda success, message: answers.append((success, message)))
    assert [success for success, _ in answers] == [False] * 4
    assert "wait already" in answers[0][1]
    free.set()
    until(lambda: len(answers) == 12)
    assert answers[4:] == [(True, "done")] * 8
    queue.close()


def test_what_fails_is_answered() -> None:
    answers = list[tuple[bool, str]]()

    def answer() -> tuple[bool, str]:
        raise RuntimeError("the arm is gone")

    queue = ServiceQueue("/reset", answer)
    queue.call(lambda success, message: answers.append((success, message)))
    until(lambda: answers)
    assert answers == [(False, "the arm is gone")]
    queue.close()
