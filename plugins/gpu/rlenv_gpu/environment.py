"""Step many simulated environments of one task on a GPU, with PyTorch tensors in the batch's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeAlias, cast

import numpy as np
import torch

from hal import BatchState, EpisodeError, Field, SpecError
from rlenv_gpu.fused import Fused, inductor
from rlenv_gpu.packed import PackedTables, copy_all, tensors_in
from rlenv_gpu.recording import Recorded, close_enough, record_graph, without_collector
from rlenv_gpu.start_queue import StartQueue
from rlenv_gpu.start_workers import default_workers
from rlenv_gpu.starts import EpisodeMaker, goal_rows
from rlenv_gpu.tensor_array import TensorArray, arrays_of, for_tensors
from rlenv_gpu.tensor_batch import TensorBatch
from rlenv_robot.tables import Options, check_options
from rlenv_robot.tasks.agents import map_reward
from rlenv_robot.tasks.episode_rules import Mode
from rlenv_robot.tasks.task import Arrays, AveragedTask, PeakTask, Task
from rlenv_robot.vector.episodes import BatchEnvironment
from rlenv_robot.vector.validate import check_keys, check_names, malformed
from rlenv_robot.world import NOTHING

__all__ = ["REFUSALS", "EndedEpisodes", "TensorEnvironment", "for_tensors"]

REFUSALS = ("", "frame_no", "not_finite", "range")
"""The codes of `hal.Violation` to which ``extra_info["refused"]`` is an index; index 0 means not refused."""

DeviceArray: TypeAlias = Any
"""A `TensorArray`, which NumPy's functions accept but NumPy's type stubs don't know."""

Table = dict[str, Any]
P = ParamSpec("P")


def _cloned(value: Any) -> Any:
    """Return the tensors of arrays in dictionaries, as the caller's own."""
    if isinstance(value, Mapping):
        return {name: _cloned(part) for name, part in value.items()}
    return value.tensor.clone()


