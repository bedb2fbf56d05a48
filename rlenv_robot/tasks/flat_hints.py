"""Describe how a learner should scale a task's observations and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

__all__ = ["ARM_SCALES", "ARM_STRIDE", "SERVO_GAP", "Difference", "FlatHints", "HasFlatHints"]


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference ``minuend - subtrahend`` of two observation fields, divided by ``scale`` (in their unit).

    The fields have the same shape, or the subtrahend has the shape of a row of the minuend and is subtracted from each
    row.
    """

    minuend: str
    subtrahend: str
    scale: float


@dataclass(frozen=True, slots=True)
class FlatHints:
    """Settings of `rlenv_robot.adapters.flat.FlattenObservation` that were tested with a task.

    The defaults are those of `FlattenObservation`: every field is scaled by its own range.

    Attributes:
        scales: observation field -> the magnitude that becomes 1, in the field's unit.
        differences: differences of observation fields to append to the vector.
        around: action field -> the observation field from which it moves; a single name if there is one action field.
        stride: maximum distance of an action from that observation, in its unit.
    """

    scales: Mapping[str, float] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    around: Mapping[str, str] | str = ""
    stride: float = 0.0


@runtime_checkable
class HasFlatHints(Protocol):
    """A task with hints. The method is optional: without it, scales follow from the task's specs."""

    def flat_hints(self) -> FlatHints:
        """Return how a learner should scale this task's observations and actions."""
        ...


ARM_SCALES: Mapping[str, float] = {
    "joint_position": 1.0,
    "joint_velocity": 4.0,
    "joint_goal": 1.0,
    "gripper_position": 0.2,
}
"""Scales of the measurements of an SO-101, in rad, rad/s, rad and m."""

ARM_STRIDE = 0.13
"""Largest change of an SO-101's joint goal in one control period, rad: the guard's limit of 4 rad/s at 30 Hz."""

SERVO_GAP = Difference("joint_goal", "joint_position", 0.1)
"""The differences between an SO-101's joint goals and positions."""
