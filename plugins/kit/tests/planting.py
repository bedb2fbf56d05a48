"""Plant faults: enter classes that break a contract into tables of faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from hal import Field, RobotSpec, Spec

__all__ = ["after", "entry", "planter", "with_sensor"]

_Type = TypeVar("_Type", bound=type)


def planter(faults: dict[type, str]) -> Callable[[str], Callable[[type], type]]:
    """Return a decorator that takes the key of the check that must fail, and enters its class into the table."""

    def fault(key: str) -> Callable[[type], type]:
        def enter(kind: type) -> type:
            faults[kind] = key
            return kind

        return enter

    return fault


def entry(faults: dict[str, _Type]) -> Callable[[_Type], _Type]:
    """Return a decorator that enters its class into the table by the class's name; whichever check may see the fault.

    Raises:
        ValueError: the decorated class has the name of an earlier one.
    """

    def fault(kind: _Type) -> _Type:
        if kind.__name__ in faults:
            raise ValueError(f"there are two faults {kind.__name__}, expected one of each name")
        faults[kind.__name__] = kind
        return kind

    return fault


def after(frame: int, right: Any, wrong: Any, env: Any) -> Any:
    """Return ``wrong`` from a frame of an environment on, and ``right`` before it."""
    return wrong if env.frame_no >= frame else right


def with_sensor(spec: RobotSpec, **fields: Field) -> RobotSpec:
    """Return a robot's spec in which fields replace the sensors of their names."""
    sensors = tuple(fields.get(field.name, field) for field in spec.sensors)
    return replace(spec, sensors=Spec(spec.sensors.name, sensors))
