"""Simulate a batch of one robot on a GPU (MuJoCo Warp), with the interface of `SimBatch`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import mujoco
import numpy as np

from hal.errors import EpisodeError, Fault, RobotError, SpecError
from hal.robot import BatchState
from sim.batch import Simulations
from sim.initial_state import InitialState
from sim.model import Refreshed, SimModel, numbers_of
from sim.state import SensorReader, Writer, checked, rows_of

__all__ = ["MAX_VALUE", "STATE", "Mirror", "WarpBatch", "WarpDevice", "open_device"]

STATE = ("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "time")
"""The fields that, with the model, determine the next step."""


class WarpDevice:
    """Step simulations of one model on a device, in single precision.

    `bind` returns arrays on the host, as `SimBatch` does, but they are copies: `pull` updates them from the device, and
    `push` copies them to it.

    Args:
        model: the model to simulate.
        num: number of simulations.
        substeps: physics steps in a control period.
        refreshed: the quantities to derive from the state at the end of a period (`sim.model.SimModel.refreshed`).
        device: Warp's name of a device, such as ``cuda:0``; None for the first GPU. ``cpu`` is for tests: a step takes
            a thousand times as long.
        contacts: room for contacts, as the average number per simulation.
        constraints: room for constraint rows in each simulation. A contact takes up to six rows; a joint at its limit
            or with friction takes one.

    Raises:
        RobotError: MuJoCo Warp is not installed, or there is no such device.
        SpecError: the model uses a feature that is not supported here.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num: int,
        substeps: int,
        refreshed: Refreshed,
        device: str | None = None,
        contacts: int = 32,
        constraints: int = 128,
    ) -> None:
        _check(model)
        self._warp, self._mjw = _imported()
        self._device = _device(self._warp, device)
        self.nsim, self._substeps, self._refreshed = num, substeps, refreshed
        with self._warp.ScopedDevice(self._device):
            try:
                self._model = self._mjw.put_model(model)
            except NotImplementedError as error:
                raise SpecError(f"MuJoCo Warp can't simulate this model: {error}") from error
            self._data = self._mjw.make_data(model, nworld=num, nconmax=contacts, njmax=constraints)
        self._model.opt.warn_overflow = 0  # it would print; `overflow` returns it instead
        self._host = mujoco.MjData(model)
        self._mirrors: dict[str, np.ndarray] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}  # in Warp, which has matrices where MuJoCo has rows of nine
        self._graph: Any = None
        self._warm = self._recording = False
        self._recorded_in: list[object] = []  # the memory of recordings
        for name in STATE:
            self.bind(name)
        self.pull()

    def bind(self, name: str) -> np.ndarray:
        """Return the host's copy of a ``mjData`` field of all simulations, float64 (num, ...), for `pull` and `push`.

        Raises:
            ValueError: there is no such field.
        """
        if name not in self._mirrors:
            on_host, on_device = getattr(self._host, name, None), getattr(self._data, name, None)
            if on_host is None or on_device is None or not hasattr(on_device, "assign"):
                raise ValueError(f"MuJoCo Warp has no field {name!r}")
            self._mirrors[name] = np.zeros((self.nsim, *np.shape(on_host)))
            self._shapes[name] = on_device.numpy().shape
        return self._mirrors[name]

    @property
    def bound(self) -> tuple[str, ...]:
        """Names of the fields with a copy on the host, including those of `STATE`."""
        return tuple(self._mirrors)

    def pull(self, names: Iterable[str] | None = None) -> None:
        """Copy these fields, or all bound fields, from the device to the host."""
        for name in self._mirrors if names is None else names:
            mirror = self._mirrors[name]
            if mirror.size:
                mirror[:] = getattr(self._data, name).numpy().reshape(mirror.shape)

    def push(self, names: Iterable[str]) -> None:
        """Copy these fields from the host to the device."""
        for name in names:
            mirror = self._mirrors[name]
            if mirror.size:
                getattr(self._data, name).assign(mirror.astype(np.float32).reshape(self._shapes[name]))

    def tensor(self, name: str) -> Any:
        """Return a field of ``mjData`` of all simulations as a PyTorch tensor (num, ...) that shares its memory.

        Raises:
            ValueError: there is no such field.
        """
        array: Any = getattr(self._data, name, None)
        if not hasattr(array, "assign") or array.shape[0] != self.nsim:
            raise ValueError(f"MuJoCo Warp has no field {name!r} of each simulation")
        return self._warp.to_torch(array)

    def model_tensor(self, field: str) -> Any:
        """Return a field of the model as a tensor (num, ...), with separate values for each simulation.

        Call it before the first `advance`, which may be recorded.

        Raises:
            SpecError: MuJoCo Warp allows only one value of the field for all simulations.
        """
        owner, _, name = field.rpartition(".")
        part = self._model.opt if owner == "opt" else self._model
        array: Any = getattr(part, name, None)
        if not hasattr(array, "assign") or array.shape[0] not in (1, self.nsim):
            raise SpecError(f"MuJoCo Warp can't give each simulation a {field} of its own; step on the CPU")
        if array.shape[0] != self.nsim or (self.nsim > 1 and array.strides[0] == 0):
            with self._warp.ScopedDevice(self._device):
                own = self._warp.empty((self.nsim, *array.shape[1:]), dtype=array.dtype)
            self._warp.to_torch(own).copy_(self._warp.to_torch(array)[:1].expand_as(self._warp.to_torch(own)))
            setattr(part, name, own)
            array = own
        return self._warp.to_torch(array)

    @property
    def torch_device(self) -> Any:
        """The PyTorch device of the tensors."""
        return self._warp.device_to_torch(self._device)

    def advance_with_torch(self) -> None:
        """Step as `advance` does, in PyTorch's current stream and so in order with its work."""
        with self._in_torchs_stream():
            self.advance()

    @contextlib.contextmanager
    def _in_torchs_stream(self) -> Iterator[None]:
        if not self._device.is_cuda or self._recording:
            yield
            return
        import torch

        stream = self._warp.stream_from_torch(torch.cuda.current_stream(torch.device(self.torch_device)))
        with self._warp.ScopedStream(stream, sync_enter=False):
            yield

    def mirror(self, tensor: Any) -> Mirror:
        """Make a copy on the host of a tensor on the device, which the host reads without waiting."""
        return Mirror(self._warp, tensor, self._in_torchs_stream)

    def refuses_recording(self) -> str:
        """Return why `record` can't record the physics together with PyTorch's work; empty if it can."""
        if not self._device.is_cuda:
            return "it runs on no GPU"
        if not self._warp.is_mempool_enabled(self._device):
            return "the device has no memory pools, or they are switched off (warp.set_mempool_enabled)"
        if not self._warp.is_conditional_graph_supported():
            return "a loop within a CUDA graph needs a driver for CUDA 12.4 or newer"
        return ""

    def record(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record PyTorch's work and steps of the physics as one CUDA graph, and return a function that launches it.

        Warp records, because its loops within a graph suspend and resume the recording, after which PyTorch would not
        know its own recording any more. PyTorch's tensors come from a pool of their own, which lives as long as the
        graph.

        Args:
            function: enqueues the work, without waiting for the device; `advance` is called in it. It is not run.

        Raises:
            RuntimeError: a part of the work can't be recorded.
        """
        import torch

        if reason := self.refuses_recording():
            raise RuntimeError(reason)
        stream, pool = self._warp.Stream(self._device), torch.cuda.MemPool()
        torch.cuda.synchronize()
        self._recording = True
        try:
            with (
                self._warp.ScopedDevice(self._device), self._warp.ScopedStream(stream),
                torch.cuda.stream(self._warp.stream_to_torch(stream)),
                torch.cuda.use_mem_pool(pool, torch.device(self.torch_device)),
                self._warp.ScopedCapture(stream=stream) as capture,
            ):  # fmt: skip
                function()
        finally:
            self._recording = False
        graph, warp = capture.graph, self._warp
        self._recorded_in.append(pool)

        def launch() -> None:
            with self._in_torchs_stream():
                warp.capture_launch(graph)

        return launch

    def advance(self) -> None:
        """Step all simulations by one control period.

        On a GPU the second call records the period as a CUDA graph, and later calls launch the graph.
        """
        with self._warp.ScopedDevice(self._device):
            if self._recording:
                self._period()
            elif self._device.is_cuda and self._warm:
                if self._graph is None:  # on a stream of its own: the default stream can't be recorded
                    with (
                        self._warp.ScopedStream(self._warp.Stream(self._device)),
                        self._warp.ScopedCapture() as capture,
                    ):
                        self._period()
                    self._graph = capture.graph
                self._warp.capture_launch(self._graph)
            else:
                self._period()
                self._warm = True

    def _period(self) -> None:
        for _ in range(self._substeps):
            self._mjw.step(self._model, self._data)
        if self._refreshed == "poses":
            self._mjw.kinematics(self._model, self._data)
        elif self._refreshed == "all":
            self._refresh()

    def refresh(self) -> None:
        """Recompute the quantities that depend on positions and velocities, but not on accelerations."""
        with self._warp.ScopedDevice(self._device):
            self._refresh()

    def _refresh(self) -> None:
        mjw, model, data = self._mjw, self._model, self._data
        mjw.fwd_position(model, data, factorize=False)
        mjw.sensor_pos(model, data)
        mjw.fwd_velocity(model, data)
        mjw.sensor_vel(model, data)

    def overflow(self) -> np.ndarray:
        """Return whether each simulation has lost contacts or constraints since `clear_overflow`, bool (num,)."""
        flags: np.ndarray = self._data.overflow.numpy()
        lost: np.ndarray = (flags & ~self._harmless()) != 0
        return lost

    def _harmless(self) -> int:
        """Return the flags of a solver that stopped early, as it does on the CPU."""
        overflow = self._mjw.OverflowType
        return int(overflow.ITERATIONS | overflow.LS_ITERATIONS)

    def overflow_tensor(self) -> tuple[Any, int]:
        """Return the flags of lost contacts and constraints, a tensor (num,), and the bits that are harmless."""
        return self._warp.to_torch(self._data.overflow), self._harmless()

    def clear_overflow(self, rows: np.ndarray) -> None:
        """Clear the overflow of these simulations."""
        flags = np.array(self._data.overflow.numpy())
        flags[rows] = 0
        self._data.overflow.assign(flags)


class Mirror:
    """A copy on the host of a tensor on the device, in memory that the device writes while the host goes on.

    Args:
        warp: the module.
        tensor: the tensor, of one axis.
        in_stream: enters PyTorch's stream.

    Attributes:
        values: the numbers that arrived last. While a copy is underway, some may be newer than others.
    """

    def __init__(
        self, warp: ModuleType, tensor: Any, in_stream: Callable[[], contextlib.AbstractContextManager[None]]
    ) -> None:
        self._warp, self._source, self._in_stream = warp, warp.from_torch(tensor), in_stream
        same = self._source.device.is_cpu
        kind = self._source.dtype
        self._target = None if same else warp.zeros(self._source.shape, dtype=kind, device="cpu", pinned=True)
        self.values: np.ndarray = (self._source if self._target is None else self._target).numpy()

    def send(self) -> None:
        """Enqueue the copy in PyTorch's stream, behind the device's work so far."""
        if self._target is not None:
            with self._in_stream():
                self._warp.copy(self._target, self._source)


def _check(model: mujoco.MjModel) -> None:
    sleeps = model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP.value
    for count, feature in (
        (model.nhistory, "delay buffers"),
        (model.nmocap, "mocap bodies"),
        (sleeps, "sleeping bodies"),
    ):
        if count:
            raise SpecError(f"a model with {feature} is not supported on MuJoCo Warp here; use the batch on the CPU")


def _imported() -> tuple[ModuleType, ModuleType]:
    try:
        import warp
    except ImportError as error:
        raise RobotError("simulation on a GPU needs MuJoCo Warp: pip install 'rlenv-robot[gpu]'") from error
    if warp.config.log_level == warp.LOG_INFO:  # at this level it prints a greeting and each kernel that it loads
        warp.config.log_level = warp.LOG_WARNING
    try:
        import mujoco_warp
    except ImportError as error:
        raise RobotError("simulation on a GPU needs MuJoCo Warp: pip install 'rlenv-robot[gpu]'") from error
    return warp, mujoco_warp


def _device(warp: ModuleType, name: str | None) -> Any:
    if name is None and not warp.is_cuda_available():
        raise RobotError(
            "there is no GPU that Warp can use (an NVIDIA one, with its driver). device='cpu' is the batch for this "
            "machine; device='warp:cpu' debugs Warp's, slowly"
        )
    try:
        return warp.get_device("cuda:0" if name is None else name)
    except (ValueError, RuntimeError) as error:
        devices = ", ".join(map(str, warp.get_devices()))
        raise RobotError(f"Warp has no device {name!r}, it has {devices}") from error


# -- batches ---------------------------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)

MAX_VALUE = 1e10
"""Absolute value beyond which MuJoCo considers a number bad (mjMAXVAL)."""


def open_device(sim_model: SimModel, num: int, device: str | None, contacts: int, constraints: int) -> WarpDevice:
    """Open a device with simulations of a robot; arguments as for `WarpBatch`.

    Raises:
        ValueError: ``num`` is below 1.
        RobotError: MuJoCo Warp is not installed (extra ``gpu``), or there is no such device.
        SpecError: the model uses a feature that is not supported here.
    """
    if num < 1:
        raise ValueError(f"{num} simulations: expected 1 or more")
    if sim_model.pushes is not None:
        raise SpecError("pushes are not supported on MuJoCo Warp here; use the batch on the CPU")
    return WarpDevice(sim_model.model, num, sim_model.substeps, sim_model.refreshed, device, contacts, constraints)


class WarpBatch(Simulations):
    """Simulate n robots on a GPU in single precision, with the model, starts, commands and sensors of `SimBatch`.

    Trajectories are close but not equal to those of the CPU, and a GPU reproduces a trajectory only approximately.
    Delays, randomisation and snapshots are not available. The sensors are copied to the host in every step.

    Args:
        sim_model: the simulated robot.
        num: number of robots.
        device: Warp's name of a device; None for the first GPU. ``cpu`` is for tests.
        contacts: room for contacts, as for `WarpDevice`. A robot without enough room loses contacts: it is ``broken``,
            and `faults` names the argument to increase.
        constraints: room for constraints, as for `WarpDevice`.

    Raises:
        ValueError: ``num`` is below 1.
        RobotError: MuJoCo Warp is not installed (extra ``gpu``), or there is no such device.
        SpecError: the model uses a feature that is not supported here (delay buffers, mocap bodies, sleeping, pushes).
    """

    def __init__(
        self, sim_model: SimModel, num: int, device: str | None = None, *, contacts: int = 32, constraints: int = 128
    ) -> None:
        super().__init__(sim_model, num)
        if sim_model.draws:
            raise SpecError("a model with draws of its own needs device='cpu', or arrays='torch'")
        self._device: WarpDevice | None = open_device(sim_model, num, device, contacts, constraints)
        self._room = f"{contacts} contacts and {constraints} constraints"
        self._starts = InitialState(self._device, sim_model, teleport=True)
        self._read = SensorReader(self._device, sim_model).read
        self._ctrl = self._device.bind("ctrl")
        self._writers = self._all_writers()
        self._reset_once = np.zeros(num, bool)
        self._overflowed = np.zeros(num, bool)
        self.broken = np.zeros(num, bool)
        """Whether each simulation has failed or lost contacts since its last reset; bool, (num,)."""

    def _all_writers(self) -> list[Writer]:
        """Return the writer of each command: name, ``ctrl``, the columns in ``ctrl``, shape and dtype."""
        nu, writers = self._ctrl.shape[1], []
        for field in self._sim_model.spec.commands:
            numbers = numbers_of(self._sim_model.commands[field.name], nu)
            writers.append((field.name, self._ctrl, numbers, (self._num, *field.shape), field.numpy_dtype))
        return writers

    def reset(
        self,
        ids: Sequence[int] | np.ndarray | None = None,
        seeds: Sequence[int] | np.ndarray | None = None,
        starts: Mapping[str, np.ndarray] | None = None,
    ) -> BatchState:
        """Begin an episode in these simulations, as `SimBatch.reset` does: the same seeds give the same starts."""
        device, rows = self._open(), rows_of(ids, self._num)
        self._starts.check(rows, seeds, starts or {})
        self._to_keyframe(device, rows)
        self._starts.write(rows, seeds, starts or {})
        self._upload(device, rows)
        self.broken[rows] = self._overflowed[rows] = False
        self._reset_once[rows] = True
        return self._batch_state(rows)

    def step(self, commands: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> BatchState:
        """Apply the commands for one control period, as `SimBatch.step` does."""
        device = self._open()
        if not self._reset_once.all():
            raise EpisodeError(f"step before reset: {np.flatnonzero(~self._reset_once).tolist()} were never reset")
        applied, moving = checked(commands, self._writers), rows_of(ids, self._num)
        resting = np.setdiff1d(np.arange(self._num), moving)
        if len(resting):
            device.pull(STATE)
        before = {name: device.bind(name)[resting] for name in device.bound} if len(resting) else {}
        for name, ctrl, columns, _, _ in self._writers:
            ctrl[moving[:, None], columns] = applied[name][moving].reshape(len(moving), -1)
        device.push(("ctrl",))
        device.advance()
        device.pull(name for name in device.bound if name not in STATE or name in ("qpos", "qvel"))
        self._find_broken(device, moving)
        if len(resting):
            self._put_back(device, resting, before)
        self._steps += 1
        return self._batch_state(np.arange(self._num))

    def _open(self) -> WarpDevice:
        if self._device is None:
            raise EpisodeError("the simulation is closed, make a new one")
        return self._device

    def _to_keyframe(self, device: WarpDevice, rows: np.ndarray) -> None:
        """Write the keyframe into rows of the host's arrays."""
        model, key = self._sim_model.model, self._sim_model.keyframe
        device.pull(STATE)
        for name in device.bound:
            device.bind(name)[rows] = 0.0
        device.bind("qpos")[rows] = model.key_qpos[key] if key >= 0 else model.qpos0
        if key >= 0:
            for name, values in (("qvel", model.key_qvel), ("ctrl", model.key_ctrl), ("act", model.key_act)):
                device.bind(name)[rows] = values[key]

    def _upload(self, device: WarpDevice, rows: np.ndarray) -> None:
        """Send the host's arrays after a change of rows, and compute and fetch the quantities that follow from them."""
        device.push(device.bound)
        device.clear_overflow(rows)
        device.refresh()
        device.pull()

    def _put_back(self, device: WarpDevice, rows: np.ndarray, before: Mapping[str, np.ndarray]) -> None:
        """Put simulations that were not to move back into their state."""
        device.pull(STATE)
        for name, values in before.items():
            device.bind(name)[rows] = values
        device.push(device.bound)

    def _find_broken(self, device: WarpDevice, moved: np.ndarray) -> None:
        numbers = np.concatenate([device.bind("qpos"), device.bind("qvel")], axis=1)
        bad = ~(np.abs(numbers) < MAX_VALUE).all(axis=1)  # a NaN is below no number
        overflowed = device.overflow()
        stepped = np.zeros(self._num, bool)
        stepped[moved] = True
        if (overflowed & stepped & ~self._overflowed).any():
            _log.warning("contacts were left out: %s", self._advice())
        self._overflowed |= overflowed & stepped
        self.broken |= (bad | overflowed) & stepped
        if bad.any():  # reset them, as MuJoCo does on the CPU, so that no sensor reads NaN
            rows = np.flatnonzero(bad)
            self._to_keyframe(device, rows)
            self._upload(device, rows)

    def _advice(self) -> str:
        return f"{self._room} a robot are too few; make the batch with more of both"

    def faults(self, row: int) -> tuple[Fault, ...]:
        """Return the faults of one simulation since its last reset."""
        if not self.broken[row]:
            return ()
        why = self._advice() if self._overflowed[row] else "a number of its state is not finite, or beyond 1e10"
        return (Fault("simulation", "", f"simulation: {why}"),)

    def _batch_state(self, rows: np.ndarray) -> BatchState:
        stamps = np.full(len(rows), self.stamp_ns)
        return BatchState(self._read(rows), self._starts.commands(rows), stamps)

    def close(self) -> None:
        """Free the memory on the device. Safe to call more than once."""
        self._device = None
