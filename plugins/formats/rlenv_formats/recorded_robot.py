"""Convert columns that another program recorded from a known robot to the robot's sensors and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Field, RobotSpec, SourceError
from rlenv_robot.robot_models import RobotModel, SensorsFrom

__all__ = ["RecordedRobot"]


@dataclass(frozen=True)
class RecordedRobot:
    """A robot that another program recorded.

    Attributes:
        spec: the robot's description. Columns named after a field must have its unit, sign and zero.
        sensors_from: computes sensors that were not recorded; None if nothing can.
    """

    spec: RobotSpec
    sensors_from: SensorsFrom | None = None

    @classmethod
    def of(cls, model: RobotModel) -> RecordedRobot:
        """Make a `RecordedRobot` for a robot model."""
        return cls(model.load_spec(), model.load_sensors_from())

    @cached_property
    def fields(self) -> dict[str, Field]:
        """The robot's fields by name."""
        return {field.name: field for field in (*self.spec.sensors.fields, *self.spec.commands.fields)}

    def check(self, name: str, values: np.ndarray) -> None:
        """Check that values are plausible for the robot's field of this name; other names pass.

        Raises:
            SourceError: the values have another shape, or exceed the field's range by more than a tenth of it.
        """
        field = self.fields.get(name)
        if field is None:
            return
        if values.shape[1:] != field.shape:
            raise SourceError(f"{name} has shape {values.shape[1:]}, the robot's has {field.shape}")
        low, high = (np.broadcast_to(np.asarray(bound, float), field.shape) for bound in (field.low, field.high))
        margin = np.where(np.isfinite(high - low), (high - low) / 10, 0.0)
        wrong = np.argwhere((values < low - margin) | (values > high + margin)).tolist()
        if wrong:
            step, *place = wrong[0]
            raise SourceError(
                f"{name}{place or ''} is {values[tuple(wrong[0])]:g} in step {step}, the robot's range is "
                f"{low[tuple(place)]:g} to {high[tuple(place)]:g} {field.unit}; if the column is in another unit, "
                "convert it, and if it is another quantity, give it another name"
            )

    def measured(
        self, observation: Mapping[str, np.ndarray], action: Mapping[str, np.ndarray], stamp_ns: np.ndarray
    ) -> dict[str, np.ndarray] | None:
        """Return an episode's sensors and applied commands by field of a row, or None if some are missing.

        The command applied before the first row is unknown. The measured value of the same quantity, clipped to the
        command's range, takes its place.

        Args:
            observation: name -> (T, ...).
            action: name -> (T - 1, ...), the actions that led to rows 1 to T - 1.
            stamp_ns: time stamps, nanoseconds, (T,).
        """
        spec = self.spec
        if not set(spec.commands.names) <= action.keys():
            return None
        sensors = dict(observation)
        if not set(spec.sensors.names) <= observation.keys():
            try:
                sensors = {
                    **({} if self.sensors_from is None else self.sensors_from(observation, action, stamp_ns)),
                    **sensors,
                }
            except KeyError:
                return None
            if not set(spec.sensors.names) <= sensors.keys():
                return None
        fields = {f"sensor_{name}": sensors[name] for name in spec.sensors.names}
        for field in spec.commands.fields:
            applied = np.zeros((len(stamp_ns), *field.shape))
            applied[1:] = action[field.name]
            measure = spec.measured_by.get(field.name)
            if measure is not None:
                applied[0] = np.clip(sensors[measure][0], field.low, field.high)
            fields[f"applied_{field.name}"] = applied
        return fields
