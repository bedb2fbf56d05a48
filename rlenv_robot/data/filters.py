"""Filter transitions (R6.2), and explain why a filter can't be applied or leaves nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from hal import Field, IllegalAction, SourceError, Spec
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import is_success
from recorder.table.selection import Selection
from recorder.table.transitions import Transitions
from rlenv_robot.data.condition import Condition, condition_of
from rlenv_robot.data.episode_records import COLUMNS, episode_records, is_expert, sql_row
from rlenv_robot.data.options import NearOption, Tolerance
from rlenv_robot.tables import FieldValues, Options

__all__ = ["episodes_of", "near", "need_rewards", "select", "shaped"]

_T = TypeVar("_T")


def select(transitions: Transitions, options: Options) -> Selection:
    """Apply the filters among the options, in the order of `rlenv_robot.data.options.FILTERS`.

    Episodes that a person discarded pass only if ``verdict`` or ``episodes`` selects them explicitly.

    ============== =====================================================================================
    episodes       numbers of episodes, or a slice of them
    source, policy the episode's record has this word, or one of these
    verdict        the person's verdict on the episode is this word, or one of these
    task_text      the text of the episode's task contains this text, or one of these, in any case
    tag            the episode has this tag, or one of these
    robot          the robot's name is this word, or one of these
    min_steps      the episode has at least so many frames after the first one
    max_steps      the episode has at most so many
    began_from     the episode began at this date or time (ISO 8601, in UTC without a zone) or later
    began_until    the episode began at this date or time or earlier; a date includes its whole day
    where          a condition on the columns of `rlenv_robot.data.episode_records`, see
                   `rlenv_robot.data.condition.Condition`
    expert         the record's ``expert``, else whether its source is ``expert``
    success        whether a person's verdict is ``success`` or ``failure``, else the record's ``success``
    min_return     the episode's undiscounted return is at least this
    top_fraction   the share with the highest returns among the remaining episodes, at least one
    intervention   steps whose action a person chose (True) or did not choose (False)
    near           steps whose observation, action or both lie within ``tolerance`` of the given values in
                   every element (the largest difference counts); ``tolerance`` is a number or one a field
    ============== =====================================================================================

    Returns:
        The positions that pass; at least one.

    Raises:
        SourceError: a filter needs data that were not recorded, or nothing is left.
    """
    passing = _not_discarded(transitions, options)
    if len(transitions) and not len(passing):
        raise SourceError(
            f"a person discarded all episodes of {transitions.table.origin}; verdict='discard' asks for them"
        )
    conditions = _Conditions(transitions, options)
    for name, function in _FILTERS.items():
        if name not in options:
            continue
        apply = conditions.apply if function is None else function
        left = passing & apply(transitions, options[name], passing, name)
        if not len(left):
            raise SourceError(_nothing_left(transitions, name, options[name], passing))
        passing = left
    return passing


def episodes_of(transitions: Transitions, selection: Selection) -> np.ndarray:
    """Return the numbers of the episodes with a transition in a selection, ascending."""
    return np.flatnonzero(selection.touched(transitions.first, transitions.last))


def _not_discarded(transitions: Transitions, options: Options) -> Selection:
    if not options.keys().isdisjoint(("verdict", "episodes")):
        return Selection.everything(len(transitions))
    passes = [record.get("verdict") != "discard" for record in transitions.table.episodes]
    return _by_episode(transitions, np.array(passes, bool))


def _nothing_left(transitions: Transitions, name: str, value: object, before: Selection) -> str:
    detail = ""
    if name == "min_return":
        detail = f"; the highest return among them is {transitions.returns[episodes_of(transitions, before)].max():g}"
    elif name in _DESCRIBED:
        words = (_DESCRIBED[name](record) for record in episode_records(transitions.table, costly=(name,)))
        counts = Counter(word for several in words for word in several)
        detail = "; recorded are " + (
            ", ".join(f"{word} ({n} episodes)" for word, n in counts.most_common(8)) or "none"
        )
    elif name in ("source", "policy", "verdict"):
        counts = Counter(str(record.get(name)) for record in transitions.table.episodes)
        detail = "; recorded are " + ", ".join(f"{word} ({count} episodes)" for word, count in counts.items())
    return (
        f"{name}={value!r} leaves nothing of {transitions.table.origin}: "
        f"none of the {len(before)} steps up to this filter fits{detail}"
    )


_DESCRIBED: Mapping[str, Callable[[JsonObject], Sequence[object]]] = {
    "task_text": lambda record: [record["task_text"]],
    "robot": lambda record: [record["robot"]],
    "tag": lambda record: cast("list[str]", record["tags"]),
}
"""Filters -> the words of a record that they compare."""


def need_rewards(transitions: Transitions, what: str, used: Selection | np.ndarray | None = None) -> None:
    """Raise an error if a reward is unknown.

    Args:
        transitions: the recorded transitions.
        what: the use of the rewards, for the message.
        used: the transitions in use, whose whole episodes must have rewards, or the numbers of these episodes. None is
            all.

    Raises:
        SourceError: a reward is NaN or infinite.
    """
    if not transitions.unrewarded.any():
        return
    if used is None:
        used = Selection.everything(len(transitions))
    episodes = episodes_of(transitions, used) if isinstance(used, Selection) else np.unique(used)
    unknown = episodes[transitions.unrewarded[episodes]]
    if len(unknown):
        listed = ", ".join(map(str, unknown[:5].tolist())) + (", ..." if len(unknown) > 5 else "")
        raise SourceError(
            f"{what} needs rewards, but in {len(unknown)} of the {len(episodes)} episodes some are NaN or infinite "
            f"({transitions.table.origin}, episode {listed}); leave these out with episodes=, or give a task that "
            "computes rewards from the sensors: open_source(path, task=...)"
        )


def near(rows: np.ndarray, spec: Spec, prefix: str, values: FieldValues, tolerance: Tolerance) -> np.ndarray:
    """Return which rows' fields lie within the tolerance of the given values, in every element.

    Args:
        rows: frame rows, (B,).
        spec: the fields of a group.
        prefix: the group's name, such as ``observation``.
        values: field -> value; missing fields are ignored.
        tolerance: a number, or a mapping from field to number; fields missing there, and texts, must be equal.

    Returns:
        (B,) bool.

    Raises:
        SourceError: a field is unknown or a value does not have its shape.
    """
    if isinstance(tolerance, Mapping) and not tolerance.keys() <= set(spec.names):
        raise SourceError(f"tolerance names {', '.join(tolerance)}; {prefix} has {', '.join(spec.names)}")
    fits = np.ones(len(rows), bool)
    for name, given_value in values.items():
        value = shaped(spec, prefix, name, given_value)
        allowed = float(tolerance.get(name, 0.0) if isinstance(tolerance, Mapping) else tolerance)
        recorded = rows[f"{prefix}_{name}"]
        inside = recorded == value if spec[name].is_text else np.abs(recorded.astype(float) - value) <= allowed
        fits &= inside.all(axis=tuple(range(1, inside.ndim)))
    return fits


def shaped(spec: Spec, prefix: str, name: str, value: ArrayLike) -> np.ndarray:
    """Return a value as an array with the shape and dtype of a field.

    Raises:
        SourceError: the field is unknown, or the value does not have its shape.
    """
    if name not in spec:
        raise SourceError(f"{prefix}.{name} is unknown, the data have {', '.join(spec.names)}")
    field = spec[name]
    try:
        # Only shape and kind: a recorded value may lie outside of the range that was described.
        return Field(name, field.shape, field.dtype, characters=field.characters).validate(value, prefix)
    except IllegalAction as error:
        raise SourceError(str(error)) from None


_Filter = Callable[[Transitions, Any, Selection, str], Selection]
"""A filter: takes all transitions, the option's value (checked by `read`), the steps left so far, and the option's name
for messages; returns the steps that pass.
"""

_BLOCK = 1 << 18
"""Steps that are looked at in one go."""


def _by_episode(transitions: Transitions, passes: np.ndarray) -> Selection:
    return Selection(transitions.first[passes], transitions.last[passes])


def _by_step(before: Selection, passes: Callable[[np.ndarray], np.ndarray]) -> Selection:
    """Return the steps left so far that pass a test of positions, (B,) to (B,) bool."""
    parts = [Selection.of(block[passes(block)]) for block in before.blocks(_BLOCK)]
    return Selection(np.concatenate([part.first for part in parts]), np.concatenate([part.stop for part in parts]))


def _episodes(transitions: Transitions, value: slice | Sequence[int], before: Selection, name: str) -> Selection:
    count = len(transitions.first)
    passes = np.zeros(count, bool)
    if isinstance(value, slice):
        passes[value] = True
    else:
        numbers = np.asarray(value, np.int64)
        wrong = numbers[(numbers < 0) | (numbers >= count)]
        if len(wrong):
            raise SourceError(f"there is no episode {wrong[0]}, {transitions.table.origin} has 0 to {count - 1}")
        passes[numbers] = True
    return _by_episode(transitions, passes)


def _recorded(transitions: Transitions, values: list[_T], name: str) -> list[_T]:
    """Return the values, or refuse if no episode records one."""
    if all(value is None for value in values):
        raise SourceError(f"{name}: not one of the {len(values)} episodes of {transitions.table.origin} records it")
    return values


def _labelled(transitions: Transitions, value: str | Sequence[str], before: Selection, name: str) -> Selection:
    words = _recorded(transitions, [record.get(name) for record in transitions.table.episodes], name)
    allowed = {value} if isinstance(value, str) else set(value)
    return _by_episode(transitions, np.array([word in allowed for word in words], bool))


class _Conditions:
    """The filters among some options that stand for conditions on episodes, whose records are built once for all.

    Args:
        transitions: the recorded transitions.
        options: all filters.
    """

    def __init__(self, transitions: Transitions, options: Options) -> None:
        self._table = transitions.table
        self._conditions = {
            name: Condition(condition_of({name: options[name]}), COLUMNS)
            for name, function in _FILTERS.items()
            if function is None and name in options
        }

    @cached_property
    def _records(self) -> list[JsonDict]:
        used = set[str]().union(*(condition.used for condition in self._conditions.values()))
        return episode_records(self._table, costly=used)

    def apply(self, transitions: Transitions, value: object, before: Selection, name: str) -> Selection:
        """Apply one of the filters, as a `_Filter`."""
        condition = self._conditions[name]
        if "return" in condition.used:
            need_rewards(transitions, name, before)
        columns = sorted(condition.used)
        rows = [sql_row(record, columns) for record in self._records]
        return _by_episode(transitions, np.array(condition.passing(rows, columns), bool))


def _judged(judge: Callable[[JsonObject], bool | None]) -> _Filter:
    def passes(transitions: Transitions, value: bool, before: Selection, name: str) -> Selection:
        judgements = _recorded(transitions, [judge(record) for record in transitions.table.episodes], name)
        return _by_episode(
            transitions, np.array([judged is not None and judged == value for judged in judgements], bool)
        )

    return passes


def _min_return(transitions: Transitions, value: float, before: Selection, name: str) -> Selection:
    need_rewards(transitions, name, before)
    return _by_episode(transitions, transitions.returns >= value)


def _top_fraction(transitions: Transitions, value: float, before: Selection, name: str) -> Selection:
    need_rewards(transitions, name, before)
    left = episodes_of(transitions, before)
    best = left[np.argsort(-transitions.returns[left], kind="stable")]
    # 0.1 * 30 is a hair above 3, which must not make it 4.
    keep = max(1, math.ceil(round(value * len(best), 9)))
    passes = np.zeros(len(transitions.first), bool)
    passes[best[:keep]] = True
    return _by_episode(transitions, passes)


def _of_group(tolerance: Tolerance, values: FieldValues, groups: Mapping[str, FieldValues]) -> Tolerance:
    """Return the tolerances of one group's fields from a mapping for both groups."""
    if not isinstance(tolerance, Mapping):
        return tolerance
    asked = {name for fields in groups.values() for name in fields}
    if not tolerance.keys() <= asked:
        raise SourceError(f"near: tolerance names {', '.join(tolerance)}; the fields asked for are {', '.join(asked)}")
    return {name: tolerance[name] for name in values if name in tolerance}


