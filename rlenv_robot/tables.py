"""Tables 1 to 6 of T/CCF 0002-2025 as plain dictionaries (R2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType
from typing import Any, NotRequired, Protocol, TypeAlias, TypedDict, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from hal import IllegalAction, Spec, SpecError, Violation

__all__ = [
    "FRAME_NO_MAX",
    "RECORDED",
    "ActionChunkTable",
    "ActionTable",
    "BatchObservationTable",
    "BatchRewardTable",
    "ExtraInfo",
    "FieldValues",
    "HasStepExtra",
    "ObservationTable",
    "Options",
    "Reward",
    "RewardTable",
    "Rewards",
    "StepExtra",
    "StepTable",
    "TrajectoryTable",
    "VisualisationTable",
    "check_action_table",
    "check_behaviour",
    "check_chunk_table",
    "check_env_id",
    "check_extra_info",
    "check_options",
    "copied",
    "keywords_error",
    "step_extra_of",
]

FRAME_NO_MAX = 2**31 - 1
"""Largest frame number (int32, Table 1)."""

Options: TypeAlias = Mapping[str, object]
"""Options of a call by name, as given by a user, unchecked."""

ExtraInfo: TypeAlias = dict[str, Any]
"""A table's ``extra_info``: arrays, numbers, text and mappings of them, by the names in the description."""

FieldValues: TypeAlias = Mapping[str, ArrayLike]
"""Values by field, unchecked: arrays, or numbers and lists that NumPy converts to arrays."""

Reward: TypeAlias = float | Mapping[str, float]
"""The reward of one step; with several agents, by agent."""

_ACTION_KEYS = frozenset({"env_id", "frame_no", "action"})
_CHUNK_KEYS = ("env_id", "frame_no", "first_frame", "action")


Rewards: TypeAlias = np.ndarray | Mapping[str, np.ndarray]
"""Rewards with leading axes, such as those of a batch; with several agents, by agent."""


class ObservationTable(TypedDict):
    """Table 1. ``terminated`` and ``truncated`` are 0 or 1; ``frame_no`` is an int32."""

    env_id: str
    frame_no: int
    observation: Mapping[str, np.ndarray]
    extra_info: NotRequired[ExtraInfo]
    terminated: int
    truncated: int


class ActionTable(TypedDict):
    """Table 2. ``frame_no`` is that of the observation that the action answers."""

    env_id: str
    frame_no: int
    action: FieldValues


class ActionChunkTable(TypedDict):
    """Table 2 with the actions of K successive frames: each field of ``action`` has the shape (K, *field shape).

    ``frame_no`` is that of the observation that the chunk answers, which may be older than the present frame.
    ``first_frame`` is the frame to which the first action leads, at least ``frame_no + 1``. An empty ``action`` means
    that there is no new chunk; then ``frame_no`` is the present frame's, and ``first_frame`` may be left out once a
    chunk has been sent in the episode.
    """

    env_id: str
    frame_no: int
    first_frame: NotRequired[int]
    action: FieldValues


class RewardTable(TypedDict):
    """Table 3. ``reward`` is a number, or for several agents a dictionary from agent to number."""

    env_id: str
    frame_no: int
    reward: Reward


class VisualisationTable(TypedDict):
    """Table 4. The values of ``frame_data`` are copies.

    Its keys are ``image`` (None if the world has none), ``observation``, ``reward`` and ``extra_info``.
    """

    env_id: str
    frame_no: int
    frame_data: Mapping[str, object]


class BatchObservationTable(TypedDict):
    """Table 1 of N environments; arrays have a leading axis (N,)."""

    env_id: list[str]
    frame_no: np.ndarray
    observation: dict[str, np.ndarray]
    extra_info: ExtraInfo
    terminated: np.ndarray
    truncated: np.ndarray


class BatchRewardTable(TypedDict):
    """Table 3 of N environments: a reward of shape (N,), or for several agents a mapping from agent to such."""

    env_id: list[str]
    frame_no: np.ndarray
    reward: Rewards


