"""Check the streams of a robot: sensors with sampling rates that differ from the control rate."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from hal import IllegalAction, RobotState
from hal.wrapper import Streaming
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe
from rlenv_kit.supervisor import PlannedCheck, check, declared

__all__ = ["stream_checks"]

_RATE = (0.5, 1.6)
"""Smallest and largest share of a stream's declared rate that a short walk may reach."""

_LEAST_SAMPLES = 8


class _Sink:
    """Keep the stamps of a stream's samples, and the first thing that is wrong with any of them."""

    def __init__(self, robot: Streaming, name: str) -> None:
        (self._spec,) = (stream.spec for stream in robot.streams if stream.name == name)
        self._name = name
        self.stamps: list[int] = []
        self.problem = ""

    def write(self, values: Mapping[str, ArrayLike], stamp_ns: int) -> int:
        """Check a sample, keep its stamp, and return its number."""
        problem = ""
        if not isinstance(stamp_ns, int | np.integer) or isinstance(stamp_ns, bool):
            problem = f"the stamp of sample {len(self.stamps)} is {stamp_ns!r}, it must be whole nanoseconds"
        elif self.stamps and stamp_ns < self.stamps[-1]:
            problem = f"stamps fall from {self.stamps[-1]} to {stamp_ns}, they must not"
        else:
            try:
                self._spec.validate({name: np.asarray(value) for name, value in values.items()}, "sample")
            except IllegalAction as wrong:
                problem = str(wrong)
        self.problem = self.problem or (problem and f"stream {self._name}: {problem}")
        self.stamps.append(stamp_ns)
        return len(self.stamps) - 1


class _Streams:
    def __init__(self, probe: RobotProbe) -> None:
        self._probe = probe
        self._sinks: dict[str, _Sink] = {}

    @check("streams open", "streams are taken before the first reset", "robot", "spec")
    def open(self, probe: RobotProbe) -> None:
        """Take the streams before the first reset, as a recorder does."""
        robot = self._probe.robot
        if not isinstance(robot, Streaming) or not robot.streams:
            raise NotTried("the robot offers no streams")
        self._sinks = {stream.name: _Sink(robot, stream.name) for stream in robot.streams}
        robot.stream_to(self._sinks)

    @check(
        "streams",
        "samples of streams come in order, as described, and states name them",
        "robot",
        "streams open",
        "states",
    )
    def samples(self, probe: RobotProbe) -> None:
        """Check samples and their numbers in the states of a walk."""
        robot = probe.robot
        if not isinstance(robot, Streaming) or not self._sinks:
            raise NotTried("the robot offers no streams")
        begin = {name: len(sink.stamps) for name, sink in self._sinks.items()}
        first = probe.reset()
        last = first
        for _ in range(max(3 * probe.steps, _LEAST_SAMPLES)):
            last = probe.step(probe.hold(last))
            self._check_used(last)
        for stream in robot.streams:
            sink = self._sinks[stream.name]
            if sink.problem:
                raise Failed(sink.problem, "samples come in the order of their capture, as the stream's spec says")
            stamps = sink.stamps[begin[stream.name] :]
            if len(stamps) < _LEAST_SAMPLES:
                probe.note(f"stream {stream.name} gave {len(stamps)} samples in {probe.steps} steps")
                continue
            rate = 1e9 / max(float(np.median([after - before for before, after in itertools.pairwise(stamps)])), 1.0)
            if not _RATE[0] <= rate / stream.rate_hz <= _RATE[1]:
                probe.note(f"stream {stream.name} has {rate:.4g} samples a second, {stream.rate_hz:g} are declared")

    def _check_used(self, robot_state: RobotState) -> None:
        for name, number in robot_state.used.items():
            if name not in self._sinks:
                raise Failed(f"used names the stream {name!r}", f"the streams are {', '.join(self._sinks)}")
            stamps = self._sinks[name].stamps
            if not isinstance(number, int | np.integer) or not -1 <= number < len(stamps):
                raise Failed(f"used names sample {number!r} of {name}, of which there are {len(stamps)}",
                             "it names a sample that was taken")  # fmt: skip
            if number >= 0 and stamps[number] > robot_state.stamp_ns:
                raise Failed(f"used names sample {number} of {name}, which was taken after the state",
                             "a state is made of samples before it")  # fmt: skip


def stream_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return two checks: one opens the streams before the first reset, the other checks their samples."""
    return declared(vars(_Streams), _Streams(probe), probe)
