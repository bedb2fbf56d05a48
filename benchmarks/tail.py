"""Time that a log's copies in shared memory cost the threads that record (`recorder.log.tail`).

Given is the time of the processor, since that of the clock says how busy the machine is: the median of the rounds and
their quartiles, microseconds a call. The rows are those of a served SO-101.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hal import RobotState
from hal.robots.so101 import SO101
from recorder.log.tail import Tail
from recorder.log.writer import LogWriter
from rlenv_operate.controller_frames import FramePacker, controller_layout

CALLS = 2000


def measure(name: str, call: Callable[[], object], rounds: int) -> None:
    """Print the time of a call."""
    times = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        for _ in range(CALLS):
            call()
        times.append((time.thread_time_ns() - began) / CALLS / 1e3)
    low, median, high = statistics.quantiles(times, n=4)
    print(f"{name:60} {median:6.2f} us, quartiles {low:.2f} to {high:.2f}")


def main() -> None:
    """Measure the parts, and a recorded frame with and without copies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    layout = controller_layout(SO101)
    state = RobotState(
        {field.name: np.zeros(field.shape, field.dtype) for field in SO101.sensors},
        {field.name: np.zeros(field.shape, field.dtype) for field in SO101.commands},
        1,
    )
    with tempfile.TemporaryDirectory() as folder:
        tail, packer, command = Tail(Path(folder)), FramePacker(layout), dict(state.applied)
        row = packer.pack(None, state, 1)
        measure("copy of a row", lambda: tail.keep(b"/frame", row, 1), rounds)
        measure("row of an answered step, packed", lambda: packer.pack(command, state, 1), rounds)
        tail.remove()
        for keeps in (False, True):
            with LogWriter(Path(folder) / str(keeps), layout, tail=keeps, capacity=1 << 30) as writer:
                frame = layout.spec.rows()
                frame["episode"] = writer.begin({})
                name = f"LogWriter.frame, {'with' if keeps else 'without'} copies"
                measure(name, lambda: writer.frame(frame), rounds)  # noqa: B023 (called at once)


if __name__ == "__main__":
    main()
