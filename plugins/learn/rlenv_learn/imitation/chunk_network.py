"""Turn a PyTorch network of action chunks into a policy over named fields, and save it as ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hal import RobotSpec, Spec
from recorder.json_data import JsonObject
from rlenv_learn.policies.chunks import ChunkExecution, ChunkPolicy
from rlenv_learn.policies.flat import ScaledDifferences, export_onnx, flat_vector
from rlenv_learn.policies.onnx import metadata
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.tasks.task import Task

__all__ = ["ChunkFields", "ChunkNetworkPolicy"]


class ChunkFields(nn.Module):
    """The conversion of named fields to a network's inputs, and of its outputs to chunks of named actions.

    Observations become the vectors of `FlattenObservation` with magnified differences
    (`rlenv_learn.policies.flat.ScaledDifferences`); images stay separate, with values from 0 to 1. Actions are relative
    to the robot's current goal (the field that ``flat.held`` names, or 0), and scaled so that each of the K steps has
    mean 0 and standard deviation 1 in the training data, since later steps vary more than earlier ones.

    Args:
        task: the task, with its observation and action.
        execution: shape of the chunks.

    Attributes:
        flat: the vectors, without images.
        size: D, number of elements of a vector with magnified differences.
        images: the image fields.
        mean: mean of the K actions relative to the current goal, (K, A); set by `measure`.
        std: standard deviation of these actions, (K, A); set by `measure`.
    """

    LEAST = 0.01
    """Smallest standard deviation that actions are divided by, in the action's unit."""

    def __init__(self, task: Task, execution: ChunkExecution) -> None:
        super().__init__()
        flat = flat_for(task)
        self.observation, self.action, self.execution = task.observation, task.action, execution
        self.images = tuple(field for field in task.observation if field.is_image)
        kept = Spec(task.observation.name, tuple(field for field in task.observation if not field.is_image))
        self.flat: FlattenObservation = replace(flat, observation=kept)
        self.magnified = ScaledDifferences(self.flat)
        self.size = self.magnified.size
        self.register_buffer("scale", torch.from_numpy(self.flat.scale))
        self.register_buffer("mean", torch.zeros(execution.length, self.flat.action_size))
        self.register_buffer("std", torch.ones(execution.length, self.flat.action_size))
        for name, bound in zip(("low", "high"), self.flat.action_bounds, strict=True):
            self.register_buffer(name, torch.from_numpy(bound))

    def vectors(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return vectors (batch, H, D) for observations, name -> (batch, H, ...)."""
        folded = {name: fields[name].flatten(0, 1) for name in self.flat.observation.names}
        return self.magnified(flat_vector(self.flat, folded, self.scale)).unflatten(0, (-1, self.execution.history))

    def image_tensors(self, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return images for convolutions, image field -> (batch, H, 3, height, width), 0 to 1."""
        return {field.name: fields[field.name].permute(0, 1, 4, 2, 3) / 255.0 for field in self.images}

    def relative(self, fields: Mapping[str, torch.Tensor], action: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return chunks (batch, K, A) relative to the current goal for actions, name -> (batch, K, ...)."""
        parts = [action[name].float().flatten(2) for name in self.action.names]
        return torch.cat(parts, dim=2) - self._goal(fields)[:, None]

    def measure(self, relative: torch.Tensor) -> None:
        """Set ``mean`` and ``std`` from the relative chunks of training data, (N, K, A)."""
        self.mean.copy_(relative.mean(0))
        self.std.copy_(relative.std(0).clamp(min=self.LEAST))

    def scaled(self, relative: torch.Tensor) -> torch.Tensor:
        """Scale relative chunks (batch, K, A) to the form that a network predicts."""
        return (relative - self.mean) / self.std

    def actions(self, scaled: torch.Tensor, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the named actions of scaled chunks (batch, K, A), clipped to their bounds, name -> (batch, K, ...)."""
        values = scaled * self.std + self.mean + self._goal(fields)[:, None]
        values = torch.minimum(torch.maximum(values, self.low), self.high)
        named, place = {}, 0
        for field in self.action:
            part = values[:, :, place : place + field.size]
            named[field.name] = part.unflatten(2, field.shape) if field.shape else part[:, :, 0]
            place += field.size
        return named

    def _goal(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the present goal of each element of an action, (batch, A); 0 for an element without one."""
        parts = []
        for field in self.action:
            held = self.flat.held.get(field.name)
            any_field = fields[self.flat.observation.names[0]]
            if held is None:
                parts.append(torch.zeros(any_field.shape[0], field.size, device=any_field.device))
            else:
                parts.append(fields[held][:, -1].float().flatten(1)[:, : field.size])
        return torch.cat(parts, dim=1)


class ChunkNetworkPolicy:
    """A policy that executes the action chunks of a network.

    Args:
        model: from vectors (batch, H, D) and images, image field -> (batch, H, 3, height, width), to scaled chunks
            (batch, K, A). It must be in evaluation mode.
        fields: the conversion from and to named fields.
    """

    def __init__(self, model: nn.Module, fields: ChunkFields) -> None:
        self.model, self.fields = model, fields
        self._chunks = ChunkPolicy(self._predict, fields.observation, fields.action, fields.execution)

    def reset(self) -> None:
        """Discard the planned actions at the beginning of an episode."""
        self._chunks.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action of the current step, with the leading axes of the observation."""
        return self._chunks.act(observation)

    def _predict(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        fields = {name: torch.from_numpy(value) for name, value in observation.items()}
        with torch.no_grad():
            predicted = self.model(self.fields.vectors(fields), self.fields.image_tensors(fields))
            return {name: value.numpy() for name, value in self.fields.actions(predicted, fields).items()}

    def save_onnx(
        self, path: str | Path, task: str, about: JsonObject | None = None, robot: RobotSpec | None = None
    ) -> None:
        """Write an ONNX file that `rlenv_learn.policies.onnx.OnnxPolicy` executes in the same way.

        Args:
            path: file name, ending in ``.onnx``.
            task: name of the task of the training.
            about: JSON data about the training, for readers of the file.
            robot: the robot on which it was trained, such as ``envs.batch.spec``.

        Raises:
            RobotError: the packages onnx or onnxscript are missing.
        """
        fields = self.fields
        text = metadata(task, fields.observation, fields.action, about or {}, robot, fields.execution)
        graph = _Graph(self.model, fields)
        export_onnx(graph, fields.observation, fields.action, path, text, (fields.execution.history,))


class _Graph(nn.Module):
    """The model with the conversion from named fields (batch, H, ...) to named fields (batch, K, ...)."""

    def __init__(self, model: nn.Module, fields: ChunkFields) -> None:
        super().__init__()
        self.model, self.fields = model, fields

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fields = dict(zip(self.fields.observation.names, values, strict=True))
        predicted = self.model(self.fields.vectors(fields), self.fields.image_tensors(fields))
        return tuple(self.fields.actions(predicted, fields).values())
