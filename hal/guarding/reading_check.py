"""Check a robot's measurements: values within their fields, following error, rate of change, and effort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from hal.errors import IllegalAction
from hal.field import SHORT, Bound, Field
from hal.robot import RobotSpec, RobotState
from hal.spec import Spec

__all__ = ["RATE_FACTOR", "AppliedCheck", "EffortCheck", "FollowingError", "RateCheck", "ReadingCheck"]

RATE_FACTOR = 2.0
"""Multiple of ``RobotSpec.max_rate`` above which a change in a sensor counts as a wrong reading. It leaves room for a
load that drives a motor beyond its no-load speed, and for a busy machine that samples earlier or later than its time
stamp says: a real SO-101 recorded at 30 Hz, with stamps at multiples of the period, appears to move at up to 1.1 times
its servos' speed."""

_TURNS = {"rad": 2 * np.pi, "deg": 360.0}
"""A turn by the unit of a field: a change by whole turns is the wrap of an encoder."""

ROUNDING = 1e-6
"""Share of a limit of a sensor's range by which rounding may exceed it, such as in a unit quaternion."""


class ReadingCheck:
    """Find measurements that break the description of a robot's sensors.

    Args:
        sensors: the description of the sensors.
    """

    def __init__(self, sensors: Spec) -> None:
        self._ranges = tuple(_Text(field) if field.is_text else _range(field) for field in sensors)

    def problem(self, values: Mapping[str, np.ndarray]) -> str | None:
        """Return what is wrong with the values of the sensors, or None."""
        for limits in self._ranges:
            name = limits.field.name
            problem = limits.problem(values[name]) if name in values else f"sensor {name!r} was not measured"
            if problem is not None:
                return problem
        return None


class _Text(NamedTuple):
    """The legal values of one sensor of texts.

    Attributes:
        field: the field of the sensor.
    """

    field: Field

    def problem(self, values: np.ndarray) -> str | None:
        """Return what is wrong with the texts, or None."""
        try:
            self.field.validate(values, "sensor")
        except IllegalAction as refused:
            return f"sensor {self.field.name!r} measured a wrong text: {refused.violation.message}"
        return None


class _Range(NamedTuple):
    """The legal values of one sensor.

    Attributes:
        field: the field of the sensor.
        low, high: the ends as float64, of the field's shape.
        ends: lowest and highest of each element where there are few elements, or None.
    """

    field: Field
    low: np.ndarray
    high: np.ndarray
    ends: list[tuple[float, float]] | None

    def problem(self, values: np.ndarray) -> str | None:
        """Return what is wrong with the values, or None."""
        field = self.field
        if np.shape(values) != field.shape:
            return f"sensor {field.name!r} has shape {np.shape(values)}, its description says {field.shape}"
        values = np.asarray(values)
        if self._legal(values):
            return None
        if not np.isfinite(values).all():
            return f"sensor {field.name!r} measured a value that is not a finite number"
        flat = int(np.argmin(((values >= self.low) & (values <= self.high)).ravel()))
        return (
            f"sensor {_element(field, flat)} measured {values.ravel()[flat]:.6g} {field.unit}, outside its range "
            f"{self.low.ravel()[flat]:.6g} to {self.high.ravel()[flat]:.6g}"
        )

    def _legal(self, values: np.ndarray) -> bool:
        if self.ends is None:
            return bool(((values >= self.low) & (values <= self.high)).all())  # False for NaN too
        for number, (low, high) in zip(values.ravel().tolist(), self.ends, strict=True):  # a fifth of NumPy's time
            if not low <= number <= high:
                return False
        return True


def _range(field: Field) -> _Range:
    low, high = (side.astype(np.float64) for side in field.bounds)
    largest = np.finfo(np.float64).max  # so that an infinity is outside of every range
    with np.errstate(over="ignore"):
        low = np.maximum(low - ROUNDING * np.abs(low), -largest)
        high = np.minimum(high + ROUNDING * np.abs(high), largest)
    few = list(zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)) if field.size <= SHORT else None
    return _Range(field, low, high, few)


def _element(field: Field, flat: int) -> str:
    """Return the name of a field's element for a message: of the joint, where the elements have names."""
    if not field.shape:
        return repr(field.name)
    index = np.unravel_index(flat, field.shape)
    label = field.elements[index[-1]] if field.elements else ", ".join(str(number) for number in index)
    return f"{field.name!r} [{label}]"


class AppliedCheck:
    """Find applied commands, as a robot reports them, that can't be computed with.

    An applied command may lie outside the range of its field, since an arm without torque can be pushed there.

    Args:
        commands: the description of the commands.
    """

    def __init__(self, commands: Spec) -> None:
        self._fields = tuple((field, field.numpy_dtype.kind == "f") for field in commands)

    def problem(self, values: Mapping[str, np.ndarray]) -> str | None:
        """Return what is wrong with the applied commands, or None."""
        for field, is_float in self._fields:
            value = values.get(field.name)
            if value is None:
                return f"the driver does not say what it applied of command {field.name!r}"
            if np.shape(value) != field.shape:
                return (
                    f"the driver applied {field.name!r} of shape {np.shape(value)}, its description says {field.shape}"
                )
            if is_float and not np.isfinite(value).all():
                return f"the driver says that it applied a value of {field.name!r} that is not a finite number"
        return None


