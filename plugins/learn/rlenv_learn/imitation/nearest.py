"""Predict the recorded chunk of the frame that is nearest to the present one, as VINN does (Pari et al. 2022).

VINN takes the features of a network that was trained without labels. Here they are principal components of reduced
images, which a set gives within seconds, beside the scaled numbers. In a small set with a fixed camera this decides
better than a network of convolutions that was trained for minutes (`benchmarks/foreign.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from recorder.json_data import JsonDict
from rlenv_learn.imitation.camera_network import ImageReduction
from rlenv_learn.imitation.chunk_network import Scaling

__all__ = ["Frames", "NearestFrame", "NearestLearner"]

Frames = tuple[torch.Tensor, Mapping[str, torch.Tensor], torch.Tensor]
"""Vectors (n, H, D), images, image field -> (n, H, 3, height, width), and scaled chunks (n, K, A)."""

_SIZE = (24, 24)
"""Height and width to which images are reduced before they are compared."""


class NearestFrame(nn.Module):
    """Return the chunk of the nearest remembered frame.

    The squared distance of two frames is that of their numbers, in standard deviations, as a mean over the numbers,
    plus for each camera that of its images as a share of the images' whole variance. So all numbers and each camera
    count alike.

    Args:
        size: D, number of elements of one observation's vector.
        images: image field -> height and width of its images.
        components: most principal components of an image.
    """

    SCALING: Scaling = "deviation"
    LEAST = 1e-6
    """Standard deviation below which a number is taken to be constant."""

    def __init__(self, size: int, images: Mapping[str, tuple[int, int]], components: int) -> None:
        super().__init__()
        self.components = components
        self.reductions = nn.ModuleDict({name: ImageReduction(shape, _SIZE) for name, shape in images.items()})
        self.projections = nn.ModuleDict({name: nn.Linear(3 * _SIZE[0] * _SIZE[1], 1) for name in images})
        for name, value in (("middle", torch.zeros(size)), ("scale", torch.ones(size))):
            self.register_buffer(name, value)
        for name in ("features", "squares", "chunks"):
            self.register_buffer(name, torch.zeros(0))

    def fit(self, blocks: Iterator[Frames]) -> None:
        """Remember frames, and set the features from them."""
        numbers, images, chunks = [], {name: list[torch.Tensor]() for name in self.reductions}, []
        for vectors, pictures, chunk in blocks:
            numbers.append(vectors[:, -1])
            chunks.append(chunk)
            for name, values in images.items():
                values.append(self._reduced(name, pictures[name]).to(torch.uint8))
        vectors = torch.cat(numbers)
        deviation = vectors.std(0, correction=0)
        self.middle = vectors.mean(0)
        self.scale = (
            torch.where(deviation > self.LEAST, deviation, torch.ones_like(deviation)) * vectors.shape[1] ** 0.5
        )
        parts = [self._scaled(vectors)]
        for name, values in images.items():
            seen = torch.cat(values).float()
            self.projections[name] = _principal(seen, self.components)
            parts.append(self.projections[name](seen))
        self.features = torch.cat(parts, dim=1)
        self.squares, self.chunks = self.features.square().sum(1), torch.cat(chunks)

    def forward(self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return scaled chunks, (batch, K, A); arguments as for `rlenv_learn.imitation.act.ACT.forward`."""
        parts = [self._scaled(vectors[:, -1])]
        parts += [project(self._reduced(name, images[name])) for name, project in self.projections.items()]
        distance = self.squares - 2 * torch.cat(parts, dim=1) @ self.features.T  # but for the query's own square
        return self.chunks[distance.argmin(1)]

    def _scaled(self, numbers: torch.Tensor) -> torch.Tensor:
        return (numbers - self.middle) / self.scale

    def _reduced(self, name: str, images: torch.Tensor) -> torch.Tensor:
        """Return the newest images as vectors of whole numbers from 0 to 255, (batch, 3 * 24 * 24)."""
        return self.reductions[name](255.0 * images[:, -1]).flatten(1)


def _principal(images: torch.Tensor, most: int) -> nn.Linear:
    """Return the projection of images, (N, P), to principal components, whose variances have the sum 1 at most."""
    middle = images.mean(0)
    away = images - middle
    covariance = (away.T @ away / len(away)).double()
    variances, vectors = (value.float() for value in torch.linalg.eigh(covariance))
    scale = variances.sum().clamp(min=1e-6).rsqrt()
    weight = (vectors[:, -most:] * scale).T.contiguous()
    projection = nn.Linear(*weight.T.shape).requires_grad_(False)
    projection.weight.copy_(weight)
    projection.bias.copy_(-(weight @ middle))
    return projection


class NearestLearner:
    """Fill a `NearestFrame` in one update.

    Args:
        model: the network.
        frames: returns all frames, in blocks.

    Attributes:
        done: number of updates so far, 0 or 1.
        mean: the network.
    """

    def __init__(self, model: NearestFrame, frames: Callable[[], Iterator[Frames]]) -> None:
        self.done, self.mean, self._frames = 0, model.eval(), frames

    def update(self) -> float:
        """Remember all frames, and return the loss of 0 that they have."""
        with torch.no_grad():
            self.mean.fit(self._frames())
        self.done = 1
        return 0.0

    def state(self) -> JsonDict:
        """Return nothing: an interrupted training begins anew, within seconds."""
        return {}

    def restore(self, state: JsonDict) -> None:
        """Do nothing, as there is no state."""
