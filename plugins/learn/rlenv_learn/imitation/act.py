"""ACT, action chunking with transformers (Zhao, Kumar, Levine, Finn 2023), in plain PyTorch.

ACT is a conditional variational autoencoder of action chunks. In training, an encoder maps the chunk to a latent
variable z, the style of the demonstrator, and a transformer predicts the chunk from z and the observations. The policy
uses z = 0. The paper's network has 4 and 7 layers of width 512 and chunks of 100 actions at 50 Hz; the defaults here
suit one core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from rlenv_learn.imitation.camera_network import image_features
from rlenv_learn.imitation.chunk_network import Scaling
from rlenv_learn.policies.chunks import ChunkExecution

__all__ = ["ACT", "ActSettings"]


@dataclass(frozen=True, slots=True)
class ActSettings:
    """Sizes of the network, and the weight of the regularisation.

    Attributes:
        width: elements of each token.
        heads: attention heads.
        layers: layers of the encoder of observations. The decoder and the encoder of chunks have one (the paper's code
            uses one of the seven layers of its decoder).
        latent: number of elements of z.
        feed: width of the layers between attentions, as a multiple of ``width``.
        dropout: dropout rate in training. The paper uses 0.1, which costs precision where the observation has few
            numbers.
        kl_weight: weight of the KL divergence between z and a standard normal distribution, relative to the L1 distance
            between chunks. The paper uses 10.
    """

    width: int = 96
    heads: int = 2
    layers: int = 1
    latent: int = 16
    feed: int = 2
    dropout: float = 0.0
    kl_weight: float = 10.0


class ACT(nn.Module):
    """The network of ACT, which predicts the scaled chunk of z = 0 from observations.

    Args:
        size: D, number of elements of one observation's vector.
        action_size: A, number of elements of an action vector.
        execution: shape of the chunks.
        settings: sizes of the network.
        vision: image field -> a network from images (n, 3, height, width) to features (n, F); None without images.
        vision_size: F.
    """

    SCALING: Scaling = "deviation"

    def __init__(
        self,
        size: int,
        action_size: int,
        execution: ChunkExecution,
        settings: ActSettings | None = None,
        vision: Mapping[str, nn.Module] | None = None,
        vision_size: int = 0,
    ) -> None:
        super().__init__()
        self.settings = chosen = settings or ActSettings()
        width, steps = chosen.width, execution.length
        self.vision = nn.ModuleDict(dict(vision or {}))
        self.state, self.style = nn.Linear(size, width), nn.Linear(chosen.latent, width)
        self.image_features = nn.Linear(vision_size, width) if self.vision else nn.Identity()
        tokens = 1 + execution.history * (1 + len(self.vision))
        self.places = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.steps = nn.Parameter(torch.randn(steps, width) * 0.02)
        self.encoder = nn.TransformerEncoder(_encoder_layer(chosen), chosen.layers, enable_nested_tensor=False)
        decoder = nn.TransformerDecoderLayer(
            width, chosen.heads, chosen.feed * width, chosen.dropout, batch_first=True, norm_first=True
        )
        self.decoder = nn.TransformerDecoder(decoder, 1, norm=nn.LayerNorm(width))
        self.head = nn.Linear(width, action_size)
        # Only in training: from the chunk and the newest observation to the distribution of z.
        self.chunk, self.cls = nn.Linear(action_size, width), nn.Parameter(torch.randn(2, width) * 0.02)
        self.recognition = nn.TransformerEncoder(_encoder_layer(chosen), 1, enable_nested_tensor=False)
        self.posterior = nn.Linear(width, 2 * chosen.latent)

    def forward(self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the scaled chunk for z = 0.

        Args:
            vectors: observation vectors, (batch, H, D).
            images: image field -> (batch, H, 3, height, width), 0 to 1.

        Returns:
            Shape (batch, K, A).
        """
        return self._predict(vectors, images, vectors.new_zeros(vectors.shape[0], self.settings.latent))

    def _predict(self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], style: torch.Tensor) -> torch.Tensor:
        tokens = [self.style(style)[:, None], self.state(vectors)]
        tokens += [self.image_features(features) for features in image_features(self.vision, images)]
        memory = self.encoder(torch.cat(tokens, dim=1) + self.places)
        queries = self.steps + vectors.new_zeros(vectors.shape[0], 1, 1)
        return self.head(self.decoder(queries, memory))

    def loss(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], chunk: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch, a scalar: the L1 distance between chunks plus the weighted KL divergence of z.

        Args:
            vectors: as for `forward`.
            images: as for `forward`.
            chunk: scaled, (batch, K, A).
            mask: bool (batch, K), False for steps beyond the end of an episode.
        """
        begin = torch.stack([self.cls[0].expand(len(chunk), -1), self.state(vectors[:, -1]) + self.cls[1]], dim=1)
        steps = self.chunk(chunk) + self.steps
        padding = torch.cat([mask.new_zeros(len(mask), 2), ~mask], dim=1)
        encoded = self.recognition(torch.cat([begin, steps], dim=1), src_key_padding_mask=padding)
        mean, log_variance = self.posterior(encoded[:, 0]).chunk(2, dim=1)
        style = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        distance = (self._predict(vectors, images, style) - chunk).abs()[mask].mean()
        return distance + self.settings.kl_weight * divergence


def _encoder_layer(settings: ActSettings) -> nn.Module:
    width, heads = settings.width, settings.heads
    return nn.TransformerEncoderLayer(
        width, heads, settings.feed * width, settings.dropout, batch_first=True, norm_first=True
    )
