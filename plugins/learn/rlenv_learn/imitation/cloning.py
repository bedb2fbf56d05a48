"""Behavioural cloning: train a network from observation vectors to a demonstrator's action vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from rlenv_learn.imitation.demonstrations import INTENDED
from rlenv_learn.torch_data import TransitionDataset
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.source import SourceData

__all__ = ["Demonstrations", "clone", "demonstrated"]

_BATCH, _RATE, _DECAY, _BETA, _NOISE = 256, 3e-3, 0.01, 0.05, 0.02


@dataclass(frozen=True)
class Demonstrations:
    """Steps of demonstrations.

    Attributes:
        vectors: observation vectors of `FlattenObservation`, float32 (N, D).
        actions: action vectors, float32 (N, A).
    """

    vectors: torch.Tensor
    actions: torch.Tensor

    def drawn(self, count: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors and actions of ``count`` steps, drawn uniformly with replacement."""
        rows = torch.randint(len(self.vectors), (count,), generator=random)
        return self.vectors[rows], self.actions[rows]


def demonstrated(source: SourceData, flat: FlattenObservation) -> Demonstrations:
    """Return the steps of all successful recorded episodes.

    The action is the one that the demonstrator intended if the record has it (`rlenv_learn.imitation.demonstrations`),
    otherwise the executed one.

    Args:
        source: recorded episodes of the task.
        flat: the task's vectors.

    Raises:
        SourceError: no episode succeeded.
    """
    dataset = TransitionDataset(source, {"chunk": 1, "success": True})
    batch = dataset[np.arange(len(dataset))]
    intended = batch.get("behaviour_chunk", {})
    observation = {name: value.numpy() for name, value in batch["observation"].items()}
    action = {name: intended.get(INTENDED + name, value)[:, 0].numpy() for name, value in batch["action"].items()}
    vectors, actions = flat.observe(observation), flat.vector_of(action, observation)
    return Demonstrations(torch.from_numpy(vectors), torch.from_numpy(actions))


def clone(network: nn.Module, demonstrations: Demonstrations, updates: int, random: torch.Generator) -> None:
    """Train a network to predict the demonstrator's actions, in place.

    The loss is the Huber loss, which is linear beyond 0.05 in units of an action vector. The optimiser is Adam with
    decoupled weight decay, whose step size falls linearly from 3e-3 to 0. Vectors get noise with a standard deviation
    of 0.02.

    Args:
        network: from observation vectors to action vectors.
        demonstrations: the steps to imitate.
        updates: number of updates, with 256 steps each.
        random: generator that draws steps and noise.
    """
    optimizer = torch.optim.AdamW(network.parameters(), _RATE, weight_decay=_DECAY)
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = _RATE * (1 - update / updates)
        vectors, actions = demonstrations.drawn(_BATCH, random)
        vectors = vectors + _NOISE * torch.randn(vectors.shape, generator=random)
        loss = nn.functional.smooth_l1_loss(network(vectors), actions, beta=_BETA)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
