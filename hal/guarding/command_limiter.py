"""Bring a robot's commands within its limits: at once, or along a trajectory if acceleration is limited."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from hal.errors import SpecError
from hal.guarding.motion_profile import MotionProfile, element_limits
from hal.robot import BatchState, RobotSpec, RobotState

__all__ = ["CommandLimiter"]

MARGIN = 1e-3
"""Margin of the quick test as a share of a limit: commands within the margin go through `Limits.apply`."""

QuickTest = Callable[[np.ndarray, np.ndarray, np.ndarray | None], bool]
"""A function of target, last applied and last measured values, each of shape (n,); True if limiting changes nothing."""


class CommandLimiter:
    """Bring commands within a robot's limits on motion, lead and range.

    This is the only class that applies `hal.Limits`: the guard uses it for one robot, a batch of simulations for its
    rows. Limits on speed and lead need no memory. A command with limited acceleration is *led*: it follows a trajectory
    (`hal.guarding.motion_profile.MotionProfile`), and the limiter then serves one robot on one thread.

    Args:
        spec: the robot's description; its ``limits`` apply.
        leads: whether to lead the commands with limited acceleration; if not, another guard limits them.
    """

    def __init__(self, spec: RobotSpec, *, leads: bool = True) -> None:
        self._spec = spec
        limits = spec.limits
        self._led = {name: _LedCommand(spec, name) for name in limits.max_acceleration} if leads else {}
        self._quick = tuple(
            (name, spec.measured_by[name] if name in limits.max_lead else None, _quick_test(spec, name))
            for name in limits.names
            if name not in limits.max_acceleration
        )

    @property
    def leads(self) -> bool:
        """Whether a command is led along a trajectory, which makes a call of `begin` necessary at every reset."""
        return bool(self._led)

    def begin(self, applied: Mapping[str, np.ndarray]) -> None:
        """Start the trajectory of each command with limited acceleration at rest, at its value in ``applied``."""
        for name, led in self._led.items():
            led.begin(applied[name])

    def rest(self) -> None:
        """Set each led command to rest where it is, after a time without commands."""
        for led in self._led.values():
            led.profile.rest()

    def correct(self, applied: Mapping[str, np.ndarray]) -> None:
        """Restart each led command at rest at the robot's applied value if the two are more than a stride apart."""
        for name, led in self._led.items():
            led.correct(applied[name])

    def brake_instead(self) -> dict[str, np.ndarray]:
        """Replace the led commands of the last `apply` by braking, and return them."""
        return {name: led.array(led.profile.brake_instead()) for name, led in self._led.items()}

    def braking_values(self, share: float) -> dict[str, np.ndarray]:
        """Return the led commands after a share, 0 to 1, of the time that braking from now on takes."""
        return {name: led.shaped(led.profile.braking_positions(share)) for name, led in self._led.items()}

    def detour_values(self) -> dict[str, np.ndarray]:
        """Return how much longer each led command's braking path is than a straight line, because it turns round."""
        detours = {name: led.profile.detours() for name, led in self._led.items()}
        return {name: self._led[name].shaped(values) for name, values in detours.items() if any(values)}

    def stop_values(self) -> dict[str, np.ndarray]:
        """Return the values at which the led commands stop if they brake from now on."""
        return {name: led.shaped(led.profile.stop_positions()) for name, led in self._led.items()}

    def is_within(self, commands: Mapping[str, np.ndarray], last: RobotState) -> bool:
        """Return True if `apply` surely changes none of one robot's commands; False if a full `apply` has to find out.

        Args:
            commands: as for `apply`, without leading axes.
            last: as for `apply`, without leading axes.
        """
        if self._led:
            return False
        applied, sensors = last.applied, last.sensors
        for name, sensor, quick in self._quick:
            if quick is None or not quick(commands[name], applied[name], None if sensor is None else sensors[sensor]):
                return False
        return True

    def apply(
        self,
        commands: Mapping[str, np.ndarray],
        last: RobotState | BatchState,
        passed_s: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the legal commands nearest to ``commands``, in a new dictionary.

        A command that is within its limits is returned as the same array.

        Args:
            commands: name -> target, shape (..., n) with any leading axes; they passed ``spec.commands.validate``.
            last: the reading before, with the same leading axes.
            passed_s: time since the last command, seconds; None means one period of the robot.

        Raises:
            SpecError: acceleration is limited and the commands have leading axes.
        """
        limited = dict(commands)
        applied, sensors = last.applied, last.sensors
        for name, sensor, quick in self._quick:
            target, previous = limited[name], applied[name]
            measured = None if sensor is None else sensors[sensor]
            if passed_s is not None or quick is None or target.ndim != 1 or not quick(target, previous, measured):
                limited[name] = self._limit(name, target, previous, measured, passed_s)
        seconds = self._spec.period_s if passed_s is None else passed_s
        for name, led in self._led.items():
            sensor = self._spec.measured_by.get(name)
            measured = None if sensor is None else sensors[sensor]
            limited[name] = led.apply(limited[name], applied[name], measured, seconds)
        return limited

    def _limit(
        self,
        name: str,
        target: np.ndarray,
        applied: np.ndarray,
        measured: np.ndarray | None,
        passed_s: float | None,
    ) -> np.ndarray:
        spec = self._spec
        target = spec.limits.apply(
            name, target, applied, measured, spec.period_s if passed_s is None else min(passed_s, spec.period_s)
        )
        low, high = spec.commands[name].bounds
        bounded: np.ndarray = np.minimum(np.maximum(target, low), high)  # applied may lie outside the range
        return bounded


class _LedCommand:
    """One command that is led along a trajectory.

    Args:
        spec: the spec of the robot.
        name: the name of the command.
    """

    def __init__(self, spec: RobotSpec, name: str) -> None:
        self._spec, self._name, self._field = spec, name, spec.commands[name]
        limits = spec.limits
        bounds = limits.max_velocity[name], limits.max_acceleration[name], limits.max_jerk.get(name)
        each = element_limits(*bounds, self._field.shape)
        self.profile = MotionProfile(each)
        self._strides = [limit.velocity * spec.period_s for limit in each]
        self._low, self._high = (np.asarray(side, np.float64).ravel().tolist() for side in self._field.bounds)
        self._told: list[float] = []

    def begin(self, applied: np.ndarray) -> None:
        values = np.asarray(applied, np.float64).ravel().tolist()
        within = [min(max(value, low), high) for value, low, high in zip(values, self._low, self._high, strict=True)]
        self.profile.begin(within)
        self._told = within

    def correct(self, applied: np.ndarray) -> None:
        self.profile.correct(np.asarray(applied, np.float64).ravel().tolist(), self._strides)

    def apply(self, target: np.ndarray, applied: np.ndarray, measured: np.ndarray | None, seconds: float) -> np.ndarray:
        """Return the command after a period; one that can't be computed with is returned as not a number."""
        if target.shape != self._field.shape:
            raise SpecError(
                f"max_acceleration.{self._name} is for one robot at a time, and the command has shape {target.shape}; "
                "leave acceleration and jerk out of the limits of a batch"
            )
        previous = np.asarray(self._told, target.dtype).reshape(target.shape)
        near = self._spec.limits.keep_lead(self._name, target, previous, measured)
        goals = near.astype(np.float64).ravel().tolist()
        held = np.asarray(applied, np.float64).ravel().tolist()
        if not all(map(math.isfinite, goals)):
            return np.full(target.shape, np.nan, target.dtype)
        exact = previous.astype(np.float64).ravel().tolist()
        return self.array(
            self.profile.advance(
                [
                    None if goal in (kept, told) else min(max(goal, low), high)
                    for goal, kept, told, low, high in zip(goals, held, exact, self._low, self._high, strict=True)
                ],
                seconds,
            )
        )

    def shaped(self, positions: list[float]) -> np.ndarray:
        """Return positions in the shape of the command."""
        return np.asarray(positions, self._field.numpy_dtype).reshape(self._field.shape)

    def array(self, positions: list[float]) -> np.ndarray:
        """Return positions as the command, within its range, and remember them as the last ones."""
        self._told = [
            min(max(value, low), high) for value, low, high in zip(positions, self._low, self._high, strict=True)
        ]
        return np.asarray(self._told, self._field.numpy_dtype).reshape(self._field.shape)


def _quick_test(spec: RobotSpec, name: str) -> QuickTest | None:
    """Make the test for one command; None for a command that is no vector.

    Six joints cost a microsecond this way, a tenth of `Limits.apply`: Python's floats are faster than short arrays.
    """
    field, limits = spec.commands[name], spec.limits
    if len(field.shape) != 1:
        return None
    strides = _per_element(limits.max_velocity.get(name), field.size, spec.period_s)
    leads = _per_element(limits.max_lead.get(name), field.size, 1.0)
    bounds = list(zip(strides, leads, strict=True))

    def is_within(target: np.ndarray, applied: np.ndarray, measured: np.ndarray | None) -> bool:
        values, befores = target.tolist(), applied.tolist()
        positions = befores if measured is None else measured.tolist()
        for value, before, position, (stride, lead) in zip(values, befores, positions, bounds, strict=True):
            if not (-stride < value - before < stride and -lead < value - position < lead):  # true for NaN too
                return False
        return True

    return is_within


def _per_element(limit: float | tuple[float, ...] | None, size: int, scale: float) -> list[float]:
    if limit is None:
        return [math.inf] * size
    limits = (limit,) * size if isinstance(limit, float) else limit
    return [value * scale * (1.0 - MARGIN) for value in limits]