class TensorEnvironment(BatchEnvironment):
    """A `VectorEnvironment` on a GPU, with tensors in its tables.

    The same seeds give the same goals, starts and drawn models as there. Tables have the same keys, and the next
    episode begins within the step that ends one (``autoreset="same_step"``). Two differences avoid waiting for the GPU
    in a step:

    - ``extra_info["final"]`` is present in every step. It is an `EndedEpisodes`, whose entries are computed when they
      are read, which waits for the GPU.
    - ``extra_info["refused"]`` replaces ``error``: int8 (N,), an index into `REFUSALS`.

    The next episodes of all environments are on the device (`StartQueue`), and processes beside this one draw those
    that follow. On a GPU the third step records the task's functions, and the fourth one the whole step with the
    physics, as one CUDA graph (`Recorded`), so the task's functions must do the same operations in every step.

    Args:
        batch: the robots.
        task: the robots' task. Its functions get `rlenv_gpu.tensor_array.TensorArray`.
        seed: seed of all randomness; None draws one.
        mode: as for `RobotWorld`.
        streams: as for `VectorEnvironment`.
        workers: number of processes that draw episodes; 0 draws them in the process that steps. None chooses by the
            number of processors where the device is a GPU, and else 0.

    Raises:
        SpecMismatch: the task is for another robot.
        SpecError: a field of the action is a text, or another field holds its length.
        ValueError: the mode is unknown, or the robot's acceleration is limited.
    """

    arrays = "torch"
    autoreset = "same_step"

    def __init__(
        self,
        batch: TensorBatch,
        task: Task,
        *,
        seed: int | None = None,
        mode: Mode = "training",
        streams: np.ndarray | None = None,
        workers: int | None = None,
    ) -> None:
        for field in task.action:
            if field.is_text or field.counted_by:
                raise SpecError(f"action {field.name!r} is a text or a bounded set; step such a task on the CPU")
        super().__init__(batch, task, seed, mode, streams)
        if len(self._rules.step_extra.fields):
            raise SpecError(f"task {task.name!r} takes values beside the action; step it on the CPU")
        self.batch = batch
        self.device: torch.device = batch.device
        on_gpu, layout = self.device.type == "cuda", goal_rows(task.goal)
        self._goal, self._goals = {field.name: self._zeros(field) for field in task.goal}, layout
        maker = EpisodeMaker(self._rules, self._streams, batch.writer)
        count = (default_workers() if on_gpu else 0) if workers is None else workers
        self._queue = StartQueue(maker, batch.num, self.device, batch.physics.mirror, count)
        self._frame_no: DeviceArray = TensorArray(torch.zeros(batch.num, dtype=torch.int32, device=self.device))
        self._recent = _RecentMetrics(task, batch.num, self.device) if isinstance(task, AveragedTask) else None
        self._began = False
        self._everyone: DeviceArray = TensorArray(torch.ones(batch.num, dtype=torch.bool, device=self.device))
        self._given = {field.name: self._zeros(field) for field in task.action} | {"": self._frame_no.copy()}
        self._tables = PackedTables()
        part = record_graph if on_gpu else None
        compiler = inductor() if on_gpu else None
        self._command = Fused(self._act_then, compiler, "the part of a step before the physics")
        self._end_step = Fused(self._judge_then, compiler, "the part of a step after the physics")
        self._act = Recorded(self._act_now, self._memory, part, "the part of a step before the physics")
        self._judge = Recorded(
            lambda: self._judge_now(self._act.result), self._memory, part, "the part of a step after the physics"
        )
        self._whole = Recorded(
            self._step_in_parts, self._results, self._record if on_gpu else None, "a step as a whole",
            recorded=self._step_at_once, warm=3, same=close_enough,
        )  # fmt: skip

    def _memory(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes."""
        tables = [] if self._tables.buffer is None else [self._tables.buffer]
        return [*tensors_in(self._present()), *tables]

    def _present(self) -> dict[str, Any]:
        """Return the tensors that a step changes, by name."""
        return {
            "batch": self.batch.present,
            "recent": {} if self._recent is None else self._recent.present,
            "goal": self._goal,
            "frame_no": self._frame_no,
            "counters": self._queue.counters,
        }

    def _store(self, following: Mapping[str, Any]) -> None:
        """Store what follows `_present`."""
        present = self._present()
        self.batch.commit(following["batch"])
        rest = [name for name in present if name != "batch"]
        targets, values = ([each for name in rest for each in tensors_in(part[name])] for part in (present, following))
        copy_all(zip(targets, values, strict=True))

    def _results(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes, with the tables one by one."""
        return [*tensors_in(self._present()), *self._tables.tables()]

    @property
    def compiled(self) -> bool:
        """Whether the task's functions run compiled to few kernels (`rlenv_gpu.fused.Fused`)."""
        return self._command.is_compiled and self._end_step.is_compiled

    @property
    def recording(self) -> str:
        """The way of enqueuing steps: ``whole``, ``parts`` or ``none``, then a colon and the reason if there is one."""
        if self._whole.is_recorded:
            return "whole"
        kind = "parts" if self._act.is_recorded and self._judge.is_recorded else "none"
        reasons = [part.refusal for part in (self._whole, self._act, self._judge) if part.refusal]
        return ": ".join([kind, *reasons[:1]])

    @property
    def waits(self) -> tuple[int, int]:
        """The numbers of steps that waited for episodes, and for a device that was several steps behind."""
        return self._queue.waits, self._queue.pauses

    def _zeros(self, field: Field) -> DeviceArray:
        values = torch.from_numpy(np.zeros((self.batch.num, *field.shape), field.numpy_dtype))
        return TensorArray(values.to(self.device))

    # -- episodes --------------------------------------------------------------------------------------------------

    def on_arrays(self, function: Callable[P, Any]) -> Callable[P, Any]:
        """Convert a function of NumPy arrays to a function of tensors on the device (`for_tensors`)."""
        return for_tensors(function)

    def reset(self, options: Options = NOTHING) -> Table:
        """Begin an episode in all environments.

        Args:
            options: ``seed`` sets a new seed and restarts the count of episodes.

        Returns:
            Table 1.

        Raises:
            ValueError: an option is unknown.
        """
        check_options(options, "reset", '{"seed": 7}', ("seed",))
        if not self._began or options.get("seed") is not None:
            self._restart(options)
            self._rules.draw(self._seed, int(self._streams[0]), 0, NOTHING)  # checks the goal that the task draws
            self._queue.restart(self._seed)
        self._queue.settle()
        self._queue.refill()
        if self._recent is not None and not self._began:
            self._recent.open(self.batch.sensors, self._goal)
        self._store(self._begun({"batch": {}, "recent": arrays_of(self._present()["recent"])}, self._everyone))
        self._queue.report()
        self._rules.check_first(
            self.batch.sensors, self._goal, {field.name: self._given[field.name] for field in self.action}
        )
        self._began = True
        observation = self.task.observe(self.batch.sensors, self._goal)
        extra = {"applied": self.batch.applied, **self._state(self.batch.sensors, self._goal)}
        extra, frame_no = self._with_agents(_cloned(extra)), self._frame_no.tensor
        ends = torch.zeros_like(frame_no), torch.zeros_like(frame_no)
        return self._table(frame_no.clone(), _cloned(observation), extra, ends)

    def _begun(self, ended: Mapping[str, Any], mask: DeviceArray) -> dict[str, Any]:
        """Return what follows `_present` where environments begin their next episodes.

        Args:
            ended: what a step made of the ``batch``, the ``recent`` metrics and the ``frame_no``.
            mask: the environments, bool (N,).
        """
        rows = self._queue.next()
        goals = arrays_of(self._goals.views(rows[:, self.batch.writer.layout.width :]))
        frame_no = ended.get("frame_no", self._frame_no)
        return {
            "batch": self.batch.begun(ended["batch"], rows, mask.tensor),
            "recent": _RecentMetrics.begun(ended["recent"], mask),
            "goal": {name: _rows(mask, goals[name], value) for name, value in self._goal.items()},
            "frame_no": np.where(mask, np.zeros_like(frame_no), frame_no),
            "counters": self._queue.taken(mask.tensor),
        }

    # -- step ------------------------------------------------------------------------------------------------------

    def step(self, action: Mapping[str, Any]) -> tuple[Table, Table]:
        """Step all environments by one control period.

        An environment with an illegal action does not move: its observation and ``frame_no`` stay, and its reward is 0.

        Args:
            action: Table 2 with a leading axis. Its values are tensors on the device, or arrays, which are copied to
                it.

        Returns:
            Table 1 and Table 3 with a leading axis.

        Raises:
            IllegalAction: the whole batch is malformed (keys, shapes, types, env_id); no robot moved.
            EpisodeError: the environments were not reset.
        """
        if not self._began:
            raise EpisodeError("step before reset: call reset first")
        values, frame_no = self._check_whole(action)
        self._give({**values, "": frame_no})
        self._queue.refill()
        self._whole()
        stepped = self._tables.take()
        extra = self._with_agents(stepped["extra"])
        extra["final"] = EndedEpisodes(self.task, stepped["done"], stepped["final"])
        ends = stepped["terminated"], stepped["truncated"]
        table = self._table(stepped["frame_no"], stepped["observation"], extra, ends)
        return table, {"env_id": list(self.env_ids), "frame_no": table["frame_no"], "reward": stepped["reward"]}

    def _give(self, values: dict[str, DeviceArray]) -> None:
        """Copy the action to the place where a recording reads it."""
        copy_all((self._given[name].tensor, value.tensor) for name, value in values.items())

    def _step_in_parts(self) -> None:
        """Step in three parts, two of which are recorded, as the physics is too."""
        self._act()
        self.batch.advance()
        self._judge()
        self._queue.report()

    def _step_at_once(self) -> None:
        """Step as one recording does."""
        commanded = self._act_now()
        self.batch.advance()
        self._judge_now(commanded)
        self._queue.report()

    def _record(self, function: Callable[[], Any]) -> tuple[Callable[[], object], None]:
        """Record a whole step (a `Recorder`)."""
        for part in (self._act, self._judge):
            if not part.is_recorded:
                raise RuntimeError(part.refusal)
        with without_collector():
            return self.batch.physics.record(function), None

    def _act_now(self) -> _Commanded:
        """Give the robots the commands of the given action."""
        commanded, stored = self._command()
        self.batch.command(stored)
        return commanded

    def _judge_now(self, commanded: _Commanded) -> None:
        """Judge the step, begin the next episodes of those that ended, and write the tables."""
        following, tables = self._end_step(commanded)
        self._tables.put(tables)  # first, as they may be the present values
        self._store(following)

    def _act_then(self) -> tuple[_Commanded, dict[str, torch.Tensor]]:
        """Return the commands of the given action, and what the batch stores before the physics."""
        values = {field.name: self._given[field.name] for field in self.action}
        refused = self._refusals(values, self._given[""])
        moved: DeviceArray = refused == 0
        before, applied = self.batch.sensors, self.batch.applied
        last = BatchState(before, applied, np.zeros(self.num_envs, np.int64))
        commands = self._limiter.apply(self.task.command(values, before), last)
        held = {name: _rows(moved, value, applied[name]) for name, value in commands.items()}
        return _Commanded(refused, moved, values, held), self.batch.commanded(held)

    def _judge_then(self, commanded: _Commanded) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what follows `_present` after the physics, and the tables."""
        refused, moved, values, commands = commanded
        batch, before, goal = self.batch.after(commands, moved), self.batch.sensors, self._goal
        after = self.batch.readings(batch, "sensor")
        broken: DeviceArray = TensorArray(batch["broken"])
        frame_no = self._frame_no + moved
        judgement = self._rules.judge(before, values, after, goal, frame_no, broken, moved)
        recent: dict[str, DeviceArray] = {}
        means = {}
        if self._recent is not None:
            recent = self._recent.added(after, goal, moved)
            means = self._recent.means(recent)
        done = judgement.terminated | judgement.truncated
        following = self._begun({"batch": batch, "recent": recent, "frame_no": frame_no}, done)
        sensors, goals = self.batch.readings(following["batch"], "sensor"), following["goal"]
        extra: dict[str, Any] = {"applied": self.batch.readings(following["batch"], "applied"), "refused": refused}
        tables = {
            "done": done,
            "final": {"sensors": after, "goal": goal, "frame_no": frame_no, "broken": broken, "means": means},
            "extra": {**extra, **self._state(sensors, goals)},
            "terminated": judgement.terminated.astype(np.int32),
            "truncated": judgement.truncated.astype(np.int32),
            "reward": map_reward(judgement.reward, _float64),
            "frame_no": following["frame_no"],
            "observation": self.task.observe(sensors, goals),
        }
        return following, tables

    def _check_whole(self, table: Mapping[str, Any]) -> tuple[dict[str, DeviceArray], DeviceArray]:
        """Return the fields of the action as arrays of their types, and the frame numbers."""
        whole: Mapping[str, Any] = check_keys(table, ("env_id", "frame_no", "action"), "")
        check_names(whole["env_id"], self.env_ids)
        check_keys(whole["action"], self.action.names, "action")
        frame_no = self._tensor(table["frame_no"], "frame_no", (self.num_envs,), "iu")
        values: dict[str, DeviceArray] = {}
        for field in self.action:
            kinds = "fiu" if field.numpy_dtype.kind == "f" else "iu"
            value = self._tensor(table["action"][field.name], field.name, (self.num_envs, *field.shape), kinds)
            values[field.name] = value if field.numpy_dtype.kind != "f" else value.astype(field.numpy_dtype, copy=False)
        return values, frame_no

    def _tensor(self, value: Any, name: str, shape: tuple[int, ...], kinds: str) -> DeviceArray:
        if not isinstance(value, torch.Tensor) and np.asarray(value).dtype.kind not in "biuf":
            raise malformed("dtype", name, f"{name} is a {type(value).__name__} without numbers")
        tensor = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value))
        array = TensorArray(tensor.detach().to(self.device, non_blocking=True))
        if array.shape != shape:
            raise malformed("shape", name, f"{name} has shape {array.shape}, it must be {shape}")
        if array.dtype.kind not in kinds:
            raise malformed("dtype", name, f"{name} has type {array.dtype}, expected one of kind {' or '.join(kinds)}")
        return array

    def _refusals(self, values: dict[str, DeviceArray], frame_no: DeviceArray) -> DeviceArray:
        """Return why each action is refused, as an index of `REFUSALS`, int8 (N,); and make its values finite."""
        codes: DeviceArray = np.zeros_like(self._frame_no, np.int8)
        for field in self.action:
            value, (low, high) = values[field.name], field.bounds
            axes = tuple(range(1, value.ndim))
            fits = ((value >= low) & (value <= high)).all(axis=axes)
            finite = np.isfinite(value).all(axis=axes)
            codes = np.where(codes != 0, codes, np.where(finite, np.where(fits, 0, 3), 2)).astype(np.int8)
            values[field.name] = np.where(np.isfinite(value), value, np.zeros_like(value)).astype(field.numpy_dtype)
        late: DeviceArray = np.where(frame_no != self._frame_no, 1, codes).astype(np.int8)
        return late

    # -- tables ----------------------------------------------------------------------------------------------------

    def _state(self, sensors: Any, goal: Any) -> dict[str, Any]:
        shown = self.mode == "training" and len(self.task.state)
        return {"state": self.task.privileged(sensors, goal)} if shown else {}

    def _with_agents(self, extra: dict[str, Any]) -> dict[str, Any]:
        return {**extra, "agents": self._rules.agent_mapping()} if self.agents else extra

    def _table(
        self, frame_no: torch.Tensor, observation: dict[str, torch.Tensor], extra: dict[str, Any],
        ends: tuple[torch.Tensor, torch.Tensor],
    ) -> Table:  # fmt: skip
        return {
            "env_id": list(self.env_ids),
            "frame_no": frame_no,
            "observation": observation,
            "extra_info": extra,
            "terminated": ends[0],
            "truncated": ends[1],
        }

    def close(self) -> None:
        """Free the simulations, and end the processes. Safe to call more than once."""
        self._began = False
        self._queue.close()
        super().close()


class _Commanded(NamedTuple):
    """The first part of a step."""

    refused: DeviceArray
    moved: DeviceArray
    action: dict[str, DeviceArray]
    commands: dict[str, DeviceArray]


class EndedEpisodes(Mapping[str, Any]):
    """The episodes that ended in a step: the keys of ``extra_info["final"]``, computed when they are read.

    ``mask`` is bool (N,) and costs nothing. Reading any other entry waits for the GPU, since the number K of rows is
    not known before: ``index`` (K,), ``frame_no``, ``success``, ``broken`` (K,), ``observation`` and ``metrics`` by
    name.

    Args:
        task: the task of the environments.
        mask: bool, (N,).
        last: ``sensors``, ``goal``, ``frame_no``, ``broken`` and ``means`` of all environments at the end of the step,
            before the next episodes begin.
    """

    def __init__(self, task: Task, mask: torch.Tensor, last: Mapping[str, Any]) -> None:
        self.mask = mask
        self._task, self._last = task, last
        self._index: torch.Tensor | None = None

    @property
    def _rows(self) -> torch.Tensor:
        if self._index is None:
            self._index = torch.nonzero(self.mask)[:, 0]
        return self._index

    def __getitem__(self, key: str) -> Any:
        if key not in _FINAL:
            raise KeyError(key)
        rows = self._rows
        if key == "index":
            return rows
        if key == "frame_no":
            return self._last["frame_no"][rows]
        if key == "broken":
            return self._last["broken"][rows]
        task = self._task
        sensors, goal, means = (
            {n: v[rows] for n, v in self._last[part].items()} for part in ("sensors", "goal", "means")
        )
        if key == "observation":
            return for_tensors(task.observe)(sensors, goal)
        if key == "metrics":
            return means if isinstance(task, AveragedTask) else for_tensors(task.metrics)(sensors, goal)
        if isinstance(task, AveragedTask):
            success: torch.Tensor = for_tensors(task.average_success)(means, sensors, goal)
        else:
            success = for_tensors(task.success)(sensors, goal)
        return success & ~self._last["broken"][rows]

    def __iter__(self) -> Iterator[str]:
        return iter(_FINAL)

    def __len__(self) -> int:
        return len(_FINAL)


_FINAL = ("index", "frame_no", "observation", "success", "metrics", "broken")


class _RecentMetrics:
    """The metrics of all episodes' last readings, and the peaks of all, as in `RecentMetrics`, but as tensors."""

    def __init__(self, task: AveragedTask, num: int, device: torch.device) -> None:
        self._task, self._length = task, task.averaged_readings
        self._slots = TensorArray(torch.arange(self._length, device=device))
        self._counts = torch.zeros(num, dtype=torch.int64, device=device)
        self._kept: dict[str, torch.Tensor] = {}

    @property
    def present(self) -> dict[str, torch.Tensor]:
        """The tensors that a step changes: the number of readings, and each metric's last ones or its peak, (N,)."""
        return {"": self._counts, **self._kept}

    def _metrics(self, sensors: Arrays, goal: Arrays) -> tuple[Arrays, Arrays]:
        """Return the metrics of which the mean counts, and those of which the peak does."""
        peaks = self._task.peaks(sensors) if isinstance(self._task, PeakTask) else {}
        metrics = cast("Task", self._task).metrics(sensors, goal)
        return {name: value for name, value in metrics.items() if name not in peaks}, peaks

    def open(self, sensors: Arrays, goal: Arrays) -> None:
        """Make room for the metrics, before the first step."""
        averaged, peaks = self._metrics(sensors, goal)
        num = len(self._counts)
        for names, shape in ((averaged, (num, self._length)), (peaks, (num,))):
            for name in names:
                self._kept[name] = self._counts.new_zeros(shape, dtype=torch.float64)

    def added(self, sensors: Arrays, goal: Arrays, moved: DeviceArray) -> dict[str, DeviceArray]:
        """Return what follows `present` with a reading, where there was a new one."""
        averaged, peaks = self._metrics(sensors, goal)
        counts: DeviceArray = TensorArray(self._counts)
        here: DeviceArray = ((counts % self._length)[:, None] == self._slots) & moved[:, None]
        before = {name: TensorArray(kept) for name, kept in self._kept.items()}
        rings = {name: np.where(here, value[:, None], before[name]) for name, value in averaged.items()}
        highest = {
            name: np.where(moved, np.maximum(before[name], value), before[name]) for name, value in peaks.items()
        }
        return {"": counts + moved, **rings, **highest}

    def means(self, following: Mapping[str, DeviceArray]) -> dict[str, DeviceArray]:
        """Return each metric's mean over the last readings, or its peak, (N,), of what `added` returned."""
        counts = np.maximum(np.minimum(following[""], self._length), 1)
        return {name: kept if kept.ndim == 1 else kept.sum(axis=1) / counts for name, kept in following.items() if name}

    @staticmethod
    def begun(following: Mapping[str, DeviceArray], mask: DeviceArray) -> dict[str, torch.Tensor]:
        """Return the same without the readings of the episodes that begin."""
        return {
            name: value.tensor.masked_fill(mask.tensor.reshape(-1, *(1,) * (value.ndim - 1)), 0)
            for name, value in following.items()
        }


def _rows(mask: DeviceArray, one: DeviceArray, other: DeviceArray) -> DeviceArray:
    """Return the rows of ``one`` where the mask is true, and else those of ``other``."""
    chosen: DeviceArray = np.where(mask.reshape(len(mask), *(1,) * (one.ndim - 1)), one, other)
    return chosen


def _float64(values: DeviceArray) -> DeviceArray:
    return values.astype(np.float64)
