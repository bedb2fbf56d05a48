"""Requests for real-time scheduling report the scheduler's answer, and the reason of a refusal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from real.control import realtime
from real.control.realtime import RealTime, ask_real_time

PROGRAM = """
import sys, gc
from real.control.realtime import SWITCH_INTERVAL_S, settle_process
print(settle_process())
assert abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6
assert gc.get_freeze_count() > 0
"""


def in_a_thread(priority: int) -> tuple[RealTime, int]:
    """Ask on a thread of its own; return the answer and the policy under which the thread runs."""
    answers: list[tuple[RealTime, int]] = []
    thread = threading.Thread(target=lambda: answers.append((ask_real_time(priority), os.sched_getscheduler(0))))
    thread.start()
    thread.join(10)
    return answers[0]


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="this system has no SCHED_FIFO")
def test_the_answer_is_the_policy_of_the_thread() -> None:
    answer, policy = in_a_thread(10)
    assert answer.granted == (policy == os.SCHED_FIFO)
    assert ("SCHED_FIFO, priority 10" in answer.message) == answer.granted
    assert os.sched_getscheduler(0) != os.SCHED_FIFO, "the policy of other threads stays"


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="this system has no SCHED_FIFO")
def test_a_refusal_names_the_reason_and_the_setting_that_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(realtime.os, "sched_setscheduler", refuse)
    answer, _ = in_a_thread(10)
    assert not answer.granted
    assert "Operation not permitted" in answer.message
    assert "LimitRTPRIO=10" in answer.message


@pytest.mark.parametrize("priority", [0, 100, -1])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="allowed are 1 to 99"):
        ask_real_time(priority)


@pytest.mark.process
def test_settling_a_process_freezes_the_collector_and_shortens_the_switch_interval() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory is" in done.stdout
