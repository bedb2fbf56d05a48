"""Find points in images: a network whose heat maps answer where each point is, to a fraction of a pixel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

__all__ = ["STRIDE", "KeypointNetwork", "expected_pixels", "keypoint_loss", "learn_keypoints", "vary_colours"]

STRIDE = 4
"""Pixels between two cells of a heat map."""

_OFFSET_UNIT = float(STRIDE)
"""Pixels for an output of 1 of an offset."""


class KeypointNetwork(nn.Module):
    """Convolutions that answer for each cell of an image, 4 pixels wide, which points are in it and where.

    A point has a heat map, and for each cell the offset to the point (Zhou et al. 2019, "Objects as Points"). Its
    position is the mean of the cells' offers under the softmax of the heat map (Finn et al. 2016, "Deep Spatial
    Autoencoders"), so it is exact to a fraction of a pixel, and can be learned.

    Batch normalisation is what makes it learn within a few thousand images.

    Args:
        points: K, the number of points.
        width: number of filters.
    """

    def __init__(self, points: int, width: int = 24) -> None:
        super().__init__()
        convolutions = [nn.Conv2d(3, width, 2 * STRIDE, STRIDE, padding=STRIDE // 2, bias=False)]
        for reach in (1, 2, 4, 1):
            convolutions.append(nn.Conv2d(width, width, 3, padding=reach, dilation=reach, bias=False))
        layers: list[nn.Module] = []
        for convolution in convolutions:
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            layers += [convolution, nn.BatchNorm2d(width, momentum=0.05), nn.ReLU(inplace=True)]
        self.points = points
        self.layers = nn.Sequential(*layers, nn.Conv2d(width, 3 * points, 1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return heat maps and offsets of images (batch, 3, height, width), 0 to 1; the sizes are multiples of 4.

        Returns:
            The heat maps' logits (batch, K, h, w), and x and y from each cell's middle to the point, pixels,
            (batch, K, 2, h, w).
        """
        answers = self.layers(image - 0.5)
        logits, offsets = answers[:, : self.points], answers[:, self.points :]
        return logits, _OFFSET_UNIT * offsets.unflatten(1, (self.points, 2))