def _intervention(transitions: Transitions, value: bool, before: Selection, name: str) -> Selection:
    return _by_step(before, lambda block: (transitions.next_rows(block, "intervention") != 0) == value)


def _near(transitions: Transitions, value: NearOption, before: Selection, name: str) -> Selection:
    layout, tolerance = transitions.table.layout, value.get("tolerance", 0.0)
    groups = {"observation": value.get("observation", {}), "action": value.get("action", {})}

    def passes(block: np.ndarray) -> np.ndarray:
        fits = np.ones(len(block), bool)
        for prefix, spec, rows in (
            ("observation", layout.observation, transitions.rows),
            ("action", layout.action, transitions.next_rows),
        ):
            values = groups[prefix]
            fits &= near(rows(block), spec, prefix, values, _of_group(tolerance, values, groups))
        return fits

    return _by_step(before, passes)


_FILTERS: Mapping[str, _Filter | None] = {
    "episodes": _episodes,
    "source": _labelled,
    "policy": _labelled,
    "expert": _judged(is_expert),
    "success": _judged(is_success),
    "verdict": _labelled,
    "task_text": None,
    "tag": None,
    "robot": None,
    "min_steps": None,
    "max_steps": None,
    "began_from": None,
    "began_until": None,
    "where": None,
    "min_return": _min_return,
    "top_fraction": _top_fraction,
    "intervention": _intervention,
    "near": _near,
}
"""Filter -> its function; None for one that stands for a condition on episodes."""
