"""What the scheduler grants is said, and why not if not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from hal import realtime
from hal.realtime import RealTime, ask_real_time

PROGRAM = """
import sys, gc
from hal.realtime import SWITCH_INTERVAL_S, settle_process
print(settle_process())
assert abs(sys.getswitchinterval() - SWITCH_INTERVAL_S) < 1e-6
assert gc.get_freeze_count() > 0
"""


def in_a_thread(priority: int) -> tuple[RealTime, int]:
    """What it was granted, and under which scheduler it really runs."""
    found: list[tuple[RealTime, int]] = []
    thread = threading.Thread(target=lambda: found.append((ask_real_time(priority), os.sched_getscheduler(0))))
    thread.start()
    thread.join(10)
    return found[0]


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="this system has no SCHED_FIFO")
def test_what_is_told_is_what_the_system_says() -> None:
    told, policy = in_a_thread(10)
    assert told.granted == (policy == os.SCHED_FIFO)
    assert ("SCHED_FIFO, priority 10" in told.told) == told.granted
    assert os.sched_getscheduler(0) != os.SCHED_FIFO, "it is the asking thread's alone"


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="this system has no SCHED_FIFO")
def test_a_refusal_says_what_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(realtime.os, "sched_setscheduler", refuse)
    told, _ = in_a_thread(10)
    assert not told.granted
    assert "Operation not permitted" in told.told
    assert "LimitRTPRIO=10" in told.told


@pytest.mark.parametrize("priority", [0, 100, -1])
def test_a_priority_that_does_not_exist(priority: int) -> None:
    with pytest.raises(ValueError, match="allowed are 1 to 99"):
        ask_real_time(priority)


@pytest.mark.process
def test_a_process_is_settled() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory is" in done.stdout
