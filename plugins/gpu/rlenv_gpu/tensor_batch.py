"""Simulate N robots on a GPU, with sensors, starts and models as PyTorch tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hal.errors import EpisodeError, SpecError
from rlenv_gpu.packed import copy_all
from rlenv_gpu.starts import STARTED, StartWriter
from rlenv_gpu.tensor_array import TensorArray, arrays_of, torch_type
from rlenv_gpu.warp_batch import MAX_VALUE, STATE, WarpDevice, open_device
from sim.batch import Simulations
from sim.model import SimModel, numbers_of
from sim.randomize.randomise import Randomise
from sim.state import SensorReader

__all__ = ["TensorBatch"]


class TensorBatch(Simulations):
    """Simulate n robots on a device, in single precision, without copying anything to the host.

    An episode begins in two parts. `writer` computes starts on the host with `SimBatch`, so that seeds, starts, scatter
    and drawn models equal those of the CPU. `begin` moves the robots of a mask to their starts, which are on the device
    as the mask is, so the host need not know it.

    Args:
        sim_model: the simulated robot.
        num: number of robots.
        device: Warp's name of a device; None for the first GPU. ``cpu`` is for tests.
        randomise: the parts of the model that are drawn for each episode; None for no parts.
        contacts: room for contacts, as for `rlenv_gpu.WarpDevice`.
        constraints: room for constraints, as for `rlenv_gpu.WarpDevice`.

    Attributes:
        device: the PyTorch device of all tensors.
        physics: the simulations on the device.
        writer: computes starts, as rows for `begin`.
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
        self.physics: WarpDevice = open_device(sim_model, num, device, contacts, constraints)
        self.device = torch.device(self.physics.torch_device)
        self.writer = StartWriter(sim_model, num, randomise)
        self._spec = self.writer.host.spec
        law = self.writer.host.load_friction
        if law is not None and law.every_step:
            raise SpecError(
                "friction other than load_friction changes within a control period, which is not supported on MuJoCo "
                "Warp here; step on the CPU"
            )
        self._overflow, self._harmless = self.physics.overflow_tensor()
        self._memory = self._allocated()
        models = {name: self._memory[f"model.{name}"] for name in self.writer.models}
        fields: Any = {name: TensorArray(tensor.reshape(num, -1)) for name, tensor in models.items()}
        self._load = None if law is None else law.over(fields)
        batch: Any = self
        self._read = SensorReader(batch, sim_model).read
        self._columns = {name: self._ctrl_columns(name) for name in sim_model.commands}
        self._begun = False
        self._all = torch.ones(num, dtype=torch.bool, device=self.device)
        self.sensors = self.readings(self._memory, "sensor")
        self.applied = self.readings(self._memory, "applied")
        self.broken: Any = TensorArray(self._memory["broken"])

    def _allocated(self) -> dict[str, torch.Tensor]:
        """Return all tensors that a step changes, by name."""
        state = {name: self.physics.tensor(name) for name in STATE}
        memory = {name: self._own_field(name.removeprefix("model.")) for name in self._names("model")}
        for group, fields in (("sensor", self._spec.sensors), ("applied", self._spec.commands)):
            for field in fields:
                kind = torch_type(field.numpy_dtype)
                memory[f"{group}.{field.name}"] = torch.zeros((self._num, *field.shape), dtype=kind, device=self.device)
        memory |= {f"saved.{name}": torch.zeros_like(tensor) for name, tensor in state.items()}
        broken = torch.zeros(self._num, dtype=torch.bool, device=self.device)
        return {**state, **memory, "overflow": self._overflow, "broken": broken}

    def _names(self, group: str) -> list[str]:
        return [f"{group}.{name}" for name in self.writer.models]

    def _own_field(self, name: str) -> torch.Tensor:
        """Return a field of the model in which simulations differ, (num, ...)."""
        if name.startswith("load."):
            return torch.zeros((self._num, self._sim_model.model.nv), device=self.device)
        field: torch.Tensor = self.physics.model_tensor(name)
        return field

    @staticmethod
    def readings(memory: Mapping[str, torch.Tensor], group: str) -> dict[str, Any]:
        """Return the ``sensor`` or ``applied`` values of `present`, or of what follows it, as arrays by name."""
        first = f"{group}."
        return arrays_of({name.removeprefix(first): value for name, value in memory.items() if name.startswith(first)})

    @property
    def present(self) -> dict[str, torch.Tensor]:
        """The tensors that a step changes, by name: the state, ``sensor.``, ``applied.`` and more."""
        return self._memory

    def _ctrl_columns(self, name: str) -> torch.Tensor:
        numbers = numbers_of(self._sim_model.commands[name], self._memory["ctrl"].shape[1])
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
        return TensorArray(self.physics.tensor(name))

    # -- episodes --------------------------------------------------------------------------------------------------

    def begin(self, starts: torch.Tensor, mask: TensorArray | None = None) -> None:
        """Move robots to their starts.

        Args:
            starts: a row for each robot in the layout of `writer`, int64 (num, width); other words may follow.
            mask: the robots, bool (num,); None for all.
        """
        self.commit(self.begun(self._memory, starts, self._all if mask is None else mask.tensor))

    def begun(
        self, memory: Mapping[str, torch.Tensor], starts: torch.Tensor, mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return what follows `present`, or what a step made of it, where robots begin an episode.

        Args:
            memory: all that a step changes; a missing name is the present value.
            starts: as for `begin`.
            mask: the robots that begin, bool (num,).
        """
        now = {**self._memory, **memory}
        values = self.writer.layout.views(starts[:, : self.writer.layout.width])
        following = {name: _chosen(mask, value.reshape(now[name].shape), now[name]) for name, value in values.items()}
        for name in (*(name for name in STATE if name not in STARTED), "overflow", "broken"):
            following[name] = now[name].masked_fill(_beside(mask, now[name]), 0)
        return {**memory, **following}

    def step(self, commands: Mapping[str, TensorArray], moved: TensorArray) -> None:
        """Apply the commands for one control period.

        Args:
            commands: command -> values, (num, ...), all of them finite.
            moved: the robots that move, bool (num,); the others keep their state.

        Raises:
            EpisodeError: no episode has begun.
        """
        self.command(self.commanded(commands))
        self.advance()
        self.commit(self.after(commands, moved))

    def commanded(self, commands: Mapping[str, TensorArray]) -> dict[str, torch.Tensor]:
        """Return what `command` stores: the state before the step, and the actuators' commands.

        Raises:
            EpisodeError: no episode has begun.
        """
        if not self._begun:
            raise EpisodeError("step before begin: no episode runs yet")
        ctrl = self._memory["ctrl"].clone()
        for name, columns in self._columns.items():
            ctrl[:, columns] = commands[name].tensor.reshape(self._num, -1).to(ctrl.dtype)
        return {"ctrl": ctrl, **{f"saved.{name}": self._memory[name].clone() for name in STATE}}

    def command(self, commanded: Mapping[str, torch.Tensor]) -> None:
        """Do the first part of a step: store what `commanded` returned."""
        self.commit(commanded)
        if self._load is not None:
            self._load.take_up()  # of the models that the latest episodes drew
            qpos, qvel, held = (self.bind(name) for name in ("qpos", "qvel", "ctrl"))
            self._load.apply(qpos, qvel, held, None)

    def advance(self) -> None:
        """Do the second part of a step: advance the physics by one control period."""
        self.physics.advance_with_torch()
        self._steps += 1

    def after(self, commands: Mapping[str, TensorArray], moved: TensorArray) -> dict[str, torch.Tensor]:
        """Do the third part of a step: return what follows `present`, with robots that did not move as they were.

        Args:
            commands: as for `step`.
            moved: as for `step`.
        """
        now, mask = self._memory, moved.tensor
        following = {name: _chosen(mask, now[name], now[f"saved.{name}"]) for name in STATE}
        bad = ~(torch.cat([now["qpos"], now["qvel"]], dim=1).abs() < MAX_VALUE).all(dim=1)  # NaN is below no number
        lost = (now["overflow"] & ~self._harmless) != 0
        following["broken"] = now["broken"] | ((bad | lost) & mask)
        current = mask & ~bad
        read: dict[str, Any] = self._read()
        for name, value in read.items():
            following[f"sensor.{name}"] = _chosen(current, value.tensor, now[f"sensor.{name}"])
        for name in self.applied:
            held = now[f"applied.{name}"]
            following[f"applied.{name}"] = _chosen(mask, commands[name].tensor.to(held.dtype), held)
        return following

    def commit(self, following: Mapping[str, torch.Tensor]) -> None:
        """Do the last part of a step: store what `after` or `begun` returned as the present."""
        self._begun = True
        copy_all((self._memory[name], value) for name, value in following.items())

    def memory(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes."""
        return list(self._memory.values())

    def close(self) -> None:
        """Free the host's simulations. Safe to call more than once."""
        self.writer.close()


def _beside(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the mask with an axis of length 1 for each further axis of the values."""
    return mask.reshape(-1, *(1,) * (values.ndim - 1))


def _chosen(mask: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the rows of ``one`` where the mask is true, and else those of ``other``."""
    return torch.where(_beside(mask, one), one, other)
