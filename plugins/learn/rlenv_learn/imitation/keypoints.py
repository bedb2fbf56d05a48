"""Find points in images with heat maps, to a fraction of a pixel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

__all__ = ["STRIDE", "KeypointNetwork", "expected_pixels", "keypoint_loss", "learn_keypoints", "vary_colours"]

STRIDE = 4
"""Distance between two cells of a heat map, in pixels."""

_OFFSET_UNIT = float(STRIDE)
"""Pixels of offset for a network output of 1."""


class KeypointNetwork(nn.Module):
    """A convolutional network that predicts, for each cell of 4 x 4 pixels, which points it contains and where.

    For each point there is a heat map, and for each cell the offset to the point (Zhou et al. 2019, "Objects as
    Points"). The point's position is the mean of the cells' predictions under the softmax of the heat map (Finn et al.
    2016, "Deep Spatial Autoencoders"), so it is differentiable and exact to a fraction of a pixel. With batch
    normalisation, a few thousand images suffice.

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
        """Return heat maps and offsets for images (batch, 3, height, width), 0 to 1, whose sizes are multiples of 4.

        Returns:
            The heat maps' logits (batch, K, h, w), and the offsets x and y from each cell's centre to the point,
            pixels, (batch, K, 2, h, w).
        """
        outputs = self.layers(image - 0.5)
        logits, offsets = outputs[:, : self.points], outputs[:, self.points :]
        return logits, _OFFSET_UNIT * offsets.unflatten(1, (self.points, 2))


def expected_pixels(logits: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the positions of points, and their confidence.

    Args:
        logits: logits of the heat maps, (batch, K, h, w).
        offsets: from the cells' centres to the points, pixels, (batch, K, 2, h, w).

    Returns:
        Positions x and y, in pixels, (batch, K, 2), where (0, 0) is the centre of the image's first pixel; and the
        largest value of the softmax, (batch, K).
    """
    share = torch.softmax(logits.flatten(2), dim=2)
    centres = _cell_centres(logits).flatten(1)
    predictions = centres + offsets.flatten(3)
    return (predictions * share[:, :, None]).sum(3), share.amax(2)


def keypoint_loss(logits: torch.Tensor, offsets: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
    """Return the loss of heat maps and offsets against true positions.

    The loss is the mean over the visible points of the sum of three terms:

    - the cross entropy between the heat map and a target that spreads the point over the four cells around it, with the
      weights of bilinear interpolation;
    - the absolute error of these cells' predictions in pixels, with the same weights;
    - half the smooth L1 loss of the expected position in pixels (``beta`` 2), a Huber loss divided by ``beta``.

    Points outside the image, or NaN, do not count.

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
    predictions = _cell_centres(logits) + offsets
    cell_error = (torch.abs(predictions - places[..., None, None]).sum(2) * target).sum((2, 3))
    position, _ = expected_pixels(logits, offsets)
    position_error = nn.functional.smooth_l1_loss(position, places, beta=2.0, reduction="none").sum(2)
    return ((cross + cell_error + 0.5 * position_error) * visible).sum() / visible.sum().clamp(min=1)


def _cell_centres(logits: torch.Tensor) -> torch.Tensor:
    """Return the pixel positions of the cells' centres, (2, h, w)."""
    y, x = (STRIDE * torch.arange(size, device=logits.device) + (STRIDE - 1) / 2 for size in logits.shape[2:])
    return torch.stack([x.expand(len(y), -1), y[:, None].expand(-1, len(x))])


def _bilinear(cells: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Return each cell's weight in a bilinear interpolation at points, (batch, K, h, w), with the sum 1.

    Args:
        cells: positions of the points, x and y in cells, (batch, K, 2).
        height: h.
        width: w.
    """

    def share(axis: int, size: int) -> torch.Tensor:
        place = cells[:, :, axis, None].clamp(0, size - 1)
        return (1 - torch.abs(torch.arange(size, device=cells.device) - place)).clamp(min=0)

    return share(1, height)[:, :, :, None] * share(0, width)[:, :, None, :]


def vary_colours(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return images with randomly changed gain, colours, sharpness and noise.

    Each image draws a gain of 0.7 to 1.3, channel gains of 0.9 to 1.1, a gamma of 0.8 to 1.25, and grey noise of up to
    0.03. In a quarter of the batches, all images are blurred over 3 x 3 pixels.

    Args:
        images: 0 to 1, (batch, 3, height, width).
        generator: random generator.
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
    """Train a network in place on images with known points, and yield the loss of every update.

    The step size rises over a twentieth of the updates and then falls to 0 by a cosine. Colours vary (`vary_colours`).
    After the last update the network is in evaluation mode.

    Args:
        network: to train.
        images: uint8, (N, height, width, 3), in memory or mapped from a file.
        pixels: the positions of the points, pixels, (N, K, 2).
        updates: number of updates.
        batch: images in each update.
        rate: largest step size of Adam with decoupled weight decay.
        seed: seed of the drawn images and of their colours.
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
