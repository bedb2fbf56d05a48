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

    The positions are means under a softmax over the image (spatial softmax; Finn et al. 2016), as in Chi et al. Each
    filter's response has mean 0 and deviation 1 over an image, and each feature has over a batch: otherwise the
    positions vary by a few hundredths of the image, and the layers behind learn from the numbers beside them alone.

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
        for width, kernel in ((16, 5), (32, 3), (32, 3)):
            layers += [nn.Conv2d(before, width, kernel, 2, padding=kernel // 2), nn.GroupNorm(4, width), nn.ReLU()]
            before = width
        self.layers = nn.Sequential(*layers, nn.Conv2d(before, filters, 3, padding=1), nn.GroupNorm(filters, filters))
        self.sharpness = nn.Parameter(torch.ones(filters, 1))
        self.norm = nn.BatchNorm1d(self.size, momentum=0.02)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return features (n, F) for images (n, 3, height, width) with values from 0 to 1; in training n is above 1."""
        maps = self.layers(images - 0.5)
        share = torch.softmax(self.sharpness * maps.flatten(2), dim=2).unflatten(2, maps.shape[2:])
        y, x = (torch.linspace(-1.0, 1.0, size, device=maps.device) for size in maps.shape[2:])
        across, down = (share.sum(2) * x).sum(2), (share.sum(3) * y).sum(2)
        features: torch.Tensor = self.norm(torch.cat([across, down, (share * maps).sum((2, 3))], dim=1))
        return features


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

    The H images of a window are shifted by as much, those of other windows by other draws.
    """
    height, width = images.shape[-2:]
    most = round(_SHIFT * min(height, width))
    padded = nn.functional.pad(images.flatten(0, 1), (most,) * 4, mode="replicate").unflatten(0, images.shape[:2])
    places = torch.randint(0, 2 * most + 1, (len(images), 2), generator=generator).tolist()
    pairs = zip(padded, places, strict=True)
    return torch.stack([window[..., y : y + height, x : x + width] for window, (y, x) in pairs])
