"""Limits on a command's motion and lead, on its following error and on a robot's effort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hal.errors import SpecError
from hal.field import Bound

__all__ = ["FOLLOWING_ERROR_FACTOR", "Limits"]

FOLLOWING_ERROR_FACTOR = 1.1
"""Default bound of the following error as a multiple of ``max_lead``: 10 % beyond the lead that the guard allows."""

_KINDS = ("max_velocity", "max_lead", "max_following_error", "max_acceleration", "max_jerk", "max_effort")
"""The limits that are one number, or one for each element, by the name of a command or a sensor."""

_StepAndLead = tuple[np.ndarray | None, np.ndarray | None]
"""The largest step in one period and the largest lead of a command; None where there is no limit."""


@dataclass(frozen=True)
class Limits:
    """The limits that a guard applies, besides the range of each command's field.

    Attributes:
        max_velocity: command name -> fastest change, units a second (one number, or one for each element).
        max_acceleration: command name -> fastest change of the speed, units a second squared. With it the guard moves
            the command to its goal along a trajectory on which it can always brake (`hal.guarding.motion_profile`),
            without overshoot and within the range of the command. The command needs a ``max_velocity``.
        max_jerk: command name -> fastest change of the acceleration, units a second cubed. The command needs a
            ``max_acceleration``.
        max_lead: command name -> largest distance between command and measured value, in the command's unit. LeRobot
            calls it ``max_relative_target``. It bounds the force of a position servo. It never moves a goal: a
            command equal to the one applied last stays, whatever is measured.
        max_following_error: command name -> largest distance between applied and measured value, in the command's
            unit; a larger one for more than ``following_error_ticks`` readings in a row stops the robot. For a command
            that is not listed, `FOLLOWING_ERROR_FACTOR` times its ``max_lead``; simulations have no such default,
            since their physics and pushes may be anything.
        following_error_ticks: readings in a row that may be beyond ``max_following_error``, at least 0.
        max_effort: sensor name -> largest absolute value of a measured effort, such as a torque or a current, in the
            sensor's unit; a larger one for longer than ``effort_s`` stops the robot.
        effort_s: how long a measured effort may be beyond ``max_effort``, seconds, at least 0.

    Raises:
        SpecError: a limit is not a positive number or lacks another limit that it needs; or ``following_error_ticks``
            is not a whole number of at least 0.
    """

    max_velocity: Mapping[str, Bound] = field(default_factory=dict)
    max_lead: Mapping[str, Bound] = field(default_factory=dict)
    max_following_error: Mapping[str, Bound] = field(default_factory=dict)
    following_error_ticks: int = 3
    max_acceleration: Mapping[str, Bound] = field(default_factory=dict)
    max_jerk: Mapping[str, Bound] = field(default_factory=dict)
    max_effort: Mapping[str, Bound] = field(default_factory=dict)
    effort_s: float = 0.5
    _arrays: dict[tuple[str, np.dtype], tuple[float, _StepAndLead]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        ticks = self.following_error_ticks
        if type(ticks) is not int or ticks < 0:
            raise SpecError(f"following_error_ticks is {ticks!r}, it must be a whole number of at least 0")
        if not 0 <= self.effort_s < np.inf:  # False for NaN too
            raise SpecError(f"effort_s is {self.effort_s!r}, it must be a number of at least 0")
        for key in _KINDS:
            for name, value in getattr(self, key).items():
                if not np.all(np.asarray(value, float) > 0):  # False for NaN too
                    raise SpecError(f"{key}.{name} is {value}, it must be above 0")
            limits = {name: _floats(value) for name, value in getattr(self, key).items()}
            object.__setattr__(self, key, limits)
        for key, needed in (("max_acceleration", "max_velocity"), ("max_jerk", "max_acceleration")):
            for name in getattr(self, key):
                if name not in getattr(self, needed):
                    raise SpecError(f"{key}.{name} needs {needed}.{name} too")
                if not np.isfinite([*np.ravel(getattr(self, needed)[name])]).all():
                    raise SpecError(f"{needed}.{name} is {getattr(self, needed)[name]}, with {key} it must be finite")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the commands whose speed or lead is limited."""
        return tuple(dict.fromkeys((*self.max_velocity, *self.max_lead)))

    def following_error_bounds(self, *, simulated: bool = False) -> dict[str, Bound]:
        """Return the bound of each command's following error, in the command's unit.

        Args:
            simulated: leave out the defaults that follow from ``max_lead``.
        """
        defaults = {} if simulated else {name: _scaled(lead) for name, lead in self.max_lead.items()}
        return {**defaults, **self.max_following_error}

    def apply(
        self,
        name: str,
        target: np.ndarray,
        previous: np.ndarray,
        measured: np.ndarray | None,
        period_s: float,
    ) -> np.ndarray:
        """Return the command nearest to ``target`` that keeps the limits.

        The lead limits how far a new target may run ahead of the arm; if the arm is too far behind, the command stays
        at ``previous``, so that no measurement moves a goal. The limit on speed is applied last.

        Args:
            name: the name of the command.
            target: the new command, (..., n).
            previous: the command applied last, (..., n).
            measured: the last measurement, (..., n).
            period_s: time between ``previous`` and now, seconds.

        Returns:
            An array of the shape and dtype of ``target``; ``target`` itself if no limit changes it.
        """
        previous = previous.astype(target.dtype, copy=False)
        step, reach = self._as_arrays(name, target.dtype, period_s)
        target = _within_reach(target, previous, measured, reach)
        if step is not None:
            target = _between(target, previous - step, previous + step)
        return target

    def keep_lead(self, name: str, target: np.ndarray, previous: np.ndarray, measured: np.ndarray | None) -> np.ndarray:
        """Return the command nearest to ``target`` that keeps the lead, as `apply` does, without the limit on speed."""
        previous = previous.astype(target.dtype, copy=False)
        lead = self.max_lead.get(name)
        return _within_reach(target, previous, measured, None if lead is None else np.asarray(lead, target.dtype))

    def merged(self, *, effort_s: float | None = None, **tables: Mapping[str, Bound]) -> Limits:
        """Return a copy of these limits with some of them replaced.

        Args:
            effort_s: the new ``effort_s``, seconds; None keeps the present one.
            tables: kind of limit, such as ``max_lead`` -> name -> limit; names that are not listed keep their limits.

        Raises:
            SpecError: the result lacks a limit that another needs.
            TypeError: a kind of limit is unknown.
        """
        unknown = tables.keys() - set(_KINDS)
        if unknown:
            raise TypeError(f"there is no limit {min(unknown)!r}, there are {', '.join(_KINDS)}")
        changed: dict[str, Any] = {name: {**getattr(self, name), **table} for name, table in tables.items()}
        return replace(self, effort_s=self.effort_s if effort_s is None else effort_s, **changed)

    def _as_arrays(self, name: str, dtype: np.dtype, period_s: float) -> _StepAndLead:
        """Return the largest step and lead as arrays, cached for the last period: making costs as much as applying."""
        cached = self._arrays.get((name, dtype))
        if cached is None or cached[0] != period_s:
            velocity, lead = self.max_velocity.get(name), self.max_lead.get(name)
            step = None if velocity is None else np.asarray(velocity, dtype) * dtype.type(period_s)
            cached = self._arrays[name, dtype] = period_s, (step, None if lead is None else np.asarray(lead, dtype))
        return cached[1]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: kind of limit -> command name -> limit; only speed, lead and limits that are set."""
        plain: dict[str, Any] = {"max_velocity": _listed(self.max_velocity), "max_lead": _listed(self.max_lead)}
        for key in _KINDS[2:]:
            if getattr(self, key):
                plain[key] = _listed(getattr(self, key))
        if self.following_error_ticks != Limits.following_error_ticks:
            plain["following_error_ticks"] = self.following_error_ticks
        if self.effort_s != Limits.effort_s:
            plain["effort_s"] = self.effort_s
        return plain

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> Limits:
        """Make limits from the plain data of `to_dict`.

        Raises:
            SpecError: a limit is not a positive number.
            TypeError: the data has an unknown kind of limit.
        """
        return Limits(**plain)


def _within_reach(
    target: np.ndarray, previous: np.ndarray, measured: np.ndarray | None, reach: np.ndarray | None
) -> np.ndarray:
    if reach is None or measured is None:
        return target
    near = measured.astype(target.dtype, copy=False)
    return _between(target, np.minimum(near - reach, previous), np.maximum(near + reach, previous))


def _between(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Clip as `np.clip` does, NaN included, in a third of its time."""
    bounded: np.ndarray = np.minimum(np.maximum(value, low), high)
    return bounded


def _floats(value: Bound) -> Bound:
    """Return one Python float, or a tuple with one for each element."""
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else tuple(array.ravel().tolist())


def _listed(limits: Mapping[str, Bound]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in limits.items()}


def _scaled(lead: Bound) -> Bound:
    factor = FOLLOWING_ERROR_FACTOR
    return lead * factor if isinstance(lead, float) else tuple(value * factor for value in lead)
