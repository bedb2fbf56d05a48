"""The networks of online learning, in PyTorch: an actor that draws actions, and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rlenv_learn.gripper_view import GripperView
from rlenv_learn.online.settings import LOG_STD_RANGE, OnlineSettings
from rlenv_learn.policies.flat import ScaledDifferences
from rlenv_robot.adapters.flat import FlattenObservation

__all__ = ["Actor", "CriticEnsemble", "load_arrays", "module_arrays"]


class CriticEnsemble(nn.Module):
    """An ensemble of critics with layer normalisation, computed as one batch.

    Args:
        count: number of critics, E.
        inputs: length of observation and action vector together.
        hidden: units of the hidden layers.
        generator: draws the initial weights.
    """

    def __init__(self, count: int, inputs: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        self.scales, self.shifts = nn.ParameterList(), nn.ParameterList()
        for before, after in pairwise((inputs, *hidden, 1)):
            bound = before**-0.5
            self.weights.append(_uniform((count, before, after), bound, generator))
            self.biases.append(_uniform((count, 1, after), bound, generator))
        for width in hidden:
            self.scales.append(nn.Parameter(torch.ones(count, 1, width)))
            self.shifts.append(nn.Parameter(torch.zeros(count, 1, width)))

    def forward(self, critic_input: torch.Tensor, chosen: torch.Tensor | None = None) -> torch.Tensor:
        """Return values, shape (E, B).

        Args:
            critic_input: observation and action vectors, (B, inputs).
            chosen: indices of the critics to compute; None for all.
        """

        def of(parameter: torch.Tensor) -> torch.Tensor:
            return parameter if chosen is None else parameter[chosen]

        first = of(self.weights[0])
        count, inputs, width = first.shape
        # All critics get the same input, so the first layer is one matrix product.
        value = (
            (critic_input @ first.transpose(0, 1).reshape(inputs, count * width)).view(-1, count, width).transpose(0, 1)
        )
        value = value + of(self.biases[0])
        for layer in range(1, len(self.weights)):
            value = functional.layer_norm(value, value.shape[-1:]) * of(self.scales[layer - 1])
            value = torch.relu(value + of(self.shifts[layer - 1]))
            value = torch.baddbmm(of(self.biases[layer]), value, of(self.weights[layer]))
        return value[..., 0]


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator) -> nn.Parameter:
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)


class Actor(nn.Module):
    """A policy that draws action vectors from a normal distribution, through tanh.

    Args:
        flat: the vectors of observations and actions.
        settings: hidden layers, view, and initial standard deviation.
        generator: draws the initial weights.
    """

    def __init__(self, flat: FlattenObservation, settings: OnlineSettings, generator: torch.Generator) -> None:
        super().__init__()
        hidden = settings.actor_hidden
        relative_to_gripper = settings.view == "gripper" and GripperView.fits(flat)
        self.features = GripperView(flat) if relative_to_gripper else ScaledDifferences(flat)
        parts: list[nn.Module] = []
        for before, after in pairwise((self.features.size, *hidden)):
            parts += [_dense(before, after, 1.0, generator), nn.ReLU()]
        self.body = nn.Sequential(*parts)
        self.mean = _dense(hidden[-1], flat.action_size, 0.1, generator)
        # Gives the log-std; constant until the critics train it. The attribute's name is a key in learners' files.
        self.width = _dense(hidden[-1], flat.action_size, 0.0, generator)
        with torch.no_grad():
            self.width.bias.fill_(float(np.log(settings.noise)))

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the mode of the actions, vectors (B, A), for observation vectors (B, D)."""
        return torch.tanh(self.mean(self.body(self.features(vector))))

    def draw(self, vector: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw action vectors (B, A), and return them with the logarithms of their densities, (B,).

        Args:
            vector: observation vectors (B, D).
            noise: standard normal, (B, A).
        """
        hidden = self.body(self.features(vector))
        low, high = LOG_STD_RANGE
        log_std = low + (high - low) * torch.sigmoid(_logit(self.width(hidden)))
        before_tanh = self.mean(hidden) + log_std.exp() * noise
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), which does not lose digits.
        log_derivative = 2 * (np.log(2.0) - before_tanh - functional.softplus(-2 * before_tanh))
        density = -0.5 * noise.square() - log_std - 0.5 * np.log(2 * np.pi) - log_derivative
        return torch.tanh(before_tanh), density.sum(-1)


def _logit(log_std: torch.Tensor) -> torch.Tensor:
    """Return the argument at which a sigmoid over `LOG_STD_RANGE` has about this value, scaled to the slope 1."""
    low, high = LOG_STD_RANGE
    return 4 * (log_std - (low + high) / 2) / (high - low)


def _dense(inputs: int, outputs: int, share: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(_uniform((outputs, inputs), share * (3.0 / inputs) ** 0.5, generator))
        layer.bias.zero_()
    return layer


def module_arrays(module: nn.Module) -> dict[str, np.ndarray]:
    """Return a network's weights as named arrays."""
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def load_arrays(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Load the weights that `module_arrays` returned into a network, ignoring other arrays.

    Raises:
        RuntimeError: the network has other weights.
    """
    names = module.state_dict().keys()
    module.load_state_dict({name: torch.from_numpy(arrays[name]) for name in names if name in arrays})