class FollowingError:
    """Count readings in a row with an applied command far from its measurement. Not thread-safe.

    Args:
        spec: the robot's description.
        bounds: command name -> largest distance, as from `Limits.following_error_bounds`.
    """

    def __init__(self, spec: RobotSpec, bounds: Mapping[str, Bound]) -> None:
        self._ticks = spec.limits.following_error_ticks
        self._bounds = tuple(
            (spec.commands[name], spec.measured_by[name], np.broadcast_to(bound, spec.commands[name].shape).ravel())
            for name, bound in bounds.items()
        )
        self._counts = [0] * len(self._bounds)

    def begin(self) -> None:
        """Restart the count."""
        self._counts = [0] * len(self._bounds)

    def check(self, robot_state: RobotState) -> str | None:
        """Return why the robot is to be stopped after this reading, or None.

        Args:
            robot_state: a reading whose values are legal.
        """
        for number, (field, sensor, bound) in enumerate(self._bounds):
            errors = (robot_state.applied[field.name] - robot_state.sensors[sensor]).ravel()
            if (abs(errors) <= bound).all():
                self._counts[number] = 0
                continue
            self._counts[number] += 1
            if self._counts[number] > self._ticks:
                flat = int(np.argmin(abs(errors) <= bound))
                return (
                    f"following error: command {_element(field, flat)} is {errors[flat]:+.3g} {field.unit} from its "
                    f"measurement, allowed are {bound[flat]:.3g}; look whether the arm is blocked or its encoder wrong"
                )
        return None


class RateCheck:
    """Find measurements that change faster than the robot can move, such as those of an encoder that jumps.

    A change counts over the longest time that the stamps and ages of two readings allow, and at least a period, so that
    lost and late samples do not look like jumps. Not thread-safe.

    Args:
        spec: the robot's description, with ``max_rate``.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._period_s = spec.period_s
        self._limits = tuple(
            (spec.sensors[name], RATE_FACTOR * np.broadcast_to(rate, spec.sensors[name].shape).ravel().astype(float))
            for name, rate in spec.max_rate.items()
        )
        self._last: list[tuple[np.ndarray, int]] = []  # of each sensor: its values, and the earliest time of them

    def begin(self, robot_state: RobotState) -> None:
        """Restart from a reading."""
        self._last = []
        for field, _ in self._limits:
            values = np.array(robot_state.sensors[field.name], np.float64).ravel()
            self._last.append((values, robot_state.stamp_ns - robot_state.age_ns.get(field.name, 0)))

    def check(self, robot_state: RobotState) -> str | None:
        """Return why the robot is to be stopped after this reading, or None.

        Args:
            robot_state: a reading whose values are legal.
        """
        for (field, rate), (before, before_ns) in zip(self._limits, self._last, strict=True):
            passed_s = max((robot_state.stamp_ns - before_ns) / 1e9, self._period_s)
            changes = np.asarray(robot_state.sensors[field.name], np.float64).ravel() - before
            if field.unit in _TURNS:
                changes -= _TURNS[field.unit] * np.rint(changes / _TURNS[field.unit])
            if (abs(changes) <= rate * passed_s).all():
                continue
            flat = int(np.argmax(abs(changes) / rate))
            return (
                f"implausible: sensor {_element(field, flat)} changed by {changes[flat]:+.3g} {field.unit} in "
                f"{1000 * passed_s:.0f} ms, at most {rate[flat]:.3g} {field.unit}/s are possible; its encoder or its "
                "cable is faulty, or something struck the robot"
            )
        self.begin(robot_state)
        return None


class EffortCheck:
    """Find measured efforts, such as torques and currents, that stay too large for too long. Not thread-safe.

    Args:
        spec: the robot's description, with a `Limits.max_effort`.
    """

    def __init__(self, spec: RobotSpec) -> None:
        self._allowed_s, self._period_s = spec.limits.effort_s, spec.period_s
        self._bounds = tuple(
            (spec.sensors[name], np.broadcast_to(bound, spec.sensors[name].shape).ravel())
            for name, bound in spec.limits.max_effort.items()
        )
        self._counts = [np.zeros(len(bound), np.int64) for _, bound in self._bounds]
        self._since_ns = [np.zeros(len(bound), np.int64) for _, bound in self._bounds]

    def begin(self) -> None:
        """Restart the count."""
        for counts in self._counts:
            counts[:] = 0

    def check(self, robot_state: RobotState) -> str | None:
        """Return why the robot is to be stopped after this reading, or None.

        The duration of an effort is measured by the stamps, with at least a period for each reading.

        Args:
            robot_state: a reading whose values are legal.
        """
        for (field, bound), counts, since_ns in zip(self._bounds, self._counts, self._since_ns, strict=True):
            values = np.asarray(robot_state.sensors[field.name]).ravel()
            is_beyond = abs(values) > bound
            since_ns[~is_beyond | (counts == 0)] = robot_state.stamp_ns
            counts += 1
            counts[~is_beyond] = 0
            if not is_beyond.any():
                continue
            lasted_s = np.maximum((robot_state.stamp_ns - since_ns) / 1e9, (counts - 1) * self._period_s)
            too_long = is_beyond & (lasted_s > self._allowed_s)
            if self._allowed_s == 0.0:
                too_long = is_beyond
            if too_long.any():
                flat = int(np.argmax(too_long))
                return (
                    f"effort: sensor {_element(field, flat)} measured {values[flat]:+.3g} {field.unit} for longer than "
                    f"{self._allowed_s:g} s, allowed are {bound[flat]:.3g}; look what blocks or loads the arm"
                )
        return None
