"""Simulate N robots on a GPU, with sensors, starts and models as PyTorch tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from hal.errors import EpisodeError, SpecError
from rlenv_gpu.packed import PackedRows
from rlenv_gpu.starts import STARTED, StartWriter
from rlenv_gpu.tensor_array import TensorArray
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
        self._state = {name: self.physics.tensor(name) for name in STATE}
        self._models = {name: self._own_field(name) for name in self.writer.models}
        fields: Any = {name: TensorArray(tensor.reshape(num, -1)) for name, tensor in self._models.items()}
        self._load = None if law is None else law.over(fields)
        self._overflow, self._harmless = self.physics.overflow_tensor()
        batch: Any = self
        self._read = SensorReader(batch, sim_model).read
        self._columns = {name: self._ctrl_columns(name) for name in sim_model.commands}
        self._layout: PackedRows = self.writer.layout
        self._first = self.writer.readings
        self._live = torch.zeros((num, self._layout.width - self._first), dtype=torch.int64, device=self.device)
        self._saved = torch.zeros((num, sum(map(_width, self._state.values()))), device=self.device)
        self._begun = False
        self._all = torch.ones(num, dtype=torch.bool, device=self.device)
        self.sensors, self.applied = self.readings(self._live)
        self.broken: Any = TensorArray(torch.zeros(num, dtype=torch.bool, device=self.device))

    def _own_field(self, name: str) -> torch.Tensor:
        """Return a field of the model in which simulations differ, (num, ...)."""
        if name.startswith("load."):
            return torch.zeros((self._num, self._sim_model.model.nv), device=self.device)
        field: torch.Tensor = self.physics.model_tensor(name)
        return field

    def readings(self, words: torch.Tensor) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return sensors and applied commands from a copy of the present ones, without copying them.

        Args:
            words: the copy, int64 (num, ...), as `newest` returns.
        """
        views = self._layout.views(words, self._first)
        sensors, applied = (
            {field.name: TensorArray(views[f"{group}.{field.name}"]) for field in fields}
            for group, fields in (("sensor", self._spec.sensors), ("applied", self._spec.commands))
        )
        return sensors, applied

    def newest(self) -> torch.Tensor:
        """Return a copy of the sensors and the applied commands, packed; see `readings`."""
        return self._live.clone()

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
        return TensorArray(self.physics.tensor(name))

    # -- episodes --------------------------------------------------------------------------------------------------

    def begin(self, starts: torch.Tensor, mask: TensorArray | None = None) -> None:
        """Move robots to their starts.

        Args:
            starts: a row for each robot in the layout of `writer`, int64 (num, width); other words may follow.
            mask: the robots, bool (num,); None for all.
        """
        chosen = self._all if mask is None else mask.tensor
        rows = starts[:, : self._layout.width]
        for name, start in self._layout.views(rows).items():
            group, _, field = name.partition(".")
            if group in STARTED:
                _put(chosen, start, self._state[group])
            elif group == "model":
                _put(chosen, start, self._models[field].reshape(self._num, -1))
        for name in STATE:
            if name not in STARTED:
                self._state[name].masked_fill_(_beside(chosen, self._state[name]), 0)
        _put(chosen, rows[:, self._first :], self._live)
        self._overflow.masked_fill_(chosen, 0)
        self.broken.tensor.masked_fill_(chosen, False)
        self._begun = True

    def step(self, commands: Mapping[str, TensorArray], moved: TensorArray) -> None:
        """Apply the commands for one control period.

        Args:
            commands: command -> values, (num, ...), all of them finite.
            moved: the robots that move, bool (num,); the others keep their state.

        Raises:
            EpisodeError: no episode has begun.
        """
        self.command(commands)
        self.advance()
        self.read(moved)
        self.keep(commands, moved)

    def command(self, commands: Mapping[str, TensorArray]) -> None:
        """Do the first part of a step: save the state, and give the actuators these commands.

        Arguments and errors are those of `step`.
        """
        if not self._begun:
            raise EpisodeError("step before begin: no episode runs yet")
        torch.cat([tensor.reshape(self._num, -1) for tensor in self._state.values()], dim=1, out=self._saved)
        ctrl = self._state["ctrl"]
        for name, columns in self._columns.items():
            ctrl[:, columns] = commands[name].tensor.reshape(self._num, -1).to(ctrl.dtype)
        if self._load is not None:
            self._load.take_up()  # of the models that the latest episodes drew
            qpos, qvel, held = (self.bind(name) for name in ("qpos", "qvel", "ctrl"))
            self._load.apply(qpos, qvel, held, None)

    def advance(self) -> None:
        """Do the second part of a step: advance the physics by one control period."""
        self.physics.advance_with_torch()
        self._steps += 1

    def read(self, moved: TensorArray) -> None:
        """Do the third part of a step: restore the robots that did not move, and read all sensors.

        Args:
            moved: as for `step`.
        """
        first = 0
        for tensor in self._state.values():
            saved = self._saved[:, first : first + _width(tensor)].reshape(tensor.shape)
            _put(~moved.tensor, saved, tensor)
            first += _width(tensor)
        bad = ~self._is_finite()
        lost = (self._overflow & ~self._harmless) != 0
        self.broken.tensor.logical_or_((bad | lost) & moved.tensor)
        current = moved.tensor & ~bad
        read: dict[str, Any] = self._read()
        for name, value in read.items():
            _put(current, value.tensor, self.sensors[name].tensor)

    def keep(self, commands: Mapping[str, TensorArray], moved: TensorArray) -> None:
        """Do the last part of a step: store commands as applied."""
        for name, held in self.applied.items():
            _put(moved.tensor, commands[name].tensor.to(held.tensor.dtype), held.tensor)

    def memory(self) -> list[torch.Tensor]:
        """Return the tensors that a step changes, other than its commands."""
        return [*self._state.values(), *self._models.values(), self._overflow, self._live, self.broken.tensor]

    def _is_finite(self) -> torch.Tensor:
        numbers = torch.cat([self._state["qpos"], self._state["qvel"]], dim=1)
        return (numbers.abs() < MAX_VALUE).all(dim=1)  # a NaN is below no number

    def close(self) -> None:
        """Free the host's simulations. Safe to call more than once."""
        self.writer.close()


def _width(tensor: torch.Tensor) -> int:
    return tensor.numel() // len(tensor)


def _beside(mask: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the mask with an axis of length 1 for each further axis of the values."""
    return mask.reshape(-1, *(1,) * (values.ndim - 1))


def _put(mask: torch.Tensor, values: torch.Tensor, into: torch.Tensor) -> None:
    """Write the rows where the mask is true."""
    if into.numel():
        torch.where(_beside(mask, into), values, into, out=into)
