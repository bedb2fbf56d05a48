"""Convert the fields of any data set to a network's inputs, and its outputs to the set's own actions."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from hal import Spec
from recorder.json_data import JsonDict
from rlenv_learn.imitation.camera_network import ImageReduction
from rlenv_learn.imitation.chunk_network import ActionScaling, ChunkFields
from rlenv_learn.policies.chunks import ChunkExecution
from rlenv_robot.tasks.task import Task

__all__ = ["SetFields", "TaskFields"]


class SetFields(ActionScaling):
    """The conversion of a data set's fields, with a normaliser that the data give.

    Numbers are joined to vectors, of which each element is scaled from its smallest and largest value in the data to -1
    and 1, and clipped to ``LIMIT``. Older observations of a history are differences from the newest one, in standard
    deviations of such differences. Images are reduced to the size of the training.

    Args:
        observation: the fields that the policy observes; images are fields of bytes.
        action: the fields of the action.
        execution: shape of the chunks.
        anchors: action field -> observation field from which actions are counted.
        sizes: image field -> height and width to which its images are reduced.

    Attributes:
        numbers: the fields of the vector.
        images: the image fields.
        size: D, number of elements of a vector; 1, always 0, if there are images alone.
    """

    LEAST = 1e-6
    LIMIT = 3.0
    NOISE = 5.0
    """Noise on the newest observation in training, in half its range, times the root of the number of windows: as much
    as a ridge penalty of 100 in a linear fit to standard deviations."""
    MOST_NOISE = 0.25

    def __init__(
        self,
        observation: Spec,
        action: Spec,
        execution: ChunkExecution,
        anchors: Mapping[str, str],
        sizes: Mapping[str, tuple[int, int]],
    ) -> None:
        super().__init__(action, execution, anchors)
        self.observation = observation
        self.numbers = tuple(field for field in observation if not field.is_image)
        self.images = tuple(field for field in observation if field.is_image)
        count = sum(field.size for field in self.numbers)
        self.size = max(count, 1)
        self.register_buffer("middle", torch.zeros(count))
        self.register_buffer("spread", torch.ones(count))
        self.register_buffer("moved", torch.ones(count))
        self.reductions = nn.ModuleDict(
            {field.name: ImageReduction(field.shape[:2], sizes[field.name]) for field in self.images}
        )

    def normalise(self, low: torch.Tensor, high: torch.Tensor, moved: torch.Tensor) -> None:
        """Set the scales of the vector.

        Args:
            low: each element's smallest value, (D,).
            high: each element's largest value, (D,).
            moved: standard deviation of its differences from the newest observation of a window, (D,).
        """
        self.middle.copy_((low + high) / 2)
        spread = (high - low) / 2
        self.spread.copy_(torch.where(spread > self.LEAST, spread, torch.ones_like(spread)))
        self.moved.copy_(torch.where(moved > self.LEAST, moved, torch.ones_like(moved)))

    def joined(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the numbers of observations, name -> (batch, H, ...), joined but not scaled, (batch, H, D)."""
        parts = [
            fields[field.name].float().flatten(2) if field.shape else fields[field.name].float()[:, :, None]
            for field in self.numbers
        ]
        return torch.cat(parts, dim=2)

    def vectors(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return vectors (batch, H, D) for observations, name -> (batch, H, ...)."""
        if not self.numbers:
            image = fields[self.images[0].name]
            return torch.zeros(image.shape[0], image.shape[1], 1, device=image.device)
        value = self.joined(fields)
        newest = (value[:, -1:] - self.middle) / self.spread
        older = (value[:, :-1] - value[:, -1:]) / self.moved
        return torch.cat([older, newest], dim=1).clamp(-self.LIMIT, self.LIMIT)

    def noise(self, windows: int) -> float:
        """Return the standard deviation of noise that suits a training with a number of windows."""
        return min(self.MOST_NOISE, self.NOISE / windows**0.5)

    def image_tensors(self, fields: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return reduced images, image field -> (batch, H, 3, height, width), 0 to 1; reduced ones stay as they are."""
        tensors = {}
        for field in self.images:
            image, reduction = fields[field.name].permute(0, 1, 4, 2, 3), self.reductions[field.name]
            if tuple(image.shape[-2:]) != reduction.size:
                image = reduction(image)
            tensors[field.name] = image.float() / 255.0
        return tensors

    def scale_actions(self, middle: torch.Tensor, scale: torch.Tensor) -> None:
        """Set the scales of relative chunks, each (K, A)."""
        self.mean.copy_(middle)
        self.std.copy_(torch.where(scale > self.LEAST, scale, torch.ones_like(scale)))

    def normaliser(self) -> JsonDict:
        """Return the scales as JSON data, for readers of a policy's file."""
        figures: JsonDict = {"observation": {}, "action": {}}
        place = 0
        for field in self.numbers:
            part = slice(place, place + field.size)
            figures["observation"][field.name] = {
                "low": (self.middle - self.spread)[part].tolist(), "high": (self.middle + self.spread)[part].tolist(),
            }  # fmt: skip
            place += field.size
        place = 0
        for field in self.action:
            part = slice(place, place + field.size)
            figures["action"][field.name] = {
                "relative_to": self.anchors.get(field.name),
                "middle": self.mean[0, part].tolist(), "scale": self.std[0, part].tolist(),
            }  # fmt: skip
            place += field.size
        return figures


class TaskFields(SetFields):
    """The conversion of a data set's fields by the hints of a task, to which the set belongs.

    The vectors are those of `ChunkFields`, and actions are counted from the goals that the robot's servos hold.

    Args:
        task: the task.
        execution: shape of the chunks.
        sizes: image field -> height and width to which its images are reduced.
    """

    def __init__(self, task: Task, execution: ChunkExecution, sizes: Mapping[str, tuple[int, int]]) -> None:
        chunk_fields = ChunkFields(task, execution)
        super().__init__(task.observation, task.action, execution, chunk_fields.anchors, sizes)
        self.task_fields, self.size = chunk_fields, chunk_fields.size

    def noise(self, windows: int) -> float:
        """Return 0: vectors of tasks have magnified differences, which noise would hide."""
        return 0.0

    def vectors(self, fields: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return vectors (batch, H, D) for observations, name -> (batch, H, ...)."""
        return self.task_fields.vectors(fields)
