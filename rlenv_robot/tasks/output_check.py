"""Check at run time that a world's observation, hidden state and reward fit their descriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from hal import Field, IllegalAction, RobotError, Spec
from hal.guarding.reading_check import ROUNDING
from hal.wrapper import RobotWrapper
from rlenv_robot.tables import Reward
from rlenv_robot.tasks.agents import RewardValues
from rlenv_robot.tasks.task import task_world
from rlenv_robot.world import TimeStep, World

__all__ = ["SIMULATED", "BatchOutputCheck", "OutputCheck", "WrongOutput", "check_every"]

_REWARD = Field("reward", (), "float64")
_FEW = 64
"""Largest number of values for which Python's min and max are faster than NumPy's."""


class WrongOutput(RobotError):
    """Say that a world returned a value that does not fit its description."""


def _widened(field: Field) -> Field:
    """Return a field whose range allows for rounding."""
    if field.is_text or field.numpy_dtype.kind != "f":
        return field
    low, high = (np.asarray(bound, float) for bound in (field.low, field.high))
    low, high = low - ROUNDING * abs(low), high + ROUNDING * abs(high)
    if low.ndim or high.ndim:
        low, high = (np.broadcast_to(np.reshape(bound, field.shape if bound.ndim else ()), field.shape)
                     for bound in (low, high))  # fmt: skip
        return replace(field, low=tuple(low.ravel().tolist()), high=tuple(high.ravel().tolist()))
    return replace(field, low=float(low), high=float(high))


class _Lanes(NamedTuple):
    """Constants for the comparison of all floats of one width at once, as one whole number with a lane for each float.

    Without their sign, the bits of floats are ordered like their magnitudes, and those of NaN and of infinities are
    above those of all others (IEEE 754-2019, section 3.4). So ``bound - magnitude`` keeps a bit set above each lane's
    magnitude where it is in range. This takes a microsecond for all of an observation, where NumPy takes three for each
    field.

    Attributes:
        take: returns the arrays of the values.
        size: their number of bytes.
        signs: the sign bit of every lane.
        highest: the highest value of each lane, with ``signs`` set.
        flips: turns the highest value of a lane into the magnitude of the lowest.
        shift: the number of bits of a magnitude.
    """

    take: Callable[[Any], tuple[Any, ...]]
    size: int
    signs: int
    highest: int
    flips: int
    shift: int


def _lanes(fields: Sequence[Field]) -> _Lanes:
    """Return the constants for fields of one float type, each of whose ranges contains 0."""
    names, bits = [field.name for field in fields], 8 * fields[0].numpy_dtype.itemsize
    low, high = (b"".join(abs(field.bounds[side]).tobytes() for field in fields) for side in (0, 1))
    lowest, highest = _from_bytes(low, "little"), _from_bytes(high, "little")
    signs = sum(1 << place for place in range(bits - 1, 8 * len(high), bits))
    take = itemgetter(*names) if len(names) > 1 else lambda values: (values[names[0]],)
    return _Lanes(take, len(high), signs, highest | signs, highest ^ lowest, bits - 1)


class _Fields:
    """The check of the fields of one mapping of values."""

    def __init__(self, spec: Spec, where: str) -> None:
        self._where = where
        self._spec = Spec(spec.name, tuple(_widened(field) for field in spec))
        floats: dict[str, list[Field]] = {}
        others: list[Field] = []
        for field in self._spec:
            (floats.setdefault(field.dtype, []) if _is_around_zero(field) else others).append(field)
        self._lanes = tuple(map(_lanes, floats.values()))
        self._whole = tuple((f.name, f.numpy_dtype, f.shape) for f in others if _takes_all(f))
        self._others = tuple(field for field in others if not _takes_all(field))
        self._forms = tuple((field.name, field.shape, field.numpy_dtype) for field in self._spec)
        self._is_counted = any(field.counted_by for field in spec)

    def first(self, values: Any) -> str | None:
        """Return what is wrong with the values, their shapes and types, or None.

        Further names are allowed: a robot may have more sensors than a task describes.
        """
        if not isinstance(values, Mapping):
            return f"{self._where} is a {type(values).__name__}, expected a mapping"
        described = {name: values[name] for name in self._spec.names if name in values}
        try:
            self._spec.validate(described, self._where)
        except IllegalAction as refused:
            return refused.violation.message
        for name, value in described.items():
            if not isinstance(value, np.ndarray | np.generic):
                return f"{self._where}.{name} is a {type(value).__name__}, expected an array of NumPy"
        return None

    def has_forms(self, values: Mapping[str, np.ndarray]) -> bool:
        """Return whether the values have exactly the names, shapes and types of the fields."""
        return len(values) == len(self._forms) and all(
            name in values and values[name].shape == shape and values[name].dtype == dtype
            for name, shape, dtype in self._forms
        )

    def next(self, values: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the values of a later frame, or None."""
        try:
            for take, size, signs, highest, flips, shift in self._lanes:
                joined = _join(take(values))
                bits = _from_bytes(joined, "little")
                sign = bits & signs
                bound = highest ^ (flips & (sign - (sign >> shift)))
                if (bound - (bits ^ sign)) & signs != signs or len(joined) != size:
                    return self.first(values)
            for name, dtype, shape in self._whole:
                if values[name].dtype != dtype or values[name].shape != shape:
                    return self.first(values)
            for field in self._others:
                field.validate(values[field.name], self._where)
        except Exception:  # whatever a world returns
            return self.first(values)
        return self.first(values) if self._is_counted else None


