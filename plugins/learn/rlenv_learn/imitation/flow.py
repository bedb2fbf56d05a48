"""Flow matching (Lipman et al. 2023) in plain PyTorch: draw chunks of actions along straight paths from noise.

The network learns the velocity that moves noise at time 0 to a chunk at time 1 on a straight line (rectified flow; Liu
et al. 2023), by its squared error. When the policy acts, a few steps of Euler's method follow this velocity from drawn
noise. The network is that of the diffusion policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from rlenv_learn.imitation.denoiser import ChunkDenoiser
from rlenv_learn.policies.chunks import ChunkExecution

__all__ = ["FlowPolicy", "FlowSettings"]


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Sizes of the network, and the number of steps.

    Attributes:
        width: channels of the convolutions along a chunk, a multiple of 8.
        blocks: number of residual convolutional blocks.
        inference_steps: steps of Euler's method when the policy acts.
    """

    width: int = 128
    blocks: int = 4
    inference_steps: int = 10


class FlowPolicy(ChunkDenoiser):
    """The network of a flow policy, which draws scaled chunks.

    Args:
        size: D, number of elements of one observation's vector.
        action_size: A, number of elements of an action vector.
        execution: shape of the chunks.
        settings: sizes and number of steps.
        vision: as for `ChunkDenoiser`.
        vision_size: as for `ChunkDenoiser`.
    """

    def __init__(
        self,
        size: int,
        action_size: int,
        execution: ChunkExecution,
        settings: FlowSettings | None = None,
        vision: Mapping[str, nn.Module] | None = None,
        vision_size: int = 0,
    ) -> None:
        chosen = settings or FlowSettings()
        super().__init__(size, action_size, execution, chosen.width, chosen.blocks, vision, vision_size)
        self.settings = chosen

    def forward(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], noise: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return scaled chunks, (batch, K, A), drawn for observations (batch, H, D) from noise (batch, K, A)."""
        condition, chunk = self.condition(vectors, images), self.drawn(vectors, noise)
        steps = self.settings.inference_steps
        for step in range(steps):
            chunk = chunk + self.output(chunk, condition, torch.full((1,), step / steps)) / steps
        return chunk.clamp(-1.0, 1.0)

    def loss(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], chunk: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean squared error of the velocity.

        Args:
            vectors: as for `forward`.
            images: as for `forward`.
            chunk: scaled, (batch, K, A).
            mask: bool (batch, K), False for steps beyond the end of an episode.
        """
        time, noise = torch.rand(len(chunk)), torch.randn_like(chunk)
        share = time[:, None, None]
        predicted = self.output((1 - share) * noise + share * chunk, self.condition(vectors, images), time)
        return (predicted - (chunk - noise)).square()[mask].mean()
