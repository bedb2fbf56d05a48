"""Add sensors to a robot that another package describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from hal.errors import RobotError, SpecError
from hal.field import Field
from hal.robot import Robot, RobotSpec, RobotState
from hal.spec import Spec
from hal.wrapper import RobotWrapper

__all__ = ["AddedSensor", "SensorReader", "WithSensors", "with_sensor_fields"]


class SensorReader(Protocol):
    """An open hardware sensor."""

    def read(self) -> tuple[ArrayLike, int]:
        """Return the newest value and its capture time on this machine's monotonic clock, in nanoseconds.

        It is called once in each control period and must not wait for a new value.
        """
        ...

    def close(self) -> None:
        """Release the device. Safe to call more than once."""
        ...


@dataclass(frozen=True)
class AddedSensor:
    """Describe a sensor that is added to a robot: its field, its hardware, and its source in a simulation.

    Attributes:
        field: name, shape, type, range and unit of the sensor's value.
        open: opens the hardware; None for a sensor that only a simulation has.
        simulated: the source of the value in a simulation: a `sim.model.Columns` or `sim.model.Computed`, or a function
            of the compiled `mujoco.MjModel` that returns one; None for a sensor that only the hardware has.
        max_age_s: greatest age of a value that still counts, seconds; an older one stops the robot. None: any age.
    """

    field: Field
    open: Callable[[], SensorReader] | None = None
    simulated: Any = None
    max_age_s: float | None = None

    @property
    def name(self) -> str:
        """The sensor's name: that of its field."""
        return self.field.name


def with_sensor_fields(spec: RobotSpec, sensors: Sequence[AddedSensor]) -> RobotSpec:
    """Return a robot's description with the fields of more sensors.

    Raises:
        SpecError: the robot already has a sensor of that name, or a ``max_age_s`` is not above 0.
    """
    if not sensors:
        return spec
    for sensor in sensors:
        if sensor.name in spec.sensors:
            raise SpecError(f"{spec.name!r} has a sensor {sensor.name!r} already")
    fields = (*spec.sensors.fields, *(sensor.field for sensor in sensors))
    ages = {sensor.name: sensor.max_age_s for sensor in sensors if sensor.max_age_s is not None}
    return replace(spec, sensors=Spec(spec.sensors.name, fields), max_age_s={**spec.max_age_s, **ages})


class WithSensors(RobotWrapper):
    """Add the newest values of further sensors to every state of a real robot.

    The wrapper belongs inside the guard: ``Guard(WithSensors(robot, sensors))``. The devices are opened at the first
    reset or reading. An error of a device stops the robot, as a driver's error does.

    Args:
        robot: a robot that stamps its states with this machine's monotonic clock.
        sensors: at least one, each with ``open``.

    Raises:
        SpecError: as for `with_sensor_fields`.
        ValueError: a sensor has no hardware.
    """

    def __init__(self, robot: Robot, sensors: Sequence[AddedSensor]) -> None:
        super().__init__(robot)
        self._spec = with_sensor_fields(robot.spec, sensors)
        for sensor in sensors:
            if sensor.open is None:
                raise ValueError(f"sensor {sensor.name!r} has no hardware: give open=, or leave it out")
        self._sensors = tuple(sensors)
        self._readers: dict[str, SensorReader] = {}
        self._closed = False

    @property
    def spec(self) -> RobotSpec:
        """The description of the inner robot, with these sensors."""
        return self._spec

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Open the sensors, then reset the inner robot."""
        self._open()
        return self._measured(self._robot.reset(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot, and read the sensors."""
        return self._measured(self._robot.step(command))

    def read(self) -> RobotState | None:
        """Read the inner robot without a command, and the sensors."""
        robot_state = super().read()
        if robot_state is None:
            return None
        self._open()
        return self._measured(robot_state)

    def _open(self) -> None:
        for sensor in self._sensors if not self._closed else ():
            if sensor.name not in self._readers:
                assert sensor.open is not None  # the constructor has looked
                reader = sensor.open()
                missing = [name for name in ("read", "close") if not callable(getattr(reader, name, None))]
                if missing:
                    raise RobotError(
                        f"sensor {sensor.name!r}: {type(reader).__name__} has no {' and no '.join(missing)}; "
                        "what opens a sensor returns an object with read() and close()"
                    )
                self._readers[sensor.name] = reader

    def _measured(self, robot_state: RobotState) -> RobotState:
        values, ages = dict(robot_state.sensors), dict(robot_state.age_ns)
        for sensor in self._sensors:
            reading = self._readers[sensor.name].read()
            if not isinstance(reading, tuple | list) or len(reading) != 2:
                raise RobotError(
                    f"sensor {sensor.name!r}: read returned {reading!r:.80}, expected (value, time in nanoseconds)"
                )
            value, stamp_ns = reading
            array = np.array(value, sensor.field.numpy_dtype)
            if array.shape != sensor.field.shape:
                raise RobotError(
                    f"sensor {sensor.name!r} gave a value of shape {array.shape}, its field has {sensor.field.shape}"
                )
            values[sensor.name], ages[sensor.name] = array, max(0, robot_state.stamp_ns - stamp_ns)
        return robot_state._replace(sensors=values, age_ns=ages)

    def close(self) -> None:
        """Close the robot, then the sensors. Safe to call more than once."""
        self._closed = True
        with ExitStack() as stack:
            for reader in self._readers.values():
                stack.callback(reader.close)
            self._readers = {}
            self._robot.close()
