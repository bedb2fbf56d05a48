"""Estimate from images a position that the robot does not measure, and act on the estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hal import Field, RobotSpec, SpecError
from hal.cameras.pinhole import PinholeCamera
from recorder.json_data import JsonObject
from rlenv_learn.imitation.keypoints import KeypointNetwork, expected_pixels, learn_keypoints
from rlenv_learn.imitation.views import Landmarks, Views
from rlenv_learn.policies.flat import FlatGraph, FlatPolicy, export_onnx
from rlenv_learn.policies.onnx import metadata
from rlenv_robot.tasks.task import Task

__all__ = ["EstimateErrors", "EstimatingPolicy", "FieldEstimator", "learn_estimator", "learn_position"]


class FieldEstimator(nn.Module):
    """An estimator of a position from the images of several cameras and from measured positions.

    A `KeypointNetwork` for each camera finds the landmarks. A small network estimates the target's position from their
    pixel positions and from the displacements of the known landmarks relative to a camera in its nominal pose.

    Args:
        cameras: image fields, each with the camera in its nominal pose for images of that size.
        landmarks: the landmarks.
        width: number of filters of a `KeypointNetwork`.

    Raises:
        SpecError: a nominal camera has a lens distortion.
    """

    def __init__(self, cameras: Sequence[tuple[Field, PinholeCamera]], landmarks: Landmarks, width: int = 24) -> None:
        super().__init__()
        self.images, self.landmarks = tuple(field for field, _ in cameras), landmarks
        self.networks = nn.ModuleDict({field.name: KeypointNetwork(len(landmarks), width) for field in self.images})
        for field, camera in cameras:
            if any(camera.distortion):
                raise SpecError(f"{field.name}: the nominal camera has a distortion; rectify its images first")
            turn = torch.from_numpy(np.asarray(camera.turn, np.float32))
            place = torch.from_numpy(np.asarray(camera.position_m, np.float32))
            self.register_buffer(f"{field.name}_turn", turn)
            self.register_buffer(f"{field.name}_place", place)
            lens = torch.tensor([camera.focal_px, camera.centre_px], dtype=torch.float32)
            self.register_buffer(f"{field.name}_lens", lens)
        self.register_buffer("still", torch.tensor(landmarks.fixed, dtype=torch.float32).reshape(-1, 3))
        known = len(landmarks) - 1
        size = len(self.images) * (2 + 5 * known + len(landmarks)) + 3 * len(landmarks.measured)
        self.register_buffer("centre", torch.zeros(size))
        self.register_buffer("spread", torch.ones(size))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("std", torch.ones(3))
        self.direct = nn.Linear(size, 3)
        self.body = nn.Sequential(nn.Linear(size, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 3))

    @property
    def inputs(self) -> tuple[Field, ...]:
        """The fields that the estimator reads."""
        return (*self.images, *self.landmarks.measured)

    def features(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the inputs of the small network, (batch, size): positions in pixels and in metres.

        Args:
            fields: name -> observed values (batch, ...); images are uint8 (batch, height, width, 3).
        """
        measured = [fields[field.name].float() for field in self.landmarks.measured]
        batch = fields[self.images[0].name].shape[0]
        still = self.still.expand(batch, -1, -1)
        known = torch.cat([torch.stack(measured, 1), still], 1) if measured else still
        parts = [*measured]
        for field in self.images:
            image = fields[field.name].permute(0, 3, 1, 2).float() / 255.0
            pixels, confidence = expected_pixels(*self.networks[field.name](image))
            displacement = pixels[:, 1:] - self.project(field.name, known)
            to_target = pixels[:, 1:] - pixels[:, :1]
            distance = torch.linalg.vector_norm(to_target, dim=2)
            parts += [pixels[:, 0], displacement.flatten(1), to_target.flatten(1), distance, confidence]
        return torch.cat(parts, dim=1)

    def project(self, name: str, points: torch.Tensor) -> torch.Tensor:
        """Return the pixels (batch, n, 2) of points (batch, n, 3), metres, for a camera in its nominal pose."""
        local = (points - getattr(self, f"{name}_place")) @ getattr(self, f"{name}_turn")
        focal, centre = getattr(self, f"{name}_lens")
        return centre + focal * local[..., :2] / local[..., 2:].clamp(min=1e-3)

    def measure(self, features: torch.Tensor, target: torch.Tensor) -> None:
        """Set the scales from features (N, size) and positions (N, 3) of training data."""
        self.centre.copy_(features.mean(0))
        self.spread.copy_(features.std(0).clamp(min=1e-3))
        self.mean.copy_(target.mean(0))
        self.std.copy_(target.std(0).clamp(min=1e-3))

    def position(self, features: torch.Tensor) -> torch.Tensor:
        """Return the estimate, metres, (batch, 3), from features."""
        scaled = (features - self.centre) / self.spread
        return (self.direct(scaled) + self.body(scaled)) * self.std + self.mean

    def forward(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the estimate, metres, (batch, 3), from fields as for `features`."""
        return self.position(self.features(fields))

    def estimate(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the estimate, metres, (batch, 3), from arrays (batch, ...) of the `inputs`."""
        return _in_parts(self, fields, self.forward)

    def all_features(self, fields: Mapping[str, np.ndarray]) -> torch.Tensor:
        """Return the `features` of many views, (N, size), from arrays (N, ...) of the `inputs`."""
        return torch.from_numpy(_in_parts(self, fields, self.features))


_PART = 64
"""Views per batch of heat maps."""


def _in_parts(
    estimator: FieldEstimator,
    fields: Mapping[str, np.ndarray],
    compute: Callable[[dict[str, torch.Tensor]], torch.Tensor],
) -> np.ndarray:
    """Return the results for fields (N, ...), computed for some rows at a time, (N, ...)."""
    names, parts = [field.name for field in estimator.inputs], []
    with torch.no_grad():
        for start in range(0, len(fields[names[0]]), _PART):
            rows = {name: np.ascontiguousarray(fields[name][start : start + _PART]) for name in names}
            parts.append(compute({name: torch.from_numpy(value) for name, value in rows.items()}).numpy())
    return np.concatenate(parts)


def learn_position(
    estimator: FieldEstimator, features: torch.Tensor, target: torch.Tensor, updates: int = 4000, seed: int = 0
) -> None:
    """Train the small network of an estimator, in place.

    Args:
        estimator: an estimator with a trained `KeypointNetwork` for each camera.
        features: features of training data, (N, size).
        target: true positions, metres, (N, 3).
        updates: number of updates, with 256 rows each.
        seed: seed of the drawn rows.
    """
    estimator.measure(features, target)
    parameters = [*estimator.direct.parameters(), *estimator.body.parameters()]
    optimizer = torch.optim.AdamW(parameters, 2e-3, weight_decay=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, updates)
    generator = torch.Generator().manual_seed(seed)
    for rows in torch.randint(len(features), (updates, 256), generator=generator):
        error = (estimator.position(features[rows]) - target[rows]) / 0.01
        loss = nn.functional.smooth_l1_loss(error, torch.zeros_like(error))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def learn_estimator(
    views: Views, cameras: Mapping[str, PinholeCamera], updates: int = 2000, seed: int = 0, width: int = 24
) -> tuple[FieldEstimator, float]:
    """Train an estimator on views, of which the last tenth is held out to measure its error.

    Args:
        views: for example from `rlenv_learn.imitation.views.collect_views`.
        cameras: name -> the camera in its nominal pose.
        updates: updates of each `KeypointNetwork`. The small network behind them gets twice as many.
        seed: seed of the weights and of the drawn views.
        width: number of filters of a `KeypointNetwork`.

    Returns:
        The estimator in evaluation mode, and the standard deviation of its error along x and y, metres: 1.48 times the
        median absolute error, as for a normal distribution.
    """
    torch.manual_seed(seed)
    fields, trained = views.image_fields, len(views) * 9 // 10
    nominal = [(field, cameras[field.name.removesuffix("_image")]) for field in fields]
    estimator = FieldEstimator(nominal, views.landmarks, width).to(memory_format=torch.channels_last)
    for field in fields:
        images, pixels = views.images[field.name], views.pixels[field.name]
        for _ in learn_keypoints(
            estimator.networks[field.name], images[:trained], pixels[:trained], updates, seed=seed
        ):
            pass
    features = estimator.eval().all_features({**views.images, **views.fields})
    target = torch.from_numpy(np.asarray(views.fields[views.landmarks.target.name], np.float32))
    learn_position(estimator, features[:trained], target[:trained], 2 * updates, seed)
    with torch.no_grad():
        errors = torch.abs(estimator.position(features[trained:]) - target[trained:])[:, :2]
    return estimator, 1.4826 * float(errors.median())


class EstimateErrors:
    """Random errors like those of estimates from images, to train a policy that acts on estimates.

    Half of the variance is constant during an episode, as if a camera were displaced. The other half changes, as if the
    robot occluded more or less of the target.

    Args:
        num: number of environments.
        std_m: standard deviation along x and along y, metres.
        rng: generator of the errors.
    """

    MEMORY = 0.9
    """Correlation of the changing half from one control period to the next."""

    def __init__(self, num: int, std_m: float, rng: np.random.Generator) -> None:
        self._half, self._rng = std_m / np.sqrt(2), rng
        self._constant, self._changing = np.zeros((num, 3)), np.zeros((num, 3))

    def add_to(self, position: np.ndarray, begun: np.ndarray) -> np.ndarray:
        """Return positions with errors, float32, (num, 3).

        Args:
            position: true positions, metres, (num, 3).
            begun: mask of the environments whose episode has just begun, bool, (num,).
        """
        drawn = self._half * self._rng.normal(size=(2, len(position), 2))
        self._constant[begun, :2] = drawn[0, begun]
        memory = np.where(begun[:, None], 0.0, self.MEMORY)
        self._changing[:, :2] = memory * self._changing[:, :2] + np.sqrt(1 - memory**2) * drawn[1]
        return np.asarray(position + self._constant + self._changing, np.float32)


# -- A policy that acts on the estimate ----------------------------------------------------------------------


class EstimatingPolicy:
    """Estimate a hidden field from images, and pass the estimate to another policy.

    Args:
        estimator: estimator of the field, in evaluation mode.
        policy: the policy that acts. Its observation has the estimated field and no images.
        task: a task that observes the images, and all other fields of the policy's observation.

    Raises:
        SpecError: a field of the policy's observation is neither observed by the task nor estimated.
    """

    def __init__(self, estimator: FieldEstimator, policy: FlatPolicy, task: Task) -> None:
        self.estimator, self.policy = estimator, policy
        self.observation, self.action = task.observation, task.action
        available = {*self.observation.names, estimator.landmarks.target.name}
        missing = [name for name in policy.flat.observation.names if name not in available]
        missing += [field.name for field in estimator.inputs if field.name not in self.observation]
        if missing:
            raise SpecError(f"{task.name!r} observes no {missing[0]!r}, it has {', '.join(self.observation.names)}")

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action, name -> (batch, ...), for a batch of observations (batch, ...)."""
        estimate = self.estimator.estimate(observation)
        return self.policy.act({**observation, self.estimator.landmarks.target.name: estimate})

    def save_onnx(
        self, path: str | Path, task: str, about: JsonObject | None = None, robot: RobotSpec | None = None
    ) -> None:
        """Write an ONNX file from images to actions, as `rlenv_learn.policies.flat.FlatPolicy.save_onnx` does.

        Raises:
            RobotError: the packages onnx or onnxscript are missing.
        """
        text = metadata(task, self.observation, self.action, about or {}, robot)
        export_onnx(_Graph(self), self.observation, self.action, path, text)


class _Graph(nn.Module):
    """The estimator followed by the policy's graph, over named fields (batch, ...)."""

    def __init__(self, policy: EstimatingPolicy) -> None:
        super().__init__()
        self.estimator, self.names = policy.estimator, policy.observation.names
        self.acting = FlatGraph(policy.policy.actor, policy.policy.flat)
        self.taken = policy.policy.flat.observation.names

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fields = dict(zip(self.names, values, strict=True))
        fields[self.estimator.landmarks.target.name] = self.estimator(fields)
        return tuple(self.acting(*(fields[name] for name in self.taken)))
