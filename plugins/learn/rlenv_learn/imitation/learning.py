"""Train a network of action chunks on recorded demonstrations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from recorder.json_data import JsonDict
from rlenv_learn.imitation.chunk_network import ChunkFields, Scaling
from rlenv_learn.imitation.demonstrations import INTENDED
from rlenv_learn.torch_data import TransitionDataset
from rlenv_robot.source import SourceData

_DECAY_POWER, _MOST_DECAY = 0.75, 0.9999
"""After n updates the running mean of the weights decays by ``1 - (1 + n)^-0.75``, at most 0.9999 (Chi et al. 2023)."""

__all__ = ["ChunkLearner", "ChunkModel", "learn_chunks", "load_windows"]


class ChunkModel(Protocol):
    """A network of action chunks, such as `ACT` and `DiffusionPolicy`."""

    def loss(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], chunk: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of a batch of scaled chunks, a scalar; arguments as for `ACT.loss`."""
        ...


def load_windows(
    source: SourceData, fields: ChunkFields, filters: JsonDict | None = None, by: Scaling = "deviation"
) -> tuple[JsonDict, torch.Tensor, torch.Tensor]:
    """Load all windows of recorded demonstrations into memory, and set the scales of ``fields`` from them.

    A chunk has the actions that the demonstrator intended if the record has them
    (`rlenv_learn.imitation.demonstrations`), otherwise the executed ones.

    Args:
        source: the demonstrations.
        fields: conversion of the task's fields. Its ``mean`` and ``std`` are set.
        filters: filters of `rlenv_robot.source.SourceData.sample_steps`, such as ``{"success": True}``.
        by: how actions are scaled: the network's ``SCALING``.

    Returns:
        Observations, name -> (N, H, ...); scaled chunks (N, K, A); and their masks, bool (N, K).

    Raises:
        SourceError: no window passes the filters.
    """
    execution = fields.execution
    dataset = TransitionDataset(source, {"stack": execution.history, "chunk": execution.length, **(filters or {})})
    batch = dataset[np.arange(len(dataset))]
    intended = batch.get("behaviour_chunk", {})
    action = {name: intended.get(INTENDED + name, value) for name, value in batch["action"].items()}
    relative = fields.relative(batch["observation"], action)
    fields.measure(relative, by)
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
    """Train a network, and yield the running mean of its weights, in evaluation mode, after every update.

    The step size rises over a hundredth of the updates and then falls to 0 by a cosine.

    Args:
        model: a `ChunkModel`.
        fields: the fields with which the windows were loaded.
        windows: from `load_windows`.
        updates: number of updates.
        batch: windows in each update.
        rate: largest step size of Adam with decoupled weight decay.
        seed: seed of the drawn windows.
        augment: returns an augmented batch of vectors, (batch, H, D), for example with noise added.
    """
    observations, chunks, masks = windows
    vectors, learner = fields.vectors(observations), ChunkLearner(model, updates, rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        rows = torch.randint(len(chunks), (batch,), generator=generator)
        images = fields.image_tensors(
            {name: observations[name][rows] for name in (field.name for field in fields.images)}
        )
        learner.update(augment(vectors[rows]), images, chunks[rows], masks[rows])
        yield learner.mean


class ChunkLearner:
    """Train a network, and keep the running mean of its weights.

    The step size rises over a hundredth of the updates and then falls to 0 by a cosine.

    Args:
        model: a `ChunkModel`.
        updates: number of updates.
        rate: largest step size of Adam with decoupled weight decay.

    Attributes:
        done: number of updates so far.
    """

    def __init__(self, model: nn.Module, updates: int, rate: float = 1e-3) -> None:
        self.done, self._model = 0, model.train()
        self._optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=1e-4)
        warm = max(1, updates // 100)
        self._schedule = torch.optim.lr_scheduler.LambdaLR(
            self._optimizer, lambda step: min(1.0, (step + 1) / warm) * 0.5 * (1 + math.cos(math.pi * step / updates))
        )
        self._mean = AveragedModel(model, avg_fn=_mean_weight).eval()

    @property
    def mean(self) -> nn.Module:
        """The network with the running mean of the weights, in evaluation mode."""
        return self._mean.module

    def update(
        self, vectors: torch.Tensor, images: Mapping[str, torch.Tensor], chunk: torch.Tensor, mask: torch.Tensor
    ) -> float:
        """Take one step on a batch, with the arguments of `ChunkModel.loss`, and return its loss."""
        loss = self._model.loss(vectors, images, chunk, mask)
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._schedule.step()
        self._mean.update_parameters(self._model)
        self.done += 1
        return float(loss.detach())

    def state(self) -> JsonDict:
        """Return all that `restore` needs to go on, with PyTorch's random state."""
        parts = {name: part.state_dict() for name, part in self._parts().items()}
        return {**parts, "done": self.done, "random": torch.get_rng_state()}

    def restore(self, state: JsonDict) -> None:
        """Go on from a `state`.

        Raises:
            KeyError, RuntimeError, ValueError, TypeError: it is not the state of such a network.
        """
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.done = int(state["done"])
        torch.set_rng_state(state["random"])

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self._model, "mean": self._mean, "optimizer": self._optimizer, "schedule": self._schedule,
        }  # fmt: skip


def _mean_weight(mean: torch.Tensor, weight: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return the running mean of a weight, over fewer updates at the beginning."""
    return torch.lerp(mean, weight, max(1 - _MOST_DECAY, (1.0 + float(count)) ** -_DECAY_POWER))
