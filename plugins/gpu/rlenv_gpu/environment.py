"""Step many simulated environments of one task on a GPU, with PyTorch tensors in the batch's tables."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeAlias

import numpy as np
import torch

from hal import BatchState, EpisodeError, Field, SpecError
from rlenv_gpu.tensor_array import TensorArray, holding_constants
from rlenv_gpu.tensor_batch import TensorBatch
from rlenv_robot.tables import Options, check_options
from rlenv_robot.tasks.agents import map_reward
from rlenv_robot.tasks.episode_rules import Mode
from rlenv_robot.tasks.task import AveragedTask, Task
from rlenv_robot.vector.episodes import BatchEnvironment
from rlenv_robot.vector.validate import check_keys, check_names, malformed
from rlenv_robot.world import NOTHING

__all__ = [
    "REFUSALS",
    "EndedEpisodes",
    "Recorded",
    "Recorder",
    "TensorEnvironment",
    "for_tensors",
    "record_graph",
    "tensors_in",
]

REFUSALS = ("", "frame_no", "not_finite", "range")
"""The codes of `hal.Violation` to which ``extra_info["refused"]`` is an index; index 0 means not refused."""

DeviceArray: TypeAlias = Any
"""A `TensorArray`, which NumPy's functions accept but NumPy's type stubs don't know."""

Table = dict[str, Any]
P = ParamSpec("P")

_log = logging.getLogger(__name__)


def for_tensors(function: Callable[P, Any]) -> Callable[P, Any]:
    """Convert a function of arrays to a function of tensors, which runs on their device and returns tensors.

    Args:
        function: a function such as `FlattenObservation.observe` that takes and returns NumPy arrays, alone or in
            dictionaries. It may use the operations of `rlenv_gpu.tensor_array.TensorArray`.
    """

    def called(*args: P.args, **kwargs: P.kwargs) -> Any:
        given = [_wrapped(arg) for arg in args]
        return _unwrapped(function(*given, **{name: _wrapped(value) for name, value in kwargs.items()}))

    return called


