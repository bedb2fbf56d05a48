"""Convert observations to a vector for a learner, and a learner's vector to a named action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from hal import Field, Spec
from hal.errors import wrong_type
from rlenv_robot.tasks.flat_hints import Difference, FlatHints, HasFlatHints
from rlenv_robot.tasks.task import Arrays, Task

__all__ = ["Difference", "FlattenObservation", "flat_for"]


@dataclass(frozen=True)
class FlattenObservation:
    """Convert an observation to a float32 vector of about unit size, and a vector in [-1, 1] to an action.

    The observation vector consists of all fields in the order of the spec, each flattened in C order and divided by its
    scale, followed by the differences. Every element is clipped to `LIMIT` times its scale.
    An action vector consists of all action fields in the same order and spans the range of each element. A field with
    ``around`` instead moves at most ``stride`` away from an observed field, such as the goals that servos hold.

    Attributes:
        observation: the spec of the named observation.
        action: the spec of the named action.
        scales: observation field -> the magnitude that becomes 1, in its unit. By default half the field's range, or 1
            if a side is unbounded.
        differences: appended to the vector.
        around: action field -> the observation field that begins with the value that it sets; for a single action
            field, the observation field alone. Fields that are not listed have their whole range.
        stride: maximum distance from the observed field, in its unit.

    Raises:
        ValueError: a name or a shape does not fit, a scale is not above 0, or an action has no finite range.
    """

    observation: Spec
    action: Spec
    scales: Mapping[str, float] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    around: Mapping[str, str] | str = ""
    stride: float = 0.0

    LIMIT = 20.0

    def __post_init__(self) -> None:
        pairs = [name for gap in self.differences for name in (gap.minuend, gap.subtrahend)]
        for name in (*self.scales, *pairs, *self.held.values()):
            if name not in self.observation:
                raise ValueError(f"{name!r} is not an observation field, allowed: {', '.join(self.observation.names)}")
        for gap in self.differences:
            minuend, subtrahend = self.observation[gap.minuend].shape, self.observation[gap.subtrahend].shape
            if subtrahend != minuend and (len(minuend) < 2 or subtrahend != minuend[1:]):
                raise ValueError(
                    f"{gap.minuend!r} and {gap.subtrahend!r} differ in shape, {minuend} and {subtrahend}: the second "
                    "must have the shape of the first, or that of its rows"
                )
        if not all(scale > 0 for scale in (*self.scales.values(), *(gap.scale for gap in self.differences))):
            raise ValueError("every scale must be above 0")
        for name in (part.name for part in self.observation if part.is_text):
            raise ValueError(f"observation {name!r} is a text, and this makes vectors of numbers")
        for action_field in self.action:
            if (
                action_field.numpy_dtype.kind != "f"
                or not np.isfinite([*np.ravel(action_field.low), *np.ravel(action_field.high)]).all()
            ):
                raise ValueError(
                    f"action {action_field.name!r} is not a float field with a finite range, which is required"
                )
        for name, middle in self.held.items():
            shape, room = (self.action[name].shape if name in self.action else None), self.observation[middle].shape
            fits = shape is not None and (shape == room or (len(shape) == len(room) == 1 and shape < room))
            if not fits or not self.stride > 0 or (isinstance(self.around, str) and len(self.action) > 1):
                raise ValueError(
                    f"around {middle!r} needs one action field of its shape, or of its first elements, and a "
                    "stride above 0; with several action fields, map each to its observation field"
                )

    @property
    def held(self) -> Mapping[str, str]:
        """Return action field -> the observation field from which it moves."""
        if isinstance(self.around, str):
            return dict.fromkeys(self.action.names[:1], self.around) if self.around else {}
        return self.around

    @property
    def size(self) -> int:
        """Return the length D of the observation vector."""
        return sum(part.size for part in self.observation) + self.difference_size

    @property
    def difference_size(self) -> int:
        """Return the number of differences, the last elements of the observation vector."""
        return sum(self.observation[gap.minuend].size for gap in self.differences)

    @property
    def action_size(self) -> int:
        """Return the length A of the action vector."""
        return sum(part.size for part in self.action)

    @cached_property
    def scale(self) -> np.ndarray:
        """Return the divisor of each element of the vector, float32 of shape (D,)."""
        parts = [np.full(part.size, self._scale_of(part)) for part in self.observation]
        parts += [np.full(self.observation[gap.minuend].size, gap.scale) for gap in self.differences]
        return np.concatenate(parts).astype(np.float32)

    def _scale_of(self, part: Field) -> np.ndarray | float:
        if part.name in self.scales:
            return self.scales[part.name]
        ends = np.ravel(part.low), np.ravel(part.high)
        half = (ends[1] - ends[0]) / 2
        return np.where(np.isfinite(half) & (half > 0), half, 1.0)

    @property
    def unscaled(self) -> tuple[str, ...]:
        """The observation fields that enter the vector as they are: of infinite range, and without a scale."""
        return tuple(
            part.name
            for part in self.observation
            if part.name not in self.scales and not np.isfinite([*np.ravel(part.low), *np.ravel(part.high)]).all()
        )

    @cached_property
    def action_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lowest and the highest action, float32 of shape (A,)."""
        low, high = (
            np.concatenate([np.ravel(action_field.bounds[side]) for action_field in self.action]).astype(np.float32)
            for side in (0, 1)
        )
        return low, high

    def observe(self, observation: Arrays) -> np.ndarray:
        """Return the observation vector, float32 of shape (..., D)."""
        parts = [self._flattened(observation[part.name], part) for part in self.observation]
        for gap in self.differences:
            part = self.observation[gap.minuend]
            subtrahend = observation[gap.subtrahend]
            if self.observation[gap.subtrahend].shape != part.shape:  # the same for every row
                subtrahend = np.expand_dims(subtrahend, -len(part.shape))
            parts.append(self._flattened(observation[gap.minuend] - subtrahend, part))
        vector: np.ndarray = np.concatenate(parts, axis=-1, dtype=np.float32, casting="unsafe")
        vector /= self.scale
        np.clip(vector, -self.LIMIT, self.LIMIT, out=vector)
        return vector

    @staticmethod
    def _flattened(values: ArrayLike, part: Field) -> np.ndarray:
        leading = np.shape(values)[: np.ndim(values) - len(part.shape)]
        return np.reshape(values, (*leading, part.size))

    def act(self, vector: np.ndarray, observation: Arrays) -> dict[str, np.ndarray]:
        """Return the action for a vector, clipped to [-1, 1].

        Args:
            vector: shape (..., A).
            observation: the present observation, of which only the fields of ``around`` are read.
        """
        low, high = self.action_bounds
        share = np.clip(vector, -1.0, 1.0).astype(np.float64)
        values = low * (0.5 - share / 2) + high * (0.5 + share / 2)  # so that -1 and 1 hit the ends exactly
        if self.held:
            values = np.where(self.strides > 0, self._centre(observation) + self.strides * share, values)
        values = np.clip(values.astype(np.float32), low, high)
        return self._named(values)

    @cached_property
    def strides(self) -> np.ndarray:
        """Return how far each element of an action vector moves from its centre; 0 if it spans its range."""
        parts = [
            np.full(action_field.size, self.stride if action_field.name in self.held else 0.0)
            for action_field in self.action
        ]
        return np.concatenate(parts)

    def _centre(self, observation: Arrays) -> np.ndarray:
        """Return the centre around which each element moves, shape (..., A); 0 for one that spans its range."""
        middles = {
            name: self._flattened(observation[middle], self.observation[middle]) for name, middle in self.held.items()
        }
        leading = next(iter(middles.values())).shape[:-1]
        parts = [
            middles[action_field.name][..., : action_field.size]
            if action_field.name in middles
            else np.zeros((*leading, action_field.size))
            for action_field in self.action
        ]
        return np.concatenate(parts, axis=-1)

    def _named(self, values: np.ndarray) -> dict[str, np.ndarray]:
        named, place = {}, 0
        for action_field in self.action:
            part = values[..., place : place + action_field.size].reshape((*values.shape[:-1], *action_field.shape))
            named[action_field.name] = part.astype(action_field.numpy_dtype, copy=False)
            place += action_field.size
        return named

    def vector_of(self, action: Arrays, observation: Arrays) -> np.ndarray:
        """Return the vector of a recorded action, float32 of shape (..., A), clipped to [-1, 1]."""
        parts = [self._flattened(action[action_field.name], action_field) for action_field in self.action]
        values = np.concatenate(parts, axis=-1, dtype=np.float64)
        low, high = (bound.astype(np.float64) for bound in self.action_bounds)
        share = 2 * (values - low) / np.maximum(high - low, 1e-12) - 1
        if self.held:
            away = (values - self._centre(observation)) / np.where(self.strides > 0, self.strides, 1.0)
            share = np.where(self.strides > 0, away, share)
        return np.clip(share, -1.0, 1.0).astype(np.float32)


def flat_for(task: Task) -> FlattenObservation:
    """Return the conversion for a task, scaled by its ``flat_hints()``, or else by the ranges of its fields."""
    if not isinstance(task, Task):
        raise wrong_type("task", task, "a Task: rlenv_robot.task('so101-reach')")
    hints = task.flat_hints() if isinstance(task, HasFlatHints) else FlatHints()
    return FlattenObservation(
        task.observation, task.action, hints.scales, hints.differences, hints.around, hints.stride
    )
