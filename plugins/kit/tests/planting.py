"""Plant faults: a fault is a correct world of which one thing is changed, and the check that must see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hal import Field, RobotSpec, Spec

__all__ = ["Planted", "after", "planters", "with_sensor"]


@dataclass(frozen=True)
class Planted:
    """A planted fault.

    Attributes:
        name: of the fault.
        made: the broken class.
        keys: of the checks of which one must fail; empty if no check accuses it (`NOT_SEEN` in ``test_faults.py``).
    """

    name: str
    made: Any
    keys: tuple[str, ...]


Planter = Callable[[Any, str, dict[str, Callable[..., Any]]], None]


def planters(faults: dict[str, Planted]) -> tuple[Callable[..., Callable[[type], type]], Planter, Planter]:
    """Return three ways to enter faults into a table.

    The first is a decorator of broken classes. It takes the key of the check that must see the fault, or several keys
    joined by "or", and words on the fault if its name does not say it.

    The others take a correct class, the name of one of its methods, and a row for each fault: ``"name -> key"`` and a
    function. The second one calls the function with the subject and what the correct method returned, the third one in
    place of the method.
    """

    def enter(made: type, key: str) -> None:
        if made.__name__ in faults:
            raise ValueError(f"there are two faults {made.__name__}, expected one of each name")
        faults[made.__name__] = Planted(made.__name__, made, tuple(filter(None, key.split(" or "))))

    def fault(key: str, words: str = "") -> Callable[[type], type]:
        def decorate(made: type) -> type:
            made.__doc__ = words or made.__doc__
            enter(made, key)
            return made

        return decorate

    def replaces(world: Any, method: str, rows: dict[str, Callable[..., Any]]) -> None:
        for row, function in rows.items():
            name, _, key = row.partition(" -> ")
            enter(type(name, (world,), {method: function}), key)

    def changes(world: Any, method: str, rows: dict[str, Callable[..., Any]]) -> None:
        right = getattr(world, method)
        replaces(world, method, {row: _changing(right, change) for row, change in rows.items()})

    return fault, changes, replaces


def _changing(right: Callable[..., Any], change: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        return change(self, right(self, *arguments, **named))

    return method


def after(frame: int, right: Any, wrong: Any, env: Any) -> Any:
    """Return ``wrong`` from a frame of an environment on, and ``right`` before it."""
    return wrong if env.frame_no >= frame else right


def with_sensor(spec: RobotSpec, **fields: Field) -> RobotSpec:
    """Return a robot's spec in which fields replace the sensors of their names."""
    sensors = tuple(fields.get(field.name, field) for field in spec.sensors)
    return replace(spec, sensors=Spec(spec.sensors.name, sensors))
