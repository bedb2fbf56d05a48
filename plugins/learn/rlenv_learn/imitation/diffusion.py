"""Diffusion policy (Chi et al. 2023) in plain PyTorch: draw chunks of actions by removing noise step by step.

In training, noise is added to a chunk (DDPM; Ho, Jain, Abbeel 2020, with the cosine schedule of Nichol and Dhariwal
2021), and the network learns a mixture of noise and chunk, v, by its squared error (Salimans and Ho 2022), or the noise
alone, as in the paper. The chunk follows from the noise by a division by the signal's share, which is small at first; v
gives both without a division, so that a short training and few steps suffice. When the policy acts, it removes drawn
noise in a few steps (DDIM; Song, Meng, Ermon 2021), and keeps the chunk that each step foresees within -1 to 1, the
range to which the data are scaled. As in the paper, the weights that act are a running mean
(`rlenv_learn.imitation.learning`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn

from rlenv_learn.imitation.denoiser import ChunkDenoiser, DenoiserSettings
from rlenv_learn.policies.chunks import ChunkExecution

__all__ = ["DiffusionPolicy", "DiffusionSettings", "Prediction"]

Prediction = Literal["noise", "v"]
"""The target of the network: the noise (epsilon), as in the paper, or a mixture of noise and chunk, v."""


@dataclass(frozen=True, slots=True)
class DiffusionSettings(DenoiserSettings):
    """Sizes of the network, and numbers of diffusion steps; when it acts, the paper has 10 to 16 on robots.

    Attributes:
        steps: diffusion steps in training; the paper has 100.
        prediction: the target of the network, see `Prediction`.

    Raises:
        ValueError: the prediction is another word.
    """

    steps: int = 100
    prediction: Prediction = "v"

    def __post_init__(self) -> None:
        if self.prediction not in get_args(Prediction):
            raise ValueError(f"prediction is {self.prediction!r}, allowed are 'noise' and 'v'")


class DiffusionPolicy(ChunkDenoiser):
    """The network of a diffusion policy, which draws scaled chunks by DDIM.

    Args:
        size: D, number of elements of one observation's vector.
        action_size: A, number of elements of an action vector.
        execution: shape of the chunks.
        settings: sizes and numbers of steps.
        vision: as for `ChunkDenoiser`.
        vision_size: as for `ChunkDenoiser`.
    """

    def __init__(
        self,
        size: int,
        action_size: int,
        execution: ChunkExecution,
        settings: DiffusionSettings | None = None,
        vision: Mapping[str, nn.Module] | None = None,
        vision_size: int = 0,
    ) -> None:
        chosen = settings or DiffusionSettings()
        super().__init__(size, action_size, execution, chosen, vision, vision_size)
        self.predicts_noise = chosen.prediction == "noise"
        self.register_buffer("kept", _signal(chosen.steps))
        self._signal: list[float] = self.kept.tolist()
        self._times = np.linspace(chosen.steps - 1, 0, chosen.inference_steps).round().astype(int).tolist()

    def forward(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], noise: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return scaled chunks, (batch, K, A), drawn for observations (batch, H, D) from noise (batch, K, A)."""
        condition, chunk = self.condition(vectors, images), self.drawn(vectors, noise)
        for time, following in zip(self._times, [*self._times[1:], -1], strict=True):
            kept, after = self._signal[time], 1.0 if following < 0 else self._signal[following]
            predicted = self.output(chunk, condition, self._share(torch.full((1,), time)))
            if self.predicts_noise:
                clean = (chunk - math.sqrt(1 - kept) * predicted) / math.sqrt(kept)
            else:
                clean = math.sqrt(kept) * chunk - math.sqrt(1 - kept) * predicted
            clean = clean.clamp(-1.0, 1.0)
            left = (chunk - math.sqrt(kept) * clean) / math.sqrt(1 - kept)
            chunk = math.sqrt(after) * clean + math.sqrt(1 - after) * left
        return chunk

    def loss(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], chunk: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean squared error of the noise, or of v.

        Args:
            vectors: as for `forward`.
            images: as for `forward`.
            chunk: scaled, (batch, K, A).
            mask: bool (batch, K), False for steps beyond the end of an episode.
        """
        time, noise = torch.randint(0, len(self._signal), (len(chunk),)), torch.randn_like(chunk)
        kept = self.kept[time][:, None, None]
        noised = kept.sqrt() * chunk + (1 - kept).sqrt() * noise
        learned = noise if self.predicts_noise else kept.sqrt() * noise - (1 - kept).sqrt() * chunk
        predicted = self.output(noised, self.condition(vectors, images), self._share(time))
        return (predicted - learned).square()[mask].mean()

    def _share(self, time: torch.Tensor) -> torch.Tensor:
        return time / len(self._signal)


def _signal(steps: int) -> torch.Tensor:
    """Return the signal's share of the variance after each diffusion step (Nichol and Dhariwal 2021), (steps,)."""
    share = torch.cos((torch.linspace(0, 1, steps + 1) + 0.008) / 1.008 * math.pi / 2).square()
    beta = (1 - share[1:] / share[:-1]).clamp(max=0.999)
    return torch.cumprod(1 - beta, dim=0)
