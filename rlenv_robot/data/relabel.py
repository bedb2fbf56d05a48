"""Recompute a task's observation and reward from recorded sensors (R3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hal import Field, IllegalAction, SourceError, Spec
from recorder.formats.runs import NO_REWARDS
from recorder.frame_layout import EXTRA_PREFIX, FrameLayout, reward_field
from recorder.json_data import JsonDict, JsonObject
from recorder.table.memory import RowSpool
from recorder.table.table import Table
from recorder.table.transitions import columns
from rlenv_robot.tables import FieldValues, Rewards, step_extra_of
from rlenv_robot.tasks.agents import agents_of
from rlenv_robot.tasks.episode_rules import Outcome, verdict_reward
from rlenv_robot.tasks.task import Arrays, AveragedTask, GoalTask, PeakTask, Task

__all__ = ["Goal", "Sensors", "relabelled"]

Goal = str | FieldValues
"""``recorded``: the episode's goal; ``hindsight``: the goal that it reached; or one goal (name -> value) for all."""

Sensors = Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], Mapping[str, np.ndarray]]
"""Compute sensors from recorded observations and actions with a leading time axis, for data without sensors."""


def relabelled(
    table: Table, task: Task, goal: Goal = "recorded", sensors: Sensors | None = None, ends: str = "recorded"
) -> Table:
    """Return the same episodes with the observations and rewards of a task.

    The task's pure functions run over each episode's time axis: the same code that rewards a live step. A refused
    action's reward stays 0. The task's reward for a person's verdict is added to the last step.

    Args:
        table: with the robot's sensors, or with ``sensors`` to compute them.
        task: the task; the data must contain its action, as the action or else as the applied command.
        goal: see `Goal`.
        sensors: see `Sensors`; used instead of recorded ones.
        ends: ``recorded`` keeps each episode's end; ``task`` ends it where the task would have ended, and drops the
            rest; if the log was terminated and the task is not, the data end without a flag.

    Returns:
        A new table with the task's observation and action. Each episode's record has ``task``, ``goal`` (JSON data),
        ``success`` and ``metrics`` (at the last frame) and ``return`` of this task. A note says in how many episodes
        the task ends before the recording.

    Raises:
        SourceError: sensors, actions or goals are missing or don't fit the task, or it has no hindsight.
    """
    if ends not in ("recorded", "task"):
        raise SourceError(f"ends is {ends!r}, allowed are 'recorded' and 'task'")
    if table.layout.turns:
        raise SourceError(
            f"{table.origin} was recorded one agent at a time, and a task rewards joint actions; omit task, or "
            "record the environment itself, without one_at_a_time"
        )
    _check_conventions(table, task)
    layout, group = _task_layout(table, task), _action_group(table, task)
    spool = RowSpool(layout.spec.row_dtype)
    starts, stops = np.zeros_like(table.starts), np.zeros_like(table.stops)
    episodes, early = [dict(record) for record in table.episodes], 0
    for number, (start, stop) in enumerate(zip(table.starts.tolist(), table.stops.tolist(), strict=True)):
        starts[number] = stops[number] = spool.count
        if stop <= start:
            continue
        rows = _task_rows(table.rows[start:stop], layout, group)
        _fill_step_extra(rows, task, table)
        measured = _Measured(_sensors(table, start, stop, sensors), task, table.origin)
        episode_goal = _goal(goal, task, measured, episodes[number], number)
        _write_observation_and_reward(rows, task, measured, episode_goal)
        over = np.asarray(task.terminated(measured, episode_goal), bool)
        early += bool(over[1:-1].any())
        if ends == "task":
            rows = rows[: _set_ends(rows, over)]
        _add_verdict_reward(rows, layout, task, episodes[number].get("verdict"))
        episodes[number] |= _episode_facts(rows, task, measured, episode_goal)
        spool.add(rows)
        stops[number] = spool.count
    notes_before = [note for note in table.notes if note != NO_REWARDS]
    notes = [*notes_before, f"observation and reward are recomputed for {task.name} with goal {_goal_name(goal)}"]
    if early:
        happened = "ends are moved there" if ends == "task" else "ends='task' would end them there"
        notes.append(f"{task.name} is over before the recording in {early} of {len(episodes)} episodes; {happened}")
    relabelled_table = replace(table, layout=layout, rows=spool.rows(), starts=starts, stops=stops)
    return replace(relabelled_table, episodes=tuple(episodes), notes=tuple(notes))


