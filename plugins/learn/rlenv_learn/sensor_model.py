"""Fit a model of any robot's sensors to recorded frames, and simulate the robot with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from hal import BatchState, RobotSpec, SourceError, Spec
from recorder.frame_layout import EXTRA_PREFIX, reward_field
from recorder.table.table import Table
from recorder.table.transitions import Transitions, columns
from rlenv_robot.policies.feedback import SearchedPolicy
from rlenv_robot.robot_models import robot_model_of
from rlenv_robot.source import SourceData
from rlenv_robot.tables import step_extra_of
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.training.learner import LearnedModel, horizon_steps, recipe_for

__all__ = [
    "FieldSplitter", "Recording", "SensorBatch", "SensorModel", "fit_sensors", "learn_sensors",
    "open_loop_error_of_sensors", "recordings", "return_error",
]  # fmt: skip

_COMMANDS = 4
"""Number of past commands on which the next sensor values depend."""

_RIDGE = 1e-3
_MARGIN = 0.1
"""Share of an element's recorded range by which predictions may exceed that range, beyond which there are no data."""

_HORIZON = 30
"""Number of steps over which the model's error is measured."""


@dataclass(frozen=True)
class Recording:
    """Recorded frames without gaps.

    Attributes:
        sensors: measured values, with the fields flattened and concatenated in the spec's order, shape (T, D).
        commands: applied commands, concatenated in the same way, shape (T, C). Row t was applied between frames t - 1
            and t.
        first_row: number of the first frame in the table's rows.
        episode: number of the episode.
    """

    sensors: np.ndarray
    commands: np.ndarray
    first_row: int = 0
    episode: int = 0

    def before(self, frames: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return the sensors one period before frames, (n, D), and past commands, (n, C) each, the newest first.

        Row 0 of the commands was applied before the recording, may be unknown, and is not used.
        """
        past = [self.commands[np.maximum(frames - delay, 1)] for delay in range(_COMMANDS)]
        return self.sensors[np.maximum(frames - 1, 0)], past


def recordings(transitions: Transitions, episodes: Sequence[int], spec: RobotSpec) -> list[Recording]:
    """Return the parts of episodes without gaps.

    Raises:
        SourceError: the record lacks sensors or commands of this robot.
    """
    layout = transitions.table.layout
    for recorded, needed in ((layout.sensors, spec.sensors), (layout.applied, spec.commands)):
        missing = [name for name in needed.names if name not in recorded]
        if missing:
            raise SourceError(
                f"{transitions.table.origin} has no recorded {', '.join(missing)} of {spec.name!r}, from which a model "
                "of the robot is learned; record with `rlenv-robot run --record` or rlenv_robot.make(record=...)"
            )
    stretches = []
    for episode in episodes:
        rows = transitions.row(np.arange(transitions.first[episode], transitions.last[episode]))
        for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
            if len(part):
                frames = transitions.table.rows[part[0] : part[-1] + 2]
                sensors, commands = _joined(frames, spec.sensors, "sensor"), _joined(frames, spec.commands, "applied")
                stretches.append(Recording(sensors, commands, int(part[0]), int(episode)))
    return stretches


def _joined(rows: np.ndarray, spec: Spec, prefix: str) -> np.ndarray:
    parts = [np.asarray(rows[f"{prefix}_{name}"], float).reshape(len(rows), -1) for name in spec.names]
    return np.concatenate(parts, axis=1)


def _inputs(now: np.ndarray, before: np.ndarray, commands: Sequence[np.ndarray]) -> np.ndarray:
    """Return the regressors, shape (..., K): standardised sensors, their last change, past commands and a constant."""
    return np.concatenate([now, now - before, *commands, np.ones((*now.shape[:-1], 1))], axis=-1)


@dataclass(frozen=True)
class SensorModel:
    """An ensemble of linear models of the change of every sensor element in one control period.

    Linear models contain no contacts: they move a pushed cube as it moved on average. All values are in units of the
    recorded standard deviation.

    Attributes:
        weights: shape (members, K, D). Each member is fitted to its own draw of the recordings, so that a policy can't
            exploit the errors of one model.
        sensor_mean: shape (D,).
        sensor_scale: standard deviation, shape (D,).
        command_mean: shape (C,).
        command_scale: standard deviation, shape (C,).
        low: lower bound of standardised predictions, shape (D,).
        high: upper bound, likewise.
        starts: recorded frames from which episodes begin: standardised sensors now and one period before, (S, D) each,
            and past commands, the newest first, (S, k, C).
    """

    weights: np.ndarray
    sensor_mean: np.ndarray
    sensor_scale: np.ndarray
    command_mean: np.ndarray
    command_scale: np.ndarray
    low: np.ndarray
    high: np.ndarray
    starts: tuple[np.ndarray, np.ndarray, np.ndarray]

    def next_sensors(
        self, now: np.ndarray, before: np.ndarray, commands: Sequence[np.ndarray], member: np.ndarray
    ) -> np.ndarray:
        """Predict the standardised sensors one period later, (n, D), with ensemble member ``member[i]`` for row i.

        Args:
            now: standardised sensors of this period, shape (n, D).
            before: standardised sensors of the last period, likewise.
            commands: standardised past commands, shape (n, C) each, the newest first.
            member: shape (n,).
        """
        change = np.empty_like(now)
        inputs = _inputs(now, before, commands)
        for number, weights in enumerate(self.weights):
            rows = member == number
            change[rows] = inputs[rows] @ weights
        return np.asarray(np.clip(now + change, self.low, self.high))

    def standardised(self, recording: Recording) -> Recording:
        """Convert a recording to the model's units."""
        return Recording(
            (recording.sensors - self.sensor_mean) / self.sensor_scale,
            (recording.commands - self.command_mean) / self.command_scale,
            recording.first_row,
            recording.episode,
        )


def fit_sensors(stretches: Sequence[Recording], members: int = 4, seed: int = 0) -> SensorModel:
    """Fit a model to recordings by ridge regression.

    Args:
        stretches: the recordings.
        members: size of the ensemble. Each member is fitted to a bootstrap sample of the recordings.
        seed: the seed of those draws.

    Raises:
        SourceError: there are no recordings.
    """
    if not stretches:
        raise SourceError("there is no recorded step to fit a model to")
    sensors = np.concatenate([part.sensors for part in stretches])
    commands = np.concatenate([part.commands[1:] for part in stretches])
    scales = [_spread(sensors), _spread(commands)]
    blank = np.zeros((members, 0, sensors.shape[1]))
    standard = (sensors - sensors.mean(axis=0)) / scales[0]
    low, high = standard.min(axis=0), standard.max(axis=0)
    room = _MARGIN * (high - low)
    empty = (np.empty((0, 0)), np.empty((0, 0)), np.empty((0, 0, 0)))
    unfitted = SensorModel(
        blank, sensors.mean(axis=0), scales[0], commands.mean(axis=0), scales[1], low - room, high + room, empty
    )
    parts = [unfitted.standardised(part) for part in stretches]
    pairs = [_regression(part) for part in parts]
    rng = np.random.default_rng(seed)
    weights = []
    for _ in range(members):
        drawn = rng.integers(len(pairs), size=len(pairs))
        inputs, change = (np.concatenate([pairs[place][side] for place in drawn]) for side in (0, 1))
        penalty = _RIDGE * len(inputs) * np.eye(inputs.shape[1])
        weights.append(np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ change))
    return SensorModel(
        np.stack(weights), unfitted.sensor_mean, scales[0], unfitted.command_mean, scales[1],
        unfitted.low, unfitted.high, _starts(parts),
    )  # fmt: skip


