"""Apply the rules of an episode: its draws, the reward of a step, its end and its result.

`EpisodeRules` works on arrays with any leading axes, so the same code judges one robot (no axes) and N robots (N rows).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, Literal, NamedTuple, TypeVar, cast, get_args, overload

import numpy as np

from hal import BatchState, RobotSpec, RobotState, SpecError, SpecMismatch
from rlenv_robot.tables import ExtraInfo, Options, Reward, check_options, step_extra_of
from rlenv_robot.tasks.agents import RewardValues, agents_of, map_reward, messages, observed_fields
from rlenv_robot.tasks.task import Arrays, AveragedTask, Episode, PeakTask, Task, VerdictTask, check_task
from rlenv_robot.tasks.task_shapes import check_goal, check_results

__all__ = [
    "Draw", "EpisodeRules", "Judgement", "Mode", "Outcome", "RecentMetrics", "RecentReadings", "SeedOption",
    "check_seed", "episode_rng", "random_seed", "verdict_reward",
]  # fmt: skip

Mode = Literal["training", "inference"]
"""In ``training`` the task's privileged state is available; in ``inference`` it is never computed (R2.1)."""

_new = tuple.__new__  # what a named tuple's constructor calls, at half its time: a simulated step takes 25 microseconds


_Flags = TypeVar("_Flags", bool, np.ndarray)
"""The type of a flag for each reading: Python's own bool for one robot, an array of bool (N,) for a batch."""


class Draw(NamedTuple):
    """The random draws of one episode.

    Attributes:
        episode: goal and start, drawn by the task.
        robot_seed: the seed of the robot's reset.
    """

    episode: Episode
    robot_seed: int


class Judgement(NamedTuple, Generic[_Flags]):
    """The reward and the ends of one step. Shapes are the readings' leading axes: () for one robot, (N,) for a batch.

    Attributes:
        reward: a float, or a mapping from agent to float.
        terminated: bool, an end by the task.
        truncated: bool, an end by a time limit or a failure; never both.
    """

    reward: RewardValues
    terminated: _Flags
    truncated: _Flags


class Outcome(NamedTuple):
    """The result of finished episodes. Shapes are the readings' leading axes.

    Attributes:
        success: bool, whether the task was fulfilled; False if the robot or its physics failed.
        metrics: metric -> value.
    """

    success: bool | np.ndarray
    metrics: Arrays


class RecentMetrics:
    """The metrics of the last readings of N running episodes, and the peaks of all, for an `AveragedTask`.

    Args:
        task: defines the metrics and the number of readings.
        num: the number of episodes that run in parallel.
    """

    def __init__(self, task: AveragedTask, num: int) -> None:
        self._task = task
        self._counts, self._all = np.zeros(num, np.int64), np.arange(num)
        self._rings: dict[str, np.ndarray] = {}
        self._peaks: dict[str, np.ndarray] = {}

    def begin(self, rows: np.ndarray) -> None:
        """Discard the readings of the given episodes, which begin."""
        self._counts[rows] = 0
        for kept in (*self._rings.values(), *self._peaks.values()):
            kept[rows] = 0.0

    def add(self, sensors: Arrays, goal: Arrays, moved: np.ndarray | None = None) -> None:
        """Add a reading, each (N, ...); rows with ``moved`` (N,) False have no new reading."""
        length, metrics = self._task.averaged_readings, cast("Task", self._task).metrics(sensors, goal)
        if isinstance(self._task, PeakTask):
            for name, value in self._task.peaks(sensors).items():
                before = self._peaks.setdefault(name, np.zeros(len(self._counts)))
                higher = np.maximum(before, np.reshape(value, -1))
                self._peaks[name] = higher if moved is None else np.where(moved, higher, before)
        for name in metrics:
            if name not in self._rings:
                self._rings[name] = np.zeros((len(self._counts), length))
        rows = self._all if moved is None else np.flatnonzero(moved)
        slots = self._counts[rows] % length
        for name, value in metrics.items():
            self._rings[name][rows, slots] = np.reshape(value, -1)[rows]
        self._counts[rows] += 1

    def means(self, rows: np.ndarray, metrics: Arrays) -> Arrays:
        """Return each metric's mean over the last readings of the given episodes, or its peak, (n,).

        Args:
            rows: the episodes, (n,).
            metrics: the metrics of their last readings, used for an episode without a step.
        """
        counts = np.minimum(self._counts[rows], self._task.averaged_readings)
        if not self._rings:
            return metrics
        sums = {name: ring[rows].sum(axis=1) / np.maximum(counts, 1) for name, ring in self._rings.items()}
        sums |= {name: peak[rows] for name, peak in self._peaks.items()}
        return {name: np.where(counts > 0, value, metrics[name]) for name, value in sums.items()}

    def snapshot(self, rows: np.ndarray) -> Arrays:
        """Return the readings of the given episodes as arrays with a first axis of n."""
        rings = {f"metric_{name}": ring[rows] for name, ring in self._rings.items()}
        return {
            "count": self._counts[rows],
            **rings,
            **{f"peak_{name}": kept[rows] for name, kept in self._peaks.items()},
        }

    def restore(self, rows: np.ndarray, kept: Arrays) -> None:
        """Restore the readings that `snapshot` returned."""
        self.begin(rows)
        self._counts[rows] = kept.get("count", 0)
        for key, values in kept.items():
            if key.startswith("metric_"):
                name = key.removeprefix("metric_")
                if name not in self._rings:
                    self._rings[name] = np.zeros((len(self._counts), self._task.averaged_readings))
                self._rings[name][rows] = values
            elif key.startswith("peak_"):
                self._peaks.setdefault(key.removeprefix("peak_"), np.zeros(len(self._counts)))[rows] = values


