"""What the control loop does about its driver: notice that it hangs, stop it when it raises, park it at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import numpy as np

from hal.errors import EpisodeError, RobotStopped
from hal.homing import HomingSettings, towards
from hal.robot import RobotSpec, RobotState
from hal.stop_latch import StopLatch
from hal.wrapper import RobotWrapper
from real.control.lifecycle import Lifecycle
from real.protocol.errors import stopped_by

__all__ = ["HANGS_S", "DriverWatch", "park", "stop_faulty"]

_log = logging.getLogger(__name__)

HANGS_S = 1.0
"""A driver that has not returned from one step for so long hangs, seconds: thirty periods of an arm, and longer than
any pause that a busy machine makes."""


class DriverWatch:
    """Notice a driver that does not return from a step. The control thread writes, any thread reads.

    Args:
        now: monotonic clock, seconds.

    Attributes:
        now: the clock.
        called_s: set to ``now()`` by the control thread when it calls the driver, and to None when the driver returns.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.called_s: float | None = None

    @property
    def hangs(self) -> str | None:
        """Why the driver is taken to hang, and what to do; None where it does not."""
        called_s = self.called_s
        if called_s is None or self.now() - called_s < HANGS_S:
            return None
        return f"the robot's driver has not returned from a step for {HANGS_S:g} s; check its cable, power and log"


def stop_faulty(robot: RobotWrapper, latch: StopLatch, lifecycle: Lifecycle, where: str, error: Exception) -> Exception:
    """Stop a robot that raised, as it can't be trusted to have moved, and log the error. Serving goes on.

    Args:
        robot: stopped, unless the error only says that it is stopped already.
        latch: of the robot's stop.
        lifecycle: takes up the stop.
        where: what was under way.
        error: what the robot raised.

    Returns:
        The error for the client.
    """
    stopped = latch.reason
    if stopped is not None:
        lifecycle.stop(stopped)
        if isinstance(error, RobotStopped | EpisodeError):
            return error
    own = error if isinstance(error, RobotStopped) else None  # a stop of the robot's own, such as its stop button's
    _log.error("the robot failed in %s", where, exc_info=error)
    reason = f"fault in {where}: {type(error).__name__}: {error}" if own is None else own.reason
    try:
        robot.stop(reason)
    except Exception:
        latch.stop(reason)
        _log.exception("the robot could not be stopped either")
    lifecycle.stop(reason)
    return stopped_by(error) if own is None else own


def park(
    spec: RobotSpec,
    step: Callable[[Mapping[str, np.ndarray]], RobotState],
    applied: Mapping[str, np.ndarray],
    deadline_s: float,
    velocity: float | None = None,
    now: Callable[[], float] = time.monotonic,
) -> str:
    """Move a robot slowly from what was applied last to ``spec.home``, so that nothing falls when its torque goes.

    Args:
        spec: of the robot; a command without a home stays as it is.
        step: carries out one guarded step of one control period.
        applied: what the robot holds now.
        deadline_s: longest way, seconds.
        velocity: fastest change of a command, units a second; None: that of `HomingSettings`.
        now: monotonic clock, seconds.

    Returns:
        How it ended, for the log.

    Raises:
        RobotError: whatever a step raises; a stop from anywhere ends the way.
    """
    home = {name: np.asarray(value, spec.commands[name].numpy_dtype) for name, value in spec.home.items()}
    command = {name: np.array(value) for name, value in applied.items()}
    stride = (HomingSettings().velocity if velocity is None else velocity) * spec.period_s
    end = now() + deadline_s
    while now() < end:
        if all(np.array_equal(command[name], home[name]) for name in home):
            return "the robot rests at its home"
        for name, goal in home.items():
            command[name] = towards(command[name], goal, stride)
        step(command)
    return f"the home was not reached within {deadline_s:g} s"
