"""Step many simulated environments of one task together: tables with a leading axis, and snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from hal import BatchState, EpisodeError, Violation
from recorder.json_data import JsonDict, JsonObject
from rlenv_robot.tables import (
    BatchObservationTable,
    BatchRewardTable,
    ExtraInfo,
    Options,
    check_options,
    keywords_error,
)
from rlenv_robot.tasks.agents import map_reward
from rlenv_robot.tasks.episode_rules import Mode
from rlenv_robot.tasks.output_check import SIMULATED, check_every
from rlenv_robot.tasks.task import Arrays, Task
from rlenv_robot.vector.episodes import BatchEnvironment, DescribedBatch
from rlenv_robot.vector.output_faults import OutputFaults
from rlenv_robot.vector.rows import merged, put
from rlenv_robot.vector.validate import check_batch, check_extra, check_ids
from rlenv_robot.world import NOTHING
from sim.snapshot import BatchSnapshot, Groups, Portable

__all__ = [
    "Autoreset", "RandomizedBatch", "RobotBatch", "SnapshotBatch", "VectorEnvironment", "VectorSnapshot",
    "snapshot_batch",
]  # fmt: skip


# -- Many simulated environments of one task that step together: the tables with a leading axis --------------


Autoreset = Literal["same_step", "next_step", "disabled"]


class RobotBatch(DescribedBatch, Protocol):
    """N robots that step together; `sim.batch.SimBatch` is one."""

    @property
    def broken(self) -> np.ndarray:
        """Whether the physics of each robot failed since its last reset; bool, shape (num,)."""
        ...

    def reset(self, ids: np.ndarray | None, seeds: np.ndarray | None, starts: Arrays | None) -> BatchState:
        """Reset all robots, or those of ``ids``; return their rows in the order of ``ids``."""
        ...

    def step(self, commands: Arrays, ids: np.ndarray | None = None) -> BatchState:
        """Step all robots, or those of a mask, by one control period; return rows of all."""
        ...


@runtime_checkable
class RandomizedBatch(Protocol):
    """A `RobotBatch` that reports the parameters drawn for the present episodes; `sim.batch.SimBatch` is one."""

    @property
    def drawn(self) -> Mapping[str, np.ndarray]:
        """Path of a parameter -> its values, (num,); empty if nothing is drawn."""
        ...


class VectorEnvironment(BatchEnvironment):
    """Step N environments, with a leading axis of N in the standard's tables.

    Table 1 of a batch: ``env_id`` a list of N names, ``frame_no``, ``terminated`` and ``truncated`` int32 of shape
    (N,), ``observation`` and ``extra_info["applied"]`` name -> (N, ...). Table 2 has the same keys with a leading axis,
    Table 3 a reward of shape (N,), or with several agents a dictionary of such.

    Environment i draws its episodes from (seed, i, episode), so they don't depend on N or the number of threads, and
    environment 0 behaves as a single `Environment` with that seed.

    With ``autoreset="same_step"`` an environment that ended begins its next episode within the same step: the flags say
    that it ended, ``observation`` is the new episode's first and ``frame_no`` 0, and the true last observation is in
    ``extra_info["final"]`` = {index (K,), observation, metrics, success (K,), ...}. With ``"next_step"`` (Gymnasium's
    default) ``observation`` is the true last one, and the step after it begins the next episode: it ignores the action,
    the reward is 0, both flags are 0 and ``frame_no`` is 0. With ``"disabled"`` it stays in its last state until
    ``reset({"ids": [...]})``, and every table until then has its flag.

    Args:
        batch: the robots.
        task: the task of the robots.
        seed: the seed of all random draws; None draws one.
        mode: as for `RobotWorld`.
        autoreset: as above.
        count_refusals: whether a step with an action out of range counts towards the time limit, so that an episode of
            such actions ends; the interfaces of RL libraries set it.
        streams: shape (N,), the number that replaces i in the draws; environments with the same number get the same
            episodes (common random numbers, to compare policies). By default 0 to N - 1.
        check_outputs: n, to compare every reward, and the observations and hidden states of every n-th step and of
            those in which an episode ends, with their descriptions. A wrong row ends its episode as a fault: it repeats
            the last observation that was found right, with reward 0, ``truncated`` 1 and its number in
            ``extra_info["fault"]`` = {number: {kind, message}}. None is 16; 0 compares nothing.

    Raises:
        SpecMismatch: the task is for another robot.
        ValueError: the mode is unknown, or the robot has an acceleration limit.
    """

    def __init__(
        self,
        batch: RobotBatch,
        task: Task,
        *,
        seed: int | None = None,
        mode: Mode = "training",
        autoreset: Autoreset = "same_step",
        streams: np.ndarray | None = None,
        count_refusals: bool = False,
        check_outputs: int | None = None,
    ) -> None:
        if autoreset not in get_args(Autoreset):
            allowed = ", ".join(map(repr, get_args(Autoreset)))
            raise ValueError(f"autoreset is {autoreset!r}, allowed are {allowed}")
        super().__init__(batch, task, seed, mode, streams)
        self.batch, self._autoreset = batch, autoreset
        self._frame_no = np.zeros(batch.num, np.int32)
        self._goal = {field.name: np.zeros((batch.num, *field.shape), field.numpy_dtype) for field in task.goal}
        self._over = np.ones(batch.num, bool)
        self._terminated = np.zeros(batch.num, bool)  # of the environments whose episode is over: ended by the task
        self.count_refusals, self._refused = count_refusals, np.zeros(batch.num, np.int32)
        self._recent = self._rules.recent_metrics(batch.num)
        self._batch_state: BatchState | None = None
        self._takes_fields = len(self._rules.step_extra.fields) > 0
        self._drawn = mode == "training" and isinstance(batch, RandomizedBatch) and bool(batch.drawn)
        self._began = False
        every = SIMULATED if check_outputs is None else check_every(check_outputs)
        self._outputs = OutputFaults(task, mode, batch.num, every) if every else None
        self._faults: Mapping[int, JsonDict] = {}  # of the step in progress

    def __repr__(self) -> str:
        return f"<VectorEnvironment {self.task.name!r}: {self.num_envs} environments, autoreset {self._autoreset!r}>"

    @property
    def autoreset(self) -> Autoreset:
        """The setting that determines when an environment begins its next episode."""
        return self._autoreset

    @property
    def refusals(self) -> np.ndarray:
        """The number of actions refused in each running episode, int32 (N,); counted with ``count_refusals``."""
        return self._refused.copy()

    # -- reset -------------------------------------------------------------------------------------------

    def reset(self, options: Options = NOTHING, **keywords: object) -> BatchObservationTable:
        """Begin an episode in all environments, or in ``options["ids"]``.

        Args:
            options: ``seed`` (restarts the count of episodes of all), ``ids`` (ascending numbers; an empty list
                begins none).
            keywords: none is accepted; the error shows how to write them as options.

        Returns:
            Table 1 of all environments.

        Raises:
            TypeError: there are keywords.
            ValueError: an option is unknown, or ids are out of range.
            EpisodeError: ids were given before the first reset of all.
            WrongOutput: an observation of the episodes' first frames does not fit its description.
        """
        if keywords:
            raise keywords_error("reset", keywords)
        check_options(options, "reset", '{"seed": 7}', ("ids", "seed"))
        ids = None if options.get("ids") is None else check_ids(options["ids"], self.num_envs)
        if ids is not None and self._batch_state is None:
            raise EpisodeError("reset of some before a reset of all: call reset without ids first")
        self._restart(options)  # only now: a refused option changes no draw that follows
        if ids is None or ids.size:
            self._begin(np.arange(self.num_envs) if ids is None else ids, everyone=ids is None)
        return self._table(self._extra_info())

    def _begin(self, ids: np.ndarray, everyone: bool = False) -> None:
        """Draw and start an episode in these environments."""
        seeds, starts, goals = self._draw(ids)
        put(self._goal, ids, goals)
        first = self.batch.reset(None if everyone else ids, seeds, starts)
        self._frame_no[ids] = self._refused[ids] = 0
        self._over[ids] = self._terminated[ids] = False
        if self._recent is not None:
            self._recent.begin(ids)
        self._began = True
        self._batch_state = first if everyone or self._batch_state is None else merged(self._batch_state, ids, first)
        self._rules.check_first(self._batch_state.sensors, self._goal)
        if self._outputs is not None:
            self._outputs.begin(ids, first, {name: value[ids] for name, value in self._goal.items()})

    # -- step --------------------------------------------------------------------------------------------

    def step(
        self,
        action: Mapping[str, object],
        extra_info: Mapping[str, object] = NOTHING,
        *,
        refused: Mapping[int, Violation] | None = None,
    ) -> tuple[BatchObservationTable, BatchRewardTable]:
        """Step all environments by one control period.

        An environment with an illegal action (out of range, not finite, stale ``frame_no``, after its end) does not
        move: its observation and ``frame_no`` stay, its reward is 0, and ``extra_info["error"]`` maps its number to
        {code, field, index, message}.

        Args:
            action: Table 2 with a leading axis.
            extra_info: the task's inputs beside the action (`rlenv_robot.tables.StepExtra`), each with a leading axis.
                A row out of range is refused like one of an action.
            refused: number of an environment -> the violation that an adapter found in its action before it made Table
                2 (see `Environment.refuse`); its row of the action must be legal, and is not executed.

        Returns:
            Table 1 and Table 3 with a leading axis.

        Raises:
            IllegalAction: the batch as a whole is malformed (keys, shapes, dtypes, env_id, ``extra_info``); no
                environment moved.
            EpisodeError: the call came before the first reset.
        """
        before = self._batch_state
        if before is None:
            raise EpisodeError("step before reset: call reset first")
        # A copy, since `_end` marks the episodes that end in this step, which begin anew in the next one alone.
        waiting = self._over.copy() if self._autoreset == "next_step" and self._over.any() else None
        over = self._over if waiting is None else np.zeros_like(waiting)
        values, errors = check_batch(self.action, action, self.env_ids, self._frame_no, over, waiting)
        if self._takes_fields or extra_info is not NOTHING:
            more, wrong = check_extra(self._rules.step_extra, extra_info, self.num_envs, waiting)
            values, errors = {**values, **more}, {**wrong, **errors}
        if refused:
            late = {
                row: violation.to_dict() for row, violation in refused.items() if waiting is None or not waiting[row]
            }
            errors = {**late, **errors}
        moved = None
        if errors or waiting is not None:
            moved = np.ones(self.num_envs, bool) if waiting is None else ~waiting
            moved[list(errors)] = False
        after = self._batch_state = self.batch.step(self._commands(values, before, moved), moved)
        self._frame_no += 1 if moved is None else moved
        failed = self.batch.broken
        counted = self._count(errors) if self.count_refusals and errors else None
        step_no = self._frame_no + self._refused if self.count_refusals else self._frame_no
        judgement = self._rules.judge(before.sensors, values, after.sensors, self._goal, step_no, failed, moved)
        if counted is not None:
            judgement = judgement._replace(truncated=judgement.truncated | (counted & (step_no >= self.task.steps)))
        if self._outputs is not None:
            after, judgement, self._faults = self._outputs.step(after, self._goal, judgement, self._over, failed)
            self._batch_state = after
        if self._recent is not None:
            self._recent.add(after.sensors, self._goal, moved)
        final = self._end(judgement.terminated, judgement.truncated)
        if waiting is not None:
            self._begin(np.flatnonzero(waiting))
        extra = self._extra_info(values if moved is None else _of_rows(values, moved)) | final
        if errors:
            extra["error"] = errors
        if self._faults:
            extra["fault"] = self._faults
        table = self._table(extra, judgement.terminated, judgement.truncated)
        reward = map_reward(judgement.reward, _float64)
        return table, {"env_id": list(self.env_ids), "frame_no": table["frame_no"], "reward": reward}

    def end(self, reason: str, ids: ArrayLike | None = None) -> BatchObservationTable:
        """End running episodes in an orderly way, as `Environment.end` does for one.

        The next episodes begin according to ``autoreset``; nothing moves meanwhile.

        Args:
            reason: one sentence.
            ids: ascending numbers of the environments; None is all with a running episode.

        Returns:
            Table 1 of all environments, with ``truncated`` 1 for those that end here, and their last observations,
            metrics and ``reason`` in ``extra_info["final"]``.

        Raises:
            EpisodeError: the call came before the first reset, or an episode has already ended; nothing changed.
            ValueError: the reason is not a string or is empty, or ids are wrong.
        """
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"end got the reason {reason!r:.80}, expected a text such as envs.end('time for a break')")
        if self._batch_state is None:
            raise EpisodeError("end before reset: call reset first")
        rows = np.flatnonzero(~self._over) if ids is None else check_ids(ids, self.num_envs)
        if self._over[rows].any() or not len(rows):
            over = np.flatnonzero(self._over).tolist()
            raise EpisodeError(f"end: the episodes of the environments {over} have ended already; nothing changed")
        done = np.zeros(self.num_envs, bool)
        done[rows] = True
        final = self._end(np.zeros_like(done), done)
        final["final"]["reason"] = reason
        return self._table(self._extra_info() | final, truncated=done)

    def _count(self, errors: Mapping[int, JsonDict]) -> np.ndarray:
        """Count the refusals of values, and return whose they are, bool (N,); a late or stale row has not acted."""
        refused = np.zeros(self.num_envs, bool)
        refused[[row for row, error in errors.items() if error["code"] not in ("ended", "frame_no")]] = True
        self._refused += refused
        return refused

    def _commands(self, values: Arrays, before: BatchState, moved: np.ndarray | None) -> Arrays:
        """Return commands within the robot's limits; a row that does not move keeps what was applied."""
        commands = self._limiter.apply(self.task.command(values, before.sensors), before)
        if moved is not None:
            for name, value in commands.items():
                commands[name] = held = np.array(value)
                held[~moved] = before.applied[name][~moved]
        return commands

    def _end(self, terminated: np.ndarray, truncated: np.ndarray) -> ExtraInfo:
        """Return ``final``, the outcomes of the episodes that end here, and begin the next ones with "same_step"."""
        done = terminated | truncated
        if not done.any():
            return {}
        assert self._batch_state is not None
        ids = np.flatnonzero(done)
        failed = self.batch.broken[done] | np.isin(ids, list(self._faults))
        sensors = {name: value[ids] for name, value in self._batch_state.sensors.items()}
        goal = {name: value[ids] for name, value in self._goal.items()}
        outcome = self._rules.outcome(sensors, goal, failed, self._recent, ids)
        final = {
            "index": ids,
            "frame_no": self._frame_no[ids],
            **({"refusals": self._refused[ids]} if self.count_refusals else {}),
            "observation": {name: np.array(value) for name, value in self.task.observe(sensors, goal).items()},
            "success": outcome.success,
            "metrics": outcome.metrics,
            "broken": failed,
        }
        if self._batch_state.images:
            final["images"] = {name: np.asarray(value)[ids] for name, value in self._batch_state.images.items()}
        if self._drawn:
            final["randomisation"] = {name: value[ids] for name, value in self._draws().items()}
        self._over[ids], self._terminated[ids] = True, terminated[ids]
        if self._autoreset == "same_step":
            self._begin(ids)
        return {"final": final}

    # -- tables ------------------------------------------------------------------------------------------

    def _extra_info(self, action: Arrays | None = None) -> ExtraInfo:
        assert self._batch_state is not None
        extra = self._rules.extra_info(self._batch_state, self._goal, action)
        # The readings are overwritten at the next reset: what leaves is a copy where it must be.
        extra["applied"] = {name: np.array(value) for name, value in self._batch_state.applied.items()}
        if self._batch_state.images:
            extra["images"] = dict(self._batch_state.images)
        if self._drawn and self._began:
            extra["randomisation"] = self._draws()
        self._began = False
        return extra

    def _table(
        self, extra: ExtraInfo, terminated: np.ndarray | bool = False, truncated: np.ndarray | bool = False
    ) -> BatchObservationTable:
        """Return Table 1 of all environments.

        Args:
            extra: its ``extra_info``.
            terminated: bool, (N,), of the episodes that the task ends with this frame, even where the next one began
                within the step. An episode that ended before and is still over keeps its flag by itself.
            truncated: bool, (N,), of the episodes that end otherwise with this frame, likewise.
        """
        assert self._batch_state is not None
        observation = self.task.observe(self._batch_state.sensors, self._goal)
        return {
            "env_id": list(self.env_ids),
            "frame_no": self._frame_no.copy(),
            "observation": {name: np.array(value) for name, value in observation.items()},
            "extra_info": extra,
            "terminated": (terminated | self._terminated).astype(np.int32),
            "truncated": (truncated | (self._over & ~self._terminated)).astype(np.int32),
        }

    def _draws(self) -> dict[str, np.ndarray]:
        assert isinstance(self.batch, RandomizedBatch)  # or `_drawn` would be False
        return dict(self.batch.drawn)

    # -- snapshots ---------------------------------------------------------------------------------------

    def snapshot(self, ids: ArrayLike | None = None) -> VectorSnapshot:
        """Return the state of all or some environments, from which `restore` continues bit for bit.

        Raises:
            EpisodeError: the call came before the first reset.
            ValueError: ids are wrong, or the state of the robots can't be saved.
        """
        if self._batch_state is None:
            raise EpisodeError("snapshot before reset: there is nothing to keep yet")
        rows = np.arange(self.num_envs) if ids is None else check_ids(ids, self.num_envs)
        return VectorSnapshot(
            snapshot_batch(self.batch).snapshot(rows),
            self._seed,
            self._episodes[rows],
            self._frame_no[rows],
            self._over[rows],
            self._terminated[rows],
            {name: value[rows] for name, value in self._goal.items()},
            {name: value[rows] for name, value in self._batch_state.sensors.items()},
            {name: value[rows] for name, value in self._batch_state.applied.items()},
            self.task.name,
            {} if self._recent is None else self._recent.snapshot(rows),
        )

    def restore(self, snapshot: VectorSnapshot, ids: ArrayLike | None = None) -> BatchObservationTable:
        """Continue from an earlier state, of these environments or of others made with the same settings.

        Args:
            snapshot: a snapshot of as many environments as there are ids, in their order; or of one, from which all
                continue.
            ids: ascending numbers of some; None is all, which also restores the seed of later episodes.

        Returns:
            Table 1 of all environments, with the observation and ``frame_no`` of the snapshot, and the flags of
            finished episodes.

        Raises:
            EpisodeError: ids were given before the first reset of all.
            ValueError: ids are wrong, or the snapshot does not fit; nothing changed.
        """
        if self._batch_state is None and ids is not None:
            raise EpisodeError("restore of some before a reset of all: call reset first")
        snapshot.check(self.task.name)
        rows = np.arange(self.num_envs) if ids is None else check_ids(ids, self.num_envs)
        batch_state = snapshot_batch(self.batch).restore(snapshot.batch, rows)
        if ids is None:
            self._seed = snapshot.seed
            self._batch_state = batch_state
        assert self._batch_state is not None
        self._episodes[rows], self._frame_no[rows] = snapshot.episodes, snapshot.frame_no
        self._over[rows], self._terminated[rows] = snapshot.over, snapshot.terminated
        put(self._goal, rows, snapshot.goal)
        if self._recent is not None:
            self._recent.restore(rows, snapshot.recent)
        kept_reading = batch_state._replace(sensors=snapshot.sensors, applied=snapshot.applied)
        self._batch_state = merged(self._batch_state, rows, kept_reading)
        if self._outputs is not None:
            self._outputs.resume(self._batch_state)
        self._began = True
        return self._table(self._extra_info())


