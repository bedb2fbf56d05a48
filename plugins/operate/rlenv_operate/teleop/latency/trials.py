"""Measure trials: each is a change of the input while the robot is at rest, followed until the robot has moved."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hal.field import JsonDict
from rlenv_robot.tasks.task import Arrays

__all__ = ["STAGES", "Chain", "Stimulus", "Trial", "TrialWatch", "measure", "summarise"]

STAGES = {
    "input_to_written": ("input_ns", "written_ns"),
    "written_to_moved": ("written_ns", "moved_ns"),
    "input_to_moved": ("input_ns", "moved_ns"),
}
"""Name of a stage -> the stamps at its beginning and its end, as attributes of `Trial`."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The stamps of one trial, nanoseconds on this machine's monotonic clock.

    Attributes:
        input_ns: when the input changed.
        written_ns: when the first changed goal was passed to the driver, or written to its bus; None if never.
        moved_ns: stamp of the first reading that shows motion; None if never.
    """

    input_ns: int
    written_ns: int | None
    moved_ns: int | None


class TrialWatch:
    """Record when the goal of a robot at rest changes, and when motion is measured. All methods are thread-safe.

    Args:
        goal: the commanded values at rest.
        pose: the measured values at rest, by the same names.
        change: smallest change of a commanded value that counts, units.
        motion: smallest change of a measured value that counts, units; above the noise at rest.
    """

    def __init__(self, goal: Arrays, pose: Arrays, change: float, motion: float) -> None:
        self._goal, self._pose, self._change, self._motion = dict(goal), dict(pose), change, motion
        self._moved = threading.Event()
        self.written_ns: int | None = None
        self.moved_ns: int | None = None

    def wrote(self, goal: Arrays, at_ns: int) -> None:
        """Record a goal that was written at a time."""
        if self.written_ns is None and _distance(goal, self._goal) >= self._change:
            self.written_ns = at_ns

    def measured(self, pose: Arrays, at_ns: int) -> None:
        """Record a reading; it counts as motion only if it is newer than the change of the goal."""
        if self.written_ns is None or self.moved_ns is not None or at_ns < self.written_ns:
            return
        if _distance(pose, self._pose) >= self._motion:
            self.moved_ns = at_ns
            self._moved.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the motion; return whether it was in time."""
        return self._moved.wait(timeout_s)


def _distance(one: Arrays, other: Mapping[str, np.ndarray]) -> float:
    return max(float(np.max(np.abs(np.asarray(one[name], np.float64) - other[name]))) for name in other)


class Stimulus(Protocol):
    """Change an input as a person would."""

    def change(self, direction: int) -> None:
        """Start moving the robot in a direction (1 or -1), or ask a person to do so."""
        ...

    def input_ns(self) -> int:
        """Return the monotonic clock of the first input since `change`, in nanoseconds; 0 if there was none."""
        ...

    def rest(self) -> None:
        """Let the robot come to rest."""
        ...


class Chain(Protocol):
    """A running connection from a device to a robot."""

    def settle(self) -> None:
        """Wait until goal and robot are at rest.

        Raises:
            DeadlineExceeded: they did not come to rest.
        """
        ...

    def begin(self) -> TrialWatch:
        """Return a watch that begins with the present goal and pose, to which the chain reports."""
        ...

    def wait(self, watch: TrialWatch) -> bool:
        """Wait for the motion of a trial; return whether it was in time."""
        ...


def measure(chain: Chain, stimulus: Stimulus, trials: int) -> list[Trial]:
    """Run trials in alternating directions.

    Args:
        chain: running, with the device engaged.
        stimulus: changes the device's input.
        trials: number of trials.

    Raises:
        DeadlineExceeded: the robot did not come to rest between two trials.
    """
    done = []
    for number in range(trials):
        chain.settle()
        watch = chain.begin()
        stimulus.change(1 if number % 2 == 0 else -1)
        chain.wait(watch)
        done.append(Trial(stimulus.input_ns(), watch.written_ns, watch.moved_ns))
        stimulus.rest()
    return done


def summarise(trials: Sequence[Trial]) -> JsonDict:
    """Return the statistics of trials as JSON data.

    Keys: ``trials``, ``lost`` (trials without a measured motion), and one per stage of `STAGES`: ``n``, ``p50_ms``,
    ``p95_ms``, ``p99_ms``, ``worst_ms``. A percentile is the nearest rank (ISO 3534-1's sample quantile): the smallest
    measured time that is not exceeded by at least that percentage of the trials.
    """
    lost = sum(trial.moved_ns is None or not trial.input_ns for trial in trials)
    figures: JsonDict = {"trials": len(trials), "lost": lost}
    for stage, (begin, end) in STAGES.items():
        times = sorted(
            (getattr(trial, end) - getattr(trial, begin)) / 1e6
            for trial in trials
            if getattr(trial, begin) and getattr(trial, end)
        )
        figures[stage] = {"n": len(times), **{key: _rank(times, share) for key, share in _SHARES.items()}}
    return figures


_SHARES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "worst_ms": 1.0}


def _rank(times: Sequence[float], share: float) -> float | None:
    return round(times[max(0, math.ceil(share * len(times)) - 1)], 3) if times else None
