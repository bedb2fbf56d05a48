"""Name the joints of a robot as ROS 2 does, and find their sensors and commands in its description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal.field import Field
from hal.robot import RobotSpec

__all__ = ["JointCommands", "JointSensor", "joint_sensors"]

_POSITION, _VELOCITY = "joint_position", "joint_velocity"
"""Suffixes of the sensors that hold joint angles and their velocities."""


@dataclass(frozen=True, slots=True)
class JointSensor:
    """A sensor of joint positions.

    Attributes:
        position: the name of the sensor.
        velocity: the sensor of the same joints' velocities, or empty.
        joints: the joints' names: the sensor's elements, after the part of its name before ``joint_position``.
    """

    position: str
    velocity: str
    joints: tuple[str, ...]


def joint_sensors(spec: RobotSpec) -> tuple[JointSensor, ...]:
    """Return the sensors of joint positions of a robot."""
    sensors = []
    for field in spec.sensors:
        if field.name.endswith(_POSITION) and len(field.shape) == 1:
            prefix = field.name.removesuffix(_POSITION)
            velocity = prefix + _VELOCITY
            has_velocity = velocity in spec.sensors and spec.sensors[velocity].shape == field.shape
            names = field.elements or tuple(f"joint_{index}" for index in range(field.size))
            sensors.append(JointSensor(field.name, velocity if has_velocity else "", tuple(prefix + n for n in names)))
    return tuple(sensors)


class JointCommands:
    """The commands of a robot that are goals of joint positions, as one vector.

    Args:
        spec: the robot's description. A command counts if a sensor of joint positions measures it.

    Attributes:
        names: the joints' names, in the order of the vector.
    """

    def __init__(self, spec: RobotSpec) -> None:
        measured = {sensor.position: sensor for sensor in joint_sensors(spec)}
        self._fields: list[Field] = []
        names: list[str] = []
        for command in spec.commands:
            sensor = measured.get(spec.measured_by.get(command.name, ""))
            if sensor is not None:
                self._fields.append(command)
                names += sensor.joints
        self.names = tuple(names)
        self._limits = spec.limits

    @cached_property
    def low(self) -> np.ndarray:
        """The lowest legal positions, (n,)."""
        return self._joined([field.bounds[0] for field in self._fields])

    @cached_property
    def high(self) -> np.ndarray:
        """The highest legal positions, (n,)."""
        return self._joined([field.bounds[1] for field in self._fields])

    @cached_property
    def max_velocity(self) -> np.ndarray:
        """The greatest speeds that the robot's guard allows, (n,); infinite where there is no limit."""
        return self._joined([self._limits.max_velocity.get(field.name, np.inf) for field in self._fields])

    def vector(self, command: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the joints' part of a command, float64 of shape (n,)."""
        return self._joined([command[field.name] for field in self._fields])

    def command(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return the joints' part of a command from legal positions of shape (n,), by the names of its fields.

        What rounding adds beyond a bound is taken away.
        """
        parts = np.split(
            np.clip(positions, self.low, self.high), np.cumsum([field.size for field in self._fields])[:-1]
        )
        return {f.name: part.astype(f.numpy_dtype) for f, part in zip(self._fields, parts, strict=True)}

    def _joined(self, values: Sequence[object]) -> np.ndarray:
        parts = [
            np.broadcast_to(np.asarray(value, float), field.shape)
            for value, field in zip(values, self._fields, strict=True)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)
