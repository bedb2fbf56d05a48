"""Whether a robot is a simulated one: what may be done to it that nobody may do to motors."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

__all__ = ["Simulated", "is_simulated"]


@runtime_checkable
class Simulated(Protocol):
    """What a `hal.Robot` is besides, if nothing real moves: then time may stand still, and nobody needs to watch it.

    It may also offer ``step_checked`` and ``stepper``, which are `step` without the check that a guard has just made
    (`hal.Guard.step_checked`). A robot around it offers neither, as they would pass it by.
    """

    @property
    def simulated(self) -> bool:
        """True where nothing real moves."""
        ...


def is_simulated(robot: object) -> bool:
    """Whether a robot says that nothing real moves; one that says nothing is real."""
    return isinstance(robot, Simulated) and robot.simulated
