"""N simulations of one robot, stepped together on a GPU by MuJoCo Warp, behind the interface of `SimBatch`."""

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
_MOST = 1e10
"""Beyond it MuJoCo calls a number bad (mjMAXVAL)."""


class WarpBatch(Simulations):
    """N simulated robots on a GPU: the same model, starts, commands and sensors as `SimBatch`, in single precision.

    Trajectories are close to the CPU's, not equal to them, and a GPU repeats itself only nearly. There are no timing,
    randomisation and snapshots here. Sensors come to the host in every step.

    Args:
        sim_model: the robot.
        num: how many.
        device: Warp's name of a device; None is the first GPU, ``cpu`` is for tests.
        contacts, constraints: room for them, as for `sim.gpu.device.WarpDevice`. Where it was too little, contacts
            were left out: that robot is ``broken``, and `faults` says what to raise.

    Raises:
        ValueError: num is below 1.
        RobotError: MuJoCo Warp is not installed (extra ``gpu``), or there is no such device.
        SpecError: the model has what is not supported here (delay buffers, mocap bodies, sleeping).
    """

    def __init__(
        self, sim_model: SimModel, num: int, device: str | None = None, *, contacts: int = 32, constraints: int = 128
    ) -> None:
        if num < 1:
            raise ValueError(f"{num} simulations: wanted are 1 or more")
        super().__init__(sim_model, num)
        fresh = sim_model.stage != mujoco.mjtStage.mjSTAGE_NONE.value
        self._device: WarpDevice | None = WarpDevice(
            sim_model.model, num, sim_model.substeps, fresh, device, contacts, constraints
        )
        self._room = f"{contacts} contacts and {constraints} constraints"
        self._starts = InitialState(self._device, sim_model, teleport=True)
        self._read = SensorReader(self._device, sim_model).read
        self._ctrl = self._device.bind("ctrl")
        self._writers = self._all_writers()
        self._reset_once = np.zeros(num, bool)
        self._overflowed = np.zeros(num, bool)
        self.broken = np.zeros(num, bool)
        """As `SimBatch.broken`; also where contacts had no room."""

    def _all_writers(self) -> list[Writer]:
        """Per command: name, ``ctrl``, the columns in it, shape and dtype."""
        nu, result = self._ctrl.shape[1], []
        for field in self._sim_model.spec.commands:
            columns = self._sim_model.commands[field.name]
            numbers = np.arange(nu)[columns] if isinstance(columns, slice) else np.asarray(columns)
            result.append((field.name, self._ctrl, numbers, (self._num, *field.shape), field.numpy_dtype))
        return result

    def reset(
        self,
        ids: Sequence[int] | np.ndarray | None = None,
        seeds: Sequence[int] | np.ndarray | None = None,
        starts: Mapping[str, np.ndarray] | None = None,
    ) -> BatchState:
        """As `SimBatch.reset`: the same seeds give the same starts."""
        device, rows = self._open(), rows_of(ids, self._num)
        self._starts.check(rows, seeds, starts or {})
        self._to_keyframe(device, rows)
        self._starts.write(rows, seeds, starts or {})
        self._show(device, rows)
        self.broken[rows] = self._overflowed[rows] = False
        self._reset_once[rows] = True
        return self._batch_state(rows)

    def step(self, commands: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> BatchState:
        """As `SimBatch.step`."""
        device = self._open()
        if not self._reset_once.all():
            raise EpisodeError(f"step before reset: {np.flatnonzero(~self._reset_once).tolist()} were never reset")
        applied, moving = checked(commands, self._writers), rows_of(ids, self._num)
        still = np.setdiff1d(np.arange(self._num), moving)
        if len(still):
            device.pull(STATE)
        before = {name: device.bind(name)[still] for name in device.bound} if len(still) else {}
        for name, ctrl, columns, _, _ in self._writers:
            ctrl[moving[:, None], columns] = applied[name][moving].reshape(len(moving), -1)
        device.push(("ctrl",))
        device.advance()
        device.pull(name for name in device.bound if name not in STATE or name in ("qpos", "qvel"))
        self._find_broken(device, moving)
        if len(still):
            self._put_back(device, still, before)
        self._steps += 1
        return self._batch_state(np.arange(self._num))

    def _open(self) -> WarpDevice:
        if self._device is None:
            raise EpisodeError("the simulation is closed, make a new one")
        return self._device

    def _to_keyframe(self, device: WarpDevice, rows: np.ndarray) -> None:
        """Write on the host what a reset begins with."""
        model, key = self._sim_model.model, self._sim_model.keyframe
        device.pull(STATE)
        for name in device.bound:
            device.bind(name)[rows] = 0.0
        device.bind("qpos")[rows] = model.key_qpos[key] if key >= 0 else model.qpos0
        if key >= 0:
            for name, values in (("qvel", model.key_qvel), ("ctrl", model.key_ctrl), ("act", model.key_act)):
                device.bind(name)[rows] = values[key]

    def _show(self, device: WarpDevice, rows: np.ndarray) -> None:
        """Send what was written into rows, and compute and fetch what follows from it."""
        device.push(device.bound)
        device.clear_overflow(rows)
        device.refresh()
        device.pull()

    def _put_back(self, device: WarpDevice, rows: np.ndarray, before: Mapping[str, np.ndarray]) -> None:
        """Who was not to move is where it was."""
        device.pull(STATE)
        for name, values in before.items():
            device.bind(name)[rows] = values
        device.push(device.bound)

    def _find_broken(self, device: WarpDevice, moved: np.ndarray) -> None:
        numbers = np.concatenate([device.bind("qpos"), device.bind("qvel")], axis=1)
        bad = ~(np.abs(numbers) < _MOST).all(axis=1)  # not a number is not below anything
        overflowed = device.overflow()
        fresh = np.zeros(self._num, bool)
        fresh[moved] = True
        if (overflowed & fresh & ~self._overflowed).any():
            _log.warning("contacts were left out: %s", self._advice())
        self._overflowed |= overflowed & fresh
        self.broken |= (bad | overflowed) & fresh
        if bad.any():  # as MuJoCo does on the CPU, so that nobody is given numbers that are none
            rows = np.flatnonzero(bad)
            self._to_keyframe(device, rows)
            self._show(device, rows)

    def _advice(self) -> str:
        return f"{self._room} a robot are too few; make the batch with more of both"

    def faults(self, row: int) -> tuple[Fault, ...]:
        """Return what has gone wrong in one simulation since its last reset."""
        if not self.broken[row]:
            return ()
        why = self._advice() if self._overflowed[row] else "a number of its state is not finite, or beyond 1e10"
        return (Fault("simulation", "", f"simulation: {why}"),)

    def _batch_state(self, rows: np.ndarray) -> BatchState:
        stamps = np.full(len(rows), self.stamp_ns)
        return BatchState(self._read(rows), self._starts.commands(rows), stamps)

    def close(self) -> None:
        """Let go of the device's memory. Calling it twice is allowed."""
        self._device = None
