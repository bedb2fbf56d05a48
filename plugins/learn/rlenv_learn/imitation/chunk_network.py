"""Turn a PyTorch network of action chunks into a policy over named fields, and save it as ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from torch import nn

from hal import Field, RobotSpec, Spec
from recorder.json_data import JsonObject
from rlenv_learn.policies.chunks import ChunkExecution, ChunkPolicy
from rlenv_learn.policies.flat import ScaledDifferences, export_onnx, flat_vector
from rlenv_learn.policies.onnx import metadata
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.tasks.task import Task

__all__ = ["ActionScaling", "ChunkFields", "ChunkNetworkPolicy", "NetworkFields", "Scaling"]

Scaling = Literal["deviation", "range"]
"""The scaling of actions: to mean 0 and standard deviation 1, or from the smallest and largest value to -1 and 1."""


class ActionScaling(nn.Module):
    """The conversion of named actions to the scaled chunks that a network predicts, and back.

    Actions are relative to an observed field where ``anchors`` names one, such as the goals that servos hold. Each of
    the K steps is scaled by itself, since later steps vary more than earlier ones.

    Args:
        action: the spec of one action.
        execution: shape of the chunks.
        anchors: action field -> observation field from which it is counted.

    Attributes:
        mean: middle of the K actions relative to their anchors, (K, A); set by `measure`.
        std: scale of these actions, (K, A); set by `measure`.
    """

    LEAST = 0.01
    """Smallest number that actions are divided by, in the action's unit."""

    def __init__(self, action: Spec, execution: ChunkExecution, anchors: Mapping[str, str]) -> None:
        super().__init__()
        self.action, self.execution, self.anchors = action, execution, dict(anchors)
        self.action_size = sum(field.size for field in action)
        self.register_buffer("mean", torch.zeros(execution.length, self.action_size))
        self.register_buffer("std", torch.ones(execution.length, self.action_size))
        for name, side in (("low", 0), ("high", 1)):
            bound = np.concatenate([np.ravel(field.bounds[side]).astype(np.float32) for field in action])
            self.register_buffer(name, torch.from_numpy(bound))

    def relative(self, fields: Mapping[str, torch.Tensor], action: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return chunks (batch, K, A) relative to their anchors for actions, name -> (batch, K, ...)."""
        parts = [_flat(action[field.name], field) for field in self.action]
        return torch.cat(parts, dim=2) - self._anchor(fields)[:, None]

    def measure(self, relative: torch.Tensor, by: Scaling = "deviation") -> None:
        """Set ``mean`` and ``std`` from the relative chunks of training data, (N, K, A)."""
        if by == "range":
            low, high = relative.amin(0), relative.amax(0)
            mean, std = (low + high) / 2, (high - low) / 2
        else:
            mean, std = relative.mean(0), relative.std(0)
        self.mean.copy_(mean)
        self.std.copy_(std.clamp(min=self.LEAST))

    def scaled(self, relative: torch.Tensor) -> torch.Tensor:
        """Scale relative chunks (batch, K, A) to the form that a network predicts."""
        return (relative - self.mean) / self.std

    def actions(self, scaled: torch.Tensor, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the named actions of scaled chunks (batch, K, A), clipped to their bounds, name -> (batch, K, ...)."""
        values = scaled * self.std + self.mean + self._anchor(fields)[:, None]
        values = torch.minimum(torch.maximum(values, self.low), self.high)
        named, place = {}, 0
        for field in self.action:
            part = values[:, :, place : place + field.size]
            part = part.unflatten(2, field.shape) if field.shape else part[:, :, 0]
            named[field.name] = (part if field.numpy_dtype.kind == "f" else part.round()).to(_torch_type(field))
            place += field.size
        return named

    def _anchor(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the present value of each element's anchor, (batch, A); 0 for an element without one."""
        parts = []
        for field in self.action:
            anchor = self.anchors.get(field.name)
            if anchor is None:
                some = next(iter(fields.values()))
                parts.append(torch.zeros(some.shape[0], field.size, device=some.device))
            else:
                present = fields[anchor][:, -1].float()
                parts.append((present.flatten(1) if present.ndim > 1 else present[:, None])[:, : field.size])
        return torch.cat(parts, dim=1)


def _flat(value: torch.Tensor, field: Field) -> torch.Tensor:
    """Return a field's values (batch, K, size) for (batch, K, ...)."""
    return value.float().flatten(2) if field.shape else value.float()[:, :, None]


def _torch_type(field: Field) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, field.numpy_dtype)).dtype