def expected_pixels(logits: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the positions of points, and how sure they are.

    Args:
        logits: of the heat maps, (batch, K, h, w).
        offsets: from the cells' middles to the points, pixels, (batch, K, 2, h, w).

    Returns:
        x and y, pixels, (batch, K, 2), the middle of the image's first pixel being (0, 0); and the softmax's largest
        share, (batch, K).
    """
    share = torch.softmax(logits.flatten(2), dim=2)
    middles = _cell_middles(logits).flatten(1)
    offers = middles + offsets.flatten(3)
    return (offers * share[:, :, None]).sum(3), share.amax(2)


def keypoint_loss(logits: torch.Tensor, offsets: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """Return the loss of heat maps and offsets against true positions.

    It is the cross entropy of each heat map to the four cells around the point, weighted as in bilinear interpolation,
    and the absolute errors in pixels of the expected position (a Huber loss) and of these cells' offers. Points outside
    the image, or NaN, do not count.

    Args:
        logits: as for `expected_pixels`.
        offsets: as for `expected_pixels`.
        pixels: the true positions, (batch, K, 2).
    """
    height, width = logits.shape[2:]
    cells = (pixels - (STRIDE - 1) / 2) / STRIDE
    limits = torch.tensor([width - 1, height - 1], dtype=cells.dtype, device=cells.device)
    visible = ((cells > -0.5) & (cells < limits + 0.5)).all(2)
    cells = torch.where(visible[:, :, None], cells, torch.zeros_like(cells))
    target = _bilinear(cells, height, width)
    cross = -(target * torch.log_softmax(logits.flatten(2), dim=2).unflatten(2, (height, width))).sum((2, 3))
    places = torch.where(visible[:, :, None], pixels, torch.zeros_like(pixels))
    offers = _cell_middles(logits) + offsets
    aside = (torch.abs(offers - places[..., None, None]).sum(2) * target).sum((2, 3))
    position, _ = expected_pixels(logits, offsets)
    off = nn.functional.smooth_l1_loss(position, places, beta=2.0, reduction="none").sum(2)
    return ((cross + aside + 0.5 * off) * visible).sum() / visible.sum().clamp(min=1)


def _cell_middles(logits: torch.Tensor) -> torch.Tensor:
    """Return the pixel positions of the cells' middles, (2, h, w)."""
    y, x = (STRIDE * torch.arange(size, device=logits.device) + (STRIDE - 1) / 2 for size in logits.shape[2:])
    return torch.stack([x.expand(len(y), -1), y[:, None].expand(-1, len(x))])


def _bilinear(cells: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Return the weight of each cell in an interpolation at places, (batch, K, h, w); its sum is 1.

    Args:
        cells: the places, x and y in cells, (batch, K, 2).
        height, width: h and w.
    """

    def share(axis: int, size: int) -> torch.Tensor:
        place = cells[:, :, axis, None].clamp(0, size - 1)
        return (1 - torch.abs(torch.arange(size, device=cells.device) - place)).clamp(min=0)

    return share(1, height)[:, :, :, None] * share(0, width)[:, :, None, :]


def vary_colours(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return images as cameras of other gains, colours, sharpness and noise would give them.

    Each image draws a gain of 0.7 to 1.3, gains of its channels of 0.9 to 1.1, a gamma of 0.8 to 1.25, and grey noise
    of up to 0.03; of a quarter of the batches all images are blurred by 3 x 3 pixels.

    Args:
        images: 0 to 1, (batch, 3, height, width).
        generator: of the draws.
    """

    def draw(*shape: int, low: float, high: float) -> torch.Tensor:
        return torch.rand(len(images), *shape, 1, 1, generator=generator) * (high - low) + low

    changed = (images * draw(1, low=0.7, high=1.3) * draw(3, low=0.9, high=1.1)).clamp(1e-3, 1.0)
    changed = changed ** draw(1, low=0.8, high=1.25)
    if float(torch.rand((), generator=generator)) < 0.25:
        changed = nn.functional.avg_pool2d(changed, 3, 1, 1, count_include_pad=False)
    noise = torch.randn(len(images), 1, *images.shape[2:], generator=generator) * draw(1, low=0.0, high=0.03)
    return (changed + noise).clamp(0.0, 1.0)


def learn_keypoints(
    network: KeypointNetwork,
    images: np.ndarray,
    pixels: np.ndarray,
    updates: int = 2000,
    *,
    batch: int = 16,
    rate: float = 4e-3,
    seed: int = 0,
) -> Iterator[float]:
    """Train a network on images with known points, in place, and yield the loss of every update.

    The rate of Adam rises over a twentieth of the updates and falls to 0 by a cosine. Colours vary (`vary_colours`).
    After the last update the network is in evaluation mode.

    Args:
        network: to train.
        images: uint8, (N, height, width, 3); an array on a disk will do.
        pixels: the positions of the points, (N, K, 2).
        updates: how many.
        batch: images in each.
        rate: of Adam with decoupled weight decay.
        seed: of the choice of images and of their colours.
    """
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=1e-4, fused=True)
    warm = max(1, updates // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / warm) * 0.5 * (1 + np.cos(np.pi * step / updates))
    )
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    network.train()
    for _ in range(updates):
        rows = np.sort(rng.integers(0, len(images), batch))
        image = torch.from_numpy(images[rows]).permute(0, 3, 1, 2) / 255.0
        logits, offsets = network(vary_colours(image, generator))
        loss = keypoint_loss(logits, offsets, torch.from_numpy(pixels[rows]).float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield float(loss.detach())
    network.eval()
