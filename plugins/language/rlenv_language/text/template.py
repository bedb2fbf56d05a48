"""Write observations as text, with a template of named fields."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from hal import Field, Spec

__all__ = ["UNITS", "Template"]

UNITS: Mapping[tuple[str, str], float] = {
    ("m", "cm"): 100.0,
    ("m", "mm"): 1000.0,
    ("m/s", "cm/s"): 100.0,
    ("rad", "deg"): 180.0 / math.pi,
    ("rad/s", "deg/s"): 180.0 / math.pi,
}
"""(field's unit, written unit) -> conversion factor."""

_PLACE = re.compile(r"\{([a-z][a-z0-9_]*)(?:\.(\w+))?\}")

_DIGITS = 3

_MOST = 512
"""Most elements of a field that a template can write."""

Part = tuple[str, slice | int]
"""A field, and the elements of it, in C order."""


class Template:
    """Write observations of one spec as text.

    Args:
        spec: the observation's spec.
        text: text with places for values: ``{field}``, or ``{field.element}`` if the field names its elements; None for
            one line per field with name, elements and unit.
        units: field -> the unit in which it is written, see `UNITS`; by default the field's unit.
        digits: field -> digits after the decimal point; 3 by default. Whole numbers have none.
        omit: fields for which no line is written.

    Raises:
        ValueError: a field, element or unit is unknown, or a field of over 512 elements is not omitted.
    """

    def __init__(
        self,
        spec: Spec,
        text: str | None = None,
        units: Mapping[str, str] | None = None,
        digits: Mapping[str, int] | None = None,
        omit: tuple[str, ...] = (),
    ) -> None:
        self.spec = spec
        self._units, self._digits = dict(units or {}), dict(digits or {})
        for name in (*self._units, *self._digits, *omit):
            if name not in spec:
                raise ValueError(f"the observation has no field {name!r}, it has {', '.join(spec.names)}")
        self._factors = {field.name: self._factor(field) for field in spec}
        source = self._lines(omit) if text is None else text
        self._parts: list[Part] = []
        self._format = self._compile(source)

    def _factor(self, field: Field) -> float:
        unit = self._units.get(field.name, field.unit)
        if unit == field.unit:
            return 1.0
        if (field.unit, unit) not in UNITS:
            allowed = [other for own, other in UNITS if own == field.unit]
            raise ValueError(f"{field.name} is in {field.unit!r}, allowed are {', '.join([field.unit, *allowed])}")
        return UNITS[field.unit, unit]

    def _lines(self, omit: tuple[str, ...]) -> str:
        return "\n".join(self._line(field) for field in self.spec if field.name not in omit)

    def _line(self, field: Field) -> str:
        if field.size > _MOST:
            raise ValueError(
                f"{field.name} has {field.size} elements, at most {_MOST} are written: leave it out (omit)"
            )
        unit = self._units.get(field.name, field.unit)
        label = f"{field.name}:" if unit == "1" else f"{field.name} ({unit}):"
        if field.elements and len(field.shape) == 1:
            return f"{label} {', '.join(f'{name} {{{field.name}.{name}}}' for name in field.elements)}"
        return f"{label}\n{{{field.name}}}" if len(field.shape) > 1 else f"{label} {{{field.name}}}"

    def _compile(self, source: str) -> str:
        """Return the text as a format of the operator %, and collect the values that it takes."""
        pieces, end = [], 0
        for match in _PLACE.finditer(source):
            pieces.append(source[end : match.start()].replace("%", "%%"))
            pieces.append(self._place(match[1], match[2]))
            end = match.end()
        pieces.append(source[end:].replace("%", "%%"))
        return "".join(pieces)

    def _place(self, name: str, element: str | None) -> str:
        if name not in self.spec:
            raise ValueError(f"the template has {{{name}}}, the observation has {', '.join(self.spec.names)}")
        field = self.spec[name]
        one = f"%.{self._digits.get(name, _DIGITS)}f" if field.numpy_dtype.kind == "f" else "%d"
        if element is not None:
            if len(field.shape) != 1 or element not in field.elements:
                raise ValueError(f"{name} has no element {element!r}, it has {', '.join(field.elements) or 'no names'}")
            self._parts.append((name, field.elements.index(element)))
            return one
        self._parts.append((name, slice(None)))
        if len(field.shape) < 2:
            return ", ".join([one] * field.size)
        row = " ".join([one] * field.shape[-1])
        return "\n".join([row] * (field.size // field.shape[-1]))

    def write(self, observation: Mapping[str, np.ndarray]) -> str:
        """Return the text of an observation."""
        numbers: list[float] = []
        for name, which in self._parts:
            values = observation[name].ravel().tolist()
            chosen = values[which] if isinstance(which, slice) else [values[which]]
            factor = self._factors[name]
            if self.spec[name].numpy_dtype.kind == "f":
                digits = self._digits.get(name, _DIGITS)
                numbers += [round(value * factor, digits) + 0.0 for value in chosen]  # never "-0.000"
            else:
                numbers += chosen
        return self._format % tuple(numbers)
