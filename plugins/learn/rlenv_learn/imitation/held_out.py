"""Measure the error of predicted chunks on held-out episodes, beside two predictions that need no learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

from rlenv_learn.imitation.set_windows import SetBatch, SetWindows

__all__ = ["HeldOutError", "held_out_error"]

_WINDOWS, _AT_ONCE = 512, 64
"""Largest number of windows that are predicted, and number of those predicted at once."""


class HeldOutError(NamedTuple):
    """Root mean square errors of predicted actions, in standard deviations of each element in the training data.

    Attributes:
        policy: of the policy.
        mean: of the training's mean action.
        held: of the last action, held, or of the present value of the fields that actions are counted from, whichever
            is smaller.
        windows: number of windows that were predicted.
    """

    policy: float
    mean: float
    held: float
    windows: int

    @property
    def is_better(self) -> bool:
        """Whether the policy is better than both."""
        return self.policy < min(self.mean, self.held)


def held_out_error(
    predict: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    train: SetWindows,
    test: SetWindows,
    seed: int = 0,
) -> HeldOutError:
    """Predict chunks of held-out episodes, at up to 512 steps, and return their errors.

    Args:
        predict: from observations, name -> (B, H, ...), to actions, name -> (B, K, ...).
        train: windows of the training, for the mean and the standard deviation of actions.
        test: windows of held-out episodes.
        seed: seed of the drawn steps.
    """
    mean, deviation = _figures(train)
    drawn = np.random.default_rng(seed).permutation(len(test))[:_WINDOWS]
    drawn = np.sort(drawn[(test.positions[drawn] - 1 == test.positions[drawn - 1])])  # those with a step before them
    errors: dict[str, list[torch.Tensor]] = {"policy": [], "mean": [], "last": [], "anchor": []}
    for begin in range(0, len(drawn), _AT_ONCE):
        numbers = drawn[begin : begin + _AT_ONCE]
        batch = test.at(numbers)
        wide = {name: value.numpy() for name, value in batch.observation.items()}
        predicted = {name: torch.from_numpy(np.asarray(value)) for name, value in predict(wide).items()}
        before = test.at(numbers - 1, images=False)
        actual = _joined(test, batch)
        length = actual.shape[1]
        guesses = {
            "policy": _joined(test, batch._replace(action=predicted)),
            "mean": mean.expand_as(actual),
            "last": _joined(test, before)[:, :1].expand(-1, length, -1),
            "anchor": _anchored(test, batch, before).expand(-1, length, -1),
        }
        for name, guess in guesses.items():
            errors[name].append(((guess - actual) / deviation).square()[batch.mask].mean(1))
    rms = {name: float(torch.cat(values).mean().sqrt()) for name, values in errors.items()}
    return HeldOutError(rms["policy"], rms["mean"], min(rms["last"], rms["anchor"]), len(drawn))


def _figures(train: SetWindows) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and standard deviation of the actions, (A,); an element that never changes has 1."""
    first = torch.cat([_joined(train, batch)[:, 0] for _, batch in train.blocks()]).double()
    deviation = first.std(0, correction=0)
    return first.mean(0).float(), torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)).float()


def _joined(windows: SetWindows, batch: SetBatch) -> torch.Tensor:
    """Return the actions of a batch, (B, K, A)."""
    parts = [batch.action[field.name].float() for field in windows.fields.action]
    return torch.cat([part.flatten(2) if part.ndim > 2 else part[:, :, None] for part in parts], dim=2)


def _anchored(windows: SetWindows, batch: SetBatch, before: SetBatch) -> torch.Tensor:
    """Return the present value of the fields that actions are counted from, else the last action, (B, 1, A)."""
    parts = []
    for field in windows.fields.action:
        anchor = windows.fields.anchors.get(field.name)
        value = before.action[field.name][:, 0] if anchor is None else batch.observation[anchor][:, -1]
        parts.append(value.float().reshape(len(value), -1))
    return torch.cat(parts, dim=1)[:, None]