class StepTable(TypedDict):
    """Table 5. In a batch every value has a leading axis."""

    env_id: np.ndarray
    frame_no: np.ndarray
    observation: Mapping[str, np.ndarray]
    action: Mapping[str, np.ndarray]
    reward: Rewards
    next_observation: NotRequired[Mapping[str, np.ndarray]]
    done: NotRequired[np.ndarray]
    extra_info: NotRequired[ExtraInfo]


class TrajectoryTable(TypedDict):
    """Table 6. ``steps_set`` is a Table 5 with a leading time axis in every value."""

    env_id: str
    trajectory_id: int
    steps_set: StepTable
    extra_info: NotRequired[ExtraInfo]


def check_options(options: object, call: str, example: str, allowed: Collection[str] | None = None) -> None:
    """Check the options of a call (``reset``, ``render``) before the call has any effect.

    Args:
        options: as given by a user.
        call: the method's name, for the message.
        example: legal options as Python text, for the message.
        allowed: the names of all options; None allows any name.

    Raises:
        ValueError: the options are not a mapping, or one of them is unknown.
    """
    if not isinstance(options, Mapping):
        raise ValueError(f"{call} got {options!r:.80}, expected a mapping of options such as {call}({example})")
    if allowed is None:
        return
    for name in options:
        if name not in allowed:
            raise ValueError(f"{call} option {name!r} is unknown, allowed are {', '.join(sorted(allowed))}")


