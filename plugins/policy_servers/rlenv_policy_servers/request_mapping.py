"""Map the fields of an observation to the keys of a request, and back for a server of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hal import Field, RobotError, Spec
from hal.field import JsonDict
from rlenv_policy_servers.images import changed_image, restored_image
from rlenv_policy_servers.part import ObservationPart, Scaling, places_of, scaling_of
from rlenv_policy_servers.rounding import rounded

__all__ = ["RequestMapping"]

_LARGEST_SIDE = 4096


class _Source(NamedTuple):
    """A part, the field that it names, the field's elements that are sent, and their conversion."""

    part: ObservationPart
    field: Field
    places: list[int]
    scaling: Scaling


class RequestMapping:
    """The mapping between the fields of an observation and the keys of a request.

    Args:
        parts: the tables ``[[observation]]`` of a policy file.
        observation: the spec of observations.

    Attributes:
        problems: one line for each part that does not fit the spec; the other methods need a mapping without any.
    """

    def __init__(self, parts: Sequence[ObservationPart], observation: Spec) -> None:
        self.problems: list[str] = []
        self._observation = observation
        self._keys: dict[str, list[_Source]] = {part.key: [] for part in parts}
        for number, part in enumerate(parts):
            try:
                self._keys[part.key].append(self._source(part, sum(other.key == part.key for other in parts) > 1))
            except RobotError as error:
                self.problems.append(f"observation[{number}] ({part.key}): {error}")

    def _source(self, part: ObservationPart, shared: bool) -> _Source:
        if part.field not in self._observation:
            raise RobotError(f"there is no field {part.field!r}, allowed are {', '.join(self._observation.names)}")
        field = self._observation[part.field]
        if field.is_text:
            raise RobotError(f"{field.name} is a text; name it as prompt_field")
        if field.is_image:
            _check_image(part, shared)
            return _Source(part, field, list(range(field.size)), Scaling())
        if part.size or part.layout != "hwc":
            raise RobotError(f"size and layout are for images, and {field.name} is none")
        places = places_of(part.elements, field)
        if part.single and (len(places) != 1 or shared):
            raise RobotError("single is for one element alone, and this key has more")
        return _Source(part, field, places, scaling_of(part, field, places))

    def uncovered(self) -> list[str]:
        """Return a line for each field that `observed` can't restore from a request."""
        lines = []
        for field in self._observation:
            if field.is_text:
                continue
            sources = [source for parts in self._keys.values() for source in parts if source.field is field]
            missing = set(range(field.size)) - {place for source in sources for place in source.places}
            if missing:
                lines.append(f"observation: {field.name} is in no key, or only a part of it is")
            lines += [
                f"observation: {field.name} is sent as {list(source.part.size)} pixels, the policy takes "
                f"{list(field.shape[:2])}"
                for source in sources
                if source.part.size and tuple(source.part.size) != field.shape[:2]
            ]
        return lines

    def request(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of a request for one observation, key -> array."""
        return {key: _array(sources, observation) for key, sources in self._keys.items()}

    def observed(self, request: Mapping[str, object]) -> dict[str, np.ndarray]:
        """Return the fields in a client's request, without texts: the inverse of `request`.

        Raises:
            RobotError: a key is missing or unknown, or an array has another type or shape.
            IllegalAction: a value is not finite, or outside the range of its field.
        """
        unknown = [key for key in request if key not in self._keys]
        if unknown:
            allowed = ", ".join(map(repr, self._keys))
            raise RobotError(f"the request has an unknown key {unknown[0]!r:.60}, allowed are {allowed}")
        fields = {f.name: np.zeros(f.size, np.float64) for f in self._observation if not f.is_text and not f.is_image}
        images = dict[str, np.ndarray]()
        for key, sources in self._keys.items():
            array = _number_array(request, key)
            part, field = sources[0].part, sources[0].field
            if field.is_image:
                images[field.name] = field.validate(restored_image(array, part.layout, part.dtype), "observation")
                continue
            size = sum(len(source.places) for source in sources)
            if array.size != size:
                raise RobotError(f"{key!r} has shape {array.shape}, expected ({size},)")
            place = 0
            for source in sources:
                values = array.ravel()[place : place + len(source.places)]
                fields[source.field.name][source.places] = source.scaling.to_ours(values)
                place += len(source.places)
        vectors = {name: rounded(values, self._observation[name], "observation") for name, values in fields.items()}
        return {**vectors, **images}

    def description(self) -> dict[str, JsonDict]:
        """Return the shape, type and parts of each key, for people and clients, as JSON data."""
        zeros = {f.name: f.nothing for f in self._observation}
        return {
            key: {
                "shape": list(array.shape),
                "dtype": str(array.dtype),
                "parts": [_described(source.field, source.places, source.part.unit) for source in self._keys[key]],
            }
            for key, array in self.request(zeros).items()
        }


def _check_image(part: ObservationPart, shared: bool) -> None:
    if part.elements or part.unit or part.ours or part.theirs or part.single or shared:
        raise RobotError(
            f"{part.field} is an image; elements, unit, ours, theirs, single and more parts of its key are not for it"
        )
    if part.dtype not in ("", "uint8", "float32"):
        raise RobotError(f"dtype is {part.dtype!r}, images are sent as uint8 or float32")
    if part.size and (len(part.size) != 2 or not all(1 <= side <= _LARGEST_SIDE for side in part.size)):
        raise RobotError(f"size is {list(part.size)}, it must be height and width, 1 to {_LARGEST_SIDE} pixels each")


def _array(sources: Sequence[_Source], observation: Mapping[str, np.ndarray]) -> np.ndarray:
    part, field = sources[0].part, sources[0].field
    if field.is_image:
        return changed_image(observation[field.name], part.size, part.pad, part.layout, part.dtype)
    values = [source.scaling.to_theirs(np.ravel(observation[source.field.name])[source.places]) for source in sources]
    array = np.concatenate(values).astype(part.dtype or "float32")
    return array.reshape(()) if part.single else array


def _number_array(request: Mapping[str, object], key: str) -> np.ndarray:
    if key not in request:
        raise RobotError(f"the request has no {key!r}; it has {', '.join(map(repr, list(request)[:20])) or 'nothing'}")
    array = np.asarray(request[key])
    if array.dtype.kind not in "fiub":
        raise RobotError(f"{key!r} is a {type(request[key]).__name__}, expected an array of numbers")
    return array


def _described(field: Field, places: Sequence[int], unit: str) -> JsonDict:
    named = field.elements and len(field.shape) == 1
    elements = [field.elements[place] for place in places] if named else []
    return {"field": field.name, "unit": unit or field.unit, "meaning": field.meaning, "elements": elements}