def _of_rows(values: Arrays, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return values with zeros, or empty texts, outside the rows of a mask: a refused action sends no message."""
    return {
        name: np.where(rows.reshape(rows.shape + (1,) * (value.ndim - 1)), value, np.zeros((), value.dtype))
        for name, value in values.items()
    }


def _float64(values: ArrayLike) -> np.ndarray:
    return np.asarray(values, np.float64)


# -- Snapshots -----------------------------------------------------------------------------------------------


@runtime_checkable
class SnapshotBatch(Protocol):
    """A batch of robots with a state that can be saved and restored; `sim.batch.SimBatch` is one."""

    def snapshot(self, ids: np.ndarray) -> BatchSnapshot:
        """Return the state of the robots ``ids``, as a value with a length."""
        ...

    def restore(self, snapshot: BatchSnapshot, ids: np.ndarray) -> BatchState:
        """Restore a state, and return the robots' readings in it."""
        ...


@dataclass(frozen=True)
class VectorSnapshot(Portable):
    """The state of n environments during their episodes. Its arrays are copies with a first axis of n.

    Attributes:
        batch: state of the robots (`sim.snapshot.BatchSnapshot`).
        seed: the seed of all random draws.
        episodes: count of episodes, (n,).
        frame_no: number of the frame, (n,).
        over: whether the episode had ended, (n,).
        terminated: for an ended episode, whether the task ended it (``terminated``) or not (``truncated``), bool (n,).
        goal: name -> (n, ...), of the episode.
        sensors: name -> (n, ...), of the last reading.
        applied: name -> (n, ...), of the last reading.
        task: name of the task.
        recent: name -> (n, ...), the metrics of the last readings, for an `AveragedTask` only.
    """

    KIND = "environments"

    batch: BatchSnapshot
    seed: int
    episodes: np.ndarray
    frame_no: np.ndarray
    over: np.ndarray
    terminated: np.ndarray
    goal: Arrays
    sensors: Arrays
    applied: Arrays
    task: str = ""
    recent: Arrays = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.episodes)

    def parts(self) -> tuple[JsonDict, Groups]:
        """Return the parts, as `Portable.parts`."""
        plain, groups = self.batch.parts()
        counters = {
            "episodes": self.episodes, "frame_no": self.frame_no, "over": self.over, "terminated": self.terminated,
        }  # fmt: skip
        mine = {"env": counters, "goal": self.goal, "sensors": self.sensors, "applied": self.applied}
        if self.recent:
            mine["recent"] = self.recent
        return {"batch": plain, "seed": self.seed, "task": self.task}, {**groups, **mine}

    @classmethod
    def of_parts(cls, plain: JsonObject, groups: Groups) -> VectorSnapshot:
        """Create a snapshot from its parts, as `Portable.of_parts`."""
        counters, (goal, sensors, applied) = groups["env"], (groups[name] for name in ("goal", "sensors", "applied"))
        batch = BatchSnapshot.of_parts(plain["batch"], groups)
        over = counters["over"]
        terminated = counters.get("terminated", np.zeros_like(over))  # absent from files of earlier versions
        numbers = counters["episodes"], counters["frame_no"], over, terminated
        return VectorSnapshot(
            batch, int(plain["seed"]), *numbers, goal, sensors, applied, str(plain["task"]), groups.get("recent", {})
        )

    def check(self, task: str) -> None:
        """Refuse a snapshot of another task.

        Raises:
            ValueError: the snapshot is of another task.
        """
        if self.task != task:
            raise ValueError(f"the snapshot is of {self.task!r}, and these are environments of {task!r}")


def snapshot_batch(batch: object) -> SnapshotBatch:
    """Return the batch if its state can be saved and restored.

    Raises:
        ValueError: the batch has no such state, as that of a learned model.
    """
    if not isinstance(batch, SnapshotBatch):
        raise ValueError(f"a {type(batch).__name__} can't be saved and restored; a SimBatch can")
    return batch
