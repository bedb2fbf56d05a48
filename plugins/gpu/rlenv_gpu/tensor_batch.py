"""Simulate N robots on a GPU, with sensors, starts and models as PyTorch tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch

from hal.errors import EpisodeError, SpecError
from rlenv_gpu.tensor_array import TensorArray
from rlenv_gpu.warp_batch import MAX_VALUE, STATE, open_device
from sim.batch import SimBatch, Simulations
from sim.model import SimModel, numbers_of
from sim.randomize.randomise import Randomise
from sim.state import SensorReader

__all__ = ["TensorBatch"]

_STARTED = ("qpos", "qvel", "act", "ctrl")
"""The fields of the state that differ between starts; the others of `rlenv_gpu.STATE` are 0 at a start."""

_DERIVED = ("body_invweight0", "body_subtreemass", "dof_invweight0", "actuator_acc0", "tendon_invweight0")
"""Fields of the model that MuJoCo computes from others (``mj_setConst``) and that a step reads."""

_STAGED = 64
"""Number of robots for which the host draws starts at once."""


class TensorBatch(Simulations):
    """Simulate n robots on a device, in single precision, without copying anything to the host.

    An episode begins in two parts. `prepare` draws a start on the host with `SimBatch`, so that seeds, starts, scatter
    and drawn models equal those of the CPU, and copies it to the device. `begin` moves the robots of a mask to their
    starts. The mask is on the device, so the host need not know it.

    Args:
        sim_model: the simulated robot.
        num: number of robots.
        device: Warp's name of a device; None for the first GPU. ``cpu`` is for tests.
        randomise: the parts of the model that are drawn for each episode; None for no parts.
        contacts: room for contacts, as for `rlenv_gpu.WarpDevice`.
        constraints: room for constraints, as for `rlenv_gpu.WarpDevice`.

    Attributes:
        device: the PyTorch device of all tensors.
        sensors: sensor -> newest reading, (num, ...), with the spec's dtypes. Each step overwrites these arrays,
            `applied` and `broken` in place.
        applied: command -> value that the actuators hold, (num, ...).
        broken: whether each simulation failed or lost contacts in its episode, bool (num,). The sensors keep the last
            reading before that.

    Raises:
        ValueError: ``num`` is below 1.
        RobotError: MuJoCo Warp is not installed (extra ``gpu``), or there is no such device.
        SpecError: the model or the randomisation uses a feature that is not supported here.
    """

    def __init__(
        self,
        sim_model: SimModel,
        num: int,
        device: str | None = None,
        *,
        randomise: Randomise | None = None,
        contacts: int = 32,
        constraints: int = 128,
    ) -> None:
        super().__init__(sim_model, num)
        self._device = open_device(sim_model, num, device, contacts, constraints)
        self.device = torch.device(self._device.torch_device)
        self._host = SimBatch(sim_model, min(num, _STAGED), randomise=randomise)
        self._spec = self._host.spec
        law = self._host.load_friction
        if law is not None and law.every_step:
            raise SpecError(
                "friction other than load_friction changes within a control period, which is not supported on MuJoCo "
                "Warp here; step on the CPU"
            )
        self._state = {name: self._device.tensor(name) for name in STATE}
        self._models = self._own_models()
        fields: Any = {name: TensorArray(tensor.reshape(num, -1)) for name, tensor in self._models.items()}
        self._load = None if law is None else law.over(fields)
        self._overflow, self._harmless = self._device.overflow_tensor()
        batch: Any = self
        self._read = SensorReader(batch, sim_model).read
        self._columns = {name: self._ctrl_columns(name) for name in sim_model.commands}
        self._next: dict[str, torch.Tensor] = {}
        self.sensors: dict[str, Any] = {}
        self.applied: dict[str, Any] = {}
        self.broken: Any = TensorArray(torch.zeros(num, dtype=torch.bool, device=self.device))

    def _own_models(self) -> dict[str, torch.Tensor]:
        """Return the fields of the model in which simulations differ, (num, ...)."""
        if not self._host.models:
            return {}
        names = [*self._host.models, *(name for name in _DERIVED if name not in self._host.models)]
        model = self._sim_model.model
        fields = {}
        for name in names:
            if name.startswith("load."):
                fields[name] = torch.zeros((self._num, model.nv), device=self.device)
            elif np.size(_nominal(model, name)):
                fields[name] = self._device.model_tensor(name)
        return fields

    def _ctrl_columns(self, name: str) -> torch.Tensor:
        numbers = numbers_of(self._sim_model.commands[name], self._state["ctrl"].shape[1])
        return torch.from_numpy(np.ascontiguousarray(numbers)).to(self.device)

    # -- for SensorReader ------------------------------------------------------------------------------------------

    @property
    def nsim(self) -> int:
        """Number of simulations."""
        return self._num

    def bind(self, name: str) -> Any:
        """Return a live view of a field of ``mjData`` of all simulations, (num, ...).

        Raises:
            ValueError: there is no such field.
        """
        return TensorArray(self._device.tensor(name))

    # -- episodes --------------------------------------------------------------------------------------------------

    def prepare(self, rows: np.ndarray, seeds: np.ndarray, starts: Mapping[str, np.ndarray]) -> None:
        """Draw the next episode of these robots, and copy its start to the device.

        Args:
            rows: numbers of robots, (n,).
            seeds: the seed of each start, (n,).
            starts: as for `sim.batch.SimBatch.reset`, (n, ...).
        """
        for first in range(0, len(rows), self._host.num):
            part = slice(first, first + self._host.num)
            self._prepare(rows[part], seeds[part], {name: value[part] for name, value in starts.items()})

    def _prepare(self, rows: np.ndarray, seeds: np.ndarray, starts: Mapping[str, np.ndarray]) -> None:
        slots = np.arange(len(rows))
        state = self._host.reset(slots, seeds, starts)
        batch = self._host.open_batch
        values: dict[str, np.ndarray] = {name: batch.bind(name)[slots] for name in _STARTED}
        values |= {f"model.{name}": self._model_rows(name, slots) for name in self._models}
        values |= {f"sensor.{name}": value for name, value in state.sensors.items()}
        values |= {f"applied.{name}": value for name, value in state.applied.items()}
        numbers = self._sent(rows)
        for name, value in values.items():
            if name not in self._next:
                kind = torch.from_numpy(value[:0]).dtype
                kind = torch.float32 if name in _STARTED or name.startswith("model.") else kind
                self._next[name] = torch.zeros((self._num, *value.shape[1:]), dtype=kind, device=self.device)
            self._next[name][numbers] = self._sent(value).to(self._next[name].dtype)

    def _model_rows(self, name: str, slots: np.ndarray) -> np.ndarray:
        live = self._host.models[name] if name in self._host.models else self._host.open_batch.expand(name)
        rows: np.ndarray = np.asarray(live).reshape(self._host.num, -1)[slots]
        return rows

    def _sent(self, values: np.ndarray) -> torch.Tensor:
        """Return values on the device; on a GPU the host does not wait."""
        tensor = torch.from_numpy(np.ascontiguousarray(values))
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor

    def begin(self, mask: TensorArray | None = None) -> None:
        """Move robots to their prepared starts.

        Args:
            mask: the robots, bool (num,); None for all.

        Raises:
            EpisodeError: no start was prepared.
        """
        if not self._next:
            raise EpisodeError("begin before prepare: no start was drawn yet")
        chosen = None if mask is None else mask.tensor
        for name, tensor in self._state.items():
            start = self._next[name] if name in self._next else torch.zeros_like(tensor)
            tensor.copy_(_chosen(chosen, start, tensor))
        for name, tensor in self._models.items():
            tensor.copy_(_chosen(chosen, self._next[f"model.{name}"].reshape(tensor.shape), tensor))
        for kind, values in (("sensor", self.sensors), ("applied", self.applied)):
            for key, start in self._next.items():
                group, _, name = key.partition(".")
                if group != kind:
                    continue
                if name in values:
                    _write(values[name], _chosen(chosen, start, values[name].tensor))
                else:
                    values[name] = TensorArray(start.clone())
        self._overflow.copy_(_chosen(chosen, torch.zeros_like(self._overflow), self._overflow))
        _write(self.broken, _chosen(chosen, torch.zeros_like(self.broken.tensor), self.broken.tensor))

    def step(self, commands: Mapping[str, TensorArray], moved: TensorArray) -> None:
        """Apply the commands for one control period.

        Args:
            commands: command -> values, (num, ...), all of them finite.
            moved: the robots that move, bool (num,); the others keep their state.

        Raises:
            EpisodeError: no episode has begun.
        """
        before = self.command(commands)
        self.advance()
        self.keep(self.read(moved, before), commands, moved)

    def command(self, commands: Mapping[str, TensorArray]) -> dict[str, TensorArray]:
        """Do the first part of a step: give the actuators these commands, and return the state before the step.

        Arguments and errors are those of `step`.
        """
        if not self.sensors:
            raise EpisodeError("step before begin: no episode runs yet")
        before = {name: TensorArray(tensor.clone()) for name, tensor in self._state.items()}
        ctrl = self._state["ctrl"]
        for name, columns in self._columns.items():
            ctrl[:, columns] = commands[name].tensor.reshape(self._num, -1).to(ctrl.dtype)
        if self._load is not None:
            self._load.take_up()  # of the models that the latest episodes drew
            qpos, qvel, held = (self.bind(name) for name in ("qpos", "qvel", "ctrl"))
            self._load.apply(qpos, qvel, held, None)
        return before

    def advance(self) -> None:
        """Do the second part of a step: advance the physics by one control period."""
        self._device.advance_with_torch()
        self._steps += 1

    def read(self, moved: TensorArray, before: Mapping[str, TensorArray]) -> dict[str, Any]:
        """Do the third part of a step: restore the robots that do not move, and return all sensors in new arrays.

        Args:
            moved: as for `step`.
            before: the state that `command` returned.
        """
        mask = moved.tensor
        for name, tensor in self._state.items():
            tensor.copy_(_chosen(mask, tensor, before[name].tensor))
        bad = ~self._is_finite()
        lost = (self._overflow & ~self._harmless) != 0
        _write(self.broken, self.broken.tensor | ((bad | lost) & mask))
        current = mask & ~bad
        read: dict[str, Any] = self._read()
        return {
            name: TensorArray(_chosen(current, value.tensor, self.sensors[name].tensor)) for name, value in read.items()
        }

    def keep(self, sensors: Mapping[str, Any], commands: Mapping[str, TensorArray], moved: TensorArray) -> None:
        """Do the last part of a step: store sensors from `read` as the newest reading, and commands as applied."""
        for name, value in sensors.items():
            _write(self.sensors[name], value.tensor)
        for name, held in self.applied.items():
            _write(held, _chosen(moved.tensor, commands[name].tensor.to(held.tensor.dtype), held.tensor))

    def memory(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes, other than its commands."""
        arrays = [*self.sensors.values(), *self.applied.values(), self.broken]
        return [*self._state.values(), *self._models.values(), self._overflow, *(array.tensor for array in arrays)]

    def _is_finite(self) -> torch.Tensor:
        numbers = torch.cat([self._state["qpos"], self._state["qvel"]], dim=1)
        return (numbers.abs() < MAX_VALUE).all(dim=1)  # a NaN is below no number

    def close(self) -> None:
        """Free the host's simulations. Safe to call more than once."""
        self._host.close()


def _chosen(mask: torch.Tensor | None, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the rows of ``one`` where the mask is true, and else those of ``other``."""
    if mask is None:
        return one
    return torch.where(mask.reshape(-1, *(1,) * (one.ndim - 1)), one, other)


def _write(array: Any, values: torch.Tensor) -> None:
    array.tensor.copy_(values)


def _nominal(model: mujoco.MjModel, field: str) -> Any:
    owner, _, name = field.rpartition(".")
    return getattr(model.opt if owner == "opt" else model, name)
