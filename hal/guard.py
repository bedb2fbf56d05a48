"""Whether a command is plainly within its limits, told sooner than they are applied."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NoReturn

import numpy as np

from hal.errors import EpisodeError, RobotStopped, StaleReading, StopReason
from hal.robot import BatchState, Robot, RobotSpec, RobotState
from hal.wrapper import RobotWrapper, inner_robots

__all__ = ["Guard", "check_fresh", "limited", "plainly_within"]

MARGIN = 1e-3
"""Share of a limit that is left out: what is nearer to it is for `Limits.apply`, with its own type's rounding."""

Clear = Callable[[np.ndarray, np.ndarray, np.ndarray | None], bool]


def plainly_within(spec: RobotSpec, name: str) -> Clear | None:
    """A function of target, applied last and measured last, each of the command's shape, that says whether the target
    is so far within speed and lead that limiting returns it as it is. False says nothing: then limit it.

    A command of six joints costs a microsecond this way, since Python's floats are faster than NumPy's short arrays.

    Args:
        spec: whose limits; the target has passed ``spec.commands.validate``.
        name: which command. None is returned for one that is no vector.
    """
    shape = spec.commands[name].shape
    if len(shape) != 1:
        return None
    steps = _limits(spec.limits.max_velocity.get(name), shape[0], spec.period_s)
    reaches = _limits(spec.limits.max_lead.get(name), shape[0], 1.0)

    def within(target: np.ndarray, previous: np.ndarray, measured: np.ndarray | None) -> bool:
        values = target.tolist()
        if steps is not None:
            for value, before, step in zip(values, previous.tolist(), steps, strict=True):
                if not -step < value - before < step:  # true for NaN too
                    return False
        if reaches is not None and measured is not None:
            for value, seen, reach in zip(values, measured.tolist(), reaches, strict=True):
                if not -reach < value - seen < reach:
                    return False
        return True

    return within


def _limits(limit: float | tuple[float, ...] | None, size: int, scale: float) -> list[float] | None:
    if limit is None:
        return None
    each = (limit,) * size if isinstance(limit, float) else limit
    return [value * scale * (1.0 - MARGIN) for value in each]


# -- The last word before the motors: range, speed and lead of every command, and a stop that stays ----------


_log = logging.getLogger(__name__)

_SHORT = 32
"""Numbers of a sensor that are looked at in Python rather than by NumPy."""


def check_fresh(spec: RobotSpec, robot_state: RobotState) -> None:
    """Refuse a reading that holds a sample older than its sensor's ``max_age_s``.

    Raises:
        StaleReading: naming the sensor, its age and what is allowed.
    """
    for sensor, age_ns in robot_state.age_ns.items():
        allowed = spec.max_age_s.get(sensor)
        if allowed is not None and age_ns > allowed * 1e9:
            raise StaleReading(sensor, age_ns / 1e9, allowed)


def limited(spec: RobotSpec, name: str, target: np.ndarray, last: RobotState | BatchState) -> np.ndarray:
    """The legal command nearest to ``target`` after the reading ``last``: within speed, lead and range.

    Args:
        spec: whose limits.
        name: which command.
        target: wanted, shape (..., n) with any leading axes.
        last: the reading before, with the same leading axes.
    """
    sensor = spec.measured_by.get(name)
    measured = None if sensor is None else last.sensors[sensor]
    target = spec.limits.apply(name, target, last.applied[name], measured, spec.period_s)
    low, high = spec.commands[name].bounds
    bounded: np.ndarray = np.minimum(np.maximum(target, low), high)  # measured may lie outside the range
    return bounded


