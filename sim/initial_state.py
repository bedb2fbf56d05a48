"""Write the state at the start of an episode: start commands, a seed's scatter, the history of delayed actuators."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch

from sim.latency.buffers import DelayBuffers
from sim.latency.delays import DelayModel
from sim.model import SimModel, as_slice, numbers_of
from sim.state import Writer

__all__ = ["InitialState"]


class InitialState:
    """Write the starts of a batch's simulations into their state, and keep each one's random generator.

    Args:
        batch: the simulations.
        sim_model: the simulated robot.
        teleport: whether start commands are written.
    """

    def __init__(self, batch: Batch, sim_model: SimModel, teleport: bool) -> None:
        self._batch, self._model, self._teleport = batch, sim_model, teleport
        self._qpos, self._qvel, self._ctrl = (batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        nu = self._ctrl.shape[1]
        self._columns = {name: numbers_of(columns, nu) for name, columns in sim_model.commands.items()}
        self._generators: list[np.random.Generator | None] = [None] * batch.nsim

    def check(
        self, rows: np.ndarray, seeds: Sequence[int] | np.ndarray | None, starts: Mapping[str, np.ndarray]
    ) -> None:
        """Check that seeds and starts fit, before anything is reset.

        Raises:
            ValueError: the number of seeds or starts differs from that of rows, or a start names an unknown command.
        """
        if seeds is not None and len(seeds) != len(rows):
            raise ValueError(f"{len(seeds)} seeds for {len(rows)} simulations, expected one for each")
        for name, value in starts.items():
            if name not in self._model.commands:
                raise ValueError(f"starts name {name!r}, commands are {list(self._model.commands)}")
            shape = (len(rows), *self._model.spec.commands[name].shape)
            if np.shape(value) != shape:
                raise ValueError(f"starts.{name} has shape {np.shape(value)}, it must be {shape}")

    def write(
        self, rows: np.ndarray, seeds: Sequence[int] | np.ndarray | None, starts: Mapping[str, np.ndarray]
    ) -> None:
        """Write the starts of ``rows``, which were just reset to the keyframe. The arguments have passed `check`."""
        if self._teleport:
            self._place(rows, starts)
        if self._model.scatter is not None:
            self._scatter(rows, seeds)
        if self._model.model.nhistory:
            self._fill_history(rows)

    def commands(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the commands that the actuators of ``rows`` hold: command name -> values, (n, ...)."""
        held = {}
        for field in self._model.spec.commands:
            columns = self._columns[field.name]
            values = self._ctrl[rows[:, None], columns].reshape(-1, *field.shape)
            held[field.name] = values.astype(field.numpy_dtype)
        return held

    def columns(self, commands: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return commands of all simulations as rows of ``ctrl``, (num, nu)."""
        rows = np.zeros(self._ctrl.shape)
        for name, columns in self._columns.items():
            rows[:, columns] = commands[name].reshape(len(rows), -1)
        return rows

    def writers(self, row: int | None = None) -> list[Writer]:
        """Return name, live array, index, shape and dtype of each command; ``array[index] = value`` sets it."""
        result = []
        for field in self._model.spec.commands:
            columns = as_slice(self._model.commands[field.name])
            ctrl = self._ctrl if row is None else self._ctrl[row]
            shape = field.shape if row is not None else (len(self._ctrl), *field.shape)
            index: Any = ...
            if isinstance(columns, slice):
                target = ctrl[..., columns].reshape(shape)
                assert np.shares_memory(target, ctrl)
            else:
                target, index = ctrl, (..., np.asarray(columns).reshape(field.shape))
            result.append((field.name, target, index, shape, field.numpy_dtype))
        return result

    def delays(self, timing: DelayModel) -> DelayBuffers:
        """Make the buffers that delay the commands and readings of all simulations.

        Raises:
            SpecError: the timing does not fit the robot.
        """
        model, (num, width) = self._model, self._ctrl.shape
        return DelayBuffers(timing, model.spec, num, model.substeps, model.model.opt.timestep, self._columns, width)

    def generators(self, rows: np.ndarray) -> tuple[Mapping[str, Any] | None, ...]:
        """Return the states of the random generators of ``rows`` as plain data; None for one not yet made."""
        generators = [self._generators[row] for row in rows.tolist()]
        return tuple(None if rng is None else copy.deepcopy(rng.bit_generator.state) for rng in generators)

    def restore(self, rows: np.ndarray, generators: Sequence[Mapping[str, Any] | None]) -> None:
        """Restore the states that `generators` returned."""
        for row, state in zip(rows.tolist(), generators, strict=True):
            self._generators[row] = None
            if state is not None:
                self._generators[row] = generator = np.random.default_rng(0)
                generator.bit_generator.state = copy.deepcopy(state)

    def _place(self, rows: np.ndarray, starts: Mapping[str, np.ndarray]) -> None:
        """Write start commands into ``ctrl``, and poses also into ``qpos``."""
        spec = self._model.spec
        for name, columns in self._columns.items():
            value = starts.get(name, spec.home.get(name))
            if value is None:
                continue
            # In the command's own type, so that a start and the same command are one number.
            flat = np.asarray(value, spec.commands[name].numpy_dtype).reshape(-1, spec.commands[name].size)
            self._ctrl[rows[:, None], columns] = flat
            if name in self._model.start:
                self._qpos[rows[:, None], numbers_of(self._model.start[name], self._qpos.shape[1])] = flat

    def _scatter(self, rows: np.ndarray, seeds: Sequence[int] | np.ndarray | None) -> None:
        assert self._model.scatter is not None
        for index, row in enumerate(rows.tolist()):
            if seeds is not None:
                self._generators[row] = np.random.default_rng(int(seeds[index]))
            generator = self._generators[row]
            if generator is None:
                generator = self._generators[row] = np.random.default_rng()
            self._model.scatter(generator, self._qpos[row], self._qvel[row])

    def _fill_history(self, rows: np.ndarray) -> None:
        """Fill the buffers of delayed actuators with the start command; MuJoCo itself fills them with zero."""
        model = self._model.model
        history, scratch = self._batch.bind("history"), mujoco.MjData(model)
        samples = model.actuator_history[:, 0]
        for row in rows.tolist():
            scratch.history[:] = history[row]
            for actuator in np.flatnonzero(samples).tolist():
                values = np.full(int(samples[actuator]), self._ctrl[row, actuator])
                mujoco.mj_initCtrlHistory(model, scratch, actuator, None, values)
            history[row] = scratch.history
