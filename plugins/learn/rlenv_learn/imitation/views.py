"""Collect images from simulations with the pixel positions of points in them, to train networks on images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hal import Field, SpecError
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.policies.policy import Policy
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.rendering.projection import project_points

__all__ = ["Landmarks", "Views", "collect_views"]

_TARGET_ERROR_M = 0.04
"""Standard deviation along x and along y of the error in the target position that half of the episodes get, metres."""
_ACTION_OFFSET = 0.5
"""Largest offset of action vectors."""
_OFFSET_STEPS = 10.0
"""Mean length of an interval with one offset, control periods."""


@dataclass(frozen=True)
class Landmarks:
    """The points that a `FieldEstimator` finds in images: the target, and others whose positions are known.

    The known points show the camera's current pose: if it differs from the nominal pose, all of them are displaced.

    Attributes:
        target: the field to estimate, a position in the base frame, metres, (3,).
        measured: fields of positions that the robot measures, such as ``gripper_position``.
        fixed: constant positions in the base frame, such as points of the robot's base, metres.

    Raises:
        SpecError: a field is not a position.
    """

    target: Field
    measured: tuple[Field, ...] = ()
    fixed: tuple[tuple[float, float, float], ...] = ()

    def __post_init__(self) -> None:
        for field in (self.target, *self.measured):
            if field.shape != (3,) or field.unit != "m":
                raise SpecError(
                    f"landmark {field.name!r} has the shape {field.shape} in {field.unit}, expected (3,) in m"
                )

    def __len__(self) -> int:
        return 1 + len(self.measured) + len(self.fixed)

    def positions(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the positions of all points, the target first, metres, (n, K, 3), from fields (n, ...)."""
        moving = [np.asarray(fields[field.name], float) for field in (self.target, *self.measured)]
        still = [np.broadcast_to(point, moving[0].shape) for point in self.fixed]
        return np.stack([*moving, *still], axis=1)


@dataclass(frozen=True)
class Views:
    """Images with the positions of the landmarks.

    Attributes:
        images: image field -> uint8 (N, height, width, 3).
        fields: field of the target or of a measured landmark -> (N, 3), metres.
        pixels: image field -> x and y of all landmarks, pixels, (N, K, 2), the target first.
        landmarks: the landmarks.
        image_fields: the image fields.
    """

    images: Mapping[str, np.ndarray]
    fields: Mapping[str, np.ndarray]
    pixels: Mapping[str, np.ndarray]
    landmarks: Landmarks
    image_fields: tuple[Field, ...]

    def __len__(self) -> int:
        return len(next(iter(self.images.values())))


def collect_views(
    envs: VectorEnvironment,
    policy: Policy,
    flat: FlattenObservation,
    landmarks: Landmarks,
    count: int,
    every: int = 12,
    seed: int = 0,
) -> Views:
    """Collect images while a disturbed policy acts, so that they show many poses of the robot.

    In half of the episodes the policy gets a target position with an error, of standard deviation 4 cm along x and
    along y. In four of ten intervals, which last a third of a second on average, an offset is added to its actions.

    Args:
        envs: environments of a task with images (`rlenv_vision.image_task.with_images`) whose target is in the
            observation or in the privileged state. Set the rate of the image sensors to ``30 / every`` in ``timing``,
            so that no further images are rendered, and ranges of looks in ``randomise``.
        policy: takes the fields of the observation and of the privileged state.
        flat: the vectors of the policy's actions.
        landmarks: the landmarks.
        count: smallest number of images of each camera.
        every: control periods from one image to the next.
        seed: seed of the disturbance.

    Raises:
        SpecError: the task has no images, or the robots are not simulated on the CPU.
    """
    task, batch, rng = envs.task, envs.batch, np.random.default_rng(seed)
    images = [field for field in task.observation if field.name.endswith("_image")]
    if not images or not isinstance(batch, SimBatch):
        raise SpecError(f"views of {task.name!r} need image observations and a simulation on the CPU")
    qpos, target = batch.open_batch.bind("qpos"), landmarks.target.name
    offset, target_error = np.zeros((envs.num_envs, flat.action_size)), np.zeros((envs.num_envs, 3))
    parts: dict[str, list[np.ndarray]] = {}
    table, collected = envs.reset({"seed": seed}), 0
    while collected < count:
        fields = {**table["observation"], **table["extra_info"].get("state", {})}
        rows, begun = np.flatnonzero(table["frame_no"] % every == 0), table["frame_no"] == 0
        if len(rows):
            taken = {name: fields[name][rows] for name in (target, *(field.name for field in landmarks.measured))}
            models = {name: value[rows] for name, value in batch.models.items()}
            places = landmarks.positions(taken)
            for field in images:
                camera, (height, width) = field.name.removesuffix("_image"), field.shape[:2]
                taken[field.name] = fields[field.name][rows]
                pixels = project_points(batch.sim_model, camera, width, height, qpos[rows], places, models)
                taken[f"{field.name} pixels"] = pixels.astype(np.float32)
            for name, value in taken.items():
                parts.setdefault(name, []).append(value)
            collected += len(rows)
        error = rng.normal(size=(begun.sum(), 2)) * _TARGET_ERROR_M
        target_error[begun, :2] = error * (rng.random((begun.sum(), 1)) < 0.5)
        new = (rng.random(envs.num_envs) < 1 / _OFFSET_STEPS) | begun
        size = _ACTION_OFFSET * rng.random((new.sum(), 1)) * (rng.random((new.sum(), 1)) < 0.4)
        offset[new] = rng.normal(size=(new.sum(), flat.action_size)) * size
        believed = {**fields, target: (fields[target] + target_error).astype(np.float32)}
        action = flat.act(flat.vector_of(policy.act(believed), fields) + offset, fields)
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
    joined = {name: np.concatenate(value) for name, value in parts.items()}
    return Views(
        {field.name: joined[field.name] for field in images},
        {name: joined[name] for name in (target, *(field.name for field in landmarks.measured))},
        {field.name: joined[f"{field.name} pixels"] for field in images},
        landmarks,
        tuple(images),
    )
