"""A robot around a robot: whatever the inner one is besides a robot, the outer one is too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np

from hal.errors import SpecError, StopReason
from hal.field import Field
from hal.reset.confirmation import Answer
from hal.reset.record import ResetRecord, last_reset
from hal.robot import Robot, RobotSpec, RobotState
from hal.spec import Spec

__all__ = [
    "DeviceWatchdog", "RobotWrapper", "SampleSink", "SelfReport", "Simulated", "StreamSpec", "Streaming", "arm_device",
    "disarm_device", "inner_robots", "is_simulated", "pass_on", "report_of", "streams_of",
]  # fmt: skip


class RobotWrapper:
    """A `hal.Robot` that passes everything on to another; what wraps a robot overrides what it changes.

    What a robot may be besides, such as `hal.Streaming`, is passed on here alone, so that no wrapper can forget it.

    Args:
        robot: the inner one.
    """

    def __init__(self, robot: Robot) -> None:
        self._robot = robot

    @property
    def spec(self) -> RobotSpec:
        """The inner robot's."""
        return self._robot.spec

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """The inner robot's reset."""
        return self._robot.reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """The inner robot's step."""
        return self._robot.step(command)

    def stop(self, reason: str | StopReason) -> None:
        """Stop the inner robot. Wrappers hand the `StopReason` on; a driver receives its text."""
        if isinstance(self._robot, RobotWrapper):
            self._robot.stop(reason)
        else:
            self._robot.stop(str(reason))

    def close(self) -> None:
        """Close the inner robot."""
        self._robot.close()

    # -- what a robot may be besides ---------------------------------------------------------------------

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The inner robot's, as `hal.wrapper.Streaming.streams`."""
        return streams_of(self._robot)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As `hal.wrapper.Streaming.stream_to`, of the inner robot."""
        pass_on(self._robot, sinks)

    def about(self) -> Mapping[str, Any]:
        """As `hal.wrapper.SelfReport.about`, of the inner robot."""
        return report_of(self._robot)

    def arm_watchdog(self, timeout_s: float) -> bool:
        """As `hal.wrapper.DeviceWatchdog.arm_watchdog`, of the inner robot."""
        return arm_device(self._robot, timeout_s)

    def disarm_watchdog(self) -> None:
        """As `hal.wrapper.DeviceWatchdog.disarm_watchdog`, of the inner robot."""
        disarm_device(self._robot)

    @property
    def simulated(self) -> bool:
        """As `hal.wrapper.Simulated.simulated`, of the inner robot."""
        return is_simulated(self._robot)

    @property
    def last_reset(self) -> ResetRecord | None:
        """What the inner robot's last reset was like, where it says so."""
        return last_reset(self._robot)

    def judge(self, message: str, deadline_s: float) -> Answer | None:
        """As `hal.Homing.judge` of the inner robot; None where it has nobody to ask."""
        judge = getattr(self._robot, "judge", None)
        return None if judge is None else cast("Answer | None", judge(message, deadline_s))


def inner_robots(robot: Robot) -> Iterator[Robot]:
    """The robots that a robot is around, from the outermost on."""
    while isinstance(robot, RobotWrapper):
        robot = robot._robot
        yield robot


# -- Sensors that a robot samples at their own rates, whatever the control period is -------------------------


@dataclass(frozen=True)
class StreamSpec:
    """One stream of samples.

    Attributes:
        name: lower case with underscores.
        spec: of a sample's values.
        rate_hz: samples a second, as the sensor promises; what was reached is in the stamps.
        used: whether readings are made from its samples, so that every frame says from which (``RobotState.used``).

    Raises:
        SpecError: the name or the rate can't be used.
    """

    name: str
    spec: Spec
    rate_hz: float
    used: bool = True

    def __post_init__(self) -> None:
        try:
            Field(self.name)
        except ValueError as error:
            raise SpecError(f"stream {self.name!r}: {error}") from error
        if not 0 < self.rate_hz < np.inf:
            raise SpecError(f"stream {self.name!r}: a rate of {self.rate_hz} Hz, wanted a number above 0")


