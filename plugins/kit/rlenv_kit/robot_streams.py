"""Check the streams of a robot: sensors with sampling rates that differ from the control rate."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from hal import IllegalAction, RobotState, StreamSpec
from hal.wrapper import Streaming
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, copied
from rlenv_kit.supervisor import PlannedCheck, check, declared

__all__ = ["stream_checks"]

_RATE = (0.5, 1.6)
"""Smallest and largest share of a stream's declared rate that a short walk may reach."""

_LEAST_SAMPLES = 8

_LATE_S = 0.25
"""Longest time from a sample's capture to the sink, beside two periods of the robot and of the stream."""

_LATEST = 8
"""Newest samples of which one may be that of a state."""


class _Sink:
    """Keep the stamps of a stream's samples, and the first thing that is wrong with any of them."""

    def __init__(self, robot: Streaming, name: str) -> None:
        (self._spec,) = (stream.spec for stream in robot.streams if stream.name == name)
        self._name = name
        self.stamps: list[int] = []
        self.values: list[dict[str, np.ndarray]] = []
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
        self.values.append({name: np.array(value) for name, value in values.items()})
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
        last, states = probe.reset(), list[RobotState]()
        for _ in range(max(3 * probe.steps, _LEAST_SAMPLES)):
            before, known, began = last.stamp_ns, self._counts(), time.monotonic()
            last = probe.step(probe.hold(last))
            self._check_used(last)
            states.append(copied(last))
            for stream in robot.streams:
                self._check_stamps(stream, known[stream.name], before, last.stamp_ns, time.monotonic() - began)
                self._check_named(stream, known[stream.name], known[stream.name] > begin[stream.name], last)
        for stream in robot.streams:
            sink = self._sinks[stream.name]
            self._check_values(stream.name, states)
            if sink.problem:
                raise Failed(sink.problem, "samples come in the order of their capture, as the stream's spec says")
            stamps = sink.stamps[begin[stream.name] :]
            if len(stamps) < _LEAST_SAMPLES:
                probe.note(f"stream {stream.name} gave {len(stamps)} samples in {probe.steps} steps")
                continue
            rate = 1e9 / max(float(np.median([after - before for before, after in itertools.pairwise(stamps)])), 1.0)
            if not _RATE[0] <= rate / stream.rate_hz <= _RATE[1]:
                probe.note(f"stream {stream.name} has {rate:.4g} samples a second, {stream.rate_hz:g} are declared")

    def _counts(self) -> dict[str, int]:
        return {name: len(sink.stamps) for name, sink in self._sinks.items()}

    def _check_stamps(self, stream: StreamSpec, known: int, before_ns: int, now_ns: int, took_s: float) -> None:
        """Check that the samples that came with a step were taken about then, by the clock of the states."""
        period_s = self._probe.robot.spec.period_s
        slack_s = 2 * period_s + took_s
        for number, stamp_ns in enumerate(self._sinks[stream.name].stamps[known:], known):
            if isinstance(stamp_ns, int | np.integer) and not (
                before_ns - 1e9 * (slack_s + _LATE_S + 2 / stream.rate_hz) <= stamp_ns <= now_ns + 1e9 * slack_s
            ):
                raise Failed(f"sample {number} of {stream.name} has the stamp {stamp_ns}, and came between states of "
                             f"{before_ns} and {now_ns}", "a stamp is of the robot's clock, in ns")  # fmt: skip

    def _check_named(self, stream: StreamSpec, known: int, is_due: bool, robot_state: RobotState) -> None:
        """Check that a state names its sample, one that is not older than need be."""
        if not stream.used or not is_due:
            return
        number, stamps = robot_state.used.get(stream.name, -1), self._sinks[stream.name].stamps
        if number < 0:
            raise Failed(f"a state names no sample of {stream.name}, of which {known} were taken before it",
                         "used names the sample of a stream that states are made from")  # fmt: skip
        allowed_ns = 1e9 * (_LATE_S + 3 * self._probe.robot.spec.period_s + 3 / stream.rate_hz)
        newest = max((one for one in range(known) if stamps[one] <= robot_state.stamp_ns), default=number)
        if stamps[newest] - stamps[number] > allowed_ns:
            raise Failed(f"a state of {robot_state.stamp_ns} names sample {number} of {stream.name}, of "
                         f"{stamps[number]}; sample {newest} of {stamps[newest]} was there",
                         "a state is made from the latest sample")  # fmt: skip

    def _check_values(self, name: str, states: list[RobotState]) -> None:
        """Check that a sensor of a stream's own field has the values of the sample that is named, and not of another.

        A sensor that is converted on its way has those of no sample, and is not compared.
        """
        sink = self._sinks[name]
        for field in self._probe.robot.spec.sensors:
            pairs = [(np.asarray(state.sensors[field.name]), state.used[name]) for state in states
                     if state.used.get(name, -1) >= 0 and field.name in sink.values[state.used[name]]]  # fmt: skip
            others = 0
            for value, number in pairs:
                near = range(max(0, number - _LATEST), min(len(sink.values), number + _LATEST))
                same = [one for one in near if np.array_equal(sink.values[one][field.name], value)]
                others += bool(same) and number not in same
            if pairs and others == len(pairs):
                raise Failed(f"{field.name} is that of another sample of {name} than the one that each state names",
                             "used names the sample that the values were taken from")  # fmt: skip

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
