"""A robot around a robot: whatever the inner one is besides a robot, the outer one is too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from hal.device_watchdog import arm_device, disarm_device
from hal.reset_record import ResetRecord, last_reset
from hal.robot import Robot, RobotSpec, RobotState
from hal.self_report import report_of
from hal.signals.signal import Answer
from hal.simulated import is_simulated
from hal.stream import SampleSink, StreamSpec, pass_on, streams_of

__all__ = ["RobotWrapper", "inner_robots"]


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

    def stop(self, reason: str) -> None:
        """The inner robot's stop."""
        self._robot.stop(reason)

    def close(self) -> None:
        """Close the inner robot."""
        self._robot.close()

    # -- what a robot may be besides ---------------------------------------------------------------------

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The inner robot's, as `hal.stream.Streaming.streams`."""
        return streams_of(self._robot)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """As `hal.stream.Streaming.stream_to`, of the inner robot."""
        pass_on(self._robot, sinks)

    def about(self) -> Mapping[str, Any]:
        """As `hal.self_report.SelfReport.about`, of the inner robot."""
        return report_of(self._robot)

    def arm_watchdog(self, timeout_s: float) -> bool:
        """As `hal.device_watchdog.DeviceWatchdog.arm_watchdog`, of the inner robot."""
        return arm_device(self._robot, timeout_s)

    def disarm_watchdog(self) -> None:
        """As `hal.device_watchdog.DeviceWatchdog.disarm_watchdog`, of the inner robot."""
        disarm_device(self._robot)

    @property
    def simulated(self) -> bool:
        """As `hal.simulated.Simulated.simulated`, of the inner robot."""
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
