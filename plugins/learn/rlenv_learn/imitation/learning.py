"""Train a network of chunks on recorded demonstrations: windows, updates, and the mean of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from recorder.json_data import JsonDict
from rlenv_learn.imitation.demonstrations import INTENDED
from rlenv_learn.torch_data import TransitionDataset
from rlenv_robot.policies.chunk_network import ChunkFields
from rlenv_robot.source import SourceData

_MEMORY = 0.995
"""Of the mean of weights, once it is long enough."""

__all__ = ["ChunkModel", "learn_chunks", "load_windows"]


class ChunkModel(Protocol):
    """A network of chunks, such as `ACT` and `DiffusionPolicy`."""

    def loss(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], chunk: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch of scaled chunks."""
        ...


def load_windows(
    source: SourceData, fields: ChunkFields, filters: JsonDict | None = None
) -> tuple[JsonDict, torch.Tensor, torch.Tensor]:
    """Load all windows of recorded demonstrations into memory, and measure the scales of ``fields`` by them.

    Where the record tells what the demonstrator intended (`rlenv_learn.imitation.demonstrations`), that is the
    chunk, and otherwise what was executed.

    Args:
        source: the demonstrations.
        fields: of the task; its ``mean`` and ``std`` are set.
        filters: of `rlenv_robot.source.SourceData.sample_steps`, such as ``{"success": True}``.

    Returns:
        Observations, name -> (N, H, ...); scaled chunks (N, K, A); and their masks, bool (N, K).

    Raises:
        SourceError: a filter leaves nothing.
    """
    execution = fields.execution
    dataset = TransitionDataset(source, {"stack": execution.history, "chunk": execution.length, **(filters or {})})
    batch = dataset[np.arange(len(dataset))]
    intended = batch.get("behaviour_chunk", {})
    action = {name: intended.get(INTENDED + name, value) for name, value in batch["action"].items()}
    relative = fields.relative(batch["observation"], action)
    fields.measure(relative)
    return batch["observation"], fields.scaled(relative), batch["chunk_mask"]


def learn_chunks(
    model: nn.Module,
    fields: ChunkFields,
    windows: tuple[JsonDict, torch.Tensor, torch.Tensor],
    updates: int,
    *,
    batch: int = 256,
    rate: float = 1e-3,
    seed: int = 0,
    augment: Callable[[torch.Tensor], torch.Tensor] = lambda vectors: vectors,
) -> Iterator[nn.Module]:
    """Train a network, and yield the exponential mean of its weights in evaluation mode after every update.

    The rate of Adam rises over a hundredth of the updates and falls to 0 by a cosine.

    Args:
        model: a `ChunkModel`.
        fields: that made the windows.
        windows: of `load_windows`.
        updates: how many.
        batch: windows in each update.
        rate: of Adam with decoupled weight decay.
        seed: of the choice of windows.
        augment: changes the vectors of a batch (batch, H, D), such as by noise.
    """
    observations, chunks, masks = windows
    vectors = fields.vectors(observations)
    optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=1e-4)
    warm = max(1, updates // 100)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / warm) * 0.5 * (1 + np.cos(np.pi * step / updates))
    )
    mean = AveragedModel(model, avg_fn=_mean_weight).eval()
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for _ in range(updates):
        rows = torch.randint(len(chunks), (batch,), generator=generator)
        images = fields.pictures({name: observations[name][rows] for name in (field.name for field in fields.images)})
        loss = model.loss(augment(vectors[rows]), images, chunks[rows], masks[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        mean.update_parameters(model)
        yield mean.module


def _mean_weight(mean: torch.Tensor, weight: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return the exponential mean of a weight, which forgets the first ones sooner."""
    return torch.lerp(mean, weight, max(1 - _MEMORY, 9.0 / (10.0 + float(count))))
