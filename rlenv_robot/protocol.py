"""Tables 1 to 6 of T/CCF 0002-2025 as plain dictionaries (R2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from hal import IllegalAction, Violation

__all__ = [
    "FRAME_NO_MAX",
    "ActionTable",
    "ObservationTable",
    "RewardTable",
    "StepTable",
    "TrajectoryTable",
    "VisualisationTable",
    "check_action_table",
    "check_env_id",
]

FRAME_NO_MAX = 2**31 - 1
"""Largest frame number (int32, Table 1)."""

_ACTION_KEYS = frozenset({"env_id", "frame_no", "action"})


class ObservationTable(TypedDict):
    """Table 1. ``terminated`` and ``truncated`` are 0 or 1; ``frame_no`` is an int32."""

    env_id: str
    frame_no: int
    observation: Mapping[str, Any]
    extra_info: NotRequired[dict[str, Any]]
    terminated: int
    truncated: int


class ActionTable(TypedDict):
    """Table 2. ``frame_no`` is that of the observation to which the action answers."""

    env_id: str
    frame_no: int
    action: Mapping[str, Any]


class RewardTable(TypedDict):
    """Table 3. ``reward`` is a number, or with several agents a dictionary from agent to number."""

    env_id: str
    frame_no: int
    reward: Any


class VisualisationTable(TypedDict):
    """Table 4."""

    env_id: str
    frame_no: int
    frame_data: Mapping[str, Any]


class StepTable(TypedDict):
    """Table 5. In a batch every value has a leading axis."""

    env_id: Any
    frame_no: Any
    observation: Mapping[str, Any]
    action: Mapping[str, Any]
    reward: Any
    next_observation: NotRequired[Mapping[str, Any]]
    done: NotRequired[Any]
    extra_info: NotRequired[dict[str, Any]]


class TrajectoryTable(TypedDict):
    """Table 6. ``steps_set`` is one Table 5 whose values have a leading time axis."""

    env_id: str
    trajectory_id: int
    steps_set: StepTable
    extra_info: NotRequired[dict[str, Any]]


def check_env_id(env_id: object) -> str:
    """The name of an environment: a string of 1 to 36 characters (Table 1).

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(env_id, str):
        raise ValueError(f"env_id is a {type(env_id).__name__}, it must be a string of 1 to 36 characters")
    if not 1 <= len(env_id) <= 36:
        raise ValueError(f"env_id has {len(env_id)} characters, it must have 1 to 36: {env_id[:40]!r}")
    return env_id


def check_action_table(table: Any, env_id: str, frame_no: int) -> Any:
    """Check all of Table 2 but the action itself.

    Args:
        table: what the agent sent.
        env_id, frame_no: what it must carry.

    Returns:
        The unchecked ``action``.

    Raises:
        IllegalAction: with code dtype, missing, unknown, env_id or frame_no.
    """
    try:
        if table["env_id"] == env_id and table["frame_no"] == frame_no and len(table) == 3:
            return table["action"]
    except (TypeError, KeyError):
        pass
    raise IllegalAction(_table_violation(table, env_id, frame_no))


def _table_violation(table: Any, env_id: str, frame_no: int) -> Violation:
    if not isinstance(table, Mapping):
        return Violation("dtype", "", (), f"the action table is a {type(table).__name__}, wanted a mapping (Table 2)")
    for key in table:
        if key not in _ACTION_KEYS:
            return Violation(
                "unknown", str(key), (), f"{key} is unknown in Table 2, allowed are env_id, frame_no, action"
            )
    for key in ("env_id", "frame_no", "action"):
        if key not in table:
            return Violation("missing", key, (), f"{key} is missing, Table 2 wants env_id, frame_no and action")
    got = table["env_id"]
    if got != env_id:
        return Violation("env_id", "env_id", (), f"env_id is {got!r}, this environment is {env_id!r}")
    message = f"frame_no is {table['frame_no']!r}, the current frame is {frame_no}: answer the newest observation"
    return Violation("frame_no", "frame_no", (), message)
