"""A task's advice on how a learner should scale its observations and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

__all__ = ["ARM_SCALES", "ARM_STRIDE", "SERVO_GAP", "Difference", "FlatHints", "HasFlatHints"]


@dataclass(frozen=True, slots=True)
class Difference:
    """``minuend - subtrahend``, two observation fields, divided by ``scale`` (in their unit).

    The fields have one shape, or the subtrahend has that of each row of the minuend and is subtracted from all rows.
    """

    minuend: str
    subtrahend: str
    scale: float


@dataclass(frozen=True, slots=True)
class FlatHints:
    """Settings of `rlenv_robot.adapters.flat.FlattenObservation` that were tried with a task.

    The defaults are those of `FlattenObservation`: every field is scaled by its own range.

    Attributes:
        scales: observation field -> the size that becomes 1, in the field's unit.
        differences: differences of observation fields that the vector has in addition.
        around: action field -> the observation field around which it moves; a single name if there is one action field.
        stride: how far an action moves away from that observation, in its unit.
    """

    scales: Mapping[str, float] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    around: Mapping[str, str] | str = ""
    stride: float = 0.0


@runtime_checkable
class HasFlatHints(Protocol):
    """A task that gives hints. The method is optional: without it, scales follow from the task's specs."""

    def flat_hints(self) -> FlatHints:
        """Return how a learner should scale this task's observations and actions."""
        ...


ARM_SCALES: Mapping[str, float] = {
    "joint_position": 1.0,
    "joint_velocity": 4.0,
    "joint_goal": 1.0,
    "gripper_position": 0.2,
}
"""Scales of what an SO-101 measures, in rad, rad/s, rad and m."""

ARM_STRIDE = 0.13
"""Largest change of an SO-101's joint goal in one control period, rad: the guard's limit of 4 rad/s at 30 Hz."""

SERVO_GAP = Difference("joint_goal", "joint_position", 0.1)
"""The distance of an SO-101's joints from their goals."""