class Guard(RobotWrapper):
    """A robot around a robot that lets only legal commands through.

    A command out of range, not finite, or of the wrong shape is refused whole. One that is too fast or too
    far ahead of the arm is brought to the nearest that is not, which shows in ``RobotState.applied``.
    A reading with a value that is not a finite number stops the robot, and is given to nobody.
    A stop is latched here: every later command is refused until a reset names why it may be cleared. Of several
    guards around one robot the innermost logs it, so that it is told once.

    Args:
        robot: what to guard; its ``spec`` holds the limits.
    """

    def __init__(self, robot: Robot) -> None:
        super().__init__(robot)
        self._spec = robot.spec
        self._limits = self._spec.limits.names
        self._measured = tuple(
            {self._spec.measured_by[name] for name in self._limits if name in self._spec.measured_by}
        )
        self._within = {name: plainly_within(self._spec, name) for name in self._limits}
        self._validate = self._spec.commands.validate
        numbers = [field for field in self._spec.sensors if field.numpy_dtype.kind == "f"]
        self._short = tuple(each.name for each in numbers if len(each.shape) == 1 and each.shape[0] <= _SHORT)
        self._long = tuple(each.name for each in numbers if each.name not in self._short)
        self._simulated_step: Callable[[Any], RobotState] | None = (
            getattr(robot, "step_checked", None) if self.simulated else None
        )
        self._last: RobotState | None = None
        self._stopped: StopReason | None = None
        self._lock = threading.Lock()
        self._tells = not any(isinstance(each, Guard) for each in (robot, *inner_robots(robot)))

    @property
    def spec(self) -> RobotSpec:
        """The guarded robot's."""
        return self._spec

    @property
    def stopped(self) -> StopReason | None:
        """The reason of the latched stop, or None."""
        return self._stopped

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """As `Robot.reset`; ``options["clear_stop"]`` clears a latched stop, and is logged."""
        self._clear(options.get("clear_stop"))
        self._last = None
        robot_state = self._robot.reset(options)
        check_fresh(self._spec, robot_state)
        self._check_finite(robot_state)
        self._last = self._own(robot_state)
        return robot_state

    def _own(self, robot_state: RobotState) -> RobotState:
        """What the limits go by, as copies: the caller may write into its reading, and must not move them so."""
        sensors = {name: robot_state.sensors[name].copy() for name in self._measured}
        return RobotState(
            sensors, {name: robot_state.applied[name].copy() for name in self._limits}, robot_state.stamp_ns
        )

    def _clear(self, why: Any) -> None:
        with self._lock:
            if self._stopped is None:
                return
            if not (isinstance(why, str) and why.strip()):
                raise RobotStopped(self._stopped)
            if self._tells:
                _log.warning("stop cleared: was %r, cleared because %r", self._stopped.text, why)
            self._stopped = None

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """As `Robot.step`, with the command limited as the class says."""
        return self._carry_out(self._validate(command, "command"), self._robot.step)

    def step_checked(self, values: dict[str, np.ndarray]) -> RobotState:
        """As `step`, for what ``spec.commands.validate`` has just returned; in simulation only.

        A simulated step takes 25 microseconds, three checks of one command 2. A real robot's guard always checks.

        Raises:
            EpisodeError: the robot is not a simulated one.
        """
        step = self._simulated_step
        if step is None:
            if not self.simulated:
                raise EpisodeError(
                    "step_checked is for simulations; a real robot's guard checks every command: call step"
                )
            step = self._robot.step  # what is around a simulated robot checks once more
        return self._carry_out(values, step)

    def stepper(self) -> Callable[[Any], RobotState]:
        """`step_checked`, good until the next reset, in as few calls as a simulated robot can make of it.

        A robot that offers a ``stepper`` of its own refuses by itself what is stopped or was never reset, and where its
        spec has no limits there is nothing else that a guard would do.
        """
        stepper = getattr(self._robot, "stepper", None)
        step: Callable[[Any], RobotState] | None = None if stepper is None else stepper()
        if step is None or self._simulated_step is None:
            return self.step_checked
        if not self._limits:
            return step
        return functools.partial(self._carry_out, step=step)

    def _carry_out(self, values: dict[str, np.ndarray], step: Callable[[Any], RobotState]) -> RobotState:
        if self._stopped is not None:
            raise RobotStopped(self._stopped)
        last = self._last
        if last is None:
            raise EpisodeError("step before reset: call reset first, it reads where the robot is")
        if self._limits:
            values = self._within_limits(values, last)
        robot_state = step(values)
        if robot_state.age_ns:
            check_fresh(self._spec, robot_state)
        if self._simulated_step is None:
            self._check_finite(robot_state)
        if self._limits:
            self._last = self._own(robot_state)
        return robot_state

    def _check_finite(self, robot_state: RobotState) -> None:
        """Stop a robot that measures what is no number, before anybody computes with it."""
        sensors = robot_state.sensors
        for name in self._short:
            if not isfinite(sum(sensors[name].tolist())):  # a fifth of what NumPy takes for a few numbers
                self._stop_unless_finite(name, sensors[name])
        for name in self._long:
            self._stop_unless_finite(name, sensors[name])

    def _stop_unless_finite(self, name: str, values: np.ndarray) -> None:
        if not _finite(values):
            self._refuse(f"sensor {name!r} measured a value that is not a finite number; check its cable and driver")

    def _within_limits(self, values: dict[str, np.ndarray], last: RobotState) -> dict[str, np.ndarray]:
        """A new dictionary: the one given is what was asked for, and stays so in the record."""
        values = dict(values)
        for name in self._limits:
            if self._is_within(name, values[name], last):
                continue
            sensor = self._spec.measured_by.get(name)
            values[name] = bounded = limited(self._spec, name, values[name], last)
            if not (_finite(bounded) and (sensor is None or _finite(last.sensors[sensor]))):
                self._refuse(f"{name!r} can't be limited, the last reading holds a value that is not a finite number")
        return values

    def _is_within(self, name: str, target: np.ndarray, last: RobotState) -> bool:
        within, sensor = self._within[name], self._spec.measured_by.get(name)
        measured = None if sensor is None else last.sensors[sensor]
        return within is not None and within(target, last.applied[name], measured)

    def _refuse(self, reason: str) -> NoReturn:
        """Stop the robot and raise the stop's reason, which is an earlier one where it was stopped already."""
        self.stop(reason)
        raise RobotStopped(self._stopped or reason)

    def stop(self, reason: str | StopReason) -> None:
        """Latch a stop and pass it on. The first reason is kept."""
        with self._lock:
            if self._stopped is None:
                self._stopped = StopReason.of(reason)
                if self._tells:
                    _log.log(logging.INFO if self._stopped.orderly else logging.ERROR, "stopped: %s", reason)
        super().stop(reason)


def _finite(values: np.ndarray) -> bool:
    """Whether a short vector holds finite numbers alone."""
    return bool(np.isfinite(values).all())
