"""Convert between a robot's commands in SI units and LeRobot's flat mappings of names to numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hal.drivers.calibration import load_calibration
from hal.errors import IllegalAction, SpecError, Violation
from hal.field import Field
from hal.robots.so101 import JOINTS, SO101
from hal.robots.so101_units import JointUnits
from hal.spec import Spec

__all__ = ["UNITS", "CommandNumbers"]

UNITS = ("degrees", "percent", "radians")
"""Units of angles: LeRobot's two (``use_degrees`` true and false), and those of the served robot."""

_SUFFIXES = {"rad": "pos", "m": "pos", "rad/s": "vel", "m/s": "vel"}
"""Unit of a command -> the end of its name, as LeRobot's robots have it (``robots/so_follower``, ``robots/lekiwi``)."""

_GRIPPER = "gripper"
"""Joint that LeRobot counts in percent of its travel, from 0, under each of its own units."""

_SO101_JOINTS = SO101.commands["joint_target"]

_Conversion = Callable[[np.ndarray], np.ndarray]


class _Part(NamedTuple):
    """One command field: its numbers' names, and the conversions to and from SI units."""

    field: Field
    names: tuple[str, ...]
    to_si: _Conversion
    from_si: _Conversion


class CommandNumbers:
    """Convert commands to LeRobot's numbers and back. Each number's name is ``<element>.pos``, ``.vel`` or ``.value``.

    The joints of an SO-101 are converted as LeRobot counts them (`hal.robots.so101_units.JointUnits`). Angles of other
    robots are in degrees from the zero of their own description, or in percent of its range, -100 to 100; a joint
    called ``gripper`` is in percent from 0 under both. Everything that is no angle stays in SI units.

    The actions of a data set that LeRobot wrote have such names already, and keep them with their numbers.

    Args:
        commands: the robot's commands.
        units: one of `UNITS`.
        calibration: the calibration file of the served SO-101, LeRobot's or ours, for percent; empty assumes that the
            swept range was the model's.

    Attributes:
        names: the names of the numbers, in the order of the commands.

    Raises:
        ValueError: the units are unknown, or the calibration can't be read or fits no SO-101.
        SpecError: a command holds texts, which are no numbers.
    """

    def __init__(self, commands: Spec, units: str = "degrees", calibration: str = "") -> None:
        if units not in UNITS:
            raise ValueError(f"units are {units!r}, allowed are {', '.join(UNITS)}")
        texts = [field.name for field in commands if field.is_text]
        if texts:
            raise SpecError(
                f"the commands {', '.join(texts)} of {commands.name!r} are texts; LeRobot takes numbers alone"
            )
        so101 = [field.name for field in commands if _is_so101(field)]
        if calibration and len(so101) != 1:
            raise ValueError(f"calibration is {calibration!r}, but {commands.name!r} is no SO-101; leave it empty")
        names = [_names(field, prefixed=False) for field in commands]
        prefixed = len(set(sum(names, ()))) < len(sum(names, ()))
        self._parts = tuple(_part(field, _names(field, prefixed), units, calibration) for field in commands)
        self.names = tuple(name for part in self._parts for name in part.names)
        self._spec = commands

    def to_command(self, action: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the command of LeRobot's numbers, within the range or not.

        Args:
            action: name -> number; a tensor with one element counts as one.

        Raises:
            IllegalAction: a name is missing or unknown, or a number is not finite. Nothing moved.
        """
        missing = [name for name in self.names if name not in action]
        unknown = [name for name in action if name not in self.names]
        if missing or unknown:
            wrong = [f"{words} {', '.join(names)}" for words, names in (("lacks", missing), ("has", unknown)) if names]
            text = f"the action {' and '.join(wrong)}; {self._spec.name} takes {', '.join(self.names)}"
            raise IllegalAction(Violation("unknown", (missing or unknown)[0], (), text))
        command = {}
        for field, names, to_si, _ in self._parts:
            values = np.array([float(action[name]) for name in names])
            for name, value in zip(names, values, strict=True):
                if not math.isfinite(value):
                    text = f"the action's {name} is {value}, it must be a finite number; nothing was sent"
                    raise IllegalAction(Violation("not_finite", name, (), text))
            values = to_si(values).reshape(field.shape)
            if field.numpy_dtype.kind != "f":
                values = np.rint(values)
            command[field.name] = values.astype(field.numpy_dtype)
        return command

    def from_command(self, values: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return LeRobot's numbers of a command, or of the measurements of its fields; fields may be missing."""
        return {
            name: float(value)
            for field, names, _, from_si in self._parts
            if field.name in values
            for name, value in zip(names, from_si(np.asarray(values[field.name], np.float64).reshape(-1)), strict=True)
        }

    def names_of(self, fields: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the numbers of some command fields."""
        return tuple(name for part in self._parts if part.field.name in fields for name in part.names)

    def within_range(self, command: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[str]]:
        """Return the nearest command within the range, and the names of the numbers that it changed."""
        limited, changed = {}, []
        for field, names, _, _ in self._parts:
            value = np.asarray(command[field.name])
            limited[field.name] = np.clip(value, *field.bounds).astype(value.dtype)
            differs = (limited[field.name] != value).reshape(-1)
            changed += [name for name, is_other in zip(names, differs, strict=True) if is_other]
        return limited, changed


def _is_so101(field: Field) -> bool:
    return tuple(field.elements) == JOINTS and field.convention == _SO101_JOINTS.convention


def _names(field: Field, prefixed: bool) -> tuple[str, ...]:
    suffix = _SUFFIXES.get(field.unit, "value")
    elements = tuple(field.elements) if len(field.elements) == field.size else ()
    if not elements:
        elements = (field.name,) if field.size == 1 else tuple(f"{field.name}_{at}" for at in range(field.size))
        prefixed = False
    names = (f"{field.name}_{element}" if prefixed else element for element in elements)
    return tuple(name if "." in name else f"{name}.{suffix}" for name in names)


def _part(field: Field, names: tuple[str, ...], units: str, calibration: str) -> _Part:
    if field.unit != "rad" or units == "radians":
        return _Part(field, names, np.array, np.array)
    if _is_so101(field):
        joints = JointUnits(units, load_calibration(calibration).joints if calibration else None)
        return _Part(field, names, joints.to_radians, joints.from_radians)
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in field.bounds)
    scale, zero = np.full(field.size, math.pi / 180), np.zeros(field.size)
    for at, name in enumerate(names):
        travel = high[at] - low[at]
        if name.partition(".")[0].endswith(_GRIPPER):
            scale[at], zero[at] = travel / 100, low[at]
        elif units == "percent":
            scale[at], zero[at] = travel / 200, (low[at] + high[at]) / 2
    return _Part(field, names, lambda values: zero + values * scale, lambda values: (values - zero) / scale)
