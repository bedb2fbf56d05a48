"""Serve a simulated robot beside a power cut, and die or stall on demand: the host of a trial.

    python -m rlenv_power_cut.trial_host PORT CUT_MS LOOP_MS

For each line on standard input it forks a process that serves a robot in an episode and has its supply switched on.
That process prints ``ready PID``, or ``failed`` and the reason. Signals make it fail: SIGUSR1 stalls its interpreter,
with Python's lock held; SIGUSR2 lets its driver hang. It prints ``dies NANOSECONDS`` when their handlers run.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping

import numpy as np

from hal.robot import RobotState
from hal.wrapper import RobotWrapper

__all__ = ["STALL_S", "HangingRobot", "main", "serve_one"]

STALL_S = 30
"""Length of a stall, seconds: longer than any cut time and its trial."""

_WATCHDOG_S = 0.2


class HangingRobot(RobotWrapper):
    """Let a robot's step hang once `hangs` is set, as a driver does whose bus never answers."""

    hangs = False

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Carry out one period, or wait for `STALL_S` first."""
        if self.hangs:
            time.sleep(STALL_S)
        return super().step(command)


def serve_one(port: str, cut_ms: int, loop_ms: int) -> None:
    """Serve a robot with its supply on until a signal, or the end of its parent, ends this process."""
    from real import RemoteRobot
    from real.server.server import Server
    from rlenv_power_cut.monitor import PowerCutExtension
    from sim import SimRobot
    from sim.robots.so101 import so101

    robot, parent = HangingRobot(SimRobot(so101(), real_time=True)), os.getppid()

    def stall(*_: object) -> None:
        _report_death()
        ctypes.PyDLL(None).sleep(STALL_S)  # PyDLL keeps Python's lock, unlike CDLL

    def hang(*_: object) -> None:
        robot.hangs = True
        _report_death()

    signal.signal(signal.SIGUSR1, stall)
    signal.signal(signal.SIGUSR2, hang)
    with Server(robot, control_hz=robot.spec.rate_hz, watchdog_s=_WATCHDOG_S) as server:
        client = RemoteRobot(server.address)
        client.reset({})
        extension = PowerCutExtension(port, cut_ms=cut_ms, loop_ms=loop_ms)
        with extension.attach(server, lambda _: None) as monitor:
            monitor.switch_on(monitor.status.cuts)
            print(f"ready {os.getpid()}", flush=True)
            while os.getppid() == parent:
                time.sleep(1.0)  # a signal's handler runs in between


def _report_death() -> None:
    """Write the time at which a signal's handler ran, ns, past Python's buffers."""
    os.write(1, f"dies {time.monotonic_ns()}\n".encode())


def main(arguments: list[str]) -> int:
    """Fork a host for each line of standard input, until its end."""
    port, cut_ms, loop_ms = arguments[0], int(arguments[1]), int(arguments[2])
    import sim.robots.so101  # noqa: F401 - once for all forks

    logging.disable(logging.CRITICAL)  # the trial reports what happened
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin.readline():
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            try:
                serve_one(port, cut_ms, loop_ms)
            except BaseException as error:
                print(f"failed {type(error).__name__}: {error}".replace("\n", " "), flush=True)
            finally:
                os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
