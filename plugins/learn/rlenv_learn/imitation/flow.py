"""Flow matching (Lipman et al. 2023) in plain PyTorch: draw chunks of actions along straight paths from noise.

The network learns the velocity that moves noise at time 0 to a chunk at time 1 on a straight line (rectified flow; Liu
et al. 2023), by its squared error. When the policy acts, a few steps of Euler's method follow this velocity from drawn
noise. The network is that of the diffusion policy.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rlenv_learn.imitation.denoiser import ChunkDenoiser

__all__ = ["FlowPolicy"]


class FlowPolicy(ChunkDenoiser):
    """The network of a flow policy, which draws scaled chunks by Euler's method.

    Its arguments are those of `ChunkDenoiser`.
    """

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