def _starts(parts: Sequence[Recording]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all frames but each recording's last, with what came before; see `SensorModel.starts`."""
    now, before, commands = [], [], []
    for part in parts:
        frames = np.arange(len(part.sensors) - 1)
        sensors, past = part.before(frames)
        now.append(part.sensors[frames])
        before.append(sensors)
        commands.append(np.stack(past, axis=1))
    return np.concatenate(now), np.concatenate(before), np.concatenate(commands)


def _spread(values: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each element, or 1 for a constant one."""
    spread = values.std(axis=0)
    return np.where(spread > 1e-9, spread, 1.0)


def _regression(part: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Return regressors (T - 1, K) and changes (T - 1, D) of one standardised recording."""
    now, frames = part.sensors[:-1], np.arange(len(part.sensors) - 1)
    before = part.before(frames)[0]
    past = part.before(frames + 1)[1]  # with the command that is applied between a frame and the next
    return _inputs(now, before, past), part.sensors[1:] - now


class SensorBatch:
    """Move N robots according to a `SensorModel`, with the members of `sim.batch.SimBatch`.

    Episodes begin at recorded frames, whatever start the task requests.

    Args:
        model: the model.
        spec: the robot.
        num: N. Ensemble member ``i % members`` moves robot i.
    """

    def __init__(self, model: SensorModel, spec: RobotSpec, num: int) -> None:
        self._model, self._spec, self.num = model, spec, num
        self._member = np.arange(num) % len(model.weights)
        self.broken: np.ndarray = np.zeros(num, bool)
        self._stamp = 0
        self._now = self._before = np.zeros((num, len(model.sensor_mean)))
        self._commands: list[np.ndarray] = []

    @property
    def spec(self) -> RobotSpec:
        """The spec of the robot that the model was fitted to."""
        return self._spec

    def reset(self, ids: np.ndarray | None, seeds: np.ndarray | None, starts: Arrays | None) -> BatchState:
        """Reset all robots to recorded frames, which the seeds select.

        Raises:
            ValueError: only some robots would be reset.
        """
        if ids is not None:
            raise ValueError("robots of a learned model begin together: use autoreset='disabled' and reset all")
        now, before, commands = self._model.starts
        chosen = np.zeros(self.num, np.int64) if seeds is None else np.asarray(seeds) % len(now)
        self._now, self._before = now[chosen], before[chosen]
        self._commands = list(np.moveaxis(commands[chosen], 1, 0))
        return self._batch_state()

    def step(self, commands: Arrays, ids: np.ndarray | None = None) -> BatchState:
        """Simulate one control period."""
        parts = [np.asarray(commands[field.name], float).reshape(self.num, -1) for field in self._spec.commands]
        newest = (np.concatenate(parts, axis=1) - self._model.command_mean) / self._model.command_scale
        self._commands = [newest, *self._commands[:-1]]
        following = self._model.next_sensors(self._now, self._before, self._commands, self._member)
        self._before, self._now = self._now, following
        return self._batch_state()

    def _batch_state(self) -> BatchState:
        self._stamp += round(1e9 * self._spec.period_s)
        model = self._model
        sensors = self._sensors.split(self._now * model.sensor_scale + model.sensor_mean)
        applied = self._applied.split(self._commands[0] * model.command_scale + model.command_mean)
        return BatchState(sensors, applied, np.full(self.num, self._stamp))

    @cached_property
    def _sensors(self) -> FieldSplitter:
        return FieldSplitter(self._spec.sensors)

    @cached_property
    def _applied(self) -> FieldSplitter:
        return FieldSplitter(self._spec.commands)

    def close(self) -> None:
        """Do nothing, since the model holds no resources."""


class FieldSplitter:
    """Split joined elements into a spec's fields, clipped to each field's range.

    Args:
        spec: the fields.
    """

    def __init__(self, spec: Spec) -> None:
        self._fields = tuple(spec)

    def split(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return the fields of values (n, elements) by name, (n, ...)."""
        named, place = {}, 0
        for field in self._fields:
            part = values[:, place : place + field.size].reshape((len(values), *field.shape))
            part = np.rint(part) if field.numpy_dtype.kind in "iub" else part
            named[field.name] = np.clip(part.astype(field.numpy_dtype), *field.bounds)
            place += field.size
        return named


def open_loop_error_of_sensors(model: SensorModel, stretches: Sequence[Recording]) -> tuple[np.ndarray, np.ndarray]:
    """Measure the model's open-loop error along recordings, given their commands only.

    Returns:
        Root mean square errors over all sensor elements after 1, 2, ... steps, in units of the recorded standard
        deviation, shape (H,), where H is at most 30 and below the shortest recording's length: of the model (mean of
        the ensemble), and of the prediction that nothing changes.

    Raises:
        SourceError: there is no recording.
    """
    if not stretches:
        raise SourceError("there is no recorded step to measure a model's error on")
    horizon = min(_HORIZON, *(len(part.sensors) - 1 for part in stretches))
    members = np.arange(len(model.weights))
    errors, still = [], []
    for part in map(model.standardised, stretches):
        now = before = np.tile(part.sensors[0], (len(members), 1))
        commands, gap = [np.tile(part.commands[1], (len(members), 1))] * _COMMANDS, []
        for step in range(1, horizon + 1):
            commands = [np.tile(part.commands[step], (len(members), 1)), *commands[:-1]]
            following = model.next_sensors(now, before, commands, members)
            before, now = now, following
            gap.append(now.mean(axis=0) - part.sensors[step])
        errors.append(gap)
        still.append(part.sensors[0] - part.sensors[1 : horizon + 1])
    return _rms(np.array(errors)), _rms(np.array(still))


def _rms(gaps: np.ndarray) -> np.ndarray:
    """Return the root mean square over recordings and elements of gaps (recordings, steps, elements)."""
    return np.asarray(np.sqrt(np.square(gaps).mean(axis=(0, 2))))


def return_error(
    model: SensorModel, spec: RobotSpec, task: Task, table: Table, stretches: Sequence[Recording], steps: int
) -> float:
    """Return the error of the task's return that the model predicts for recorded actions.

    Args:
        model: the model.
        spec: the robot.
        task: computes the rewards of predicted sensors.
        table: the task's table, with the recorded rewards.
        stretches: recordings that the model was not fitted to.
        steps: length of a prediction, control steps.

    Returns:
        Root mean square error over predictions that begin every half length; infinite if no recording is long enough.
    """
    split, errors = FieldSplitter(spec.sensors).split, [np.zeros(0)]
    for part in map(model.standardised, stretches):
        begin = np.arange(0, len(part.sensors) - steps, max(1, steps // 2))
        if not len(begin):
            continue
        rows = table.rows[part.first_row : part.first_row + len(part.sensors)]
        goal = task.goal.validate(table.episodes[part.episode].get("goal", {}), "goal")
        now, (before, past), gap = part.sensors[begin], part.before(begin), np.zeros(len(begin))
        for step in range(1, steps + 1):
            past = [part.commands[begin + step], *past[:-1]]
            following = model.next_sensors(now, before, past, np.arange(len(begin)) % len(model.weights))
            fields = {name: f"action_{name}" for name in task.action.names}
            fields |= {name: f"{EXTRA_PREFIX}_{name}" for name in step_extra_of(task).fields.names}
            action = {name: rows[field][begin + step] for name, field in fields.items()}
            sensors, after = (split(values * model.sensor_scale + model.sensor_mean) for values in (now, following))
            predicted = task.reward(sensors, action, after, goal)
            rewards = predicted.values() if isinstance(predicted, Mapping) else [predicted]
            agents = tuple(table.layout.agents) or ("",)
            recorded = [rows[reward_field(agent)][begin + step] for agent in agents]
            gap += np.mean(list(rewards), axis=0) - np.mean(recorded, axis=0)
            before, now = now, following
        errors.append(gap)
    gaps = np.concatenate(errors)
    return float(np.sqrt(np.mean(np.square(gaps)))) if len(gaps) else np.inf


# -- a learned model for `rlenv_robot.training.learner.retrain_from_record` ------------------------------------


def learn_sensors(data: SourceData, task: Task, episodes: tuple[list[int], list[int]], seed: int) -> LearnedModel:
    """Fit a model of the task's robot to recorded episodes.

    Args:
        data: the data of the task.
        task: computes the reward.
        episodes: numbers of the episodes to fit the model to, and of those to evaluate it on.
        seed: the seed of the model's ensemble.
    """
    spec = robot_model_of(task).load_spec()
    training, unseen = (recordings(data.transitions, part, spec) for part in episodes)
    model = fit_sensors(training, seed=seed)
    errors = open_loop_error_of_sensors(model, unseen)
    steps = horizon_steps(task, recipe_for(task).model_horizon_s, spec.period_s)
    return LearnedModel(
        lambda count: SensorBatch(model, spec, count),
        *errors,
        "standard deviations",
        return_error(model, spec, task, data.table, unseen, steps),
        partial(_within_recorded_actions, data, task, episodes[0]),
    )


def _within_recorded_actions(
    data: SourceData, task: Task, episodes: Sequence[int], start: SearchedPolicy, policy: SearchedPolicy
) -> SearchedPolicy:
    """Move a policy towards the original one until it differs from it no more than the recorded actions do.

    A model is fitted to executed actions. If the original policy chose all of them, the record does not show what other
    actions would have done (closed-loop identification): a walk retrained without this limit had a return 28 % higher
    in the model, and a quarter lower in the simulation.
    """
    transitions = data.transitions
    positions = np.concatenate([np.arange(transitions.first[e], transitions.last[e]) for e in episodes])
    observation = columns(transitions.rows(positions), task.observation, "observation")
    recorded = columns(transitions.next_rows(positions), task.action, "action")
    first, second = start.act(observation), policy.act(observation)
    support, moved = (_difference(task.action, first, other) for other in (recorded, second))
    share = min(1.0, support / moved) if moved > 0 else 0.0
    parameters = start.parameters + share * (policy.parameters - start.parameters)
    return start.with_parameters(parameters)


def _difference(spec: Spec, first: Arrays, second: Arrays) -> float:
    """Return the root mean square difference of actions, as a share of each element's range."""
    squares = []
    for field in spec:
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        difference = (np.asarray(first[field.name], float) - second[field.name]) / (high - low)
        squares.append(np.square(difference).reshape(len(difference), -1))
    return float(np.sqrt(np.concatenate(squares, axis=1).mean()))
