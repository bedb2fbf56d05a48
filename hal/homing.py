"""The reset of a robot that can't be teleported: ask, move home slowly, wait until it is still."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hal.errors import ResetFailed
from hal.robot import Reading, Robot, RobotSpec
from hal.signals import ResetRequest, Signal
from hal.stream import SampleSink, StreamSpec, pass_on, streams_of

__all__ = ["Homing", "HomingSettings"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HomingSettings:
    """How a reset moves.

    Attributes:
        velocity: fastest change of a command on the way home, units a second.
        tolerance: how far the measured value may stay from the start, units; covers a servo's sag.
        still: largest change of the measured value from period to period that counts as still, units a second.
        settle_s: how long it must be still, seconds.
        deadline_s: longest way home, seconds.
        signal_deadline_s: longest wait for the person or fixture, seconds.

    Raises:
        ValueError: one of them is not above 0.
    """

    velocity: float = 1.5
    tolerance: float = 0.15
    still: float = 0.1
    settle_s: float = 0.1
    deadline_s: float = 10.0
    signal_deadline_s: float = 60.0

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if not value > 0:  # False for NaN too
                raise ValueError(f"reset.{setting.name} is {value}, it must be above 0")


class Homing:
    """A robot around a robot: its reset is asked -> ready -> homing -> settled -> first reading.

    Args:
        robot: moves by `step` only; its own reset must not move it.
        signal: who resets the scene.
        settings: speeds, tolerances, deadlines.
        on_event: told every transition as (state, detail), for logs.
    """

    def __init__(
        self,
        robot: Robot,
        signal: Signal,
        settings: HomingSettings | None = None,
        on_event: Callable[[str, str], None] | None = None,
    ) -> None:
        self._robot, self._signal = robot, signal
        self._settings = settings or HomingSettings()
        self._on_event = on_event or (lambda state, detail: _log.info("reset %s: %s", state, detail))
        self._episode = 0

    @property
    def spec(self) -> RobotSpec:
        """The inner robot's."""
        return self._robot.spec

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The inner robot's."""
        return streams_of(self._robot)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As `hal.stream.Streaming.stream_to`, of the inner robot."""
        pass_on(self._robot, sinks)

    def reset(self, options: Mapping[str, Any]) -> Reading:
        """As `Robot.reset`: ask for the scene, then go to ``options["start"]`` or home and settle there.

        Raises:
            IllegalAction: the start breaks the spec; nobody was asked and nothing moved.
        """
        start = self._start(options)
        reading = self._robot.reset(options)  # refuses while a stop is latched, before anybody is asked
        request = ResetRequest(self.spec.name, self._episode, self._settings.signal_deadline_s)
        self._episode += 1
        self._on_event("asked", request.message)
        answer = self._signal.ask(request)
        self._on_event("ready", answer.by)
        return self._go(start, reading)

    def _start(self, options: Mapping[str, Any]) -> dict[str, np.ndarray]:
        start = {**self.spec.home, **options.get("start", {})}
        missing = [name for name in self.spec.commands.names if name not in start]
        if missing:
            hint = 'give one in reset({"start": ...}), or a home in its RobotSpec'
            raise ResetFailed(f"robot {self.spec.name!r} has no start for {', '.join(missing)}; {hint}")
        return self.spec.commands.validate(start, "start")

    def _go(self, start: dict[str, np.ndarray], reading: Reading) -> Reading:
        settings, period = self._settings, self.spec.period_s
        self._on_event("homing", "")
        command = {name: np.asarray(value) for name, value in reading.applied.items()}
        end = time.monotonic() + settings.deadline_s
        still_s = 0.0
        while time.monotonic() < end:
            stride = settings.velocity * period
            command = {name: _towards(command[name], start[name], stride) for name in start}
            before, reading = reading, self._robot.step(command)
            arrived = self._error(reading, start) <= settings.tolerance and all(
                np.array_equal(command[name], start[name]) for name in start
            )
            moved = self._moved(before, reading)
            still_s = still_s + period if arrived and moved <= settings.still * period else 0.0
            if still_s >= settings.settle_s:
                self._on_event("settled", f"{self._error(reading, start):.3f} from the start")
                return reading
        raise ResetFailed(
            f"the start was not reached within {settings.deadline_s:g} s: still {self._error(reading, start):.3f} "
            f"away, allowed are {settings.tolerance:g}; look what blocks the arm, or raise reset.tolerance"
        )

    def _pairs(self) -> Mapping[str, str]:
        return self.spec.measured_by

    def _error(self, reading: Reading, start: Mapping[str, np.ndarray]) -> float:
        gaps = [np.abs(reading.sensors[sensor] - start[name]).max() for name, sensor in self._pairs().items()]
        return float(max(gaps, default=0.0))

    def _moved(self, before: Reading, after: Reading) -> float:
        gaps = [np.abs(after.sensors[sensor] - before.sensors[sensor]).max() for sensor in self._pairs().values()]
        return float(max(gaps, default=0.0))

    def step(self, command: Mapping[str, np.ndarray]) -> Reading:
        """The inner robot's step."""
        return self._robot.step(command)

    def stop(self, reason: str) -> None:
        """The inner robot's stop; a reset under way ends with it."""
        self._robot.stop(reason)

    def close(self) -> None:
        """Close robot and signal."""
        try:
            self._robot.close()
        finally:
            self._signal.close()


def _towards(value: np.ndarray, goal: np.ndarray, stride: float) -> np.ndarray:
    """``goal``, or as near to it as one stride from ``value`` comes."""
    nearer: np.ndarray = np.clip(goal, value - stride, value + stride).astype(goal.dtype, copy=False)
    return nearer
