"""Convert one field of an observation or an action to and from numbers of a policy server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import MinLen

from hal import Field, RobotError

__all__ = ["ActionPart", "ObservationPart", "Scaling", "places_of", "scaling_of"]

_DEGREE = math.pi / 180


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationPart:
    """One table ``[[observation]]`` of a policy's file: where a field of the observation goes.

    Attributes:
        key: the server's key. Parts with the same key are joined to one vector, in their order.
        field: name of a field of the observation.
        elements: names or numbers of the field's elements to send, in this order; empty sends all.
        unit: ``deg`` sends degrees where the field has rad; empty keeps the field's unit.
        ours: two values of the field; empty takes the field's range.
        theirs: the numbers of the server for these two values, such as [0, 100]; empty sends the field's numbers.
        dtype: type of the numbers that are sent; empty sends vectors as float32 and images as uint8.
        single: whether a single element is sent as a number instead of a vector of length 1.
        size: height and width of the image that is sent, pixels; empty keeps the camera's.
        pad: whether an image keeps its proportions, with black bars; otherwise it is stretched.
        layout: order of an image's axes: height, width, colour (``hwc``), or colour first (``chw``).
    """

    key: Annotated[str, MinLen(1)]
    field: Annotated[str, MinLen(1)]
    elements: tuple[str | int, ...] = ()
    unit: Literal["", "deg"] = ""
    ours: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    dtype: Literal["", "float32", "float64", "uint8", "int32", "int64"] = ""
    single: bool = False
    size: tuple[int, ...] = ()
    pad: bool = True
    layout: Literal["hwc", "chw"] = "hwc"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPart:
    """One table ``[[action]]`` of a policy's file: which columns of an answer become which elements of an action.

    Attributes:
        key: the server's key of an array with one row for each action.
        field: name of a field of the action; empty ignores the columns.
        columns: numbers of the columns; empty takes as many as there are elements, after those of the last part of the
            same key.
        elements: names or numbers of the field's elements, one for each column; empty means all.
        unit: ``deg`` where the server sends degrees and the field has rad.
        ours: two values of the field; empty takes the field's range.
        theirs: the numbers of the server for these two values.
        relative_to: field of the observation to which the numbers are added, element by element; empty for absolute
            actions. openpi's ``DeltaActions`` is relative to the observation's state.
        accumulate: whether each action is relative to the one before it in the chunk, and the first to the observation.
        outside: what happens to a value outside the field's range: ``refuse`` the chunk, or ``clip`` it and count.
    """

    key: Annotated[str, MinLen(1)]
    field: str = ""
    columns: tuple[int, ...] = ()
    elements: tuple[str | int, ...] = ()
    unit: Literal["", "deg"] = ""
    ours: tuple[float, ...] = ()
    theirs: tuple[float, ...] = ()
    relative_to: str = ""
    accumulate: bool = False
    outside: Literal["refuse", "clip"] = "refuse"


@dataclass(frozen=True, slots=True)
class Scaling:
    """A linear conversion: ours = scale * theirs + offset."""

    scale: float = 1.0
    offset: float = 0.0

    def to_theirs(self, values: Any) -> np.ndarray:
        """Return the server's numbers for the field's, float64."""
        return (np.asarray(values, np.float64) - self.offset) / self.scale

    def to_ours(self, values: Any) -> np.ndarray:
        """Return the field's numbers for the server's, float64."""
        return np.asarray(values, np.float64) * self.scale + self.offset


def scaling_of(part: ObservationPart | ActionPart, field: Field, places: list[int]) -> Scaling:
    """Return the conversion of a part.

    Args:
        part: with ``unit``, ``ours`` and ``theirs``.
        field: the field that the part names.
        places: the field's elements of the part, as numbers.

    Raises:
        RobotError: unit and range don't fit the field; the message says why.
    """
    if part.unit == "deg":
        if not field.unit.startswith("rad"):
            raise RobotError(f'unit is "deg", and {field.name} is in {field.unit!r}, not rad')
        if part.theirs or part.ours:
            raise RobotError('give either unit = "deg" or ours and theirs, not both')
        return Scaling(_DEGREE)
    if not part.theirs:
        if part.ours:
            raise RobotError("ours needs theirs: the server's numbers for these two values")
        return Scaling()
    ours = part.ours or _range_of(field, places)
    for name, pair in (("ours", ours), ("theirs", part.theirs)):
        if len(pair) != 2 or pair[0] == pair[1] or not all(map(math.isfinite, pair)):
            raise RobotError(f"{name} is {list(pair)}, it must be two different finite numbers")
    scale = (ours[1] - ours[0]) / (part.theirs[1] - part.theirs[0])
    return Scaling(scale, ours[0] - scale * part.theirs[0])


def _range_of(field: Field, places: list[int]) -> tuple[float, float]:
    low, high = (
        set(
            np.broadcast_to(np.reshape(bound, field.shape if np.ndim(bound) else ()), field.shape)
            .ravel()[places]
            .tolist()
        )
        for bound in (field.low, field.high)
    )
    if len(low) != 1 or len(high) != 1:
        raise RobotError(f"the elements of {field.name} have different ranges; give ours, or a part for each")
    return low.pop(), high.pop()


def places_of(elements: Sequence[str | int], field: Field) -> list[int]:
    """Return the numbers of a field's elements, in the flattened field.

    Raises:
        RobotError: the field has no such element.
    """
    if not elements:
        return list(range(field.size))
    places = []
    for element in elements:
        if isinstance(element, str) and element in field.elements and len(field.shape) == 1:
            places.append(field.elements.index(element))
        elif isinstance(element, int) and 0 <= element < field.size:
            places.append(element)
        else:
            names = ", ".join(field.elements) if field.elements and len(field.shape) == 1 else "none by name"
            raise RobotError(f"{field.name} has no element {element!r}: it has {names}, and 0 to {field.size - 1}")
    return places
