"""Reduce images to a training's size, and turn them into features by a small convolutional network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

__all__ = ["CameraNetwork", "ImageReduction", "image_features", "shifted"]

_SHIFT = 1 / 24
"""Largest shift of images in training, as a share of the shorter side: 4 of 96 pixels (DrQ: 4 of 84; Yarats et al.
2021)."""


class ImageReduction(nn.Module):
    """Reduce images by the mean of each area, as two products of matrices, which any runtime computes in the same way.

    Args:
        shape: height and width of the images.
        size: height and width of the result.
    """

    def __init__(self, shape: tuple[int, ...], size: tuple[int, int]) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("rows", torch.from_numpy(_areas(shape[0], size[0])))
        self.register_buffer("columns", torch.from_numpy(_areas(shape[1], size[1])))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return images (..., 3, h, w) for images (..., 3, height, width), rounded, with values from 0 to 255."""
        return (self.rows @ images.float() @ self.columns.T).round()


def _areas(length: int, count: int) -> np.ndarray:
    """Return the share of each of ``length`` pixels in each of ``count`` means, (count, length)."""
    edges = np.linspace(0, length, count + 1)
    begin, end = edges[:-1, None], edges[1:, None]
    pixel = np.arange(length)
    overlap = np.minimum(end, pixel + 1) - np.maximum(begin, pixel)
    return (overlap.clip(0) / (length / count)).astype(np.float32)


class CameraNetwork(nn.Module):
    """A small convolutional network from images to features: where its filters respond, and how much.

    The positions are means under a softmax over the image (spatial softmax; Finn et al. 2016), as in Chi et al.

    Args:
        filters: number of filters of the last layer.

    Attributes:
        size: number of features.
    """

    def __init__(self, filters: int = 32) -> None:
        super().__init__()
        self.size = 3 * filters
        layers: list[nn.Module] = []
        before = 3
        for width, kernel, stride in ((16, 5, 2), (32, 3, 2), (32, 3, 2), (filters, 3, 1)):
            layers += [nn.Conv2d(before, width, kernel, stride, padding=kernel // 2), nn.GroupNorm(4, width), nn.ReLU()]
            before = width
        self.layers = nn.Sequential(*layers)
        self.sharpness = nn.Parameter(torch.ones(1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return features (n, F) for images (n, 3, height, width) with values from 0 to 1."""
        maps = self.layers(images - 0.5)
        share = torch.softmax(self.sharpness * maps.flatten(2), dim=2).unflatten(2, maps.shape[2:])
        y, x = (torch.linspace(-1.0, 1.0, size, device=maps.device) for size in maps.shape[2:])
        across, down = (share.sum(2) * x).sum(2), (share.sum(3) * y).sum(2)
        return torch.cat([across, down, maps.mean((2, 3))], dim=1)


def image_features(vision: nn.ModuleDict, images: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return features (batch, H, F) of each image field, for images (batch, H, 3, height, width).

    Args:
        vision: image field -> a network from images (n, 3, height, width) to features (n, F).
        images: the images of these fields.
    """
    return [
        network(images[name].flatten(0, 1)).unflatten(0, (-1, images[name].shape[1]))
        for name, network in vision.items()
    ]


def shifted(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return images (batch, H, 3, height, width) shifted by up to a 24th of the shorter side, with repeated borders.

    All images are shifted by as much.
    """
    height, width = images.shape[-2:]
    most = round(_SHIFT * min(height, width))
    down, across = torch.randint(0, 2 * most + 1, (2,), generator=generator).tolist()
    padded = nn.functional.pad(images.flatten(0, 1), (most,) * 4, mode="replicate")
    return padded[..., down : down + height, across : across + width].unflatten(0, images.shape[:2])
