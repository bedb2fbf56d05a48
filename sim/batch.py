"""Batches of simulations of one robot, stepped together on native threads."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import mujoco
import numpy as np
from mujoco.batch import Batch

from hal.errors import EpisodeError, Fault, RobotError
from hal.robot import BatchState, RobotSpec, is_driven
from sim.initial_state import InitialState
from sim.latency.delays import DelayModel
from sim.model import ImageReader, Rendered, SimModel
from sim.randomize.actuation import Gains, configured_spec
from sim.randomize.distribution import check_rows
from sim.randomize.load_friction import LoadFriction
from sim.randomize.pushes import PushSchedule
from sim.randomize.randomise import Randomise, Randomised, with_own_draws
from sim.randomize.seeds import SeedStreams
from sim.snapshot import BatchSnapshot, fitting
from sim.state import SensorReader, Writer, checked, rows_of

__all__ = ["SimBatch", "Simulations", "time_mujoco", "write_no_log_file"]

_log = logging.getLogger(__name__)

_LOG_FILE = "MUJOCO_LOG.TXT"
"""MuJoCo's own log file, in the working directory, as MuJoCo names it unless somebody chose another."""

_SHOWN = 8
"""The most simulations that a log message names."""


class Simulations:
    """The robot, the number of simulations and the clock of a batch, independent of the engine that computes it.

    Args:
        sim_model: the simulated robot.
        num: number of simulations.
    """

    def __init__(self, sim_model: SimModel, num: int) -> None:
        self._sim_model, self._num, self._spec = sim_model, num, sim_model.spec
        self._steps = 0
        self._period_ns = 1e9 / sim_model.spec.rate_hz
        write_no_log_file()
        time_mujoco(False)

    @property
    def spec(self) -> RobotSpec:
        """The description of each robot, with the ranges of its gains and delays."""
        return self._spec

    @property
    def sim_model(self) -> SimModel:
        """The simulated model."""
        return self._sim_model

    @property
    def num(self) -> int:
        """Number of simulations."""
        return self._num

    @property
    def stamp_ns(self) -> int:
        """Simulated time since the batch was made, in nanoseconds. A reset takes no time."""
        return int(self._steps * self._period_ns + 0.5)


def write_no_log_file() -> None:
    """Keep MuJoCo from writing its log file to the working folder, unless the user has chosen a file.

    The setting is MuJoCo's, for the whole process. Its warnings still go to stderr, and ours to `logging`.
    """
    config = mujoco.MjLogConfig.get()
    if config.logto_file and config.logfile == _LOG_FILE:
        config.logto_file = False
        config.set()


def time_mujoco(on: bool) -> bool:
    """Switch MuJoCo's timing of the parts of its steps (``MjData.timer``) on or off, for the whole process.

    MuJoCo's library does no timing by itself, but its Python package gives it a clock (``mjcb_time``), which it reads
    in each part of a step: 1 to 12 % of a step of our tasks. ``mujoco.set_mjcb_time`` can't remove the clock, so this
    function overwrites the library's pointer to it. A clock that the user has set stays. Simulations call this function
    with False when they are made.

    Returns:
        Whether MuJoCo times its steps now.
    """
    if mujoco.get_mjcb_time() is not None:
        return True
    pointer, clock = _clock()
    if pointer is None:
        return True
    pointer.value = clock if on else None
    return on


@functools.cache
def _clock() -> tuple[ctypes.c_void_p | None, int | None]:
    """Return MuJoCo's pointer to a clock, and the clock of its Python package; None where they are not found."""
    for path in sorted(Path(mujoco.__file__).parent.glob("*mujoco*")):
        if path.suffix in (".dll", ".dylib") or ".so." in path.name:
            try:
                pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(str(path)), "mjcb_time")
            except (OSError, ValueError):
                continue
            return pointer, pointer.value
    return None, None


_VEL = mujoco.mjtStage.mjSTAGE_VEL.value  # positions and velocities current
_NONE = mujoco.mjtStage.mjSTAGE_NONE.value


