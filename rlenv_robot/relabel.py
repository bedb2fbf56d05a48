"""A task's observation, reward and ends, computed anew from recorded sensors (R3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hal import IllegalAction, SourceError, Spec
from recorder.frames import FrameLayout
from recorder.table import Table
from recorder.transitions import columns
from rlenv_robot.task import Arrays, Task

__all__ = ["Goal", "Sensors", "relabelled"]

Goal = str | Mapping[str, Any]
"""``recorded``: the episode's own; ``hindsight``: what the episode reached; or a goal (name -> value) for all."""

Sensors = Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Sensors from recorded observations and actions, each with a leading time axis, for data without sensors."""


def relabelled(table: Table, task: Task, goal: Goal = "recorded", sensors: Sensors | None = None) -> Table:
    """The same episodes as the task would have seen, rewarded and ended them.

    The task's pure functions run over each episode's time axis: the very code that rewards a live step. What
    comes after the task's own end is left out, as nobody could have acted there; where the log was terminated
    and the task is not, the data simply end. A refused action's reward stays 0.

    Args:
        table: with the robot's sensors, or with ``sensors`` to compute them.
        task: whose action the data must hold.
        goal: see `Goal`.
        sensors: see `Sensors`; used in place of recorded ones.

    Returns:
        A new table in the task's observation; each episode's record has ``task``, ``goal`` (plain),
        ``success`` (at the last frame) and ``return`` of this task.

    Raises:
        SourceError: sensors, actions or goals are missing or don't fit the task, or it has no hindsight.
    """
    _check_action(table, task)
    old = table.layout
    layout = FrameLayout(task.observation, old.action, (), old.applied, old.sensors)
    rows = layout.spec.rows(len(table.rows))
    for name in set(rows.dtype.names or ()) & set(table.rows.dtype.names or ()):
        if not name.startswith("observation_"):
            rows[name] = table.rows[name]
    stops, episodes = table.stops.copy(), []
    for number, (start, stop) in enumerate(zip(table.starts, table.stops, strict=True)):
        record = table.episodes[number]
        if stop <= start:
            episodes.append(dict(record))
            continue
        measured = _Measured(_sensors(table, start, stop, sensors), task, table.origin)
        wanted = _goal(goal, task, measured, record, number)
        stops[number] = start + _fill(rows[start:stop], task, measured, wanted)
        episodes.append(_record(record, rows[start : stops[number]], task, measured, wanted))
    note = f"observation, reward and ends are computed anew for {task.name} with goal {_goal_name(goal)}"
    return replace(table, layout=layout, rows=rows, stops=stops, episodes=tuple(episodes), notes=(*table.notes, note))


class _Measured(dict[str, np.ndarray]):
    """Sensors by name that say what is missing, since a task only names a sensor by reading it."""

    def __init__(self, values: Mapping[str, np.ndarray], task: Task, origin: str) -> None:
        super().__init__(values)
        self._task, self._origin = task, origin

    def __missing__(self, name: str) -> np.ndarray:
        wanted = sorted({name, *(n for n in self._task.observation.names if n not in self._task.goal)})
        raise SourceError(
            f"task {self._task.name!r} needs the sensor {name!r} of a {self._task.robot!r} (it observes "
            f"{', '.join(wanted)}), {self._origin} has {', '.join(self) or 'no sensors'}; if they can be computed "
            "from what was observed, give sensors=<function of observation and action>"
        )


def _check_action(table: Table, task: Task) -> None:
    have = table.layout.action
    for field in task.action:
        if field.name not in have or have[field.name].shape != field.shape:
            listed = ", ".join(f"{one.name} {one.shape}" for one in have) or "none"
            raise SourceError(
                f"task {task.name!r} needs the action {field.name!r} of shape {field.shape}, "
                f"{table.origin} has {listed}; these are not data of this task's robot"
            )


def _sensors(table: Table, start: int, stop: int, compute: Sensors | None) -> Mapping[str, np.ndarray]:
    block = table.rows[start:stop]
    if compute is None:
        return columns(block, table.layout.sensors, "sensor")
    observation = columns(block, table.layout.observation, "observation")
    return compute(observation, columns(block, table.layout.action, "action"))


def _goal_name(goal: Goal) -> str:
    return repr(goal) if isinstance(goal, str) else "given by the user"


def _goal(goal: Goal, task: Task, measured: Arrays, record: Mapping[str, Any], number: int) -> Arrays:
    if isinstance(goal, str) and goal == "hindsight":
        return _hindsight(task, measured)
    if not isinstance(goal, str):
        values: Mapping[str, Any] | None = goal
        where = "goal"
    elif goal == "recorded":
        values = record.get("goal", None if len(task.goal) else {})
        where = f"episode {number}: goal"
    else:
        raise SourceError(
            f"goal is {goal!r}, allowed are 'recorded', 'hindsight' or a mapping with {_names(task.goal)}"
        )
    if values is None:
        raise SourceError(
            f"episode {number} has no goal recorded, task {task.name!r} needs {_names(task.goal)}; "
            "give goal={...} for all episodes, or goal='hindsight'"
        )
    try:
        return task.goal.validate(values, where)
    except IllegalAction as error:
        raise SourceError(f"{error} (task {task.name!r})") from None


def _names(spec: Spec) -> str:
    return ", ".join(spec.names) or "nothing"


def _hindsight(task: Task, measured: Arrays) -> Arrays:
    reached = getattr(task, "hindsight", None)
    if reached is None:
        raise SourceError(
            f"goal='hindsight': task {task.name!r} can't say which goal was reached, since it has no method "
            "hindsight(sensors) -> goal; give a goal, or use the recorded ones"
        )
    return {name: np.asarray(value) for name, value in reached(measured).items()}


def _fill(rows: np.ndarray, task: Task, measured: _Measured, goal: Arrays) -> int:
    """Write one episode's rows; returns how many of them count."""
    seen = task.observe(measured, goal)
    for name in task.observation.names:
        # Through the sensors where the task passes them on unseen, so that the message is the same.
        rows[f"observation_{name}"] = seen[name] if name in seen else measured[name]
    before, after = ({name: value[cut] for name, value in measured.items()} for cut in (slice(-1), slice(1, None)))
    action = {name: rows[f"action_{name}"][1:] for name in task.action.names}
    sensors, following = (_Measured(part, task, measured._origin) for part in (before, after))
    rows["reward"][0] = 0.0
    rows["reward"][1:] = np.where(rows["acted"][1:] == 1, task.reward(sensors, action, following, goal), 0.0)
    rows["terminated"] = task.terminated(measured, goal)
    ends = np.flatnonzero(rows["terminated"])
    count = int(ends[0]) + 1 if len(ends) else len(rows)
    rows["truncated"][:count] &= 1 - rows["terminated"][:count]
    return count


def _record(record: Mapping[str, Any], rows: np.ndarray, task: Task, measured: Arrays, goal: Arrays) -> dict[str, Any]:
    last = {name: value[len(rows) - 1] for name, value in measured.items()}
    return {
        **record,
        "task": task.name,
        "goal": {name: np.asarray(value).tolist() for name, value in goal.items()},
        "success": bool(task.success(last, goal)),
        "return": float(rows["reward"].sum()),
    }
