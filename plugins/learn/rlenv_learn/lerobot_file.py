"""Write a policy of LeRobot's ACT as a policy's file of ours, which runs without LeRobot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from hal import RobotError, RobotSpec, Spec
from rlenv_learn.imitation.chunk_network import ChunkNetworkPolicy
from rlenv_learn.policies.chunks import ChunkExecution

if TYPE_CHECKING:
    from recorder.json_data import JsonObject
    from rlenv_learn.lerobot import LeRobotPolicy
    from rlenv_robot.policies.policy import EpisodicPolicy

__all__ = ["save_lerobot_file"]

_IMAGES = "observation.images"
_AGREEMENT = 1e-3
"""Largest difference of an action from LeRobot's own, in the scale of the action."""
_LEAST = 1e-6
"""Smallest scale by which a difference is divided."""


def save_lerobot_file(
    policy: LeRobotPolicy,
    path: Path,
    task: str,
    about: JsonObject,
    robot: RobotSpec | None = None,
    entries: JsonObject | None = None,
) -> float:
    """Write LeRobot's network with its scaling as an ONNX file, and compare it with LeRobot's own choice.

    Args:
        policy: the policy, of the type ``act``.
        path: the file, ending in ``.onnx``.
        task: the name of the task, or of the set.
        about: JSON data about the training.
        robot: the robot of the training, if known.
        entries: further entries of the file's metadata.

    Returns:
        The largest difference of an action from that of LeRobot, in the scale of the action, on random observations.

    Raises:
        RobotError: the policy is of another type, or the file chooses other actions than LeRobot; it is then removed.
    """
    from rlenv_learn.policies.onnx import load_onnx

    config = policy.model.config
    if config.type != "act":
        raise RobotError(f"LeRobot's {config.type} can't be written as a file; give --out a folder")
    ensemble = config.temporal_ensemble_coeff
    execute = config.n_action_steps if ensemble is None else 0
    execution = ChunkExecution(config.chunk_size, 1, execute, *(() if ensemble is None else (ensemble,)))
    fields = _LeRobotFields(policy, execution)
    ChunkNetworkPolicy(_Network(policy, fields).eval(), fields).save_onnx(path, task, about, robot, entries)
    most = _difference(load_onnx(path), policy, fields)
    if not most <= _AGREEMENT:
        path.unlink()
        raise RobotError(
            f"{path} would choose other actions than LeRobot does: they differ by {most:.2g} of their scale; LeRobot's "
            "own folder is right"
        )
    return most


