"""Build Tianshou's offline algorithms, each with the network to deploy."""

from __future__ import annotations

import torch
from tianshou.algorithm.algorithm_base import OfflineAlgorithm
from tianshou.algorithm.imitation.bcq import BCQ, BCQPolicy
from tianshou.algorithm.imitation.cql import CQL
from tianshou.algorithm.imitation.imitation_base import ImitationPolicy, OfflineImitationLearning
from tianshou.algorithm.imitation.td3_bc import TD3BC
from tianshou.algorithm.modelfree.ddpg import ContinuousDeterministicPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, OptimizerFactory
from tianshou.utils.net.common import MLP, Net
from tianshou.utils.net.continuous import (
    VAE,
    ContinuousActorDeterministic,
    ContinuousActorProbabilistic,
    ContinuousCritic,
    Perturbation,
)
from torch import nn

from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium import flat_spaces

__all__ = ["METHODS", "LikeliestBest", "MLPWithState", "offline_agent"]

METHODS = ("bc", "td3bc", "bcq", "cql")
_LARGE = (128, 128)
_SMALL = (64, 64)
"""Hidden layers for cloning; layers of 256 memorised the noise of ten thousand actions (docs/trainers.md)."""


def offline_agent(
    method: str, flat: FlattenObservation, gamma: float = 0.95, lr: float | None = None
) -> tuple[OfflineAlgorithm, nn.Module]:
    """Return an algorithm with ``update(buffer, sample_size)``, and its network from observation to action vectors.

    Args:
        method: ``bc`` (behaviour cloning), ``td3bc`` (Fujimoto and Gu 2021, arXiv:2106.06860), ``bcq`` (Fujimoto et
            al. 2018, arXiv:1812.02900) or ``cql`` (Kumar et al. 2020, arXiv:2006.04779).
        flat: the vectors of observations and actions.
        gamma: discount factor per step.
        lr: step size of all optimisers; None for 3e-4 with ``bc`` and 1e-3 with the others.

    Raises:
        ValueError: the method is unknown.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, allowed are {', '.join(METHODS)}")
    cloning = method == "bc"
    body = Net(state_shape=(flat.size,), hidden_sizes=_SMALL if cloning else _LARGE)
    both = Net(state_shape=(flat.size,), action_shape=(flat.action_size,), hidden_sizes=_LARGE, concat=True)
    optim = AdamOptimizerFactory(lr=lr or (3e-4 if cloning else 1e-3))
    values = {"critic": ContinuousCritic(preprocess_net=both), "critic_optim": optim, "gamma": gamma}
    space = {"action_space": flat_spaces(flat)[1], "action_scaling": False}
    if method == "bcq":
        return _bcq(flat, values, optim, space)
    if method == "cql":
        return _cql(flat, values, optim, space, body)
    actor = ContinuousActorDeterministic(preprocess_net=body, action_shape=(flat.action_size,))
    network = nn.Sequential(body.model, actor.last, nn.Tanh())
    if cloning:
        return OfflineImitationLearning(policy=ImitationPolicy(actor=actor, **space), optim=optim), network
    return TD3BC(policy=ContinuousDeterministicPolicy(actor=actor, **space), policy_optim=optim, **values), network


def _cql(
    flat: FlattenObservation, values: dict[str, object], optim: OptimizerFactory, space: dict[str, object], body: Net
) -> tuple[OfflineAlgorithm, nn.Module]:
    size = flat.action_size
    wide = ContinuousActorProbabilistic(
        preprocess_net=body, action_shape=(size,), unbounded=True, conditioned_sigma=True
    )
    entropy = AutoAlpha(target_entropy=-size, log_alpha=-3.0, optim=optim)
    policy = SACPolicy(actor=wide, **space)
    cql = CQL(policy=policy, policy_optim=optim, alpha=entropy, num_repeat_actions=4, **values)
    return cql, nn.Sequential(body.model, wide.mu, nn.Tanh())


def _bcq(
    flat: FlattenObservation, values: dict[str, object], optim: OptimizerFactory, space: dict[str, object]
) -> tuple[OfflineAlgorithm, nn.Module]:
    size, latents = flat.action_size, 2 * flat.action_size
    encoder = MLP(input_dim=flat.size + size, hidden_sizes=_LARGE)
    decoder = MLP(input_dim=flat.size + latents, output_dim=size, hidden_sizes=_LARGE)
    vae = VAE(encoder=encoder, decoder=decoder, hidden_dim=_LARGE[-1], latent_dim=latents, max_action=1.0)
    change = Perturbation(
        preprocess_net=MLPWithState(MLP(input_dim=flat.size + size, output_dim=size, hidden_sizes=_LARGE)),
        max_action=1.0,
    )
    policy = BCQPolicy(actor_perturbation=change, critic=values.pop("critic"), vae=vae, **space)
    bcq = BCQ(policy=policy, actor_perturbation_optim=optim, vae_optim=optim, **values)
    return bcq, LikeliestBest(policy, latents)


class MLPWithState(nn.Module):
    """A network that also returns a state, as Tianshou's `Perturbation` requires."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the network's output, and None for the state."""
        return self.inner(inputs), None


class LikeliestBest(nn.Module):
    """The deterministic policy of BCQ: the action with the highest value among ten that are likely under the data.

    The ten latent vectors are drawn once.

    Args:
        policy: the trained policy.
        latents: number of elements of a latent vector.
    """

    def __init__(self, policy: BCQPolicy, latents: int) -> None:
        super().__init__()
        self.vae, self.change, self.critic = policy.vae, policy.actor_perturbation, policy.critic
        self.register_buffer("latents", torch.randn(10, latents).clamp(-0.5, 0.5))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        """Return action vectors (batch, A) for observation vectors (batch, D)."""
        count = self.latents.shape[0]
        many = observation.repeat_interleave(count, dim=0)  # Tianshou's networks want one leading axis
        actions = self.change(many, self.vae.decode(many, self.latents.repeat(observation.shape[0], 1)))
        value = self.critic.last(self.critic.preprocess.model(torch.cat([many, actions], -1)))
        best = value.view(-1, count, 1).argmax(1, keepdim=True).expand(-1, -1, actions.shape[-1])
        return torch.gather(actions.view(-1, count, actions.shape[-1]), 1, best)[:, 0]
