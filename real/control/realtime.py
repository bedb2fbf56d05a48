"""Request real-time scheduling of the control loop's thread, and explain a refusal by the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import resource
import struct
import sys
from dataclasses import dataclass

__all__ = ["SWITCH_INTERVAL_S", "RealTime", "ask_real_time", "settle_process"]

SWITCH_INTERVAL_S = 0.00003
"""Time for which another thread may hold Python's global lock while the loop waits for it, in seconds. Python's default
of 5 ms is two periods of a fast loop."""

SLICE_S = 0.0001
"""Time slice of a thread without real-time priority, seconds: the shortest that Linux grants. A thread with a short
slice is scheduled sooner when it wakes."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of the system call, by machine (asm/unistd.h); the C library has no function for it."""

_SCHED_ATTR = struct.Struct("=IIQiIQQQ")
"""linux/sched/types.h: size, policy, flags, nice, priority, runtime, deadline, period."""

_PR_SET_TIMERSLACK = 29  # prctl(2); without it, the sleeps of an ordinary thread end up to 50 microseconds late
_LOCK_ALL_ON_FAULT = 1 | 2 | 4  # mlockall(2): MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT


@dataclass(frozen=True, slots=True)
class RealTime:
    """The system's answer to a request for real-time scheduling.

    Attributes:
        granted: whether the thread runs before all ordinary threads of the machine.
        message: the answer as a sentence; a refusal has the reason and the setting that would allow it.
    """

    granted: bool
    message: str


def ask_real_time(priority: int) -> RealTime:
    """Move the calling thread to the real-time scheduler (SCHED_FIFO), and let its sleeps end on time.

    Args:
        priority: 1 to 99; interrupt threads of a real-time kernel have 50.

    Raises:
        ValueError: the priority is outside that range.
    """
    if not 1 <= priority <= 99:
        raise ValueError(f"a real-time priority of {priority}, allowed are 1 to 99")
    if not hasattr(os, "sched_setscheduler"):
        return RealTime(False, f"not granted: {sys.platform} has no SCHED_FIFO")
    _end_sleeps_on_time()
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))  # 0: the calling thread, on Linux
    except OSError as error:
        limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
        return RealTime(
            False,
            f"not granted: {error.strerror} (RLIMIT_RTPRIO is {limit}); the loop runs as an ordinary thread. "
            f"LimitRTPRIO={priority} in the systemd unit, `--ulimit rtprio={priority}` of a container, or "
            f"`robot - rtprio {priority}` in /etc/security/limits.conf allows it",
        )
    return RealTime(True, f"SCHED_FIFO, priority {priority}")


def _end_sleeps_on_time() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def settle_process() -> str:
    """Prepare a process for a control loop. Call it once everything is imported and constructed.

    The garbage collector ignores the objects that exist now, threads release Python's global lock after
    `SWITCH_INTERVAL_S` and have time slices of `SLICE_S`, and memory is locked if the system sets no limit.

    Returns:
        A sentence for the log on whether memory is locked.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _shorten_turns()
    if sys.platform != "linux":
        return f"memory is not locked: {sys.platform} is not known here"
    if resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != resource.RLIM_INFINITY:  # else later memory would be refused
        return (
            "memory is not locked, it may be swapped out: LimitMEMLOCK=infinity in the systemd unit, or `--ulimit "
            "memlock=-1` of a container, allows it"
        )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_LOCK_ALL_ON_FAULT) != 0:
        return f"memory is not locked, it may be swapped out: {os.strerror(ctypes.get_errno())}"
    return "memory is locked"


def _shorten_turns() -> None:
    """Give the ordinary threads of this process turns of `SLICE_S`, which needs no right; later threads inherit them.

    All threads, since any of them may hold Python's lock when the loop wakes. Linux 6.12 and newer; others ignore it.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return
    libc = ctypes.CDLL(None)
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(OSError):  # it has ended
            if os.sched_getscheduler(thread) == os.SCHED_OTHER:
                nice, runtime_ns = os.getpriority(os.PRIO_PROCESS, thread), int(SLICE_S * 1e9)
                request = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, runtime_ns, 0, 0)
                libc.syscall(number, thread, request, 0)
