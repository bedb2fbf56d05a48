"""Limits on the speed of a command and on its lead over the measurement: pure arithmetic over any leading axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from hal.errors import SpecError
from hal.field import Bound

__all__ = ["Limits"]

_StepAndLead = tuple[np.ndarray | None, np.ndarray | None]
"""The largest step in one period and the largest lead of a command; None where there is no limit."""


@dataclass(frozen=True)
class Limits:
    """The limits that a guard applies, besides the range of each command's field.

    Attributes:
        max_velocity: command name -> fastest change, units a second (one number, or one for each element).
        max_lead: command name -> largest distance between command and measured value, in the command's unit. LeRobot
            calls it ``max_relative_target``. It bounds the force of a position servo.

    Raises:
        SpecError: a limit is not a positive number.
    """

    max_velocity: Mapping[str, Bound] = field(default_factory=dict)
    max_lead: Mapping[str, Bound] = field(default_factory=dict)
    _arrays: dict[tuple[str, np.dtype, float], _StepAndLead] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        for key in ("max_velocity", "max_lead"):
            for name, value in getattr(self, key).items():
                if not np.all(np.asarray(value, float) > 0):  # False for NaN too
                    raise SpecError(f"{key}.{name} is {value}, it must be above 0")
            limits = {name: _floats(value) for name, value in getattr(self, key).items()}
            object.__setattr__(self, key, limits)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the commands that have a limit."""
        return tuple(dict.fromkeys((*self.max_velocity, *self.max_lead)))

    def apply(
        self,
        name: str,
        target: np.ndarray,
        previous: np.ndarray,
        measured: np.ndarray | None,
        period_s: float,
    ) -> np.ndarray:
        """Return the command nearest to ``target`` that keeps the limits.

        The speed is applied last, so it wins where both can't hold: a command follows an arm that was pushed away
        no faster than its speed, and one wrong measurement moves a command by at most one period's step.

        Args:
            name: the name of the command.
            target, previous, measured: the new command, the command applied last, and the last measurement, (..., n).
            period_s: time between ``previous`` and now, seconds.

        Returns:
            An array of the shape and dtype of ``target``; ``target`` itself where no limit changes it.
        """
        previous = np.asarray(previous, target.dtype)
        step, reach = self._as_arrays(name, target.dtype, period_s)
        if reach is not None and measured is not None:
            near = np.asarray(measured, target.dtype)
            target = _between(target, near - reach, near + reach)
        if step is not None:
            target = _between(target, previous - step, previous + step)
        return target

    def _as_arrays(self, name: str, dtype: np.dtype, period_s: float) -> _StepAndLead:
        """Return the largest step and lead as arrays; cached, since making them costs as much as applying them."""
        key = (name, dtype, period_s)
        if key not in self._arrays:
            velocity, lead = self.max_velocity.get(name), self.max_lead.get(name)
            step = None if velocity is None else np.asarray(velocity, dtype) * dtype.type(period_s)
            self._arrays[key] = step, None if lead is None else np.asarray(lead, dtype)
        return self._arrays[key]

    def to_dict(self) -> dict[str, dict[str, float | list[float]]]:
        """Return plain data: kind of limit -> command name -> limit."""
        return {
            key: {name: list(value) if isinstance(value, tuple) else value for name, value in limits.items()}
            for key, limits in (("max_velocity", self.max_velocity), ("max_lead", self.max_lead))
        }

    @staticmethod
    def from_dict(plain: Mapping[str, Mapping[str, Bound]]) -> Limits:
        """Make limits from the plain data of `to_dict`.

        Raises:
            SpecError: a limit is not a positive number.
            TypeError: the data has an unknown kind of limit.
        """
        return Limits(**plain)


def _between(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Clip as `np.clip` does, NaN included, in a third of its time."""
    bounded: np.ndarray = np.minimum(np.maximum(value, low), high)
    return bounded


def _floats(value: Bound) -> Bound:
    """Return one Python float, or a tuple with one for each element."""
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else tuple(array.ravel().tolist())