def _difference(saved: EpisodicPolicy, policy: LeRobotPolicy, fields: _LeRobotFields) -> float:
    """Return the largest difference of two policies' actions in two chunks and a half of random observations."""
    rng, differences = np.random.default_rng(0), []
    scale = fields.get_buffer("_action_scale").numpy()
    scale = np.where(scale > _LEAST, scale, 1.0)  # an action that never changes
    saved.reset()
    policy.reset()
    for _ in range(5 * max(fields.execution.execute, 4) // 2):
        frame = fields.random_observation(rng)
        chosen = (saved.act(frame), policy.act(frame))
        ours, theirs = (np.concatenate([np.ravel(one[field.name]) for field in policy.action]) for one in chosen)
        differences.append(np.abs((ours - theirs) / scale).max())
    policy.reset()
    return float(np.max(differences))


class _LeRobotFields(nn.Module):
    """The conversion of LeRobot's features, named as the fields of the policy, with LeRobot's scaling.

    Whatever scaling LeRobot's processors do, it is linear for each element, so it is known from their answers to zeros
    and ones.
    """

    def __init__(self, policy: LeRobotPolicy, execution: ChunkExecution) -> None:
        super().__init__()
        self.observation: Spec = policy.observation
        self.action: Spec = policy.action
        self.execution = execution
        self.vectors_of = {name: spec.fields for name, spec in policy.vectors.items()}
        self.images_of = dict(policy.images)
        answers = [policy.before(self._constant(value)) for value in (0.0, 1.0)]
        for name in (*self.vectors_of, *self.images_of):
            low, high = (answer[name][0].double() for answer in answers)
            if name in self.images_of:
                low, high = (part.mean((1, 2))[:, None, None] for part in (low, high))
            self._keep(_key(name), -low / (high - low), 1 / (high - low))
        size = sum(field.size for field in policy.action)
        low, high = (policy.after(torch.full((1, size), value, dtype=torch.float64))[0] for value in (0.0, 1.0))
        self._keep("_action", low, high - low)
        for name, side in (("low", 0), ("high", 1)):
            bound = np.concatenate([np.ravel(field.bounds[side]).astype(np.float32) for field in policy.action])
            self.register_buffer(name, torch.from_numpy(bound))

    def _constant(self, value: float) -> dict[str, torch.Tensor]:
        constant = {
            name: torch.full((1, sum(field.size for field in fields)), value, dtype=torch.float64)
            for name, fields in self.vectors_of.items()
        }
        for name, field in self.images_of.items():
            height, width = self.observation[field].shape[:2]
            constant[name] = torch.full((1, 3, height, width), value, dtype=torch.float64)
        return constant

    def random_observation(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return an observation of random images, and of numbers with the mean and deviation of the training."""
        observation = {}
        for name, some in self.vectors_of.items():
            middle, scale = (self.get_buffer(f"{_key(name)}_{part}").numpy() for part in ("middle", "scale"))
            value, place = middle + scale * rng.standard_normal(len(middle)), 0
            for field in some:
                part = value[place : place + field.size].reshape(field.shape)
                observation[field.name] = np.clip(part, *field.bounds).astype(field.numpy_dtype)
                place += field.size
        for name in self.images_of.values():
            observation[name] = rng.integers(0, 256, self.observation[name].shape, np.uint8)
        return observation

    def _keep(self, key: str, middle: torch.Tensor, scale: torch.Tensor) -> None:
        self.register_buffer(f"{key}_middle", middle.float())
        self.register_buffer(f"{key}_scale", scale.float())

    def _scaled(self, name: str, value: torch.Tensor) -> torch.Tensor:
        key = _key(name)
        return (value - self.get_buffer(f"{key}_middle")) / self.get_buffer(f"{key}_scale")

    def vectors(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the scaled vectors of all features, joined, (batch, 1, D)."""
        parts = []
        for name, some in self.vectors_of.items():
            joined = torch.cat([fields[field.name].float().flatten(1) for field in some], dim=1)
            parts.append(self._scaled(name, joined))
        return torch.cat(parts, dim=1)[:, None]

    def image_tensors(self, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return scaled images by feature, (batch, 1, 3, height, width)."""
        return {
            name: self._scaled(name, fields[field].permute(0, 1, 4, 2, 3).float() / 255)
            for name, field in self.images_of.items()
        }

    def actions(self, scaled: torch.Tensor, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the named actions of scaled chunks (batch, K, A), clipped to their bounds."""
        values = scaled * self.get_buffer("_action_scale") + self.get_buffer("_action_middle")
        values = torch.minimum(torch.maximum(values, self.get_buffer("low")), self.get_buffer("high"))
        named, place = {}, 0
        for field in self.action:
            part = values[:, :, place : place + field.size]
            part = part.unflatten(2, field.shape) if field.shape else part[:, :, 0]
            named[field.name] = part.to(torch.from_numpy(np.zeros(0, field.numpy_dtype)).dtype)
            place += field.size
        return named


class _Network(nn.Module):
    """LeRobot's network, from scaled vectors and images to scaled chunks."""

    def __init__(self, policy: LeRobotPolicy, fields: _LeRobotFields) -> None:
        super().__init__()
        self.network: Any = policy.model.model
        self.sizes = {name: sum(field.size for field in some) for name, some in fields.vectors_of.items()}

    def forward(self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parts = torch.split(vectors[:, 0], list(self.sizes.values()), dim=1)
        batch: dict[str, Any] = dict(zip(self.sizes, parts, strict=True))
        if images:
            batch[_IMAGES] = [image[:, 0] for image in images.values()]
        chunk: torch.Tensor = self.network(batch)[0]
        return chunk


def _key(feature: str) -> str:
    return feature.replace(".", "_")
