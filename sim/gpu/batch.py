"""A batch of simulations of one robot on a GPU (MuJoCo Warp), with the interface of `SimBatch`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np

from hal.errors import EpisodeError, Fault
from hal.robot import BatchState
from sim.batch import Simulations
from sim.gpu.device import STATE, WarpDevice
from sim.initial_state import InitialState
from sim.model import SimModel
from sim.state import SensorReader, Writer, checked, rows_of

__all__ = ["WarpBatch"]

_log = logging.getLogger(__name__)
_MAX_VALUE = 1e10
"""Beyond this value MuJoCo calls a number bad (mjMAXVAL)."""


class WarpBatch(Simulations):
    """Simulate n robots on a GPU with the model, starts, commands and sensors of `SimBatch`, in single precision.

    Trajectories are close to those of the CPU but not equal, and a GPU repeats a trajectory only nearly. Delays,
    randomisation and snapshots are not available. The sensors are copied to the host in every step.

    Args:
        sim_model: the robot.
        num: number of robots.
        device: Warp's name of a device; None is the first GPU, ``cpu`` is for tests.
        contacts, constraints: room for contacts and constraints, as for `sim.gpu.device.WarpDevice`. A robot without
            enough room loses contacts: it is ``broken``, and `faults` names the argument to raise.

    Raises:
        ValueError: num is below 1.
        RobotError: MuJoCo Warp is not installed (extra ``gpu``), or there is no such device.
        SpecError: the model uses a feature that is not supported here (delay buffers, mocap bodies, sleeping).
    """

    def __init__(
        self, sim_model: SimModel, num: int, device: str | None = None, *, contacts: int = 32, constraints: int = 128
    ) -> None:
        if num < 1:
            raise ValueError(f"{num} simulations: expected 1 or more")
        super().__init__(sim_model, num)
        refresh = sim_model.stage != mujoco.mjtStage.mjSTAGE_NONE.value
        self._device: WarpDevice | None = WarpDevice(
            sim_model.model, num, sim_model.substeps, refresh, device, contacts, constraints
        )
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
            columns = self._sim_model.commands[field.name]
            numbers = np.arange(nu)[columns] if isinstance(columns, slice) else np.asarray(columns)
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
        bad = ~(np.abs(numbers) < _MAX_VALUE).all(axis=1)  # a NaN is below no number
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
        """Free the memory on the device. Calling it twice is allowed."""
        self._device = None