_join, _from_bytes = b"".join, int.from_bytes


def _is_around_zero(field: Field) -> bool:
    if field.is_text or field.counted_by or field.numpy_dtype.kind != "f":
        return False
    low, high = field.bounds
    return bool((low <= 0).all() and (high >= 0).all())


def _takes_all(field: Field) -> bool:
    """Return whether a field takes every value of its type, as that of an image does."""
    if field.is_text or field.counted_by or field.numpy_dtype.kind == "f":
        return False
    limits, (low, high) = np.iinfo(field.dtype), field.bounds
    return bool((low == limits.min).all() and (high == limits.max).all())


SIMULATED = 16
"""Number of frames, of a simulated robot, of which the observation of one is checked by default."""


def check_every(frames: object) -> int:
    """Return the setting ``check_outputs`` of an environment, a whole number of at least 0.

    Raises:
        ValueError: it is not such a number.
    """
    if not isinstance(frames, int | np.integer) or frames < 0:
        raise ValueError(
            f"check_outputs is {frames!r:.80}, it must be a whole number: n checks every n-th frame, and 0 none"
        )
    return int(frames)


class OutputCheck:
    """Find values of a world that do not fit its description: its observations, hidden states and rewards.

    Every reward is checked, and the observation and the hidden state of every n-th frame and of the first and the last.
    A float may lie outside its range by a millionth of the limit, for rounding. Shapes and types are checked in the
    first frame, and from then on where that costs nothing.

    Args:
        world: the world that returns the values.
        every: n, at least 1; None for 1, or `SIMULATED` for a simulated robot, where a check of every frame would take
            3 % of a step.
        right: the newest time step of a running episode.

    Attributes:
        right: the newest time step whose values were all found right.
        every: n.
        low, high: the range of a reward.
    """

    right: TimeStep

    def __init__(self, world: World, every: int | None = None, right: TimeStep | None = None) -> None:
        self._world = world
        if right is not None:
            self.right = right
        inner = task_world(world)
        self.every = every or (1 if inner is None or not RobotWrapper(inner.robot).simulated else SIMULATED)
        self._observation = _Fields(world.observation, "observation")
        self._state = _Fields(inner.task.state, "state") if inner is not None and len(inner.task.state) else None
        # The reward of a task has any range; the description of its world may need a message to a robot.
        self._reward: Field | None = None if inner is None else _REWARD
        self._has_begun = False
        self.low, self.high = (float(bound) for bound in _REWARD.bounds)

    def first(self, timestep: TimeStep) -> str | None:
        """Return what is wrong with the first time step of an episode, or None."""
        if self._has_begun:
            return self.next(timestep)
        if self._reward is None:
            self._reward = _widened(replace(self._world.description.reward, dtype="float64"))
        self.low, self.high = (float(bound) for bound in self._reward.bounds)
        problem = self._observation.first(timestep.observation) or self._reward_problem(timestep.reward)
        if problem is None and self._state is not None and "state" in timestep.extra_info:
            problem = self._state.first(timestep.extra_info["state"])
        if problem is None:
            self.right, self._has_begun = timestep, True
        return problem

    def next(self, timestep: TimeStep) -> str | None:
        """Return what is wrong with a time step after the first one, or None."""
        problem = self._reward_problem(timestep.reward) or self._observation.next(timestep.observation)
        if problem is None and self._state is not None and "state" in timestep.extra_info:
            problem = self._state.next(timestep.extra_info["state"])
        if problem is None:
            self.right = timestep
        return problem

    def _reward_problem(self, reward: Reward) -> str | None:
        if reward.__class__ is float and self.low <= reward <= self.high:
            return None
        field = self._reward or _REWARD
        if not isinstance(reward, Mapping):
            return _number_problem(field, reward, "reward")
        for agent, value in reward.items():
            problem = _number_problem(field, value, f"reward of {agent}")
            if problem is not None:
                return problem
        return None