def _check_conventions(table: Table, task: Task) -> None:
    """Refuse angles whose zero or sign is not the task's.

    Raises:
        SourceError: naming each field and both conventions.
    """
    recorded = (table.layout.sensors, table.layout.applied, table.layout.observation, table.layout.action)
    lines = [line for spec in (task.observation, task.action) for other in recorded
             for line in spec.conflicting_conventions(other)]  # fmt: skip
    if lines:
        raise SourceError(
            f"{table.origin} can't be rewarded as {task.name}: {'; '.join(dict.fromkeys(lines))}. "
            "Record the episodes again with this version, or open them without a task"
        )


def _task_layout(table: Table, task: Task) -> FrameLayout:
    """Return the layout of rows with the task's observation and action; the rest stays as recorded."""
    agents = tuple(agent.name for agent in agents_of(task))
    recorded = table.layout
    extra = step_extra_of(task).fields
    return FrameLayout(
        task.observation, task.action, agents, recorded.applied, recorded.sensors,
        extra=extra if len(extra) else recorded.extra, behaviour=recorded.behaviour, answers=recorded.answers,
    )  # fmt: skip


def _task_rows(recorded: np.ndarray, layout: FrameLayout, group: str) -> np.ndarray:
    """Return one episode's rows in the task's layout, with the actions from a group of the recorded fields."""
    rows = layout.spec.rows(len(recorded))
    for name in set(rows.dtype.names or ()) & set(recorded.dtype.names or ()):
        if not name.startswith(("observation_", "action_")):
            rows[name] = recorded[name]
    for name in layout.action.names:
        rows[f"action_{name}"] = recorded[f"{group}_{name}"]
    return rows


def _fill_step_extra(rows: np.ndarray, task: Task, table: Table) -> None:
    """Write the task's defaults of the extra fields of steps that the data do not hold.

    Raises:
        SourceError: a field is not recorded, and has no default.
    """
    takes = step_extra_of(task)
    for field in takes.fields:
        if field.name in table.layout.extra:
            continue
        if field.name not in takes.defaults:
            raise SourceError(
                f"task {task.name!r} needs {field.name!r} of each step's extra_info, and {table.origin} does not hold "
                "it; give it a default in the task's step_extra"
            )
        rows[f"{EXTRA_PREFIX}_{field.name}"][1:] = takes.defaults[field.name]


class _Measured(dict[str, np.ndarray]):
    """Sensors by name that say what is missing, since a task only names a sensor by reading it."""

    def __init__(self, values: Mapping[str, np.ndarray], task: Task, origin: str) -> None:
        super().__init__(values)
        self._task, self._origin = task, origin

    def cut(self, part: slice | int) -> _Measured:
        """Return a part of the time axis."""
        return _Measured({name: value[part] for name, value in self.items()}, self._task, self._origin)

    def __missing__(self, name: str) -> np.ndarray:
        wanted = sorted({name, *(n for n in self._task.observation.names if n not in self._task.goal)})
        raise SourceError(
            f"task {self._task.name!r} needs the sensor {name!r} of a {self._task.robot!r} (it observes "
            f"{', '.join(wanted)}), {self._origin} has {', '.join(self) or 'no sensors'}; if they can be computed "
            "from what was observed, give sensors=<function of observation and action>"
        )


def _action_group(table: Table, task: Task) -> str:
    """Return the rows' group with the task's action: ``action``, or ``applied`` for a robot's own command.

    Raises:
        SourceError: neither.
    """
    for prefix, spec in (("action", table.layout.action), ("applied", table.layout.applied)):
        if all(field.name in spec and _alike(field, spec[field.name]) for field in task.action):
            return prefix
    wanted = ", ".join(f"{field.name} {field.shape} in {field.unit}" for field in task.action)
    have = ", ".join(f"{one.name} {one.shape} in {one.unit}" for one in (*table.layout.action, *table.layout.applied))
    raise SourceError(
        f"task {task.name!r} needs the action {wanted or 'of no field'}, {table.origin} has {have or 'none'}; "
        + ("; ".join(note for note in table.notes if "SI columns" in note) or "the data are of another robot")
    )


def _alike(field: Field, other: Field) -> bool:
    return field.shape == other.shape and field.unit == other.unit


def _sensors(table: Table, start: int, stop: int, compute: Sensors | None) -> Mapping[str, np.ndarray]:
    block = table.rows[start:stop]
    if compute is None:
        return columns(block, table.layout.sensors, "sensor")
    observation = columns(block, table.layout.observation, "observation")
    return compute(observation, columns(block, table.layout.action, "action"))


