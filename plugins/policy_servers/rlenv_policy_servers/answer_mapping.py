"""Map the columns of a server's answer to the fields of a chunk of actions, and back for a server of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hal import Field, RobotError, Spec
from hal.field import JsonDict
from rlenv_policy_servers.part import ActionPart, Scaling, places_of, scaling_of
from rlenv_policy_servers.rounding import rounded

__all__ = ["AnswerMapping"]

_MOST_COLUMNS = 4096


class _Target(NamedTuple):
    """A part, the field that it names (None: ignored), the field's elements, the columns, and the conversion."""

    part: ActionPart
    field: Field | None
    places: list[int]
    columns: list[int]
    scaling: Scaling


class AnswerMapping:
    """The mapping between the columns of an answer's arrays and the fields of an action.

    Args:
        parts: the tables ``[[action]]`` of a policy file.
        observation: the spec of observations, from which relative actions start.
        action: the spec of actions.

    Attributes:
        problems: one line for each part or element that does not fit; the other methods need a mapping without any.
        widths: key -> number of columns.
        clipped: number of values that ``outside = "clip"`` has changed so far.
    """

    def __init__(self, parts: Sequence[ActionPart], observation: Spec, action: Spec) -> None:
        self.problems: list[str] = []
        self.widths: dict[str, int] = {}
        self.clipped = 0
        self._observation, self._action = observation, action
        self._targets: list[_Target] = []
        for number, part in enumerate(parts):
            try:
                target = self._target(part)
            except RobotError as error:
                self.problems.append(f"action[{number}] ({part.key}): {error}")
            else:
                self._targets.append(target)
                self.widths[part.key] = max(self.widths.get(part.key, 0), max(target.columns) + 1)
        if not self.problems:  # otherwise it is unknown what the refused parts would cover
            self._check_columns()
            self._check_elements()

    def _target(self, part: ActionPart) -> _Target:
        if any(column not in range(_MOST_COLUMNS) for column in part.columns):
            raise RobotError(f"columns are {list(part.columns)}, allowed are numbers from 0 to {_MOST_COLUMNS - 1}")
        if not part.field:
            if not part.columns:
                raise RobotError("a part without a field ignores columns, and must list them in columns")
            return _Target(part, None, [], list(part.columns), Scaling())
        if part.field not in self._action:
            raise RobotError(f"there is no field {part.field!r}, allowed are {', '.join(self._action.names)}")
        field = self._action[part.field]
        if field.is_text or field.counted_by:
            raise RobotError(f"{field.name} is a text or of variable length, which columns can't hold")
        self._check_start(part, field)
        places, begin = places_of(part.elements, field), self.widths.get(part.key, 0)
        columns = list(part.columns or range(begin, begin + len(places)))
        if len(columns) != len(places):
            raise RobotError(f"there are {len(columns)} columns for {len(places)} elements of {field.name}")
        return _Target(part, field, places, columns, scaling_of(part, field, places))

    def _check_start(self, part: ActionPart, field: Field) -> None:
        if part.accumulate and not part.relative_to:
            raise RobotError("accumulate needs relative_to: the field of the observation from which the actions start")
        if not part.relative_to:
            return
        starts = {one.name: one for one in self._observation if (one.shape, one.unit) == (field.shape, field.unit)}
        if part.relative_to not in starts:
            like = f"of shape {field.shape} in {field.unit}"
            raise RobotError(f"relative_to is {part.relative_to!r}, it must be a field of the observation {like}")

    def _check_columns(self) -> None:
        for key, width in self.widths.items():
            used = [column for target in self._targets if target.part.key == key for column in target.columns]
            self.problems += [
                f"action: column {column} of {key} has {used.count(column)} parts, it must have one; a part without "
                "field ignores columns"
                for column in range(width)
                if used.count(column) != 1
            ]

    def _check_elements(self) -> None:
        for field in self._action:
            places = [place for target in self._targets if target.field is field for place in target.places]
            named = field.elements and len(field.shape) == 1
            self.problems += [
                f"action: {field.name}[{field.elements[place] if named else place}] has {places.count(place)} parts, "
                "it must have one"
                for place in range(field.size)
                if places.count(place) != 1
            ]

    def chunk(
        self, answer: Mapping[str, object], observation: Mapping[str, np.ndarray], horizon: int
    ) -> dict[str, np.ndarray]:
        """Return the chunk of an answer, field -> actions of shape (K, *field shape), K at most ``horizon``.

        Args:
            answer: the server's arrays, key -> (K, columns).
            observation: the observation that is answered.
            horizon: number of actions to use.

        Raises:
            RobotError: a key is missing, or an array has another shape, type or length.
            IllegalAction: a value is not finite, or outside the range of its field.
        """
        arrays = {key: _checked(answer, key, width) for key, width in self.widths.items()}
        lengths = {key: len(array) for key, array in arrays.items()}
        if len(set(lengths.values())) != 1:
            raise RobotError(f"the answer has arrays of different lengths: {lengths}")
        length = min(horizon, *lengths.values())
        flat = {field.name: np.zeros((length, field.size), np.float64) for field in self._action}
        for target in self._targets:
            if target.field is not None:
                columns = arrays[target.part.key][:length, target.columns].astype(np.float64)
                flat[target.field.name][:, target.places] = self._values(target, columns, observation)
        return {
            field.name: np.stack([
                rounded(row, field, f"the answer's action {number}") for number, row in enumerate(flat[field.name])
            ])
            for field in self._action
        }  # fmt: skip

    def _values(self, target: _Target, columns: np.ndarray, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        values, part = target.scaling.to_ours(columns), target.part
        if part.relative_to:
            start = np.ravel(observation[part.relative_to])[target.places].astype(np.float64)
            values = start + (np.cumsum(values, axis=0) if part.accumulate else values)
        if part.outside == "clip":
            assert target.field is not None
            low, high = (bound.ravel()[target.places].astype(np.float64) for bound in target.field.bounds)
            inside = np.where(np.isfinite(values), np.clip(values, low, high), values)  # NaN is refused, never clipped
            self.clipped += int((inside != values).sum() - np.isnan(values).sum())
            return inside
        return values

    def answer(self, chunk: Mapping[str, np.ndarray], observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return an answer's arrays, key -> float32 (K, columns): the inverse of `chunk`. Ignored columns are 0."""
        flat = {name: np.asarray(actions, np.float64).reshape(len(actions), -1) for name, actions in chunk.items()}
        length = len(next(iter(flat.values())))
        arrays = {key: np.zeros((length, width), np.float32) for key, width in self.widths.items()}
        for target in self._targets:
            if target.field is None:
                continue
            values, part = flat[target.field.name][:, target.places], target.part
            if part.relative_to:
                start = np.ravel(observation[part.relative_to])[target.places].astype(np.float64)
                values = np.diff(values, axis=0, prepend=start[None]) if part.accumulate else values - start
            arrays[part.key][:, target.columns] = target.scaling.to_theirs(values)
        return arrays

    def description(self) -> dict[str, JsonDict]:
        """Return the number of columns and the parts of each key, for people and clients, as JSON data."""
        return {
            key: {
                "shape": ["actions", width],
                "dtype": "float32",
                "parts": [_described(target) for target in self._targets if target.part.key == key],
            }
            for key, width in self.widths.items()
        }


def _checked(answer: Mapping[str, object], key: str, width: int) -> np.ndarray:
    if key not in answer:
        raise RobotError(f"the answer has no {key!r}; it has {', '.join(repr(k)[:40] for k in list(answer)[:20])}")
    array = answer[key]
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiu":
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise RobotError(f"the answer's {key!r} is a {kind}, expected an array of numbers")
    if array.ndim != 2 or not len(array) or array.shape[1] != width:
        raise RobotError(f"the answer's {key!r} has shape {array.shape}, expected (1 or more actions, {width})")
    return array


def _described(target: _Target) -> JsonDict:
    field, part = target.field, target.part
    if field is None:
        return {"columns": target.columns, "meaning": "ignored"}
    named = field.elements and len(field.shape) == 1
    return {
        "columns": target.columns, "field": field.name, "unit": part.unit or field.unit, "meaning": field.meaning,
        "elements": [field.elements[place] for place in target.places] if named else [],
        "relative_to": part.relative_to, "accumulate": part.accumulate,
    }  # fmt: skip
