"""A robot whose every tick is written down on the machine that moves it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hal import Robot, RobotState, SampleSink, StreamSpec
from hal.around import RobotWrapper

__all__ = ["LoggedRobot", "Ticks"]

Ticks = Callable[[int, RobotState], None]
"""Given when a tick began (monotonic, nanoseconds) and its reading; never waits, never raises."""


class LoggedRobot(RobotWrapper):
    """A robot around a robot: each step and what was measured at its end is handed on.

    It belongs inside of the guard, ``Guard(LoggedRobot(robot, ...))``: then ``applied`` is what the robot itself says,
    and no motion passes it by, be it commanded, held, on the way home or lowered at the end. The robot's own streams
    end here: their samples go to the same log.

    Args:
        robot: any.
        ticks: takes each tick.
        before_reset: called before each reset; may refuse it by raising.
        stopped: told every stop's reason, from whatever thread.
    """

    def __init__(
        self, robot: Robot, ticks: Ticks, before_reset: Callable[[], None], stopped: Callable[[str], None]
    ) -> None:
        super().__init__(robot)
        self._ticks, self._before_reset, self._stopped = ticks, before_reset, stopped

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """None: the inner robot's samples go to this log."""
        return ()

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Nothing is handed over."""

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """The inner robot's reset, unless it is refused before."""
        self._before_reset()
        return self._robot.reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """The inner robot's step, written down."""
        began_ns = time.monotonic_ns()
        robot_state = self._robot.step(command)
        self._ticks(began_ns, robot_state)
        return robot_state

    def stop(self, reason: str) -> None:
        """The inner robot's stop; the record comes second."""
        try:
            self._robot.stop(reason)
        finally:
            self._stopped(reason)
