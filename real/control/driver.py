"""Whether a robot's driver still comes back from its steps."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import numpy as np

from hal.errors import EpisodeError, RobotStopped
from hal.guard import Guard
from hal.homing import HomingSettings, towards
from hal.robot import RobotSpec, RobotState
from real.control.lifecycle import Lifecycle
from real.protocol.errors import stopped_by

__all__ = ["HANGS_S", "DriverWatch", "park", "stop_faulty"]

HANGS_S = 1.0
"""A driver that has not returned from one step for so long hangs, seconds: thirty periods of an arm, and longer than
any pause that a busy machine makes."""


class DriverWatch:
    """Entered by the one thread that moves the robot, read by any.

    Args:
        now: monotonic clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None

    def __enter__(self) -> None:
        """The driver is called."""
        self._since = self._now()

    def __exit__(self, *_: object) -> None:
        """It returned."""
        self._since = None

    @property
    def hangs(self) -> str | None:
        """What to say of a driver that does not come back, or None."""
        since = self._since
        if since is None or self._now() - since < HANGS_S:
            return None
        return f"the robot's driver has not returned from a step for {HANGS_S:g} s; check its cable, power and log"


# -- Before a server ends: bring the robot to its rest slowly, so that nothing falls when its torque goes ----


def park(
    spec: RobotSpec,
    step: Callable[[Mapping[str, np.ndarray]], RobotState],
    applied: Mapping[str, np.ndarray],
    deadline_s: float,
    velocity: float | None = None,
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Go from what was applied last to ``spec.home``, by guarded steps of one control period each.

    Args:
        spec: of the robot; a command without a home stays as it is.
        step: carries out one period.
        applied: what the robot holds now.
        deadline_s: longest way, seconds.
        velocity: fastest change of a command, units a second; None is that of a reset, where nothing else was said.
        now: monotonic clock, seconds.

    Returns:
        How it ended, for the log.

    Raises:
        RobotError: whatever a step raises; a stop from anywhere ends the way.
    """
    rest = {name: np.asarray(value, spec.commands[name].numpy_dtype) for name, value in spec.home.items()}
    command = {name: np.array(value) for name, value in applied.items()}
    stride = (HomingSettings().velocity if velocity is None else velocity) * spec.period_s
    end = now() + deadline_s
    while now() < end:
        if all(np.array_equal(command[name], rest[name]) for name in rest):
            return "it rests at its home"
        for name, goal in rest.items():
            command[name] = towards(command[name], goal, stride)
        step(command)
    return f"its home was not reached within {deadline_s:g} s"


# -- What is done with a robot that raises -------------------------------------------------------------------


_log = logging.getLogger(__name__)


def stop_faulty(guard: Guard, lifecycle: Lifecycle, where: str, error: Exception) -> Exception:
    """Stop a robot that raised, as it can't be trusted to have moved, and log what it raised. Serving goes on.

    Args:
        guard: the robot's; stopped unless the error only says that it is, or that there is no episode.
        life: told of the stop.
        where: what was under way.
        error: what it raised.

    Returns:
        What its client is told.
    """
    if guard.stopped is not None:
        lifecycle.stop(guard.stopped)
    if isinstance(error, RobotStopped | EpisodeError):
        return error
    _log.error("the robot failed in %s", where, exc_info=error)
    reason = f"fault in {where}: {type(error).__name__}: {error}"
    try:
        guard.stop(reason)
    except Exception:
        _log.exception("and its stop failed too")
    lifecycle.stop(reason)
    return stopped_by(error)