class RecentReadings:
    """The last readings of one robot's episode, and the peaks of all, for an `AveragedTask`.

    Their metrics are computed once, at the episode's end, and their means are those of `RecentMetrics`, bit for bit.

    Args:
        task: defines the metrics and the number of readings.
    """

    def __init__(self, task: AveragedTask) -> None:
        self._task, self._length = task, task.averaged_readings
        self._kept: deque[Arrays] = deque(maxlen=self._length)
        self._peaked = task if isinstance(task, PeakTask) else None
        self._peaks: dict[str, np.ndarray] = {}
        self._count = 0

    def begin(self) -> None:
        """Discard the readings, since an episode begins."""
        self._kept.clear()
        self._peaks.clear()
        self._count = 0

    def add(self, sensors: Arrays) -> None:
        """Add a reading, sensor -> value, which must not be changed afterwards."""
        self._kept.append(sensors)
        self._count += 1
        if self._peaked is not None:
            for name, value in self._peaked.peaks(sensors).items():
                self._peaks[name] = np.maximum(self._peaks.get(name, 0.0), value)

    def means(self, goal: Arrays, metrics: Arrays) -> Arrays:
        """Return each metric's mean over the last readings, or its peak.

        Args:
            goal: the goal of the episode.
            metrics: the metrics of the last reading, used for an episode without a step.
        """
        if not self._kept:
            return metrics
        readings = {name: np.stack([reading[name] for reading in self._kept]) for name in self._kept[0]}
        slots = np.arange(self._count - len(self._kept), self._count) % self._length
        means = {}
        for name, values in cast("Task", self._task).metrics(readings, goal).items():
            ring = np.zeros(self._length)  # in the order of a batch's, so that the sum is rounded alike
            ring[slots] = values
            means[name] = ring.sum() / len(self._kept)
        return means | self._peaks


