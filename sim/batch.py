"""N simulations of one robot, stepped together on native threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import mujoco
import numpy as np
from mujoco.batch import Batch

from hal.errors import EpisodeError, IllegalAction, RobotError, Violation
from hal.robot import Reading, RobotSpec
from sim.model import SimModel, as_slice
from sim.readers import Readers
from sim.starts import Starts

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
        self._sim_model, self._num = sim_model, num
        self._batch: Batch | None = Batch(sim_model.model, num, threads, persistent=True)
        self._starts = Starts(self._batch, sim_model, teleport)
        self._ctrl = self._batch.bind("ctrl")
        self._warning = self._batch.warning
        self._warned = self._warning.tobytes()
        self._read = Readers(self._batch, sim_model).read
        self._writers = self.writers()
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
        batch, rows = self.open_batch, _rows(ids, self._num)
        self._check_process()
        self._starts.check(rows, seeds, starts or {})
        batch.reset(ids, self._sim_model.keyframe, _NONE)
        self._starts.write(rows, seeds, starts or {})
        batch.forward(ids, _VEL)
        self._warned = self._warning.tobytes()
        self.broken[rows] = False
        self.any_broken = bool(self.broken.any())
        self._reset_once[rows] = True
        self._ready = bool(self._reset_once.all())
        return self._reading(self._read(rows), self._starts.commands(rows), np.full(len(rows), self.stamp_ns))

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
            ValueError: illegal ids.
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
        if ids is not None:
            applied = self._only(_rows(ids, self._num), applied)
        for name, target, index, _, _ in self._writers:
            target[index] = applied[name]
        stamp_ns = self.advance(ids)
        return self._reading(self._read(), applied, np.full(self._num, stamp_ns))

    @staticmethod
    def _reading(sensors: dict[str, np.ndarray], applied: dict[str, np.ndarray], stamp_ns: np.ndarray) -> Reading:
        return Reading(sensors, applied, stamp_ns)  # type: ignore[arg-type]  # one stamp for each

    def _only(self, rows: np.ndarray, commands: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The commands of ``rows``, and for the others what was applied before."""
        held = self.held()
        for name, value in held.items():
            value[rows] = commands[name][rows]
        return held

    def held(self) -> dict[str, np.ndarray]:
        """What the actuators hold: command name -> values, shape (num, ...), new arrays."""
        return self._starts.commands(np.arange(self._num))

    def advance(self, ids: np.ndarray | None = None, each: Callable[[], None] | None = None) -> int:
        """One control period under the present ``ctrl``, nothing read: what `step` and `SimRobot` share.

        Args:
            ids: as for `step`.
            each: called after every step of the physics; the numbers are the same with and without.

        Returns:
            Simulated time, as `stamp_ns`.
        """
        # A persistent batch begins its next step where stage VEL ended, so that this stage costs nothing.
        if each is None:
            self._batch.step(ids, self._sim_model.substeps, _VEL)  # type: ignore[union-attr]
        else:
            for _ in range(self._sim_model.substeps):
                self._batch.step(ids, 1, _VEL)  # type: ignore[union-attr]
                each()
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
    """The simulations' numbers, shape (n,).

    Raises:
        ValueError: they are no rising whole numbers of 0..num-1 without repetition, and no mask of shape (num,).
    """
    if ids is None:
        return np.arange(num)
    array = np.asarray(ids)
    if array.dtype == bool and array.shape == (num,):
        return np.flatnonzero(array)
    if array.size == 0:
        return np.zeros(0, int)
    whole = array.dtype.kind in "iu" and array.ndim == 1
    if not whole or array[0] < 0 or array[-1] >= num or not (np.diff(array.astype(int)) > 0).all():
        raise ValueError(f"ids {array.tolist()} are no rising numbers of 0..{num - 1} and no mask of shape ({num},)")
    return array.astype(int)


def _illegal(code: str, name: str, index: tuple[int, ...], message: str) -> NoReturn:
    raise IllegalAction(Violation(code, f"command.{name}", index, message))