def _number_problem(field: Field, value: object, name: str) -> str | None:
    if isinstance(value, bool | np.bool_):
        return f"{name} is {value!r}, expected a number"
    try:
        field.validate(value)
    except IllegalAction as refused:
        return refused.violation.message.replace(field.name, name, 1)
    return None


class _Column(NamedTuple):
    """The range of one field in a batch.

    Attributes:
        field: the field.
        lowest, highest: the ends of the range, if all elements have the same; else None.
    """

    field: Field
    lowest: float | None
    highest: float | None


class BatchOutputCheck:
    """Find the rows of a batch with values that do not fit the description of the task.

    Args:
        observation: the spec of one environment's observation.
        state: the spec of one environment's hidden state.
        num: N, whose values are compared at once; 0 compares those of each field by themselves.
    """

    def __init__(self, observation: Spec, state: Spec, num: int = 0) -> None:
        self._quick = tuple(_stacked(spec, num) for spec in (observation, state)) if num else (None, None)
        self._observation = tuple(_column(_widened(field)) for field in observation if not _takes_all(field))
        self._state = tuple(_column(_widened(field)) for field in state if not _takes_all(field))

    def problems(
        self,
        observation: Mapping[str, np.ndarray] | None,
        state: Mapping[str, np.ndarray] | None,
        reward: RewardValues | None,
    ) -> dict[int, str]:
        """Return row -> what is wrong with its values; empty if nothing is.

        Args:
            observation: name -> (N, ...), or None where it is not looked at.
            state: name -> (N, ...), or None where it is not computed.
            reward: (N,), or agent -> (N,); None after a reset.
        """
        found: dict[int, str] = {}
        if reward is not None:
            for agent, values in reward.items() if isinstance(reward, Mapping) else (("", reward),):
                numbers = np.asarray(values)
                total = sum(numbers.tolist()) if numbers.size <= _FEW else float(np.add.reduce(numbers))
                if not math.isfinite(total):
                    rows = np.flatnonzero(~np.isfinite(numbers))
                    name = f"reward of {agent}" if agent else "reward"
                    found |= {row: f"{name} is {numbers[row]}, expected a finite number" for row in rows.tolist()}
        quick, hidden_quick = self._quick
        if observation is not None and not _is_right(quick, observation):
            _find(found, self._observation, observation, "observation")
        if state is not None and not _is_right(hidden_quick, state):
            _find(found, self._state, state, "state")
        return found


_MOST = 4096
"""Largest number of values of a batch that are compared as one whole number."""


def _stacked(spec: Spec, num: int) -> _Fields | None:
    """Return the check of the values of all rows at once; None where that has no use."""
    if not len(spec) or any(f.is_text or f.counted_by or not _is_around_zero(f) for f in spec):
        return None
    if num * sum(field.size for field in spec) > _MOST:
        return None

    def of_all(bound: Any) -> Any:
        return bound * num if isinstance(bound, tuple) else bound

    fields = (replace(f, shape=(num, *f.shape), low=of_all(f.low), high=of_all(f.high), elements=()) for f in spec)
    return _Fields(Spec(spec.name, tuple(fields)), "rows")


def _is_right(check: _Fields | None, values: Mapping[str, np.ndarray]) -> bool:
    """Return whether all rows are at once seen to be right, in shapes, types and values."""
    return check is not None and check.has_forms(values) and check.next(values) is None


def _find(found: dict[int, str], columns: Iterable[_Column], values: Mapping[str, np.ndarray], where: str) -> None:
    for column in columns:
        value = values[column.field.name]
        if _is_legal(column, value):
            continue
        for row in range(len(value)):
            if row not in found:
                try:
                    column.field.validate(value[row], where)
                except IllegalAction as refused:
                    found[row] = refused.violation.message


def _column(field: Field) -> _Column:
    if field.is_text:
        return _Column(field, None, None)
    low, high = field.bounds
    same = bool(low.size and (low == low.flat[0]).all() and (high == high.flat[0]).all())
    return _Column(field, float(low.flat[0]), float(high.flat[0])) if same else _Column(field, None, None)


def _is_legal(column: _Column, value: np.ndarray) -> bool:
    """Return whether all rows are legal, as far as that is quickly seen."""
    field = column.field
    if field.is_text or value.shape[1:] != field.shape:
        return False
    if column.lowest is None or column.highest is None:
        low, high = field.bounds
        return bool(((value >= low) & (value <= high)).all())
    if value.size <= _FEW:
        numbers = value.ravel().tolist()
        return min(numbers) >= column.lowest and max(numbers) <= column.highest and math.isfinite(sum(numbers))
    return bool(value.min() >= column.lowest and value.max() <= column.highest)
