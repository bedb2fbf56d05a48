"""N simulations of one robot, stepped together on native threads."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import mujoco
import numpy as np
from mujoco.batch import Batch

from hal.errors import EpisodeError, IllegalAction, RobotError, Violation
from hal.robot import Reading, RobotSpec
from sim.model import SimModel, as_slice
from sim.readers import Readers

__all__ = ["SimBatch"]

_VEL = mujoco.mjtStage.mjSTAGE_VEL.value  # positions and velocities current, at no extra cost: see step()
_NONE = mujoco.mjtStage.mjSTAGE_NONE.value


class SimBatch:
    """N simulated robots. A trajectory does not depend on ``num``, ``threads`` or its place in the batch.

    Commands are applied as they are given: limits are the caller's (`hal.Guard` for one robot,
    `hal.guard.limited` for many). Not to be used from several Python threads at once.

    Args:
        sim_model: the robot.
        num: how many.
        threads: how many threads step them, the caller's included; 0 is one a logical CPU.
        teleport: whether a reset puts the robot at its start. Without, it puts it where the model's keyframe
            says, as an arm that has just been switched on.

    Raises:
        ValueError: num is below 1 or threads below 0.
        SpecError: the model's sensors don't fit its spec.
    """

    def __init__(self, sim_model: SimModel, num: int, threads: int = 0, *, teleport: bool = True) -> None:
        if num < 1 or threads < 0:
            raise ValueError(f"{num} simulations on {threads} threads: wanted are 1 or more on 0 (all CPUs) or more")
        self._sim_model, self._num, self._teleport = sim_model, num, teleport
        self._batch: Batch | None = Batch(sim_model.model, num, threads, persistent=True)
        self._qpos, self._qvel, self._ctrl = (self._batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._warning = self._batch.warning
        self._warned = self._warning.tobytes()
        self._read = Readers(self._batch, sim_model)
        self._writers = self.writers()
        self._generators: list[np.random.Generator | None] = [None] * num
        self._reset_once = np.zeros(num, bool)
        self._ready = False
        self._steps = 0
        self._period_ns = 1e9 / sim_model.spec.rate_hz
        self._owner = os.getpid()
        self.any_broken = False
        self.broken = np.zeros(num, bool)
        """Shape (num,): whose physics failed since its last reset; its numbers mean nothing any more."""

    @property
    def spec(self) -> RobotSpec:
        """What each of them is."""
        return self._sim_model.spec

    @property
    def sim_model(self) -> SimModel:
        """The model they run on."""
        return self._sim_model

    @property
    def num(self) -> int:
        """How many."""
        return self._num

    @property
    def stamp_ns(self) -> int:
        """Simulated time since this batch was made, nanoseconds. A reset takes none."""
        return int(self._steps * self._period_ns + 0.5)

    @property
    def open_batch(self) -> Batch:
        """MuJoCo's batch, for what this class has no word for (randomised models, rays).

        Raises:
            EpisodeError: the batch was closed.
        """
        if self._batch is None:
            raise EpisodeError("the simulation is closed, make a new one")
        return self._batch

    # -- resets ------------------------------------------------------------------------------------------

    def reset(
        self,
        ids: Sequence[int] | np.ndarray | None = None,
        seeds: Sequence[int] | np.ndarray | None = None,
        starts: Mapping[str, np.ndarray] | None = None,
    ) -> Reading:
        """Begin anew, all or some of them.

        Args:
            ids: which, rising and without repetition, or a mask of shape (num,); None is all. Below, n is their number.
            seeds: for each, shape (n,), the seed of what is random in its start; None goes on with the generator
                that the last seed made.
            starts: command name -> where to start, shape (n, ...); what is missing starts at ``spec.home``.

        Returns:
            The n first readings, in the order of ids. Readings that were returned before are copies and stay.

        Raises:
            ValueError: illegal ids, or as many seeds or starts as don't fit them.
            EpisodeError: the batch was closed.
        """
        batch, model = self.open_batch, self._sim_model
        self._check_process()
        batch.reset(ids, model.keyframe, _NONE)
        rows = _rows(ids, self._num)
        if seeds is not None and len(seeds) != len(rows):
            raise ValueError(f"{len(seeds)} seeds for {len(rows)} simulations, wanted is one for each")
        if self._teleport:
            self._place(rows, starts or {})
        if model.scatter is not None:
            self._scatter(rows, seeds)
        if model.model.nhistory:
            self._fill_history(rows)
        batch.forward(ids, _VEL)
        self._warned = self._warning.tobytes()
        self.broken[rows] = False
        self.any_broken = bool(self.broken.any())
        self._reset_once[rows] = True
        self._ready = bool(self._reset_once.all())
        applied = {name: self._get(name, rows) for name in model.commands}
        return Reading(self._read(rows), applied, np.full(len(rows), self.stamp_ns))  # type: ignore[arg-type]

    def _place(self, rows: np.ndarray, starts: Mapping[str, np.ndarray]) -> None:
        """Write start commands into ctrl, and where they are poses, into qpos."""
        model = self._sim_model
        unknown = starts.keys() - model.commands.keys()
        if unknown:
            raise ValueError(f"starts name {sorted(unknown)}, commands are {list(model.commands)}")
        for name, columns in model.commands.items():
            value = starts.get(name, model.spec.home.get(name))
            if value is None:
                continue
            size = model.spec.commands[name].size
            flat = np.asarray(value, float).reshape(-1, size)
            if len(flat) not in (1, len(rows)):
                raise ValueError(f"{len(flat)} starts of {name!r} for {len(rows)} simulations, wanted is one for each")
            # As the command's own type, so that a start and the same command are one number.
            flat = flat.astype(model.spec.commands[name].numpy_dtype)
            self._ctrl[rows[:, None], _numbers(columns, self._ctrl.shape[1])] = flat
            if name in model.start:
                self._qpos[rows[:, None], _numbers(model.start[name], self._qpos.shape[1])] = flat

    def _scatter(self, rows: np.ndarray, seeds: Sequence[int] | np.ndarray | None) -> None:
        assert self._sim_model.scatter is not None
        for index, row in enumerate(rows.tolist()):
            if seeds is not None:
                self._generators[row] = np.random.default_rng(int(seeds[index]))
            generator = self._generators[row]
            if generator is None:
                generator = self._generators[row] = np.random.default_rng()
            self._sim_model.scatter(generator, self._qpos[row], self._qvel[row])

    def _fill_history(self, rows: np.ndarray) -> None:
        """Delayed actuators remember the start command; MuJoCo itself would begin with a phantom zero."""
        model = self._sim_model.model
        history, scratch = self.open_batch.bind("history"), mujoco.MjData(model)
        delayed = np.flatnonzero(model.actuator_history[:, 0]).tolist()
        for row in rows.tolist():
            scratch.history[:] = history[row]
            for actuator in delayed:
                values = np.full(int(model.actuator_history[actuator, 0]), self._ctrl[row, actuator])
                mujoco.mj_initCtrlHistory(model, scratch, actuator, None, values)
            history[row] = scratch.history

    def _get(self, name: str, rows: np.ndarray) -> np.ndarray:
        field = self._sim_model.spec.commands[name]
        columns = _numbers(self._sim_model.commands[name], self._ctrl.shape[1])
        values: np.ndarray = self._ctrl[rows[:, None], columns].reshape(-1, *field.shape)
        return values.astype(field.numpy_dtype)

    # -- steps -------------------------------------------------------------------------------------------

    def step(self, commands: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> Reading:
        """One control period of all of them, or of some.

        Args:
            commands: name -> values, shape (num, ...).
            ids: a mask of shape (num,); the others do not move, and their row is as it was. None is all.

        Returns:
            What was measured at its end, ``stamp_ns`` int64 of shape (num,); all arrays are the caller's to keep.
            A simulation whose physics failed is marked in ``broken``, and is to be reset.

        Raises:
            IllegalAction: wrong names or shapes, or a value that isn't finite; nothing moved.
            EpisodeError: not all of them were reset, or the batch was closed.
        """
        if not self._ready:
            self.open_batch  # noqa: B018  (raises if it was closed)
            raise EpisodeError(f"step before reset: {np.flatnonzero(~self._reset_once).tolist()} were never reset")
        self._check_process()
        applied = {}
        for name, _, _, shape, dtype in self._writers:
            value = np.asarray(commands[name]) if name in commands else None
            if value is None or value.shape != shape or not np.isfinite(value).all():
                self._refuse(name, value, shape)
            applied[name] = value.astype(dtype)
        if len(commands) != len(applied):
            unknown = next(name for name in commands if name not in applied)
            _illegal("unknown", unknown, (), f"command.{unknown} is unknown, allowed are {', '.join(applied)}")
        for name, target, index, _, _ in self._writers:
            if ids is None:
                target[index] = applied[name]
            else:
                self._command_some(name, applied, np.flatnonzero(ids))
        stamp_ns = self.advance(ids)
        return Reading(self._read(), applied, np.full(self._num, stamp_ns))  # type: ignore[arg-type]

    def _command_some(self, name: str, applied: dict[str, np.ndarray], rows: np.ndarray) -> None:
        """Command some; the others keep, and report, what was applied before."""
        columns = _numbers(self._sim_model.commands[name], self._ctrl.shape[1])
        self._ctrl[rows[:, None], columns] = applied[name][rows].reshape(len(rows), -1)
        applied[name] = self._get(name, np.arange(self._num))

    def advance(self, ids: np.ndarray | None = None) -> int:
        """One control period under the present ``ctrl``, nothing read: what `step` and `SimRobot` share.

        Returns:
            Simulated time, as `stamp_ns`.
        """
        # A persistent batch begins its next step where stage VEL ended, so that this stage costs nothing.
        self._batch.step(ids, self._sim_model.substeps, _VEL)  # type: ignore[union-attr]
        self._steps += 1
        if self._warning.tobytes() != self._warned:
            self._warned = self._warning.tobytes()
            self.broken |= self._warning[:, :, 1].any(axis=1)
            self.any_broken = bool(self.broken.any())
        return int(self._steps * self._period_ns + 0.5)

    def _refuse(self, name: str, value: np.ndarray | None, shape: tuple[int, ...]) -> NoReturn:
        if value is None:
            wanted = ", ".join(self._sim_model.commands)
            _illegal("missing", name, (), f"command.{name} is missing, wanted are {wanted}")
        if value.shape != shape:
            _illegal("shape", name, (), f"command.{name} has shape {value.shape}, wanted {shape}")
        index = tuple(int(axis) for axis in np.argwhere(~np.isfinite(value))[0])
        _illegal("not_finite", name, index, f"command.{name}{list(index)} is {value[index]}, it must be finite")

    def faults(self, row: int) -> tuple[str, ...]:
        """What MuJoCo has warned of in one simulation since its last reset, a sentence each."""
        counts = self._warning[row, :, 1].tolist()
        kinds = list(mujoco.mjtWarning.__members__)
        return tuple(f"simulation: MuJoCo warns {kind}" for kind, count in zip(kinds, counts, strict=False) if count)

    # -- for SimRobot ------------------------------------------------------------------------------------

    def readers(self, row: int) -> Readers:
        """Reads one of them, without the leading axis."""
        return Readers(self.open_batch, self._sim_model, row)

    def writers(self, row: int | None = None) -> list[tuple[str, np.ndarray, Any, tuple[int, ...], np.dtype]]:
        """Per command: name, live array, index, shape and dtype; ``array[index] = value`` commands it."""
        result = []
        for field in self._sim_model.spec.commands:
            columns = as_slice(self._sim_model.commands[field.name])
            ctrl = self._ctrl if row is None else self._ctrl[row]
            shape = field.shape if row is not None else (self._num, *field.shape)
            index: Any = ...
            if isinstance(columns, slice):
                target = ctrl[..., columns].reshape(shape)
                assert np.shares_memory(target, ctrl)
            else:
                target, index = ctrl, (..., np.asarray(columns).reshape(field.shape))
            result.append((field.name, target, index, shape, field.numpy_dtype))
        return result

    # -- ends --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of memory and threads. Twice is fine."""
        self._batch = None
        self._ready = False

    def _check_process(self) -> None:
        if os.getpid() != self._owner:
            raise RobotError(
                "this simulation was made in another process and its threads stayed there; "
                "make it in the process that steps it, and start processes with 'spawn'"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a running simulation can't be pickled; send what makes it (the name of the model) and make it there"
        )


def _rows(ids: Sequence[int] | np.ndarray | None, num: int) -> np.ndarray:
    """The simulations' numbers. Batch.reset has checked ids."""
    if ids is None:
        return np.arange(num)
    array = np.asarray(ids)
    return np.flatnonzero(array) if array.dtype == bool else array.astype(int)


def _numbers(columns: slice | tuple[int, ...], total: int) -> np.ndarray:
    return np.arange(total)[columns] if isinstance(columns, slice) else np.asarray(columns)


def _illegal(code: str, name: str, index: tuple[int, ...], message: str) -> NoReturn:
    raise IllegalAction(Violation(code, f"command.{name}", index, message))