def copied(extra_info: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of extra information that shares no array, dictionary or list with it."""
    own: dict[str, Any] = dict(extra_info)
    parts = [own]
    for part in parts:  # grows by the dictionaries in it
        for name, value in part.items():
            kind = type(value)
            if kind is np.ndarray:
                part[name] = value.copy()
            elif kind is dict:
                part[name] = inner = dict(value)
                parts.append(inner)
            elif kind not in _PLAIN:
                part[name] = deepcopy(value)
    return own


_PLAIN = frozenset({float, int, bool, str, bytes, NoneType})
"""Types whose values nobody can change."""


def keywords_error(call: str, keywords: Mapping[str, object]) -> TypeError:
    """Return the error about keywords of a call (``reset``, ``render``) that takes its options as a mapping."""
    return TypeError(
        f"{call} takes its options as one mapping: write {call}({dict(keywords)!r:.200}). "
        "rlenv_robot.to_gymnasium(env) takes Gymnasium's calls"
    )


def check_env_id(env_id: object) -> str:
    """Return the id of an environment if it is a string of 1 to 36 characters (Table 1).

    Raises:
        ValueError: it is not such a string.
    """
    if not isinstance(env_id, str):
        raise ValueError(f"env_id is a {type(env_id).__name__}, it must be a string of 1 to 36 characters")
    if not 1 <= len(env_id) <= 36:
        raise ValueError(f"env_id has {len(env_id)} characters, it must have 1 to 36: {env_id[:40]!r}")
    return env_id


def check_action_table(table: Any, env_id: str, frame_no: int) -> object:
    """Check Table 2, except for the action itself.

    Args:
        table: as sent by the agent.
        env_id: the required id of the environment.
        frame_no: the required frame number.

    Returns:
        The unchecked ``action``.

    Raises:
        IllegalAction: with code dtype, missing, unknown, env_id or frame_no.
    """
    if table.__class__ is dict and len(table) == 3:  # as a right table mostly is; the rest is looked at at leisure
        try:
            name, number, action = table["env_id"], table["frame_no"], table["action"]
        except KeyError:
            name = number = action = None
        if number.__class__ is int and number == frame_no and name.__class__ is str and name == env_id:
            return action
    violation = _table_violation(table, env_id, frame_no)
    if violation is not None:
        raise IllegalAction(violation)
    return table["action"]


def _table_violation(table: object, env_id: str, frame_no: int) -> Violation | None:
    if not isinstance(table, Mapping):
        expected = f"expected a mapping with {', '.join(ActionTable.__annotations__)} (Table 2)"
        return Violation("dtype", "", (), f"the action table is a {type(table).__name__}, {expected}")
    if table.keys() != _ACTION_KEYS:
        return _key_violation(table)
    got = table["env_id"]
    if not isinstance(got, str) or got != env_id:
        return Violation("env_id", "env_id", (), f"env_id is {got!r}, this environment is {env_id!r}")
    got = table["frame_no"]
    # Exactly a whole number: an array would compare to an array, True to 1.
    if isinstance(got, bool) or not isinstance(got, int | np.integer) or got != frame_no:
        message = f"frame_no is {got!r}, the current frame is {frame_no}: answer the newest observation"
        return Violation("frame_no", "frame_no", (), message)
    return None


def _key_violation(table: Mapping[object, object]) -> Violation:
    for key in table:
        if key not in _ACTION_KEYS:
            return Violation(
                "unknown", str(key), (), f"{key} is unknown in Table 2, allowed are env_id, frame_no, action"
            )
    missing = next(key for key in ("env_id", "frame_no", "action") if key not in table)
    return Violation("missing", missing, (), f"{missing} is missing, Table 2 requires env_id, frame_no and action")


def check_chunk_table(table: Mapping[Any, Any], env_id: str) -> tuple[int, int, Any]:
    """Check a chunk's table, except for the actions and the range of the frame numbers.

    Args:
        table: as sent by the agent, with the key ``first_frame``.
        env_id: the required id of the environment.

    Returns:
        ``frame_no``, ``first_frame`` and the unchecked ``action``.

    Raises:
        IllegalAction: with code dtype, missing, unknown or env_id.
    """
    for name in (*table, *_CHUNK_KEYS):
        if name not in _CHUNK_KEYS:
            words = f"{name} is unknown in a chunk's table, allowed are {', '.join(_CHUNK_KEYS)}"
            raise IllegalAction(Violation("unknown", str(name), (), words))
        if name not in table:
            words = f"{name} is missing, a chunk's table requires {', '.join(_CHUNK_KEYS)}"
            raise IllegalAction(Violation("missing", name, (), words))
    got = table["env_id"]
    if not isinstance(got, str) or got != env_id:
        raise IllegalAction(Violation("env_id", "env_id", (), f"env_id is {got!r}, this environment is {env_id!r}"))
    for name in ("frame_no", "first_frame"):
        if isinstance(table[name], bool) or not isinstance(table[name], int | np.integer):
            words = f"{name} is {table[name]!r:.80}, expected the whole number of a frame"
            raise IllegalAction(Violation("dtype", name, (), words))
    return int(table["frame_no"]), int(table["first_frame"]), table["action"]


def check_extra_info(extra_info: object) -> None:
    """Check the entries that every environment accepts beside the action, for the recorder.

    Raises:
        IllegalAction: it is not a mapping, ``log_probability`` is not a number (NaN for unknown is allowed),
            ``intervention`` is neither True nor False (nor 1 nor 0), or ``answers`` is not a whole number from -1.
    """
    if not isinstance(extra_info, Mapping):
        raise _wrong_extra("extra_info", f"is a {type(extra_info).__name__}, expected a mapping")
    probability = extra_info.get("log_probability", 0.0)
    if isinstance(probability, bool) or not isinstance(probability, int | float | np.integer | np.floating):
        raise _wrong_extra("extra_info.log_probability", f"is {probability!r}, expected a number (NaN if unknown)")
    intervention = extra_info.get("intervention", False)
    if not isinstance(intervention, bool | np.bool_ | int | np.integer) or intervention not in (0, 1):
        raise _wrong_extra("extra_info.intervention", f"is {intervention!r}, expected True or False")
    answers = extra_info.get("answers", 0)
    if isinstance(answers, bool) or not isinstance(answers, int | np.integer) or not -1 <= answers <= FRAME_NO_MAX:
        words = f"is {answers!r:.80}, expected the number of a frame, or -1 where the action answers none"
        raise _wrong_extra("extra_info.answers", words)


def _wrong_extra(field: str, problem: str) -> IllegalAction:
    return IllegalAction(Violation("dtype", field, (), f"{field} {problem}"))


# -- The extra information of a step, beside the action (clause 6.2.2.2) ---------------------------------------------

RECORDED: Mapping[str, str] = {
    "log_probability": "number, for the record: of the action under the policy that chose it; NaN if unknown",
    "intervention": "for the record: True if a person chose the action",
    "answers": "for the record: frame number of the observation that the action answers, -1 for none; by default the "
    "present frame's",
}
"""The entries that every environment accepts -> their meanings."""


@dataclass(frozen=True)
class StepExtra:
    """The entries of ``extra_info`` that a world's ``step`` accepts, in addition to those of every environment.

    Attributes:
        fields: the field of each value, such as the battery's charge. Values are checked like an action's, are passed
            to the world as arrays, and are recorded with the frame.
        defaults: name -> default value of a field. A field without a default is required.
        structures: name -> a description, for entries that no field describes. The world checks these itself, and they
            are not recorded.

    Raises:
        SpecError: a name is taken, or a default belongs to no field or does not fit it.
    """

    fields: Spec = Spec("step_extra")
    defaults: Mapping[str, ArrayLike] = field(default_factory=dict)
    structures: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        taken = [name for name in self.fields.names if name in RECORDED or name in self.structures or name in _TAKEN]
        if taken:
            raise SpecError(f"step's extra_info: {taken[0]!r} is the name of another entry, choose another name")
        checked = {}
        for name, value in self.defaults.items():
            try:
                array = np.array(self.fields[name].validate(value, "defaults"))
            except IllegalAction as error:
                raise SpecError(f"step's extra_info: {error}") from error
            array.setflags(write=False)
            checked[name] = array
        object.__setattr__(self, "defaults", checked)

    @cached_property
    def _allowed(self) -> frozenset[str]:
        return frozenset((*RECORDED, *_TAKEN, *self.structures, *self.fields.names))

    @property
    def required(self) -> Spec:
        """The fields without a default."""
        return Spec(self.fields.name, tuple(one for one in self.fields if one.name not in self.defaults))

    def read(self, extra_info: Mapping[str, object]) -> dict[str, object]:
        """Return the ``extra_info`` of a call: fields as arrays of their dtypes, with defaults for missing ones.

        Raises:
            IllegalAction: it is not a mapping, an entry is unknown or missing, or a value does not fit its field.
        """
        check_extra_info(extra_info)
        unknown = extra_info.keys() - self._allowed
        if unknown:
            name = min(unknown, key=str)
            allowed = ", ".join(sorted(self._allowed - _TAKEN))
            raise _wrong("unknown", f"extra_info.{name}", f"unknown, allowed are {allowed}")
        values = dict(extra_info)
        for one in self.fields:
            if one.name in values:
                # A copy: the caller's array stays the caller's, and a default can't be written to.
                values[one.name] = np.array(one.validate(values[one.name], "extra_info"))
            elif one.name in self.defaults:
                values[one.name] = np.array(self.defaults[one.name])
            else:
                raise _wrong("missing", f"extra_info.{one.name}", f"missing: {one.meaning or 'it has no default'}")
        return values


_TAKEN = frozenset({"behaviour"})
"""Names that `rlenv_robot.Environment` takes itself where it is asked to."""


def _wrong(code: str, name: str, problem: str) -> IllegalAction:
    return IllegalAction(Violation(code, name, (), f"{name} is {problem}"))


@runtime_checkable
class HasStepExtra(Protocol):
    """A `World` or a `rlenv_robot.tasks.task.Task` with further inputs beside the action in each step.

    A task's ``command`` and ``reward`` receive the values with the action, under the names of the fields, so that
    rewards of recorded steps can be recomputed. ``command`` returns none of them. A field must not have the name of an
    action field.
    """

    @property
    def step_extra(self) -> StepExtra:
        """The description of the further inputs."""
        ...


def step_extra_of(subject: object) -> StepExtra:
    """Return the ``extra_info`` entries that a world's or a task's ``step`` accepts; none if it declares none.

    A world that is not a `HasStepExtra` accepts the entries in its description (``EnvDescription.step_extra``).
    """
    if isinstance(subject, HasStepExtra):
        return subject.step_extra
    return StepExtra(structures=getattr(getattr(subject, "description", None), "step_extra", {}))


def check_behaviour(spec: Spec) -> Spec:
    """Return the spec of a behaviour distribution's parameters if a frame can hold it.

    Raises:
        SpecError: a field is not of a float type, so an unknown value (NaN) can't be recorded.
    """
    for one in spec:
        if one.numpy_dtype.kind != "f":
            raise SpecError(f"behaviour {one.name!r} is {one.dtype}, expected float32 or float64: NaN means unknown")
    return spec