def _goal_name(goal: Goal) -> str:
    return repr(goal) if isinstance(goal, str) else "given by the user"


def _goal(goal: Goal, task: Task, measured: Arrays, record: JsonObject, number: int) -> Arrays:
    if isinstance(goal, str) and goal == "hindsight":
        return _hindsight(task, measured)
    if not isinstance(goal, str):
        values: FieldValues | None = goal
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
            "give goal={...} for all episodes, or goal='hindsight' (--goal hindsight)"
        )
    try:
        return task.goal.validate(values, where)
    except IllegalAction as error:
        raise SourceError(f"{error} (task {task.name!r})") from None


def _names(spec: Spec) -> str:
    return ", ".join(spec.names) or "nothing"


def _hindsight(task: Task, measured: Arrays) -> Arrays:
    if not isinstance(task, GoalTask):
        raise SourceError(
            f"goal='hindsight': task {task.name!r} can't say which goal was reached, since it has no method "
            "hindsight(sensors) -> goal; give a goal, or use the recorded ones"
        )
    return {name: np.asarray(value) for name, value in task.hindsight(measured).items()}


def _write_observation_and_reward(rows: np.ndarray, task: Task, measured: _Measured, goal: Arrays) -> None:
    """Write one episode's observation and reward."""
    observation = task.observe(measured, goal)
    for name in task.observation.names:
        # A task may pass the sensors on unread; then the data's own mapping says what is missing.
        rows[f"observation_{name}"] = observation[name] if name in observation else measured[name]
    before, after = measured.cut(slice(-1)), measured.cut(slice(1, None))
    action = {name: rows[f"action_{name}"][1:] for name in task.action.names}
    action |= {name: rows[f"{EXTRA_PREFIX}_{name}"][1:] for name in step_extra_of(task).fields.names}
    for name, reward in _by_field(task.reward(before, action, after, goal)).items():
        rows[name][0] = 0.0
        rows[name][1:] = np.where(rows["acted"][1:] == 1, reward, 0.0)


def _by_field(reward: Rewards) -> dict[str, np.ndarray]:
    """Return the reward by the name of its field in a row; with several agents, one field for each."""
    by_agent = reward if isinstance(reward, Mapping) else {"": reward}
    return {reward_field(agent): value for agent, value in by_agent.items()}


def _add_verdict_reward(rows: np.ndarray, layout: FrameLayout, task: Task, verdict: str | None) -> None:
    """Add to the last step's reward what the task gives for a person's verdict, whenever that was said."""
    more = verdict_reward(task, verdict)
    if more and len(rows) > 1:
        for agent in layout.agents or ("",):
            rows[reward_field(agent)][-1] += more


def _set_ends(rows: np.ndarray, over: np.ndarray) -> int:
    """Write the task's own flags, and return the number of rows up to its end.

    Row 0 is a reset, which ends nothing.
    """
    rows["terminated"] = over
    rows["terminated"][0] = 0
    ends = np.flatnonzero(rows["terminated"])
    rows["truncated"][rows["terminated"] == 1] = 0
    return int(ends[0]) + 1 if len(ends) else len(rows)


def _episode_facts(rows: np.ndarray, task: Task, measured: _Measured, goal: Arrays) -> JsonDict:
    """Return the record that the task makes of an episode of these rows."""
    outcome = _outcome(task, measured, len(rows), goal)
    agents = [agent.name for agent in agents_of(task)]
    total = {name: float(rows[name].sum()) for name in map(reward_field, agents or ("",))}
    return {
        "task": task.name,
        "goal": {name: np.asarray(value).tolist() for name, value in goal.items()},
        "success": bool(outcome.success),
        "metrics": {name: float(value) for name, value in outcome.metrics.items()},
        "return": total if agents else total["reward"],
    }


def _outcome(task: Task, measured: _Measured, length: int, goal: Arrays) -> Outcome:
    """Return the result of an episode of ``length`` readings; the first is that of the reset."""
    last = measured.cut(length - 1)
    if not isinstance(task, AveragedTask):
        return Outcome(task.success(last, goal), task.metrics(last, goal))
    begin = max(min(1, length - 1), length - task.averaged_readings)
    metrics = task.metrics(measured.cut(slice(begin, length)), goal)
    means = {name: np.asarray(value).mean(axis=0) for name, value in metrics.items()}
    if isinstance(task, PeakTask):
        peaks = task.peaks(measured.cut(slice(min(1, length - 1), length)))
        means |= {name: np.asarray(value).max(axis=0) for name, value in peaks.items()}
    return Outcome(task.average_success(means, last, goal), means)
