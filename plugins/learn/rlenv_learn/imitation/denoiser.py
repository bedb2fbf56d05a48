"""The network of diffusion and flow policies: a convolution along a chunk, conditioned on observations and a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from rlenv_learn.imitation.camera_network import image_features
from rlenv_learn.imitation.chunk_network import Scaling
from rlenv_learn.policies.chunks import ChunkExecution

__all__ = ["ChunkDenoiser", "DenoiserSettings"]

_TIME = 32
"""Number of sines and cosines of the time."""


@dataclass(frozen=True, slots=True)
class DenoiserSettings:
    """Sizes of the network, and the number of steps when the policy acts.

    Attributes:
        width: channels of the convolutions along a chunk, a multiple of 8.
        blocks: number of residual convolutional blocks.
        inference_steps: steps from noise to a chunk.
    """

    width: int = 128
    blocks: int = 4
    inference_steps: int = 10


class ChunkDenoiser(nn.Module):
    """A network from a noised chunk, observations and a time from 0 to 1 to an array of the chunk's shape.

    In place of the U-net of Chi et al. there is a sequence of blocks of equal length, since chunks of 16 steps are too
    short for halving. Observation and time scale and shift each block (FiLM; Perez et al. 2018).

    Args:
        size: D, number of elements of one observation's vector.
        action_size: A, number of elements of an action vector.
        execution: shape of the chunks.
        settings: sizes and number of steps.
        vision: image field -> a network from images (n, 3, height, width) to features (n, F); None without images.
        vision_size: F.

    Attributes:
        noise_shape: (K, A), the shape of the noise from which a chunk is drawn.
    """

    SCALING: Scaling = "range"

    def __init__(
        self,
        size: int,
        action_size: int,
        execution: ChunkExecution,
        settings: DenoiserSettings | None = None,
        vision: Mapping[str, nn.Module] | None = None,
        vision_size: int = 0,
    ) -> None:
        super().__init__()
        self.settings = chosen = settings or DenoiserSettings()
        width, blocks = chosen.width, chosen.blocks
        self.noise_shape = (execution.length, action_size)
        self.vision = nn.ModuleDict(dict(vision or {}))
        inputs = (size + vision_size * len(self.vision)) * execution.history
        self.context = nn.Sequential(nn.Linear(inputs, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.time = nn.Sequential(nn.Linear(_TIME, 2 * width), nn.SiLU(), nn.Linear(2 * width, 2 * width))
        self.first = nn.Conv1d(action_size, width, 3, padding=1)
        self.places = nn.Parameter(torch.randn(width, execution.length) * 0.02)
        self.blocks = nn.ModuleList(_Block(width) for _ in range(blocks))
        self.last = nn.Conv1d(width, action_size, 1)

    def condition(self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what the network knows of observations (batch, H, D) and images (batch, H, 3, height, width)."""
        parts = [vectors, *image_features(self.vision, images)]
        return self.context(torch.cat([part.flatten(1) for part in parts], dim=1))

    def output(self, chunk: torch.Tensor, condition: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the output, (batch, K, A), for noised chunks (batch, K, A) at times (batch,) or (1,)."""
        condition = condition + self.time(_time_features(time))
        value = self.first(chunk.transpose(1, 2)) + self.places
        for block in self.blocks:
            value = block(value, condition)
        return self.last(value).transpose(1, 2)

    def drawn(self, vectors: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
        """Return the noise, or new noise if there is none."""
        return torch.randn(vectors.shape[0], *self.noise_shape) if noise is None else noise


def _time_features(time: torch.Tensor) -> torch.Tensor:
    """Return sines and cosines of times, (n,) -> (n, 32)."""
    angle = time[:, None].float() * torch.exp(torch.linspace(0, math.log(1000.0), _TIME // 2))
    return torch.cat([angle.sin(), angle.cos()], dim=1)


class _Block(nn.Module):
    """A residual block of two convolutions along a chunk, scaled and shifted by a condition."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = (nn.Conv1d(width, width, 5, padding=2) for _ in range(2))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))
        self.film = nn.Linear(2 * width, 2 * width)

    def forward(self, value: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        scale, shift = self.film(nn.functional.silu(condition))[:, :, None].chunk(2, dim=1)
        inner = self.inner(nn.functional.silu(self.norms[0](value))) * (1 + scale) + shift
        return value + self.outer(nn.functional.silu(self.norms[1](inner)))
