"""Sensors that are added to a robot of the hardware."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hal import AddedSensor, Field, Guard, RobotError, RobotState, RobotStopped, SpecError, StaleReading, WithSensors
from hal.drivers.added_sensor import with_sensor_fields
from tests.fakes import Puppet

FORCE = Field("grip_force", (2,), "float32", 0.0, 50.0, "N", "force of each finger")


class Scale:
    """A device whose reading the test sets."""

    def __init__(self) -> None:
        self.value: Any = [1.0, 2.0]
        self.stamp_ns = 0
        self.opened = self.closed = 0

    def __call__(self) -> Scale:
        self.opened += 1
        return self

    def read(self) -> tuple[Any, int]:
        return self.value, self.stamp_ns

    def close(self) -> None:
        self.closed += 1


class Seeing(Puppet):
    """A puppet that can be looked at before its first reset."""

    def read(self) -> RobotState:
        return self._robot_state()


def measuring(scale: Scale, max_age_s: float | None = None) -> WithSensors:
    return WithSensors(Puppet(), [AddedSensor(FORCE, scale, max_age_s=max_age_s)])


def test_every_state_has_the_newest_value_and_its_age() -> None:
    scale = Scale()
    robot = measuring(scale)
    assert scale.opened == 0, "the constructor only stores"
    first = robot.reset({})
    assert robot.spec.sensors["grip_force"] == FORCE
    assert first.sensors["grip_force"].dtype == np.float32
    assert set(first.sensors) == set(robot.spec.sensors.names)
    scale.value, scale.stamp_ns = [3.0, 4.0], first.stamp_ns
    state = robot.step(first.applied)
    np.testing.assert_array_equal(state.sensors["grip_force"], np.float32([3.0, 4.0]))
    assert state.age_ns["grip_force"] == state.stamp_ns - first.stamp_ns
    scale.stamp_ns = state.stamp_ns + 10**9
    assert robot.step(first.applied).age_ns["grip_force"] == 0
    robot.close()
    robot.close()
    assert (scale.opened, scale.closed) == (1, 1)


def test_a_look_before_the_first_reset_opens_the_sensors_too() -> None:
    scale = Scale()
    robot = WithSensors(Seeing(), [AddedSensor(FORCE, scale)])
    state = robot.read()
    assert state is not None
    assert "grip_force" in state.sensors
    robot.reset({})
    assert scale.opened == 1


def test_the_guard_judges_an_added_sensor_as_any_other() -> None:
    scale = Scale()
    guard = Guard(measuring(scale))
    applied = guard.reset({}).applied
    scale.value = [float("nan"), 0.0]
    with pytest.raises(RobotStopped, match="grip_force"):
        guard.step(applied)
    scale.value, scale.stamp_ns = [0.0, 0.0], -(10**18)
    late = Guard(measuring(scale, max_age_s=0.1))
    with pytest.raises(StaleReading, match="grip_force"):
        late.reset({})


def test_a_value_of_another_shape_is_an_error() -> None:
    scale = Scale()
    scale.value = 1.0
    with pytest.raises(RobotError, match="grip_force"):
        measuring(scale).reset({})


def test_what_can_not_be_added_is_refused() -> None:
    spec = Puppet().spec
    taken = AddedSensor(replace(FORCE, name=spec.sensors.names[0]), Scale())
    with pytest.raises(SpecError, match="already"):
        with_sensor_fields(spec, [taken])
    with pytest.raises(SpecError, match="two fields"):
        WithSensors(Puppet(), [AddedSensor(FORCE, Scale())] * 2)
    with pytest.raises(SpecError, match="max_age_s"):
        with_sensor_fields(spec, [AddedSensor(FORCE, max_age_s=0.0)])
    with pytest.raises(ValueError, match="no hardware"):
        WithSensors(Puppet(), [AddedSensor(FORCE)])
    assert with_sensor_fields(spec, ()) is spec


def test_a_reading_without_its_time_is_named() -> None:
    scale = Scale()
    scale.read = lambda: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(RobotError, match=r"sensor 'grip_force': read returned None, expected \(value, time"):
        measuring(scale).reset({})


def test_a_device_that_can_not_be_closed_is_named_when_it_is_opened() -> None:
    robot = WithSensors(Puppet(), [AddedSensor(FORCE, lambda: object())])
    with pytest.raises(RobotError, match="sensor 'grip_force': object has no read and no close"):
        robot.reset({})
    robot.close()
