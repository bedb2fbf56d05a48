"""End the episodes of a batch's rows whose outputs do not fit their descriptions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal import BatchState
from recorder.json_data import JsonDict
from rlenv_robot.tasks.agents import map_reward
from rlenv_robot.tasks.episode_rules import Judgement, Mode
from rlenv_robot.tasks.output_check import BatchOutputCheck, WrongOutput
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.vector.rows import merged

__all__ = ["OutputFaults"]


class OutputFaults:
    """Judge the outputs of N environments of one task, and turn wrong ones into faults of their rows.

    Args:
        task: the task.
        mode: in ``training`` the hidden states are judged too.
        num: N.
        every: number of steps of which the observations of one are judged; rewards are judged in every step.
    """

    def __init__(self, task: Task, mode: Mode, num: int, every: int) -> None:
        self._task, self._num, self._every, self._steps = task, num, every, 0
        self._check = BatchOutputCheck(task.observation, task.state, num)
        self._shows_state = mode == "training" and len(task.state) > 0
        self._right: BatchState | None = None  # the newest reading of which every row was found right

    def begin(self, ids: np.ndarray, first: BatchState, goal: Arrays) -> None:
        """Keep the first readings of episodes, n rows, as right ones.

        Raises:
            WrongOutput: one of them leads to a wrong observation or hidden state.
        """
        problems = self._check.problems(*self._seen(first, goal), None)
        if problems:
            place, problem = next(iter(problems.items()))
            raise WrongOutput(f"environment {ids[place]} of {self._task.name!r} began with a wrong output: {problem}")
        everyone = self._right is None or len(ids) == self._num
        self._right = first if everyone or self._right is None else merged(self._right, ids, first)

    def resume(self, state: BatchState) -> None:
        """Take a restored reading of all rows as right."""
        self._right = state

    def step(
        self, state: BatchState, goal: Arrays, judgement: Judgement[np.ndarray], over: np.ndarray, told: np.ndarray
    ) -> tuple[BatchState, Judgement[np.ndarray], Mapping[int, JsonDict]]:
        """Judge a step.

        Args:
            state: the reading after the step.
            goal: name -> (N, ...).
            judgement: of the step.
            over: bool, (N,), whether the episode has ended before.
            told: bool, (N,), whether a row tells of a fault that explains its values, such as failed physics.

        Returns:
            The reading, in which wrong rows repeat the last right ones; the judgement, with reward 0 and ``truncated``
            in wrong rows; and the faults by row, without those of ``told``.
        """
        assert self._right is not None  # the episodes have begun
        self._steps += 1
        is_due = self._steps % self._every == 0 or _any(judgement.terminated) or _any(judgement.truncated)
        observation, hidden = self._seen(state, goal) if is_due else (None, None)
        problems = self._check.problems(observation, hidden, judgement.reward)
        if not problems:
            self._right = state if is_due else self._right
            return state, judgement, {}
        rows = np.array([row for row in problems if not over[row]], np.int64)
        if len(rows):
            state = merged(state, rows, _rows(self._right, rows))
            judgement = _without(judgement, rows)
        if is_due:
            self._right = state
        kind = WrongOutput.__name__
        faults = {row: {"kind": kind, "message": problems[row]} for row in rows.tolist() if not told[row]}
        return state, judgement, faults

    def _seen(self, state: BatchState, goal: Arrays) -> tuple[Arrays, Arrays | None]:
        hidden = self._task.privileged(state.sensors, goal) if self._shows_state else None
        return self._task.observe(state.sensors, goal), hidden


def _rows(state: BatchState, rows: np.ndarray) -> BatchState:
    sensors, applied, images = (
        {name: np.asarray(value)[rows] for name, value in part.items()}
        for part in (state.sensors, state.applied, state.images)
    )
    return state._replace(sensors=sensors, applied=applied, images=images)


def _without(judgement: Judgement[np.ndarray], rows: np.ndarray) -> Judgement[np.ndarray]:
    """Return a judgement in which these rows end by a fault, without a reward."""
    wrong = np.zeros(len(judgement.truncated), bool)
    wrong[rows] = True
    reward = map_reward(judgement.reward, lambda value: np.where(wrong, 0.0, value))
    return Judgement(reward, judgement.terminated & ~wrong, judgement.truncated | wrong)


def _any(flags: np.ndarray) -> bool:
    return 1 in flags.tobytes()  # at a tenth of the cost of NumPy's, for the sizes of batches
