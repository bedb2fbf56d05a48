"""Number of our own Python functions that one `Environment.step` calls, in all threads together.

A count does not depend on how busy the machine is, so it shows what a change of the road from environment to motors
costs before any clock does. Counted are the calls of functions in hal, sim, real, recorder and rlenv_robot; the figure
of a case is the median of its steps. Remote cases run server and client in this process, so that all threads are seen.

    python benchmarks/calls.py [--steps 60] [--list]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import rlenv_robot as rr
from hal import Guard, Homing
from hal.reset.confirmation import Automatic
from real import Server
from rlenv_robot.env import Environment
from sim.robot import SimRobot
from sim.robots.so101 import so101

ROOT = Path(rr.__file__).parents[1]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("hal", "sim", "real", "recorder", "rlenv_robot"))
SETTLE_S = 0.01
"""After each step the other threads have so long to finish what belongs to it."""


class CallCounter:
    """Counts calls of our functions by thread and function. Install it before the threads to be counted start."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self._lock = threading.Lock()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES):
            with self._lock:
                name = threading.current_thread().name
                self.calls[name, code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname] += 1

    @contextlib.contextmanager
    def installed(self) -> Iterator[CallCounter]:
        """Count in this thread, and in every thread that is started meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def take(self) -> Counter[tuple[str, str, str]]:
        """Return the counts since the last call, and begin anew."""
        with self._lock:
            calls, self.calls = self.calls, Counter()
        return calls


def action_of(env: Environment, frame_no: int) -> dict[str, Any]:
    values = {field.name: np.zeros(field.shape, field.numpy_dtype) for field in env.action}
    return {"env_id": env.env_id, "frame_no": frame_no, "action": values}


def counted(env: Environment, steps: int, settle_s: float, counter: CallCounter) -> list[Counter[tuple[str, str, str]]]:
    """Return the calls of each step; the first steps, which fill caches, are left out."""
    table: Any = env.reset({"seed": 1})
    taken = []
    for _ in range(steps + 10):
        action = action_of(env, table["frame_no"])
        time.sleep(settle_s)
        counter.take()
        table, _ = env.step(action)
        time.sleep(settle_s)
        taken.append(counter.take())
    return taken[10:]


def simulated(steps: int) -> list[Counter[tuple[str, str, str]]]:
    counter = CallCounter()
    with counter.installed(), rr.make("so101-reach", steps=10_000) as env:
        return counted(env, steps, 0.0, counter)


def remote(steps: int, lockstep: bool) -> list[Counter[tuple[str, str, str]]]:
    """Count the steps of an environment whose robot is served as docs/drivers.md serves one."""
    counter = CallCounter()
    arm = Homing(Guard(SimRobot(so101(), real_time=not lockstep)), Automatic())
    served = Server(arm, lockstep=lockstep, paced_by_robot=not lockstep, watchdog_s=30.0, max_command_age_s=10.0)
    with counter.installed(), served, rr.make("so101-reach", robot=served.address, steps=10_000) as env:
        return counted(env, steps, SETTLE_S if lockstep else 0.0, counter)


def report(name: str, taken: list[Counter[tuple[str, str, str]]], listing: bool) -> None:
    totals = [sum(calls.values()) for calls in taken]
    typical = taken[totals.index(statistics.median_low(totals))]
    threads = Counter[str]()
    files: dict[str, set[str]] = {}
    for (thread, file, _), number in typical.items():
        threads[thread] += number
        files.setdefault(thread, set()).add(file)
    parts = ", ".join(f"{thread} {number} in {len(files[thread])} files" for thread, number in threads.items())
    print(f"{name}: median {statistics.median_low(totals)} ({parts})")
    if listing:
        for (thread, file, function), number in sorted(typical.items()):
            print(f"    {number:3} {thread:20} {file}:{function}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60, help="steps that are counted in each case")
    parser.add_argument("--list", action="store_true", help="list the functions of a typical step")
    options = parser.parse_args()
    report("simulated", simulated(options.steps), options.list)
    report("remote, lockstep", remote(options.steps, lockstep=True), options.list)
    report("remote, real time", remote(options.steps, lockstep=False), options.list)


if __name__ == "__main__":
    main()