class ChunkFields(ActionScaling):
    """The conversion of a task's named fields to a network's inputs, and of its outputs to chunks of named actions.

    Observations become the vectors of `FlattenObservation` with magnified differences
    (`rlenv_learn.policies.flat.ScaledDifferences`); images stay separate, with values from 0 to 1. Actions are relative
    to the robot's current goal (the field that ``flat.held`` names, or 0).

    Args:
        task: the task, with its observation and action.
        execution: shape of the chunks.

    Attributes:
        flat: the vectors, without images.
        size: D, number of elements of a vector with magnified differences.
        images: the image fields.
    """

    def __init__(self, task: Task, execution: ChunkExecution) -> None:
        flat = flat_for(task)
        super().__init__(task.action, execution, flat.held)
        self.observation = task.observation
        self.images = tuple(field for field in task.observation if field.is_image)
        kept = Spec(task.observation.name, tuple(field for field in task.observation if not field.is_image))
        self.flat: FlattenObservation = replace(flat, observation=kept)
        self.magnified = ScaledDifferences(self.flat)
        self.size = self.magnified.size
        self.register_buffer("scale", torch.from_numpy(self.flat.scale))

    def vectors(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return vectors (batch, H, D) for observations, name -> (batch, H, ...)."""
        folded = {name: fields[name].flatten(0, 1) for name in self.flat.observation.names}
        return self.magnified(flat_vector(self.flat, folded, self.scale)).unflatten(0, (-1, self.execution.history))

    def image_tensors(self, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return images for convolutions, image field -> (batch, H, 3, height, width), 0 to 1."""
        return {field.name: fields[field.name].permute(0, 1, 4, 2, 3) / 255.0 for field in self.images}


class NetworkFields(Protocol):
    """The conversion between named fields and a network's inputs and outputs, such as `ChunkFields`."""

    observation: Spec
    action: Spec
    execution: ChunkExecution

    def vectors(self, fields: Mapping[str, torch.Tensor], /) -> torch.Tensor:
        """Return vectors (batch, H, D) for observations, name -> (batch, H, ...)."""
        ...

    def image_tensors(self, fields: Mapping[str, torch.Tensor], /) -> dict[str, torch.Tensor]:
        """Return images for convolutions, image field -> (batch, H, 3, height, width), 0 to 1."""
        ...

    def actions(self, scaled: torch.Tensor, fields: Mapping[str, torch.Tensor], /) -> dict[str, torch.Tensor]:
        """Return the named actions of scaled chunks (batch, K, A), name -> (batch, K, ...)."""
        ...


class ChunkNetworkPolicy:
    """A policy that executes the action chunks of a network.

    Args:
        model: from vectors (batch, H, D) and images, image field -> (batch, H, 3, height, width), to scaled chunks
            (batch, K, A). It must be in evaluation mode. A model with the attribute ``noise_shape`` also takes standard
            normal noise (batch, K, A), from which it draws the chunk.
        fields: the conversion from and to named fields.
        seed: seed of the noise.
    """

    def __init__(self, model: nn.Module, fields: NetworkFields, seed: int = 0) -> None:
        self.model, self.fields = model, fields
        self._rng = np.random.default_rng(seed)
        self._chunks = ChunkPolicy(self.predict, fields.observation, fields.action, fields.execution)

    def reset(self) -> None:
        """Discard the planned actions at the beginning of an episode."""
        self._chunks.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action of the current step, with the leading axes of the observation."""
        return self._chunks.act(observation)

    def predict(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the chunks, name -> (batch, K, ...), for observations, name -> (batch, H, ...)."""
        fields = {name: torch.from_numpy(value) for name, value in observation.items()}
        noise, shape = [], _noise_shape(self.model)
        if shape is not None:
            count = len(next(iter(observation.values())))
            noise = [torch.from_numpy(self._rng.standard_normal((count, *shape), np.float32))]
        with torch.no_grad():
            predicted = self.model(self.fields.vectors(fields), self.fields.image_tensors(fields), *noise)
            return {name: value.numpy() for name, value in self.fields.actions(predicted, fields).items()}

    def save_onnx(
        self,
        path: str | Path,
        task: str,
        about: JsonObject | None = None,
        robot: RobotSpec | None = None,
        entries: JsonObject | None = None,
    ) -> None:
        """Write an ONNX file that `rlenv_learn.policies.onnx.OnnxPolicy` executes in the same way.

        Args:
            path: file name, ending in ``.onnx``.
            task: name of the task of the training.
            about: JSON data about the training, for readers of the file.
            robot: the robot on which it was trained, such as ``envs.batch.spec``.
            entries: further entries of the file's metadata, such as the data set's.

        Raises:
            RobotError: the packages onnx or onnxscript are missing.
        """
        fields, noise = self.fields, _noise_shape(self.model)
        text = metadata(
            task, fields.observation, fields.action, about or {}, robot, fields.execution, noise is not None, entries
        )
        graph = _Graph(self.model, fields)
        history = (fields.execution.history,)
        export_onnx(graph, fields.observation, fields.action, path, text, history, noise or ())


def _noise_shape(model: nn.Module) -> tuple[int, int] | None:
    shape: tuple[int, int] | None = getattr(model, "noise_shape", None)
    return shape


class _Graph(nn.Module):
    """The model with the conversion from named fields (batch, H, ...) to named fields (batch, K, ...)."""

    def __init__(self, model: nn.Module, fields: NetworkFields) -> None:
        super().__init__()
        self.model, self.fields = model, fields

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        names = self.fields.observation.names
        fields, noise = dict(zip(names, values, strict=False)), values[len(names) :]
        predicted = self.model(self.fields.vectors(fields), self.fields.image_tensors(fields), *noise)
        return tuple(self.fields.actions(predicted, fields).values())