class SimBatch(Simulations):
    """N simulated robots. A trajectory does not depend on ``num``, ``threads`` or its place in the batch.

    Commands are applied as they are: the caller applies limits (`hal.Guard` for one robot,
    `hal.guarding.command_limiter.CommandLimiter` for many). Not thread-safe.

    Args:
        sim_model: the simulated robot.
        num: number of simulations.
        threads: number of threads that step them, the caller's included; 0 means one for each logical CPU.
        teleport: whether a reset puts the robot at its start. If not, it puts the robot at the model's keyframe, like
            an arm that has just been switched on.
        timing: delays, losses and resolution of commands and sensors; None for none.
        randomise: the parts of the model that each reset draws; None for none.
        gains: as for `sim.randomize.actuation.configured_spec`, for the manifest; they do not affect the simulation.

    Raises:
        ValueError: num is below 1 or threads below 0.
        SpecError: the model's sensors don't fit its spec, or timing or randomisation don't fit the model.
    """

    def __init__(
        self,
        sim_model: SimModel,
        num: int,
        threads: int = 0,
        *,
        teleport: bool = True,
        timing: DelayModel | None = None,
        randomise: Randomise | None = None,
        gains: Gains | None = None,
    ) -> None:
        if not isinstance(num, int | np.integer) or num < 1 or threads < 0:
            given = f"{num!r} simulations on {threads} threads"
            raise ValueError(f"{given}: allowed are 1 or more, on 0 (all CPUs) or more")
        super().__init__(sim_model, num)
        randomise = with_own_draws(sim_model.draws, randomise)
        self._spec = configured_spec(sim_model, None if timing is None else timing.ranges, randomise, gains)
        check_rows(timing=timing, randomise=randomise)
        self._stage, self._substeps = sim_model.stage, sim_model.substeps
        self._batch: Batch | None = Batch(sim_model.model, num, threads, persistent=sim_model.needs_own_model)
        self._starts, self._teleport = InitialState(self._batch, sim_model, teleport), teleport
        self._ctrl = self._batch.bind("ctrl")
        self._warning = self._batch.warning
        self._warned = self._warning.tobytes()
        self._images: dict[str, ImageReader] = {
            name: reader.open(sim_model, self._batch.bind("qpos"), lambda: self.models, threads)
            for name, reader in sim_model.sensors.items()
            if isinstance(reader, Rendered)
        }
        self._read = SensorReader(self._batch, sim_model, None, self._images).read
        self._writers = self.writers()
        self._reset_once = np.zeros(num, bool)
        self._ready = False
        self._owner = os.getpid()
        pushes = sim_model.pushes
        self._pushes = None if pushes is None else PushSchedule(pushes, num, 1.0 / sim_model.spec.rate_hz)
        self._time = self._batch.bind("time")
        self._draws = None if timing is None and randomise is None and pushes is None else SeedStreams(num)
        self._randomised = None if randomise is None else Randomised(randomise, self._batch, sim_model.model)
        self._delays = None if timing is None else self._starts.delays(timing)
        self._load_friction = None if self._randomised is None else self._randomised.load
        each_step = self._load_friction is not None and self._load_friction.every_step
        self._loads, self._loads_each_step = self._load_friction is not None and not each_step, each_step
        self._bias = self._batch.bind("qfrc_bias") if each_step else None
        self._qpos, self._qvel = self._batch.bind("qpos"), self._batch.bind("qvel")
        self.any_broken = False
        self.broken = np.zeros(num, bool)
        """Shape (num,): whether the physics failed since the last reset; such numbers mean nothing any more."""

    @property
    def open_batch(self) -> Batch:
        """The underlying MuJoCo batch, for functions that this class does not offer (randomised models, rays).

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
    ) -> BatchState:
        """Reset all simulations or some of them.

        Args:
            ids: ascending indices without repetition, or a mask of shape (num,); None for all. Below, n is their
                number.
            seeds: seeds of the random parts of the starts, (n,); None continues with the generators of the last seeds.
            starts: command name -> command to start from, (n, ...); a missing command starts at ``spec.home``.

        Returns:
            The first state of the n simulations, in the order of ids. States returned earlier are copies and stay
            valid.

        Raises:
            ValueError: the ids are illegal, or the number of seeds or starts differs from that of ids.
            EpisodeError: the batch was closed.
        """
        batch, rows = self.open_batch, rows_of(ids, self._num)
        self._check_process()
        self._starts.check(rows, seeds, starts or {})
        if self._draws is not None:
            self._draws.begin(rows, seeds)
            if self._randomised is not None:
                self._randomised.begin(rows, self._draws)
            if self._pushes is not None:
                self._pushes.begin(rows, self._draws)
        batch.reset(ids, self._sim_model.keyframe, _NONE)
        self._starts.write(rows, seeds, starts or {})
        batch.forward(ids, _VEL)
        self._warned = self._warning.tobytes()
        self.broken[rows] = False
        self.any_broken = bool(self.broken.any())
        self._reset_once[rows] = True
        self._ready = bool(self._reset_once.all())
        if self._delays is not None:
            assert self._draws is not None
            self._delays.begin(rows, self._draws, self._ctrl[rows], self._read(rows))
        return self.batch_state(rows)

    def end_motion(self) -> None:
        """End commanded speeds and efforts, in all simulations. Positions stay.

        A robot with commanded speeds is at rest then, unless it may not jump (``teleport``), so that it slows down.
        """
        driven = [field for field in self._spec.commands if is_driven(field)]
        for name, target, index, _, _ in self._writers:
            if (field := self._spec.commands[name]) in driven:
                target[index] = field.nothing
        if self._teleport and any(field.unit.endswith("/s") for field in driven):
            self._qvel[:] = 0.0
            self.open_batch.forward(None, _VEL)
        if driven and self._delays is not None:
            assert self._draws is not None
            rows = np.arange(self._num)
            self._delays.begin(rows, self._draws, self._ctrl[rows], self._read(rows))

    def batch_state(self, rows: np.ndarray | None = None) -> BatchState:
        """Return the last state again, as new arrays, of all simulations or of those with the given indices."""
        stamps = np.full(self._num if rows is None else len(rows), self.stamp_ns)
        if self._delays is None:
            held = self.held() if rows is None else self._starts.commands(rows)
            return BatchState(self._read(rows), held, stamps)
        sensors = self._delays.sensors(rows) if self._delays.changes_readings else self._read(rows)
        return BatchState(sensors, self._delays.received(rows), stamps, self._delays.ages_ns(rows))

    def applied_to(self, row: int) -> dict[str, np.ndarray]:
        """Return the last command applied in one simulation, as `batch_state` does for all: name -> (...)."""
        if self._delays is None:
            return {name: value[row] for name, value in self.held().items()}
        return {name: value[row] for name, value in self._delays.received(None).items()}

    # -- steps -------------------------------------------------------------------------------------------

    def step(self, commands: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> BatchState:
        """Step all simulations, or some of them, for one control period.

        Args:
            commands: name -> values, shape (num, ...).
            ids: a mask of shape (num,) of the simulations to step; the rows of the others stay unchanged. None for all.

        Returns:
            The state at the end of the period, in arrays that the caller may keep. A simulation with failed physics
            is marked in ``broken`` and must be reset.

        Raises:
            IllegalAction: a name or shape is wrong, or a value is not finite; nothing moved.
            EpisodeError: one of them was never reset, or the batch was closed.
            ValueError: the ids are illegal.
        """
        if not self._ready:
            self.open_batch  # noqa: B018  (raises if it was closed)
            raise EpisodeError(f"step before reset: {np.flatnonzero(~self._reset_once).tolist()} were never reset")
        self._check_process()
        applied = checked(commands, self._writers)
        if ids is not None:
            applied = self._only(rows_of(ids, self._num), applied)
        if self._delays is not None:
            self.step_late(applied, ids)
            return self.batch_state()
        for name, target, index, _, _ in self._writers:
            target[index] = applied[name]
        stamp_ns = self.advance(ids)
        return BatchState(self._read(), applied, np.full(self._num, stamp_ns))

    def step_late(
        self,
        commands: Mapping[str, np.ndarray],
        ids: np.ndarray | None = None,
        after_step: Callable[[], None] | None = None,
    ) -> int:
        """Step a batch with a `DelayModel` for one control period; `batch_state` returns its state.

        Args:
            commands: as for `step`; they must be legal, which is not checked.
            ids: as for `step`.
            after_step: as for `advance`.

        Returns:
            Simulated time, as `stamp_ns`.
        """
        assert self._delays is not None
        if self._pushes is not None:
            self._push(self._pushes, ids)
        if self._loads:
            self._load()
        targets, rows = self._starts.columns(commands), None if ids is None else rows_of(ids, self._num)

        def advance(steps: int) -> None:
            self._physics(ids, steps, after_step)

        self._delays.run(rows, targets, self._ctrl, advance, self._read)
        return self._period_over()

    def _only(self, rows: np.ndarray, commands: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the commands of ``rows``, and for the other rows the commands applied before."""
        held = self.held()
        for name, value in held.items():
            value[rows] = commands[name][rows]
        return held

    def held(self) -> dict[str, np.ndarray]:
        """Return the commands that the actuators hold: command name -> values, (num, ...), new arrays."""
        return self._starts.commands(np.arange(self._num))

    def advance(self, ids: np.ndarray | None = None, after_step: Callable[[], None] | None = None) -> int:
        """Run the physics for one control period under the present ``ctrl``, without reading sensors.

        Args:
            ids: as for `step`.
            after_step: called after every step of the physics; it does not change the numbers.

        Returns:
            Simulated time, as `stamp_ns`.
        """
        if self._pushes is not None:
            self._push(self._pushes, ids)
        if self._loads:
            self._load()
        if after_step is None and self._batch is not None and not self._loads_each_step:
            self._batch.step(ids, self._substeps, self._stage)
        else:
            self._physics(ids, self._substeps, after_step)
        return self._period_over()

    def _push(self, pushes: PushSchedule, ids: np.ndarray | None) -> None:
        """Change the velocity of those simulations that are pushed now, and what is derived from it."""
        pushed = pushes.apply(rows_of(ids, self._num), self._time, self._qvel)
        if len(pushed):
            self.open_batch.forward(pushed, _VEL)

    def _load(self) -> None:
        """Let the friction follow the load: once a control period, or in every step of the physics."""
        assert self._load_friction is not None
        self._load_friction.apply(self._qpos, self._qvel, self._ctrl, self._bias)

    def _physics(self, ids: np.ndarray | None, steps: int, after_step: Callable[[], None] | None) -> None:
        batch = self._batch
        assert batch is not None  # `step` and `SimRobot` refuse after `close`
        # Stage VEL makes the batch persistent: its next step begins there, so that but for RK4 it costs nothing.
        if after_step is None and not self._loads_each_step:
            batch.step(ids, steps, self._stage)
            return
        for _ in range(steps):
            if self._loads_each_step:
                self._load()
            batch.step(ids, 1, _VEL if self._loads_each_step else self._stage)
            if after_step is not None:
                after_step()

    def _period_over(self) -> int:
        self._steps += 1
        warned = self._warning.tobytes()
        if warned != self._warned:
            self._warned = warned
            broken = self._warning[:, :, 1].any(axis=1)
            self._warn_of(np.flatnonzero(broken & ~self.broken))
            self.broken |= broken
            self.any_broken = bool(self.broken.any())
        return int(self._steps * self._period_ns + 0.5)

    def _warn_of(self, rows: np.ndarray) -> None:
        """Log the simulations whose physics failed in this period."""
        if len(rows):
            shown = ", ".join(map(str, rows[:_SHOWN].tolist())) + (", ..." if len(rows) > _SHOWN else "")
            kinds = ", ".join(sorted({fault.subject for row in rows.tolist() for fault in self.faults(row)}))
            _log.warning(
                "%s: the physics of %d of %d simulations failed (number %s; MuJoCo warns %s); reset them",
                self.spec.name, len(rows), self._num, shown, kinds,
            )  # fmt: skip

    def faults(self, row: int) -> tuple[Fault, ...]:
        """Return MuJoCo's warnings in one simulation since its last reset, as faults."""
        counts = self._warning[row, :, 1].tolist()
        kinds = list(mujoco.mjtWarning.__members__)
        return tuple(
            Fault("simulation", kind, f"simulation: MuJoCo warns {kind}")
            for kind, count in zip(kinds, counts, strict=False)
            if count
        )

    # -- what was drawn, and snapshots -------------------------------------------------------------------

    @property
    def timing(self) -> DelayModel | None:
        """The delays of the commands and sensors, or None."""
        return None if self._delays is None else self._delays.timing

    @property
    def drawn(self) -> dict[str, np.ndarray]:
        """The numbers that randomisation and timing have drawn for the present episodes: path -> (num,), new arrays."""
        drawn = {} if self._randomised is None else dict(self._randomised.drawn)
        if self._delays is not None:
            drawn |= self._delays.drawn
        return {name: value.copy() for name, value in drawn.items()}

    @property
    def models(self) -> Mapping[str, np.ndarray]:
        """The randomised fields of the model: field -> values of each simulation, (num, size), live."""
        return {} if self._randomised is None else self._randomised.fields

    @property
    def load_friction(self) -> LoadFriction | None:
        """The load-dependent friction of the joints, or None."""
        return self._load_friction

    def snapshot(self, ids: Sequence[int] | np.ndarray | None = None) -> BatchSnapshot:
        """Return the state of all simulations or some, from which `restore` continues bit for bit.

        Raises:
            EpisodeError: a simulation was never reset, or the batch was closed.
            ValueError: the ids are illegal.
        """
        batch, rows = self.open_batch, rows_of(ids, self._num)
        if not self._reset_once[rows].all():
            raise EpisodeError("snapshot before reset: there is no state yet; call reset first")
        return self._snapshot(batch, rows)

    def _snapshot(self, batch: Batch, rows: np.ndarray) -> BatchSnapshot:
        randomised, delays = self._randomised, self._delays
        return BatchSnapshot(
            self._sim_model.digest,
            batch.state[rows],
            self._warning[rows],
            self.broken[rows],
            self._starts.generators(rows),
            None if self._draws is None else self._draws.state[rows],
            {} if randomised is None else {name: value[rows] for name, value in randomised.fields.items()},
            {} if randomised is None else {name: value[rows] for name, value in randomised.drawn.items()},
            {} if delays is None else delays.snapshot(rows),
        )

    def restore(self, snapshot: BatchSnapshot, ids: Sequence[int] | np.ndarray | None = None) -> BatchState:
        """Continue from an earlier moment of this batch, or of another with the same model, timing and randomisation.

        Args:
            snapshot: a snapshot of as many simulations as there are ids, in their order; or of one, for all of them.
            ids: the simulations to restore, as for `reset`; None for all.

        Returns:
            The state at that moment, except for the stamp: time never goes back.

        Raises:
            ValueError: the snapshot does not fit, or the ids are illegal; nothing changed.
            EpisodeError: the batch was closed.
        """
        batch, rows = self.open_batch, rows_of(ids, self._num)
        self._check_process()
        fitted = fitting(snapshot, len(rows), self._snapshot(batch, rows[:0]))
        if self._randomised is not None:
            self._randomised.restore(rows, fitted.model, fitted.drawn)
        batch.state[rows] = fitted.state
        batch.forward(rows, _VEL)
        self._warning[rows] = fitted.warning
        self._warned = self._warning.tobytes()
        self.broken[rows] = fitted.broken
        self.any_broken = bool(self.broken.any())
        self._starts.restore(rows, fitted.generators)
        if self._draws is not None and fitted.draws is not None:
            self._draws.restore(rows, fitted.draws)
            if self._pushes is not None:
                self._pushes.begin(rows, self._draws)
        if self._delays is not None:
            self._delays.restore(rows, fitted.delays)
        self._reset_once[rows] = True
        self._ready = bool(self._reset_once.all())
        return self.batch_state(rows)

    # -- for SimRobot ------------------------------------------------------------------------------------

    def readers(self, row: int) -> SensorReader:
        """Make a sensor reader of one simulation; its values have no leading axis."""
        return SensorReader(self.open_batch, self._sim_model, row, self._images)

    def writers(self, row: int | None = None) -> list[Writer]:
        """Return name, live array, index, shape and dtype of each command; ``array[index] = value`` sets it."""
        return self._starts.writers(row)

    # -- ends --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Free memory and threads. Safe to call more than once."""
        for reader in self._images.values():
            reader.close()
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