class SampleSink(Protocol):
    """Where the samples of one stream go. A recorder gives it; it never waits and never raises."""

    def write(self, values: Mapping[str, Any], stamp_ns: int) -> int:
        """Hand over one sample; always from the same thread.

        Args:
            values: one value a field of the stream's spec.
            stamp_ns: robot's monotonic clock at capture, the clock of ``RobotState.stamp_ns``; never falling.

        Returns:
            The sample's number, for ``RobotState.used``; -1 if it is not recorded.
        """
        ...


@runtime_checkable
class Streaming(Protocol):
    """What a `hal.Robot` is besides, if it has sensors that are faster or slower than its steps.

    Its thread reads the sensor, hands every sample over with the time of its capture, and keeps the number that it
    gets back. `step` fills a sensor from the latest sample and says which one that was in ``RobotState.used``.
    """

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """What it offers; readable before anything is opened, and always the same."""
        ...

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Hand the samples of these streams over from now on, until `close`; before the first reset, and once.

        Args:
            sinks: by the streams' names; a stream without one is not handed over.
        """
        ...


def streams_of(source: object) -> tuple[StreamSpec, ...]:
    """What a robot or a world offers; nothing if it knows no streams."""
    return source.streams if isinstance(source, Streaming) else ()


def pass_on(source: object, sinks: Mapping[str, SampleSink]) -> None:
    """Have a robot hand its samples over, as what wraps it is asked to."""
    if isinstance(source, Streaming):
        source.stream_to(sinks)


# -- What a robot says of itself beside its readings: its loop, its clock; for the log and for people --------


@runtime_checkable
class SelfReport(Protocol):
    """What a `hal.Robot` is besides, if it knows more about itself than it measures."""

    def about(self) -> Mapping[str, Any]:
        """Plain data, as of now. Takes no longer than a step, and raises nothing."""
        ...


def report_of(robot: object) -> dict[str, Any]:
    """What a robot says of itself; empty if it says nothing."""
    return dict(robot.about()) if isinstance(robot, SelfReport) else {}


# -- A watchdog in the device itself, which acts even if the controller's own software is gone ---------------


@runtime_checkable
class DeviceWatchdog(Protocol):
    """What a `hal.Robot` is besides, if its motors watch their bus: a Dynamixel's Bus Watchdog (address 98 of the
    X series' control table), a CAN drive's heartbeat.

    A robot around a robot passes both calls on.
    """

    def arm_watchdog(self, timeout_s: float) -> bool:
        """Let the motors hold or go limp by themselves once nobody has written to them for so long.

        Called on the thread that steps, between two steps; the next one comes within a fraction of the time.

        Args:
            timeout_s: seconds; a device that knows only certain times takes the next longer one.

        Returns:
            Whether there is such a watchdog, and it is armed.
        """
        ...

    def disarm_watchdog(self) -> None:
        """Nobody is going to write for a while. Also clears one that has acted; on the thread that steps."""
        ...


def arm_device(robot: object, timeout_s: float) -> bool:
    """Arm a robot's own watchdog, if it has one; whether it is armed."""
    return isinstance(robot, DeviceWatchdog) and robot.arm_watchdog(timeout_s)


def disarm_device(robot: object) -> None:
    """Disarm a robot's own watchdog, if it has one."""
    if isinstance(robot, DeviceWatchdog):
        robot.disarm_watchdog()


# -- Whether a robot is a simulated one: what may be done to it that nobody may do to motors -----------------


@runtime_checkable
class Simulated(Protocol):
    """What a `hal.Robot` is besides, if nothing real moves: then time may stand still, and nobody needs to watch it."""

    @property
    def simulated(self) -> bool:
        """True where nothing real moves."""
        ...


def is_simulated(robot: object) -> bool:
    """Whether a robot says that nothing real moves; one that says nothing is real."""
    return isinstance(robot, Simulated) and robot.simulated
