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


ORDINARY_USER = """
import os, resource, sys
from real.control.realtime import ask_real_time
limit = int(sys.argv[1])
if limit != resource.getrlimit(resource.RLIMIT_RTPRIO)[0]:
    try:
        resource.setrlimit(resource.RLIMIT_RTPRIO, (limit, limit))
    except (ValueError, OSError):
        print("no such limit here")
        raise SystemExit
os.setgroups([])
os.setresgid(1000, 1000, 1000)
os.setresuid(1000, 1000, 1000)  # what the process might do (its bounding set) stays, what it may do is gone
print(ask_real_time(40), os.sched_getscheduler(0) == os.SCHED_FIFO)
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("limit", [0, 39, 40])
def test_an_ordinary_user_has_the_priority_of_the_limit_and_not_of_a_capability_around_it(limit: int) -> None:
    """As in a container with a USER: `--cap-add` widens the bounding set alone, `--ulimit rtprio` is a limit."""
    command = [sys.executable, "-c", ORDINARY_USER, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    if "no such limit" in done.stdout:
        pytest.skip("this machine's root may not raise RLIMIT_RTPRIO (CAP_SYS_RESOURCE)")
    if limit >= 40:
        assert "SCHED_FIFO, priority 40" in done.stdout
        assert done.stdout.endswith("True\n")
    else:
        assert f"RLIMIT_RTPRIO is {limit}" in done.stdout
        assert "--ulimit rtprio=40" in done.stdout
        assert done.stdout.endswith("False\n")


@pytest.mark.parametrize("priority", [0, 100, -1])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="allowed are 1 to 99"):
        ask_real_time(priority)


@pytest.mark.process
def test_settling_a_process_freezes_the_collector_and_shortens_the_switch_interval() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "memory is" in done.stdout


SLICES = """
import ctypes, os, struct, threading
from real.control.realtime import SLICE_S, settle_process
def slice_s(thread=0):
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(315, thread, attributes, 48, 0) == 0
    return struct.unpack_from("=IIQiIQQQ", attributes)[5] / 1e9
if not slice_s():
    print("no slices")
    raise SystemExit
waiting, over, later = threading.Thread(target=lambda: over.wait()), threading.Event(), []
waiting.start()
os.setpriority(os.PRIO_PROCESS, waiting.native_id, 3)
settle_process()
newer = threading.Thread(target=lambda: later.append(slice_s()))
newer.start()
newer.join()
nice = os.getpriority(os.PRIO_PROCESS, waiting.native_id)
print([slice_s() == SLICE_S, slice_s(waiting.native_id) == SLICE_S, later == [SLICE_S], nice])
over.set()
"""


@pytest.mark.process
@pytest.mark.skipif(os.uname().machine != "x86_64" or sys.platform != "linux", reason="knows one machine's call")
def test_the_threads_of_a_settled_process_take_short_turns() -> None:
    """Asked of the kernel: those that exist and later ones; their niceness stays."""
    told = subprocess.run((sys.executable, "-c", SLICES), capture_output=True, text=True, check=True).stdout.strip()
    if told == "no slices":
        pytest.skip("this kernel has no turns of a thread's own (before Linux 6.12)")
    assert told == "[True, True, True, 3]"
