"""Make illegal commands of a robot: spoilt values, alone or beside legal ones that would move something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hal import Field, RobotState
from rlenv_kit.robot_probe import RobotProbe, span_of

__all__ = ["halves_of", "partly_spoilt", "spoilt"]


def halves_of(probe: RobotProbe, robot_state: RobotState) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield illegal commands with a legal part that would move something: a name for the report, and the command."""
    spec, hold = probe.robot.spec, probe.hold(robot_state)
    for field in spec.commands:
        ways: list[tuple[str, dict[str, Any]]] = [("an unknown command", {"no_such_field": 0.0})]
        for other in spec.commands:
            if other is not field and not other.is_text:
                ways += [(f"{other.name} {problem}", {other.name: value}) for problem, value in spoilt(other, hold)]
        for problem, change in ways if probe.simulated else ways[:3]:
            for value in probe.excursions(field, robot_state, most=4):
                yield f"a legal {field.name} beside {problem}", {**hold, field.name: value, **change}
        for problem, mixed in partly_spoilt(probe, field, robot_state, most=4):
            yield f"one element of {field.name} {problem}", {**hold, field.name: mixed}


def partly_spoilt(
    probe: RobotProbe, field: Field, robot_state: RobotState, most: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield values of which one element is illegal, and another one would move something.

    Args:
        probe: drives the robot.
        field: the command.
        robot_state: where the robot is.
        most: number of legal values that are spoilt.
    """
    hold = probe.hold(robot_state)
    for value in probe.excursions(field, robot_state, most=most) if field.size > 1 else ():
        place = int(np.argmax(np.ravel(value == hold[field.name])))
        for problem, wrong in spoilt(field, {field.name: value}):
            part = np.array(wrong)
            if part.shape == value.shape:
                mixed = value.astype(part.dtype)
                mixed.flat[place] = part.flat[place]
                yield problem, mixed


def spoilt(field: Field, values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, object]]:
    """Yield illegal values of a command."""
    value, high = values[field.name], np.asarray(field.bounds[1], float)
    if field.numpy_dtype.kind == "f":
        yield "not a number", np.full(field.shape, np.nan, field.numpy_dtype)
        if np.isfinite(high).all() and (high < 1e30).all():
            yield "above its range", np.broadcast_to(high + 0.5 * span_of(field) + 1, field.shape).astype(value.dtype)
    elif (high < 2**31).all():
        yield "above its range", np.broadcast_to(high + 1, field.shape).astype(np.int64)
    yield "of another shape", np.array(value)[None]
