"""Before a server ends: bring the robot to its rest slowly, so that nothing falls when its torque goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from hal.homing import HomingSettings, towards
from hal.robot import RobotSpec, RobotState

__all__ = ["park"]


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
