"""React to a client that has fallen silent: hold, go home slowly, or give way under damping."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import numpy as np

from hal.wrapper import RobotWrapper
from real.control.driver import WayHome, check_fallback
from real.control.settings import DEAF_S, LoopSettings

__all__ = ["SilenceReaction"]

_log = logging.getLogger(__name__)

Values = Mapping[str, np.ndarray]


class SilenceReaction:
    """Choose the commands of a robot after its client's silence. For the control thread, except `note_look`.

    The robot moves only while stops are read: it holds from the tick on at which nobody could stop it.

    Args:
        robot: the robot.
        settings: `on_silence` and `park_velocity`.
        now: monotonic clock, seconds.

    Attributes:
        is_damped: whether the robot gives way, so that it gets no commands.
        way_home: the motion home, or None if the robot is not on its way.

    Raises:
        ValueError: the robot lacks the home or the damping that ``on_silence`` needs.
    """

    def __init__(self, robot: RobotWrapper, settings: LoopSettings, now: Callable[[], float] = time.monotonic) -> None:
        check_fallback(robot, settings.on_silence)
        self._robot, self._settings, self._now = robot, settings, now
        self.way_home: WayHome | None = None
        self.is_damped = False
        self._looked_s: float | None = None  # when the thread that reads stops last looked after the driver

    def note_look(self) -> None:
        """Record that the thread that reads stops works. May be called from any thread."""
        self._looked_s = self._now()

    def begin(self, applied: Values | None, rest_device: Callable[[], None]) -> str:
        """Begin the reaction, and return a clause about it; empty if the robot only holds.

        Args:
            applied: the command applied last; None outside of episodes.
            rest_device: ends the watchdog of the robot's own motors, before they are damped.
        """
        if self._settings.on_silence == "hold" or applied is None:
            return ""
        if self._is_deaf:
            return "; it stays, since no stop could be read"
        if self._settings.on_silence == "park":
            self.way_home = WayHome(self._robot.spec, applied, self._settings.park_velocity)
            return "; it goes home slowly"
        rest_device()
        self.is_damped = self._robot.damp()
        return "; it is damped" if self.is_damped else ""

    def end(self) -> None:
        """End the reaction, as a client commands again or a reset begins."""
        self.way_home, self.is_damped = None, False

    @property
    def _is_deaf(self) -> bool:
        return self._looked_s is None or self._now() - self._looked_s > DEAF_S

    def next(self, way_home: WayHome) -> Values | None:
        """Return the command of the next tick on the way home; None at its end."""
        if self._is_deaf:
            _log.error("%s stays on its way home, since no stop could be read", self._robot.spec.name)
        elif (command := way_home.next()) is not None:
            return command
        self.way_home = None
        return None
