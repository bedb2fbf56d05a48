"""How fast and how far ahead of the arm a command may go: pure arithmetic over any leading axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hal.errors import SpecError

__all__ = ["Limits"]


@dataclass(frozen=True)
class Limits:
    """What a guard holds a robot to, besides the range of each command's field.

    Attributes:
        max_velocity: command name -> fastest change, units a second (one number, or one an element).
        max_lead: command name -> farthest that a command may lie from the measured value, units. LeRobot's
            users know it as ``max_relative_target``. It bounds the force of a position servo.

    Raises:
        SpecError: a limit is not a positive number.
    """

    max_velocity: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    max_lead: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("max_velocity", "max_lead"):
            for name, value in getattr(self, key).items():
                if not np.all(np.asarray(value, float) > 0):  # False for NaN too
                    raise SpecError(f"{key}.{name} is {value}, it must be above 0")
            plain = {name: _plain(value) for name, value in getattr(self, key).items()}
            object.__setattr__(self, key, plain)

    @property
    def names(self) -> tuple[str, ...]:
        """The commands that have a limit."""
        return tuple(dict.fromkeys((*self.max_velocity, *self.max_lead)))

    def apply(
        self,
        name: str,
        target: np.ndarray,
        previous: np.ndarray,
        measured: np.ndarray | None,
        period_s: float,
    ) -> np.ndarray:
        """The nearest command to ``target`` that keeps the limits.

        The lead is applied last, so it wins where both can't hold (an arm that was pushed away).

        Args:
            name: which command.
            target, previous, measured: wanted now, applied last, and read last; shape (..., n).
            period_s: time between ``previous`` and now, seconds.

        Returns:
            Shape and dtype of ``target``; ``target`` itself where nothing limits it.
        """
        previous = np.asarray(previous, target.dtype)
        velocity, lead = self.max_velocity.get(name), self.max_lead.get(name)
        if velocity is not None:
            step = np.asarray(velocity, target.dtype) * target.dtype.type(period_s)
            target = np.clip(target, previous - step, previous + step)
        if lead is not None and measured is not None:
            reach = np.asarray(lead, target.dtype)
            near = np.asarray(measured, target.dtype)
            target = np.clip(target, near - reach, near + reach)
        return target

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        return {
            key: {name: list(value) if isinstance(value, tuple) else value for name, value in limits.items()}
            for key, limits in (("max_velocity", self.max_velocity), ("max_lead", self.max_lead))
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Limits:
        """The inverse of `to_plain`.

        Raises:
            SpecError: a limit is not a positive number.
            TypeError: an unknown kind of limit.
        """
        return Limits(**plain)


def _plain(value: Any) -> float | tuple[float, ...]:
    """One number, or one an element, as Python's own."""
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else tuple(array.ravel().tolist())
