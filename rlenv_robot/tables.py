"""Tables 1 to 6 of T/CCF 0002-2025 as plain dictionaries (R2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NotRequired, TypeAlias, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from hal import IllegalAction, Violation

__all__ = [
    "FRAME_NO_MAX",
    "ActionTable",
    "BatchObservationTable",
    "BatchRewardTable",
    "ExtraInfo",
    "FieldValues",
    "ObservationTable",
    "Options",
    "Reward",
    "RewardTable",
    "Rewards",
    "StepTable",
    "TrajectoryTable",
    "VisualisationTable",
    "check_action_table",
    "check_env_id",
    "check_extra_info",
    "check_options",
]

FRAME_NO_MAX = 2**31 - 1
"""Largest frame number (int32, Table 1)."""

Options: TypeAlias = Mapping[str, object]
"""Options of a call by name, as a user gives them, unchecked."""

ExtraInfo: TypeAlias = dict[str, Any]
"""A table's ``extra_info``: arrays, numbers, text and mappings of them, by the names that the description lists."""

FieldValues: TypeAlias = Mapping[str, ArrayLike]
"""Values by field, unchecked: arrays, or numbers and lists that NumPy makes arrays of."""

Reward: TypeAlias = float | Mapping[str, float]
"""The reward of one step; with several agents, by agent."""

_ACTION_KEYS = frozenset({"env_id", "frame_no", "action"})


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
    """Table 2. ``frame_no`` is that of the observation to which the action answers."""

    env_id: str
    frame_no: int
    action: FieldValues


class RewardTable(TypedDict):
    """Table 3. ``reward`` is a number, or with several agents a dictionary from agent to number."""

    env_id: str
    frame_no: int
    reward: Reward


class VisualisationTable(TypedDict):
    """Table 4."""

    env_id: str
    frame_no: int
    frame_data: Mapping[str, np.ndarray]


class BatchObservationTable(TypedDict):
    """Table 1 of N environments; arrays have a leading axis (N,)."""

    env_id: list[str]
    frame_no: np.ndarray
    observation: dict[str, np.ndarray]
    extra_info: ExtraInfo
    terminated: np.ndarray
    truncated: np.ndarray


class BatchRewardTable(TypedDict):
    """Table 3 of N environments: a reward of shape (N,), or with several agents one for each of them."""

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
    """Table 6. ``steps_set`` is one Table 5 whose values have a leading time axis."""

    env_id: str
    trajectory_id: int
    steps_set: StepTable
    extra_info: NotRequired[ExtraInfo]


def check_options(options: object, call: str, example: str, allowed: Collection[str] | None = None) -> None:
    """Check the options of a call (``reset``, ``render``) before it does anything.

    Args:
        options: as a user gave them.
        call: the method's name, for the message.
        example: legal options as Python text, for the message.
        allowed: the names of all options; None checks no names.

    Raises:
        ValueError: they are no mapping, or one of them is unknown.
    """
    if not isinstance(options, Mapping):
        raise ValueError(f"{call} got {options!r:.80}, expected a mapping of options such as {call}({example})")
    if allowed is None:
        return
    for name in options:
        if name not in allowed:
            raise ValueError(f"{call} option {name!r} is unknown, allowed are {', '.join(sorted(allowed))}")


def check_env_id(env_id: object) -> str:
    """Return the name of an environment, if it is a string of 1 to 36 characters (Table 1).

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(env_id, str):
        raise ValueError(f"env_id is a {type(env_id).__name__}, it must be a string of 1 to 36 characters")
    if not 1 <= len(env_id) <= 36:
        raise ValueError(f"env_id has {len(env_id)} characters, it must have 1 to 36: {env_id[:40]!r}")
    return env_id


def check_action_table(table: Any, env_id: str, frame_no: int) -> object:
    """Check all of Table 2 but the action itself.

    Args:
        table: what the agent sent.
        env_id, frame_no: what it must carry.

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
    return Violation("missing", missing, (), f"{missing} is missing, Table 2 wants env_id, frame_no and action")


def check_extra_info(extra_info: object) -> None:
    """Check what every environment takes beside the action: the recorder's two entries.

    Raises:
        IllegalAction: it is no mapping, ``log_probability`` is no number (NaN is: unknown), or
            ``intervention`` is neither True nor False (nor 1 nor 0).
    """
    if not isinstance(extra_info, Mapping):
        raise _wrong_extra("extra_info", f"is a {type(extra_info).__name__}, expected a mapping")
    probability = extra_info.get("log_probability", 0.0)
    if isinstance(probability, bool) or not isinstance(probability, int | float | np.integer | np.floating):
        raise _wrong_extra("extra_info.log_probability", f"is {probability!r}, expected a number (NaN if unknown)")
    intervention = extra_info.get("intervention", False)
    if not isinstance(intervention, bool | np.bool_ | int | np.integer) or intervention not in (0, 1):
        raise _wrong_extra("extra_info.intervention", f"is {intervention!r}, expected True or False")


def _wrong_extra(field: str, problem: str) -> IllegalAction:
    return IllegalAction(Violation("dtype", field, (), f"{field} {problem}"))
