"""Give drawn steps goals that were reached later (R6.2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal import SourceError
from recorder.table.transitions import Transitions, columns
from rlenv_robot.data.options import CheckedOptions
from rlenv_robot.tables import Rewards, StepTable, step_extra_of
from rlenv_robot.tasks.task import GoalTask, Task

__all__ = ["relabel_goals"]

_SHARE = 0.8
"""Of the steps that get another goal: four to one, as in the paper's experiments."""


def relabel_goals(
    table: StepTable,
    transitions: Transitions,
    task: Task | None,
    options: CheckedOptions,
    rng: np.random.Generator,
    discount: float,
) -> None:
    """Give some steps another goal: hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495).

    The task computes observation, reward and flags for it again from the recorded sensors.

    Args:
        table: one-step batch; changed in place. ``extra_info`` gets ``relabelled``, (B,) bool.
        transitions: all of them, with the robot's sensors.
        task: with a method ``hindsight``; of arrays with a leading time axis it says which goal the last
            reading reached.
        options: ``goals``: ``future``, reached at a step drawn from the rest of the episode, or ``final``, at
            its end; ``goal_share``: of steps that get one, 0.8 by default.
        rng: which steps, and which goals.
        discount: the discount of one step.

    Raises:
        SourceError: there is no task, it has no ``hindsight``, or sensors were not recorded.
    """
    goal_task = _goal_task(transitions, task)
    assert task is not None
    extra = table["extra_info"]
    chosen = rng.random(len(extra["index"])) < options.get("goal_share", _SHARE)
    extra["relabelled"] = chosen
    index = extra["index"][chosen]
    if not len(index):
        return
    stop = transitions.spans(index)[1]
    where = stop - 1 if options["goals"] == "final" else index + (rng.random(len(index)) * (stop - index)).astype(int)
    spec = transitions.table.layout.sensors
    reached = {name: value[None] for name, value in columns(transitions.next_rows(where), spec, "sensor").items()}
    goal = {name: np.asarray(value) for name, value in goal_task.hindsight(reached).items()}
    before = columns(transitions.rows(index), spec, "sensor")
    after = columns(transitions.next_rows(index), spec, "sensor")
    action = {name: value[chosen] for name, value in table["action"].items()}
    action |= {name: extra["step_extra"][name][chosen] for name in step_extra_of(task).fields.names}
    for fields, sensors in ((table["observation"], before), (table["next_observation"], after)):
        for name, value in task.observe(sensors, goal).items():
            fields[name][chosen] = value
    reward = task.reward(before, action, after, goal)
    for batch_reward, value in zip(_rewards(table["reward"]), _rewards(reward), strict=True):
        batch_reward[chosen] = value
    over = np.asarray(task.terminated(after, goal))
    _set_flags(table, chosen, over)
    extra["discount"][chosen] = np.where(over, 0.0, discount)


def _goal_task(transitions: Transitions, task: Task | None) -> GoalTask:
    if task is None:
        raise SourceError("goals: the rewards of another goal need a task; give one: open_source(path, task=...)")
    if not isinstance(task, GoalTask):
        raise SourceError(f"goals: task {task.name!r} has no method hindsight(sensors) -> goal")
    if not len(transitions.table.layout.sensors):
        raise SourceError(f"goals: {transitions.table.origin} has no recorded sensors to compute goals from")
    return task


def _rewards(reward: Rewards) -> list[np.ndarray]:
    """Return the rewards of several agents in the order of their names, or the single reward."""
    return [reward[agent] for agent in sorted(reward)] if isinstance(reward, Mapping) else [reward]


def _set_flags(table: StepTable, chosen: np.ndarray, terminated: np.ndarray) -> None:
    """Set the flags for the new goal. An end of the data is no end of the task, and stays a truncation."""
    extra = table["extra_info"]
    was_done = table["done"][chosen] != 0
    extra["terminated"][chosen] = terminated
    extra["truncated"][chosen] = was_done & ~terminated
    table["done"][chosen] = was_done | terminated
