"""Make d3rlpy's offline algorithms, and read their policies as layers of a network."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from hal import RobotError
from rlenv_learn.offline.transitions import OfflineTransitions
from rlenv_learn.policies.network import Layer

__all__ = ["METHODS", "OfflineSettings", "layers_of", "offline_settings", "updates_of"]

METHODS: Mapping[str, tuple[str, str]] = {
    "awac": ("AWACConfig", "AWAC (Nair et al. 2020, arXiv:2006.09359)"),
    "bc": ("BCConfig", "behaviour cloning"),
    "cql": ("CQLConfig", "CQL (Kumar et al. 2020, arXiv:2006.04779)"),
    "iql": ("IQLConfig", "IQL (Kostrikov et al. 2021, arXiv:2110.06169)"),
    "td3bc": ("TD3PlusBCConfig", "TD3+BC (Fujimoto and Gu 2021, arXiv:2106.06860)"),
}
"""Method -> its class of settings in `d3rlpy.algos`, and its name with its source."""

_DECAY, _FORGETS = 0.999, 10
"""The moving average of the weights forgets this many updates later at first, then about a thousand updates later."""


@dataclass(frozen=True)
class OfflineSettings:
    """The settings of an offline training.

    Attributes:
        batch_size: transitions in one update.
        gamma: discount factor per step.
        n_step: steps of a transition, from 1; more of them carry late rewards back faster, but believe the recorded
            actions.
        rate: step size of the optimisers of policy and critics (Adam); ``actor_learning_rate`` and
            ``critic_learning_rate`` of the method replace it.
        hidden: units of each hidden layer (ReLU) of policy and critics.
        best: share of the episodes to learn from, those with the highest returns; with ``bc`` this is filtered cloning.
        reward_scale: factor on rewards; None divides them by their standard deviation. Temperatures of ``iql`` and
            ``awac`` and the penalty of ``cql`` are in this unit.
        normalise: whether each element of the observation vector is shifted and scaled to the data's mean and standard
            deviation, and the critics see each element of the action vector divided by its standard deviation.
        layer_norm: whether the critics' hidden layers are normalised, against values that rise without bound beyond the
            recorded actions (Ball et al. 2023, arXiv:2302.02948; Tarasov et al. 2023, arXiv:2305.09836).
        noise: standard deviation of Gaussian noise on the normalised observations of a batch, against memorising.
        method: further settings, as fields of d3rlpy's class for the method: ``expectile`` of ``IQLConfig``.
    """

    batch_size: int = 256
    gamma: float = 0.99
    n_step: int = 1
    rate: float = 3e-4
    hidden: tuple[int, ...] = (256, 256)
    best: float = 1.0
    reward_scale: float | None = None
    normalise: bool = True
    layer_norm: bool = False
    noise: float = 0.0
    method: Mapping[str, float] = dataclasses.field(default_factory=dict)


_FIXED = {"compile_graph", "batch_size", "gamma"}


def _config(method: str) -> Any:
    try:
        with redirect_stderr(io.StringIO()):  # it imports gym, which prints that nobody maintains it
            import d3rlpy
    except ImportError as error:
        raise RobotError(
            f"offline learning needs d3rlpy ({error}): pip install 'rlenv-robot[offline]', then "
            "pip install --no-deps 'd3rlpy>=2.8.1,<3' 'gym>=0.26,<0.27' (docs/trainers.md)"
        ) from error
    return getattr(d3rlpy.algos, METHODS[method][0])


def offline_settings(method: str, given: Mapping[str, Any]) -> OfflineSettings:
    """Return the settings with some values changed.

    Args:
        method: one of `METHODS`.
        given: name -> value: of `OfflineSettings`, or a number of d3rlpy's class for the method.

    Raises:
        ValueError: a name is unknown, or a value has another type; the message lists the names.
        RobotError: d3rlpy is not installed.
    """
    own = {one.name: one for one in dataclasses.fields(OfflineSettings) if one.name != "method"}
    theirs = {
        one.name: one.default
        for one in dataclasses.fields(_config(method))
        if isinstance(one.default, int | float) and one.name not in _FIXED
    }
    unknown = sorted(given.keys() - own.keys() - theirs.keys())
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no setting of {method}, allowed: {', '.join([*own, *sorted(theirs)])}")
    for name, value in given.items():
        _check(name, value, own[name].default if name in own else theirs[name])
    mine: dict[str, Any] = {
        name: tuple(value) if name == "hidden" else value for name, value in given.items() if name in own
    }
    return OfflineSettings(**mine, method={name: value for name, value in given.items() if name in theirs})


def _check(name: str, value: Any, default: Any) -> None:
    if name == "hidden":
        fits = isinstance(value, list | tuple) and all(isinstance(n, int) and n > 0 for n in value) and len(value) > 0
        expected = "a list of whole numbers above 0"
    elif isinstance(default, bool):
        fits, expected = isinstance(value, bool), "true or false"
    elif isinstance(default, int):
        fits, expected = isinstance(value, int) and not isinstance(value, bool) and value > 0, "a whole number above 0"
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        expected = "a number"
    if not fits:
        raise ValueError(f"{name} is {value!r}, expected {expected}")


def updates_of(
    method: str, data: OfflineTransitions, settings: OfflineSettings, updates: int, seed: int
) -> Iterator[tuple[int, dict[str, float], nn.Module]]:
    """Train by one of d3rlpy's algorithms; yield after each update its number, its losses and the averaged policy.

    The weights are averaged over about the last thousand updates, since the newest ones vary with the last batches.

    Args:
        method: one of `METHODS`.
        data: the transitions, whose rewards and observations are already scaled.
        settings: the settings.
        updates: number of updates.
        seed: seed of networks and batches. PyTorch's global generator is seeded.
    """
    from d3rlpy.dataset import TransitionMiniBatch

    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    algorithm = _algorithm(method, settings)
    algorithm.create_impl(data.observations.shape[1:], data.actions.shape[1])
    if settings.normalise:
        _scale_actions(algorithm, data.actions)
    if method == "awac":
        _forget_entropy(algorithm)
    average = AveragedModel(algorithm.impl.policy, multi_avg_fn=_average)
    zeros = np.zeros((settings.batch_size, data.actions.shape[1]), np.float32)  # of SARSA, which none of these is
    for update in range(1, updates + 1):
        rows = random.integers(len(data), size=settings.batch_size)
        before, after = data.observations[rows], data.next_observations[rows]
        if settings.noise:
            before = before + random.normal(0.0, settings.noise, before.shape).astype(np.float32)
        batch = TransitionMiniBatch(
            observations=before, actions=data.actions[rows], rewards=data.rewards[rows], next_observations=after,
            next_actions=zeros, terminals=data.terminals[rows], intervals=data.intervals[rows], transitions=(),
        )  # fmt: skip
        losses = algorithm.update(batch)
        average.update_parameters(algorithm.impl.policy)
        yield update, losses, average.module


def _average(averaged: list[torch.Tensor], current: list[torch.Tensor], count: torch.Tensor) -> None:
    decay = min(_DECAY, (1 + int(count)) / (_FORGETS + int(count)))
    with torch.no_grad():
        for mean, weights in zip(averaged, current, strict=True):
            mean.lerp_(weights, 1 - decay)


def _scale_actions(algorithm: Any, actions: np.ndarray) -> None:
    """Let critics see actions divided by their standard deviation, or small actions hardly change their values."""
    from d3rlpy.models.torch.encoders import VectorEncoderWithAction

    factors = torch.from_numpy(1 / np.maximum(actions.std(axis=0), 1e-2))
    for network in vars(algorithm.impl.modules).values():
        for part in network.modules() if isinstance(network, nn.Module) else ():
            if isinstance(part, VectorEncoderWithAction):
                part.register_forward_pre_hook(lambda module, given: (given[0], given[1] * factors))


def _forget_entropy(algorithm: Any) -> None:
    """Let AWAC's critics learn values alone, as the paper does; d3rlpy adds the policy's entropy with a weight of 1."""
    from d3rlpy.models.torch.parameters import get_parameter

    with torch.no_grad():
        get_parameter(algorithm.impl.modules.log_temp).fill_(-50.0)  # the logarithm of the weight


def _algorithm(method: str, settings: OfflineSettings) -> Any:
    config = _config(method)
    from d3rlpy.models.encoders import VectorEncoderFactory

    names = {one.name for one in dataclasses.fields(config)}
    policy = VectorEncoderFactory(list(settings.hidden))
    critics = VectorEncoderFactory(list(settings.hidden), use_layer_norm=settings.layer_norm)
    chosen: dict[str, Any] = {"encoder_factory": policy, "actor_encoder_factory": policy}
    chosen |= dict.fromkeys(("critic_encoder_factory", "value_encoder_factory"), critics)
    chosen |= dict.fromkeys(("learning_rate", "actor_learning_rate", "critic_learning_rate"), settings.rate)
    chosen |= {"batch_size": settings.batch_size, "gamma": settings.gamma}
    return config(**{name: value for name, value in chosen.items() if name in names} | dict(settings.method)).create()


def layers_of(policy: nn.Module, hidden: int) -> list[Layer]:
    """Return the weights and biases of a d3rlpy policy's mean action, before tanh, for `NetworkPolicy`.

    Args:
        policy: the policy's module.
        hidden: number of its hidden layers.
    """
    dense = [module for module in policy.modules() if isinstance(module, nn.Linear)][: hidden + 1]
    return [(one.weight.detach().numpy().T.copy(), one.bias.detach().numpy().copy()) for one in dense]