def _wrapped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _wrapped(each) for name, each in value.items()}
    return TensorArray(value) if isinstance(value, torch.Tensor) else value


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _unwrapped(each) for name, each in value.items()}
    return value.tensor if isinstance(value, TensorArray) else value


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

    In a step the host enqueues the physics, and draws the next episodes of the environments that ended in the previous
    step. For this it reads one mask, which the GPU has computed by then. On a GPU the third step records its work
    (`Recorded`), so the task's functions must do the same operations in every step.

    Args:
        batch: the robots.
        task: the robots' task. Its functions get `rlenv_gpu.tensor_array.TensorArray`.
        seed: seed of all randomness; None draws one.
        mode: as for `RobotWorld`.
        streams: as for `VectorEnvironment`.

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
    ) -> None:
        for field in task.action:
            if field.is_text or field.counted_by:
                raise SpecError(f"action {field.name!r} is a text or a bounded set; step such a task on the CPU")
        super().__init__(batch, task, seed, mode, streams)
        if len(self._rules.step_extra.fields):
            raise SpecError(f"task {task.name!r} takes values beside the action; step it on the CPU")
        self.batch = batch
        self.device: torch.device = batch.device
        self._goal = {field.name: self._zeros(field) for field in task.goal}
        self._next_goal = {field.name: self._zeros(field) for field in task.goal}
        self._frame_no: DeviceArray = TensorArray(torch.zeros(batch.num, dtype=torch.int32, device=self.device))
        self._recent = _RecentMetrics(task, batch.num, self.device) if isinstance(task, AveragedTask) else None
        self._ended: _MaskOnHost | None = None
        self._began = False
        self._given = {field.name: self._zeros(field) for field in task.action} | {"": self._frame_no.copy()}
        record = record_graph if self.device.type == "cuda" else None
        self._act, self._judge = (Recorded(part, self._memory, record) for part in (self._command, self._end_step))

    def _memory(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes."""
        recent = [] if self._recent is None else self._recent.memory()
        arrays = [*self._goal.values(), self._frame_no, *recent]
        return [*self.batch.memory(), *(array.tensor for array in arrays)]

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
        everyone, again = np.arange(self.num_envs), self._began and options.get("seed") is None
        self._restart(options)
        if again:  # their next episodes are there already
            self._prepare_again()
        else:
            self._prepare(everyone)
        self._begin(None)
        self._rules.check_first(
            self.batch.sensors, self._goal, {field.name: self._given[field.name] for field in self.action}
        )
        self._prepare(everyone)
        self._ended, self._began = None, True
        observation = self.task.observe(self.batch.sensors, self._goal)
        return self._table(
            self._frame_no.tensor.clone(), _cloned(observation), self._with_agents(_cloned(self._extra_info()))
        )

    def _prepare(self, rows: np.ndarray) -> None:
        """Draw the next episodes of these environments, and send them to the device."""
        seeds, starts, goals = self._draw(rows)
        self.batch.prepare(rows, seeds, starts)
        numbers = torch.from_numpy(rows).to(self.device)
        for name, values in goals.items():
            following = self._next_goal[name].tensor
            following[numbers] = torch.from_numpy(values).to(following)

    def _begin(self, mask: DeviceArray | None) -> None:
        """Begin the prepared episodes of these environments, or of all."""
        self.batch.begin(mask)
        for name, value in [*self._goal.items(), ("", self._frame_no)]:
            following = self._next_goal[name] if name else np.zeros_like(value)
            value.tensor.copy_((following if mask is None else _rows(mask, following, value)).tensor)
        if self._recent is not None:
            self._recent.begin(mask)

    def _prepare_again(self) -> None:
        """Draw new episodes for those that began one in the step before; this reads what the GPU has finished."""
        if self._ended is None:
            return
        rows = np.flatnonzero(self._ended.read())
        if len(rows):
            self._prepare(rows)

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
        for name, value in {**values, "": frame_no}.items():
            self._given[name].tensor.copy_(value.tensor)
        self._act()
        self.batch.advance()
        self._prepare_again()
        stepped = _cloned(self._judge())
        self._ended = _MaskOnHost(stepped["done"])
        extra = self._with_agents(stepped["extra"])
        extra["final"] = EndedEpisodes(self, stepped["done"], stepped["final"])
        table = self._table(stepped["frame_no"], stepped["observation"], extra)
        table["terminated"], table["truncated"] = stepped["terminated"], stepped["truncated"]
        return table, {"env_id": self.env_ids, "frame_no": table["frame_no"], "reward": stepped["reward"]}

    def _command(self) -> _Commanded:
        """Give the robots the commands of the given action."""
        values = {field.name: self._given[field.name] for field in self.action}
        refused = self._refusals(values, self._given[""])
        moved: DeviceArray = refused == 0
        before, applied = self.batch.sensors, self.batch.applied
        last = BatchState(before, applied, np.zeros(self.num_envs, np.int64))
        commands = self._limiter.apply(self.task.command(values, before), last)
        held = {name: _rows(moved, value, applied[name]) for name, value in commands.items()}
        return _Commanded(refused, moved, values, held, self.batch.command(held))

    def _end_step(self) -> dict[str, Any]:
        """Judge the step, begin the next episodes of those that ended, and return what the tables hold."""
        refused, moved, values, commands, before = self._act.result
        after, goal = self.batch.read(moved, before), self._goal
        frame_no = self._frame_no + moved
        judgement = self._rules.judge(self.batch.sensors, values, after, goal, frame_no, self.batch.broken, moved)
        means = {}
        if self._recent is not None:
            self._recent.add(self.task.metrics(after, goal), moved)
            means = self._recent.means()
        done = judgement.terminated | judgement.truncated
        final = _Final(
            after, {name: value.copy() for name, value in goal.items()}, frame_no, self.batch.broken.copy(), means
        )
        self.batch.keep(after, commands, moved)
        self._frame_no.tensor.copy_(frame_no.tensor)
        self._begin(done)
        return {
            "done": done,
            "final": final._asdict(),
            "extra": {**self._extra_info(), "refused": refused},
            "terminated": judgement.terminated.astype(np.int32),
            "truncated": judgement.truncated.astype(np.int32),
            "reward": map_reward(judgement.reward, _float64),
            "frame_no": self._frame_no,
            "observation": self.task.observe(self.batch.sensors, goal),
        }

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

    def _extra_info(self) -> dict[str, Any]:
        extra: dict[str, Any] = {"applied": self.batch.applied}
        if self.mode == "training" and len(self.task.state):
            extra["state"] = self.task.privileged(self.batch.sensors, self._goal)
        return extra

    def _with_agents(self, extra: dict[str, Any]) -> dict[str, Any]:
        return {**extra, "agents": self._rules.agent_mapping()} if self.agents else extra

    def _table(self, frame_no: torch.Tensor, observation: dict[str, torch.Tensor], extra: dict[str, Any]) -> Table:
        none = torch.zeros(self.num_envs, dtype=torch.int32, device=self.device)
        return {
            "env_id": self.env_ids,
            "frame_no": frame_no,
            "observation": observation,
            "extra_info": extra,
            "terminated": none,
            "truncated": none.clone(),
        }

    def close(self) -> None:
        """Free the simulations. Safe to call more than once."""
        self._began = False
        super().close()


class Recorded:
    """Call a function on the device's memory. On a GPU, record its work as a CUDA graph and replay it.

    The host takes longer to enqueue a step of a hundred small operations than the GPU takes to run it. The function
    must do the same operations on the same memory in every call, and keep its results in its own memory, so that a
    replay overwrites the previous results. The first replay is compared bit by bit with a call. A function that can't
    be recorded, or differs, is called without a recording, and the log gives the reason.

    Args:
        function: a function without arguments.
        memory: returns the tensors that the function changes, other than its results.
        record: makes a recording, as `record_graph` does; None calls the function every time.

    Attributes:
        result: result of the latest call.
    """

    _WARM = 2  # calls before the recording, which fill caches of constants and the libraries' own memory

    def __init__(
        self, function: Callable[[], Any], memory: Callable[[], list[torch.Tensor]], record: Recorder | None
    ) -> None:
        self._function, self._memory, self._record, self._calls = function, memory, record, 0
        self._repeat: Callable[[], object] | None = None
        self._constants: list[torch.Tensor] = []
        self.result: Any = None

    def __call__(self) -> Any:
        """Return the function's result."""
        self._calls += 1
        if self._repeat is not None:
            self._repeat()
        elif self._record is None or self._calls <= self._WARM:
            self.result = self._function()
        else:
            self._make_recording(self._record)
        return self.result

    def _make_recording(self, record: Recorder) -> None:
        before = [tensor.clone() for tensor in self._memory()]
        try:
            with holding_constants(self._constants):
                repeat, repeated = record(self._function)
        except RuntimeError as error:
            self._call_from_now_on(str(error))
            self.result = self._function()
            return
        repeat()
        after = [tensor.clone() for tensor in [*tensors_in(repeated), *self._memory()]]
        self._put_back(before)
        self.result = self._function()
        if all(map(_same, after, [*tensors_in(self.result), *self._memory()])):
            self._repeat, self.result = repeat, repeated
        else:
            self._call_from_now_on("its recording does something else, as a function of the task is not pure")

    def _call_from_now_on(self, reason: str) -> None:
        self._record = None
        _log.warning("a step is not recorded, and slower: %s", reason)

    def _put_back(self, values: list[torch.Tensor]) -> None:
        for tensor, value in zip(self._memory(), values, strict=True):
            tensor.copy_(value)


Recorder: TypeAlias = Callable[[Callable[[], Any]], tuple[Callable[[], object], Any]]
"""Function that records another function's work without running it, and returns a function that replays it, and the
results."""


def record_graph(function: Callable[[], Any]) -> tuple[Callable[[], object], Any]:
    """Record a function's work on the GPU as a CUDA graph (a `Recorder`).

    Raises:
        RuntimeError: the function waits for the GPU, or copies numbers from the host.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = function()
    return graph.replay, result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of all arrays in nested dictionaries and tuples, in order."""
    if isinstance(value, TensorArray):
        yield value.tensor
    elif isinstance(value, Mapping):
        yield from itertools.chain.from_iterable(map(tensors_in, value.values()))
    elif isinstance(value, tuple):
        yield from itertools.chain.from_iterable(map(tensors_in, value))


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


class _Commanded(NamedTuple):
    """The first part of a step."""

    refused: DeviceArray
    moved: DeviceArray
    action: dict[str, DeviceArray]
    commands: dict[str, DeviceArray]
    state: dict[str, DeviceArray]


class _Final(NamedTuple):
    """All environments at the end of a step, before the next episodes begin."""

    sensors: dict[str, DeviceArray]
    goal: dict[str, DeviceArray]
    frame_no: DeviceArray
    broken: DeviceArray
    means: dict[str, DeviceArray]


class EndedEpisodes(Mapping[str, Any]):
    """The episodes that ended in a step: the keys of ``extra_info["final"]``, computed when they are read.

    ``mask`` is bool (N,) and costs nothing. Reading any other entry waits for the GPU, since the number K of rows is
    not known before: ``index`` (K,), ``frame_no``, ``success``, ``broken`` (K,), ``observation`` and ``metrics`` by
    name.

    Args:
        envs: the environments, at the end of the step and before the next episodes begin.
        mask: bool, (N,).
        last: the fields of `_Final` for all environments.
    """

    def __init__(self, envs: TensorEnvironment, mask: torch.Tensor, last: Mapping[str, Any]) -> None:
        self.mask = mask
        self._rules, self._task, self._device = envs._rules, envs.task, envs.device
        arrays = _wrapped(last)
        self._sensors, self._goal = arrays["sensors"], arrays["goal"]
        self._frame_no, self._broken = arrays["frame_no"], arrays["broken"]
        self._means = None if envs._recent is None else arrays["means"]
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
            return self._frame_no.tensor[rows]
        if key == "broken":
            return self._broken.tensor[rows]
        chosen = TensorArray(rows)
        sensors, goal = ({n: v[chosen] for n, v in part.items()} for part in (self._sensors, self._goal))
        if key == "observation":
            return _unwrapped(self._task.observe(sensors, goal))
        means = None if self._means is None else {name: value[chosen] for name, value in self._means.items()}
        if key == "metrics":
            return _unwrapped(self._task.metrics(sensors, goal) if means is None else means)
        if means is None:
            success: DeviceArray = self._task.success(sensors, goal)
        else:
            assert isinstance(self._task, AveragedTask)
            success = self._task.average_success(means, sensors, goal)
        return (success & ~self._broken[chosen]).tensor

    def __iter__(self) -> Iterator[str]:
        return iter(_FINAL)

    def __len__(self) -> int:
        return len(_FINAL)


_FINAL = ("index", "frame_no", "observation", "success", "metrics", "broken")


class _MaskOnHost:
    """A mask on its way to the host, behind the device's work so far; later work does not delay it."""

    def __init__(self, mask: torch.Tensor) -> None:
        self._event = torch.cuda.Event() if mask.is_cuda else None
        self._mask = torch.empty(mask.shape, dtype=torch.bool, pin_memory=mask.is_cuda)
        self._mask.copy_(mask, non_blocking=True)
        if self._event is not None:
            self._event.record()

    def read(self) -> np.ndarray:
        """Return the mask, bool (N,), when it has arrived."""
        if self._event is not None:
            self._event.synchronize()
        mask: np.ndarray = self._mask.numpy()
        return mask


class _RecentMetrics:
    """The metrics of the last readings of all episodes, as `rlenv_robot.tasks.episode_rules.RecentMetrics`."""

    def __init__(self, task: AveragedTask, num: int, device: torch.device) -> None:
        self._length = task.averaged_readings
        self._slots = TensorArray(torch.arange(self._length, device=device))
        self._counts = TensorArray(torch.zeros(num, dtype=torch.int64, device=device))
        self._rings: dict[str, DeviceArray] = {}

    def begin(self, mask: DeviceArray | None) -> None:
        """Forget the readings of these episodes, which begin."""
        kept = np.zeros_like(self._counts, bool) if mask is None else ~mask
        self._counts *= kept
        for ring in self._rings.values():
            ring.tensor.copy_(_rows(kept, ring, np.zeros_like(ring)).tensor)

    def add(self, metrics: Mapping[str, Any], moved: DeviceArray) -> None:
        """Add a reading's metrics, each (N,), where there was a new reading."""
        here: DeviceArray = ((self._counts % self._length)[:, None] == self._slots) & moved[:, None]
        for name, value in metrics.items():
            ring = self._rings.setdefault(name, np.zeros_like(here, np.float64))
            ring.tensor.copy_(np.where(here, value[:, None], ring).tensor)
        self._counts += moved

    def memory(self) -> list[DeviceArray]:
        """Return the arrays that readings change."""
        return [self._counts, *self._rings.values()]

    def means(self) -> dict[str, DeviceArray]:
        """Return each metric's mean over the last readings, (N,)."""
        counts = np.maximum(np.minimum(self._counts, self._length), 1)
        return {name: ring.sum(axis=1) / counts for name, ring in self._rings.items()}


def _rows(mask: DeviceArray, one: DeviceArray, other: DeviceArray) -> DeviceArray:
    """Return the rows of ``one`` where the mask is true, and else those of ``other``."""
    chosen: DeviceArray = np.where(mask.reshape(len(mask), *(1,) * (one.ndim - 1)), one, other)
    return chosen


def _float64(values: DeviceArray) -> DeviceArray:
    return values.astype(np.float64)