class EpisodeRules:
    """Judge the episodes of a task.

    Args:
        task: defines rewards, ends, success and metrics.
        robot: the spec of the robot that performs it.
        mode: see `Mode`.

    Attributes:
        task: the task.
        agents: the task's agents; empty if there is a single one.
        step_extra: the inputs of a step beside the action.
        agent_fields: agent -> local name -> name in the whole observation, as in ``extra_info["agents"]``.

    Raises:
        SpecMismatch: the task is for another robot.
        SpecError: a field beside the action has the name of an action field.
        ValueError: the mode is unknown.
        TypeError: the task lacks a member of `Task`, or has one whose name seems misspelt.
    """

    def __init__(self, task: Task, robot: RobotSpec, mode: Mode) -> None:
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}, allowed are 'training' and 'inference'")
        check_task(task)
        if task.robot != robot.name:
            difference = [f"it is for {task.robot!r}, the robot is {robot.name!r}"]
            raise SpecMismatch(f"task {task.name!r} does not fit", difference)
        self.task, self._robot = task, robot
        self._goal_checked = self._results_checked = False
        self.step_extra = step_extra_of(task)
        self._extra_names = self.step_extra.fields.names
        taken = [name for name in self._extra_names if name in task.action]
        if taken:
            raise SpecError(
                f"task {task.name!r}: {taken[0]!r} is in its step_extra and in its action; choose another name"
            )
        self.agents = agents_of(task)
        self.agent_fields = observed_fields(self.agents)
        self._shows_state = mode == "training" and len(task.state) > 0
        self._tells_more = self._shows_state or bool(self.agents)

    def draw(self, seed: int, env: int, episode: int, options: Options) -> Draw:
        """Draw an episode from its own random stream: see `episode_rng`.

        Raises:
            IllegalAction: ``options["goal"]`` violates the task's goal spec.
            SpecError: the first goal that is drawn has another name, shape or kind than the task's goal spec.
        """
        rng = episode_rng(seed, env, episode)
        drawn = self.task.begin(rng, options)
        if not self._goal_checked:
            check_goal(self.task, drawn)
            self._goal_checked = True
        return Draw(drawn, int(rng.integers(2**31)))

    def check_first(self, sensors: Arrays, goal: Arrays, action: Arrays | None = None) -> None:
        """Compare what the task's functions return with its specs, at the first reset alone (`check_results`).

        Args:
            sensors: name -> value, (..., n), read by the reset.
            goal: name -> value, (..., n).
            action: name -> value, (..., n), as arrays of the sensors' kind; None draws one.

        Raises:
            SpecError: a function returns another name, shape or kind than declared.
        """
        if not self._results_checked:
            check_results(self.task, self._robot, sensors, goal, action, self._shows_state)
            self._results_checked = True

    def with_extra(self, action: Arrays, extra_info: Mapping[str, object]) -> Arrays:
        """Return the action, extended by the task's values from a step's ``extra_info``, each with leading axes."""
        if not self._extra_names:
            return action
        return {**action, **{name: cast("np.ndarray", extra_info[name]) for name in self._extra_names}}

    def judge_start(self, sensors: Arrays, goal: Arrays, failed: bool) -> Judgement[bool]:
        """Judge the reading at the end of a reset of one robot: its reward is 0, and it may already be an end.

        Args:
            sensors: sensor -> value, without leading axes.
            goal: name -> value.
            failed: as for `judge`.
        """
        return Judgement(self.no_reward(), bool(self.task.terminated(sensors, goal)) and not failed, failed)

    @overload
    def judge(
        self, before: Arrays, action: Arrays, after: Arrays, goal: Arrays, step_no: int, failed: bool
    ) -> Judgement[bool]: ...

    @overload
    def judge(
        self, before: Arrays, action: Arrays, after: Arrays, goal: Arrays, step_no: np.ndarray, failed: np.ndarray,
        moved: np.ndarray | None = None,
    ) -> Judgement[np.ndarray]: ...  # fmt: skip

    def judge(
        self, before: Arrays, action: Arrays, after: Arrays, goal: Arrays, step_no: int | np.ndarray,
        failed: bool | np.ndarray, moved: np.ndarray | None = None,
    ) -> Judgement[bool] | Judgement[np.ndarray]:  # fmt: skip
        """Judge a step.

        Args:
            before: sensor -> value, (..., n), read before the step.
            action: name -> value, (..., n).
            after: sensor -> value, (..., n), read after the step.
            goal: name -> value, (..., n), broadcast against the readings.
            step_no: int, (...), the number of the step in its episode, from 1.
            failed: bool, (...), whether the robot reports a fault or the physics failed: a truncation, whatever the
                task concludes from the invalid reading.
            moved: bool, (...), False if no action was executed: no reward and no end. None means True everywhere.
        """
        task = self.task
        reward = task.reward(before, action, after, goal)
        ended: bool | np.ndarray = task.terminated(after, goal)
        terminated: bool | np.ndarray
        truncated: bool | np.ndarray
        if isinstance(failed, bool):  # one robot: Python's own bool, at a tenth of what NumPy's costs
            terminated = bool(ended) and not failed
            truncated = not terminated and (failed or bool(step_no >= task.steps))
        else:
            terminated = np.logical_and(ended, ~failed)
            truncated = (np.greater_equal(step_no, task.steps) | failed) & ~terminated
        if moved is not None:
            reward = map_reward(reward, lambda value: np.where(moved, value, 0.0))
            terminated, truncated = terminated & moved, truncated & moved
        return _new(Judgement, (reward, terminated, truncated))

    def recent_metrics(self, num: int) -> RecentMetrics | None:
        """Return the memory for ``num`` episodes of an `AveragedTask`; None for any other task."""
        return RecentMetrics(self.task, num) if isinstance(self.task, AveragedTask) else None

    def recent_readings(self) -> RecentReadings | None:
        """Return the memory for one robot's episodes of an `AveragedTask`; None for any other task."""
        return RecentReadings(self.task) if isinstance(self.task, AveragedTask) else None

    def outcome(
        self, sensors: Arrays, goal: Arrays, failed: bool | np.ndarray,
        recent: RecentMetrics | RecentReadings | None = None, rows: np.ndarray | None = None,
    ) -> Outcome:  # fmt: skip
        """Return the result of finished episodes.

        Args:
            sensors: sensor -> value, (..., n), their last readings.
            goal: name -> value, (..., n).
            failed: as for `judge`.
            recent: the memory of `recent_metrics` or `recent_readings`, to which every reading was added; None for a
                task without it.
            rows: the indices of the episodes in the memory of `recent_metrics`, (...).
        """
        metrics = self.task.metrics(sensors, goal)
        if recent is None:
            return Outcome(self.task.success(sensors, goal) & (failed ^ True), metrics)
        assert isinstance(self.task, AveragedTask)
        if isinstance(recent, RecentReadings):
            means = recent.means(goal, metrics)
        else:
            assert rows is not None
            means = recent.means(rows, metrics)
        return Outcome(self.task.average_success(means, sensors, goal) & (failed ^ True), means)

    def no_reward(self) -> Reward:
        """Return the reward of a frame without a step: 0, or 0 for each agent."""
        return dict.fromkeys(self.agent_fields, 0.0) if self.agents else 0.0

    def extra_info(self, state: RobotState | BatchState, goal: Arrays, action: Arrays | None) -> ExtraInfo:
        """Return the ``extra_info`` of every Table 1 as a new dictionary that shares the state's arrays.

        Args:
            state: the reading, with any leading axes.
            goal: as for `judge`.
            action: the action that led to it; None after a reset.
        """
        extra: ExtraInfo = {"applied": state.applied}
        if self._tells_more:
            self._tell_more(extra, state, goal, action)
        if state.images:
            extra["images"] = state.images
        return extra

    def _tell_more(self, extra: ExtraInfo, state: RobotState | BatchState, goal: Arrays, action: Arrays | None) -> None:
        if self.agents:
            extra["agents"] = self.agent_mapping()
            sent = {} if action is None else messages(self.agents, action)
            if any(sent.values()):
                extra["messages"] = sent
        if self._shows_state:
            # A copy: what the caller writes into it must not reach the sensors, from which the next step is judged.
            hidden = self.task.privileged(state.sensors, goal)
            extra["state"] = {name: np.array(value) for name, value in hidden.items()}

    def agent_mapping(self) -> dict[str, dict[str, str]]:
        """Return ``extra_info["agents"]`` as a copy that the caller may change."""
        return {agent: dict(names) for agent, names in self.agent_fields.items()}

    def add_verdict(self, reward: Reward, verdict: str | None) -> Reward:
        """Add the reward of a person's verdict to the last step's reward, or to that of each agent."""
        more = verdict_reward(self.task, verdict)
        if isinstance(reward, Mapping):
            return {agent: value + more for agent, value in reward.items()}
        return reward + more


def verdict_reward(task: Task, verdict: str | None) -> float:
    """Return the reward of a verdict, which is added to the last step's; 0 without a verdict or a `VerdictTask`."""
    if verdict is None or not isinstance(task, VerdictTask):
        return 0.0
    return float(task.verdict_reward(verdict))


def episode_rng(seed: int, env: int, episode: int) -> np.random.Generator:
    """Return the random generator of one episode, independent of the numbers of environments and of threads."""
    return np.random.default_rng([seed, env, episode])


def random_seed() -> int:
    """Draw a seed from the operating system, for episodes that need not be repeatable."""
    return int(np.random.SeedSequence().generate_state(1)[0])


class SeedOption:
    """Check the options of a world whose reset takes ``seed`` alone (a `rlenv_robot.world.CheckingWorld`)."""

    def check_reset(self, options: Options) -> None:
        """Check the options of a reset without any effect.

        Raises:
            ValueError: another option is given, or the seed is not a whole number of at least 0.
        """
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        if options.get("seed") is not None:
            check_seed(options["seed"])


def check_seed(seed: object) -> int:
    """Return the seed as an integer of 0 or more.

    Raises:
        ValueError: the seed is not such a number.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {seed!r}, it must be a whole number of at least 0")
    return int(seed)
