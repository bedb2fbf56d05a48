"""Take from this process what Linux alone has, as macOS would, and then run a program: ``without_linux.py PROGRAM``.

It is no Mac: wheels, files and sockets are still Linux's.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import socket
import sys
import termios
from importlib import import_module
from typing import Any

LACKING = {
    os: (
        "sched_setscheduler", "sched_getscheduler", "sched_getparam", "sched_getaffinity", "sched_setaffinity",
        "sched_param", "sched_get_priority_max", "sched_get_priority_min", "SCHED_FIFO", "SCHED_RR", "SCHED_OTHER",
        "posix_fallocate", "posix_fadvise", "memfd_create", "eventfd", "splice", "copy_file_range", "pidfd_open",
        "timerfd_create", "pipe2", "setresuid", "getrandom", "O_PATH", "fdatasync",
    ),
    select: ("epoll", "EPOLLIN"),
    signal: ("sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGPWR"),
    socket: ("TCP_INFO", "AF_PACKET", "AF_CAN", "AF_NETLINK", "TCP_USER_TIMEOUT", "SO_BINDTODEVICE", "TCP_QUICKACK"),
    resource: ("RLIMIT_RTPRIO", "RLIMIT_NICE", "RLIMIT_RTTIME", "prlimit"),
    termios: ("B460800", "B500000", "B576000", "B921600", "B1000000", "TIOCGSERIAL"),
}  # fmt: skip
"""Names that CPython 3.12 has on Linux and not on macOS (``Availability`` in its documentation)."""
FOLDERS = ("/proc", "/dev/shm")
_CALLS = ("prctl", "mlockall", "mallopt", "syscall", "gettid", "sched_setattr")


class _Library(ctypes.CDLL):
    """A C library without the calls of Linux."""

    def __getattr__(self, name: str) -> Any:
        if name in _CALLS:
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return super().__getattr__(name)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("open", "os.listdir") and str(arguments[0]).startswith(FOLDERS):
        raise FileNotFoundError(2, "No such file or directory", str(arguments[0]))


def take_away() -> None:
    """Take what only Linux has, after the import of packages that ask for the platform then."""
    for name in ("asyncio", "multiprocessing", "mujoco", "numpy", "zmq"):
        import_module(name)
    for module, lacking in LACKING.items():
        for name in lacking:
            if hasattr(module, name):
                delattr(module, name)
    ctypes.CDLL = _Library  # type: ignore[misc]
    sys.platform = "darwin"
    sys.addaudithook(_refuse)


if __name__ == "__main__":
    take_away()
    exec(compile(sys.argv[1], "program", "exec"))
