"""Train a network by proximal policy optimisation (PPO; Schulman et al. 2017) on a native batch. Needs PyTorch.

With demonstrations, the first policy is their clone, the critic learns before the policy changes, and the policy's loss
has an imitation term that fades (after DAPG; Rajeswaran et al. 2018, arXiv:1709.10087).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from rlenv_learn.imitation.cloning import Demonstrations, clone
from rlenv_learn.policies.flat import ScaledDifferences
from rlenv_learn.policies.network import Activation, NetworkPolicy
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.tasks.agents import mean_reward
from rlenv_robot.tasks.task import Task
from rlenv_robot.vector.env import VectorEnvironment

__all__ = [
    "ImitationSettings",
    "PpoLearner",
    "PpoSettings",
    "PpoTraining",
    "improve_by_ppo",
    "ppo_settings",
    "with_advantages",
]

_LAMBDA, _CLIP = 0.95, 0.2
_INITIAL_LOG_STD = -0.7
"""Logarithm of the initial standard deviation of actions: half of an action's range."""
_LARGEST_RATE = 7e-3
"""Largest learning rate to which `PpoSettings.target_kl` adapts."""


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """The settings of a training run that begins with demonstrations.

    Attributes:
        cloning: updates with 256 demonstrated steps each, made before the first step in the environments.
        log_std: logarithm of the initial standard deviation of actions; small, so that noise does not drown the clone.
        rate: initial step size of Adam for the policy. The critic's is `PpoSettings.rate`.
        critic_only: initial share of the updates in which only the critic learns.
        weight: initial weight of the imitation term in the policy's loss: the negative log-likelihood of demonstrated
            actions under the current standard deviation.
        fading: share of the updates over which that weight falls linearly to 0.
        batch: demonstrated steps in each gradient.
    """

    cloning: int = 3000
    log_std: float = -2.0
    rate: float = 3e-4
    critic_only: float = 0.05
    weight: float = 0.1
    fading: float = 0.5
    batch: int = 128


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """The settings of a training run.

    Attributes:
        steps: total control steps of all environments, if the user gives no number.
        num_envs: environments that step together.
        horizon: steps of each environment between two updates.
        epochs: passes over the collected steps in an update.
        minibatch: steps in one gradient.
        discount: discount factor per control step.
        rate: initial step size of Adam; it falls linearly to a tenth.
        target_kl: target KL divergence between the policies before and after an update. The step size is divided by 1.5
            above twice this value and multiplied by 1.5 below half of it, instead of falling linearly (as in RSL-RL;
            Rudin et al. 2022, arXiv:2109.11978). 0 for no adaptation.
        max_norm: gradient norm beyond which gradients are clipped.
        hidden: units of each hidden layer of the policy and of the critic.
        activation: the function between layers.
        reward_scale: factor on rewards that brings returns near the scale of an untrained critic's estimates.
        state_scales: field of the task's privileged state -> the size that becomes 1 in the critic's observation. By
            default half of the field's range.
        action_smoothness: weight of the squared difference between the actions for successive observations in the loss
            (Mysore et al. 2021, "Regularizing action policies for smooth control"). It keeps targets from oscillating.
        entropy: weight of the entropy of actions.
        nominal_share: initial share of the updates that use the nominal robot, before robots are drawn.
        magnified: whether policy and critic also see the vector's differences magnified
            (`rlenv_learn.policies.flat.ScaledDifferences`), which helps with grasps that depend on millimetres.
        episode: length of training episodes, control periods; 0 for the task's length, which evaluation always uses.
        imitation: further settings for training from demonstrations.
    """

    steps: int = 1_000_000
    num_envs: int = 64
    horizon: int = 32
    epochs: int = 5
    minibatch: int = 512
    discount: float = 0.97
    rate: float = 1e-3
    target_kl: float = 0.0
    max_norm: float = 0.5
    hidden: tuple[int, ...] = (128, 128)
    activation: Activation = "tanh"
    reward_scale: float = 0.1
    state_scales: Mapping[str, float] = field(default_factory=dict)
    action_smoothness: float = 0.1
    entropy: float = 0.0
    nominal_share: float = 0.7
    magnified: bool = False
    episode: int = 0
    imitation: ImitationSettings = ImitationSettings()


_TABLE = PpoSettings(
    steps=500_000, epochs=4, minibatch=256, discount=0.99, activation="relu", reward_scale=0.02, action_smoothness=0.02,
    nominal_share=0.0, magnified=True, imitation=ImitationSettings(rate=1e-3),
)  # fmt: skip
"""Settings for arms at a table, tried with demonstrations; a starting point for training without them."""

_OWN_SETTINGS = {
    "so101-reach": PpoSettings(
        steps=76_800, num_envs=16, horizon=60, epochs=10, minibatch=120, discount=0.9, hidden=(64, 64),
        reward_scale=1.0,
    ),
    "so101-push": replace(_TABLE, episode=120),
    "so101-pick-place": replace(_TABLE, episode=160),
    "so101-pair-lift": replace(
        _TABLE, steps=300_000, episode=120, imitation=ImitationSettings(rate=5e-4, critic_only=0.1)
    ),
    "go2-walk": PpoSettings(
        steps=8_000_000, num_envs=1024, horizon=24, epochs=4, minibatch=6144, discount=0.99, hidden=(256, 128, 64),
        reward_scale=0.05, action_smoothness=0.0, entropy=0.002,
    ),
}  # fmt: skip
"""Settings that were tried with a task of this project."""


def ppo_settings(task: Task) -> PpoSettings:
    """Return the settings for a task: those tried with it, otherwise general ones."""
    return _OWN_SETTINGS.get(task.name, PpoSettings())


_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}


def _dense(sizes: tuple[int, ...], activation: Activation) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), _ACTIVATIONS[activation]()]
    return nn.Sequential(*parts[:-1])


class _Vectors:
    """The conversion of a table's observations to the vectors of policy and critic.

    Args:
        envs: environments of the task.
        settings: whether differences are magnified, and the scales of the state.
        device: device of the tensors.
    """

    def __init__(self, envs: VectorEnvironment, settings: PpoSettings, device: Any) -> None:
        self.flat, self._state, self._device = (flat := flat_for(envs.task)), (state := envs.task.state), device
        self._observe = envs.on_arrays(flat.observe)
        self._magnify = ScaledDifferences(flat) if settings.magnified else None
        self.size = flat.size if self._magnify is None else self._magnify.size
        self.critic_size = self.size + sum(part.size for part in state)
        halves = [(np.ravel(part.high) - np.ravel(part.low)) / 2 * np.ones(part.size) for part in state]
        for place, part in enumerate(state):
            if part.name in settings.state_scales:
                halves[place] = np.full(part.size, settings.state_scales[part.name])
        scale = np.concatenate(halves) if halves else np.ones(0)
        scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0).astype(np.float32)
        self._scale = torch.from_numpy(scale).to(device)

    def of(self, table: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the observations of policy and critic, (N, D) and (N, E)."""
        actor_obs = self.magnified(torch.as_tensor(self._observe(table["observation"])))
        if not len(self._state):
            return actor_obs, actor_obs
        state = table["extra_info"]["state"]
        parts = [torch.as_tensor(state[part.name]).float().reshape(len(actor_obs), -1) for part in self._state]
        scaled = (torch.cat(parts, dim=1) / self._scale).clamp(-20.0, 20.0)
        return actor_obs, torch.cat([actor_obs, scaled], dim=1)

    def magnified(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors of ``flat`` (N, F) with their magnified differences, if the settings ask for them, (N, D)."""
        return vectors if self._magnify is None else self._magnify(vectors)


def improve_by_ppo(
    envs: VectorEnvironment,
    settings: PpoSettings,
    steps: int,
    seed: int,
    nominal: VectorEnvironment | None = None,
    demonstrations: Demonstrations | None = None,
) -> Iterator[tuple[int, NetworkPolicy, dict[str, float]]]:
    """Train a new policy. The same seed gives the same policy on the same machine.

    PyTorch computes on one thread meanwhile, and its global random generator is left unchanged.

    Args:
        envs: environments that reset automatically in the same step.
        settings: settings of the training.
        steps: total control steps of all environments; at least one update is made.
        seed: seed of the network, the exploration and the episodes.
        nominal: equally many environments with the nominal robot, for the first updates; None for none.
        demonstrations: steps that the policy clones first; None for random initial weights.

    Yields:
        After every update: the steps so far, the deterministic policy (the mean of the actions), and the update's
        metrics by name: mean reward of a step, policy and value loss, mean standard deviation of actions, and step
        size. With demonstrations, their clone comes first, after 0 steps and without metrics.

    Raises:
        ValueError: the environments do not reset in the same step, or an action has no finite range.
    """
    yield from PpoTraining(envs, settings, steps, seed, nominal, demonstrations)


class PpoTraining:
    """Iterate over the updates of one training, whose state can be kept, so that a later training goes on from it.

    For the arguments and for what it yields see `improve_by_ppo`.

    Attributes:
        done: number of updates made.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        settings: PpoSettings,
        steps: int,
        seed: int,
        nominal: VectorEnvironment | None = None,
        demonstrations: Demonstrations | None = None,
    ) -> None:
        self._envs, self._settings, self._seed = envs, settings, seed
        self._nominal, self._demonstrations = nominal, demonstrations
        self._batch = envs.num_envs * settings.horizon
        self.updates = max(1, steps // self._batch)
        self.done = 0
        self._learner: PpoLearner | None = None
        self._restored: Mapping[str, Any] | None = None

    def state(self) -> dict[str, Any]:
        """Return the state after the newest update, as tensors, numbers and text; at least one update was made."""
        assert self._learner is not None
        learner = copy.deepcopy(self._learner.state_dict())  # the next update changes its tensors in place
        return {"updates": self.done, "learner": learner, "random": self._learner.random.get_state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on after the last update of what `state` returned for the same settings, in new episodes."""
        self._restored, self.done = state, int(state["updates"])

    def __iter__(self) -> Iterator[tuple[int, NetworkPolicy, dict[str, float]]]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield from self._train()
        finally:
            torch.set_num_threads(threads)

    def _train(self) -> Iterator[tuple[int, NetworkPolicy, dict[str, float]]]:
        settings, first = self._settings, self.done
        nominal_updates = 0 if self._nominal is None else round(settings.nominal_share * self.updates)
        if self._restored is not None:
            settings = replace(settings, imitation=replace(settings.imitation, cloning=0))
        learner = self._learner = PpoLearner(self._envs, settings, self._seed, self._demonstrations)
        if self._restored is not None:
            learner.load_state_dict(self._restored["learner"])
            learner.random.set_state(self._restored["random"])
        elif self._demonstrations is not None:
            yield 0, learner.policy(), {}
        for update in range(first, self.updates):
            if update in (first, nominal_updates):
                chosen = self._nominal if self._nominal is not None and update < nominal_updates else self._envs
                learner.reset_in(chosen, self._episodes(update, first > 0 and update == first))
            metrics = learner.update(update / self.updates)
            self.done = update + 1
            yield self.done * self._batch, learner.policy(), metrics

    def _episodes(self, update: int, restored: bool) -> int:
        """Return the seed of the episodes: one that goes on plays others than those that the training began with."""
        return int(np.random.SeedSequence((self._seed, update)).generate_state(1)[0]) if restored else self._seed


class PpoLearner:
    """Networks, optimiser and environments of one training, for a loop of your own around `update`.

    Truncated episodes are bootstrapped with the critic's estimate.

    Args:
        envs: environments that reset automatically in the same step. With tensors, everything runs on their device.
        settings: settings of the training; ``steps``, ``num_envs``, ``nominal_share`` and ``episode`` are left to the
            caller.
        seed: seed of the networks and the exploration.
        demonstrations: steps that the policy clones first; None for random initial weights.

    Attributes:
        random: the generator of the exploration and of the minibatches.

    Raises:
        ValueError: the environments do not reset in the same step, or an action has no finite range.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        settings: PpoSettings,
        seed: int,
        demonstrations: Demonstrations | None = None,
    ) -> None:
        if envs.autoreset != "same_step":
            raise ValueError(f"autoreset is {envs.autoreset!r}, PPO needs 'same_step'")
        self._envs, self._settings, self._demonstrations = envs, settings, demonstrations
        device = getattr(envs, "device", "cpu")
        self._vectors = _Vectors(envs, settings, device)
        flat = self._vectors.flat
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._actor = _dense((self._vectors.size, *settings.hidden, flat.action_size), settings.activation)
            self._critic = _dense((self._vectors.critic_size, *settings.hidden, 1), settings.activation)
        with torch.no_grad():  # on average nothing moves at first
            for value in self._actor[-1].parameters():
                value.mul_(0.01)
        self.random = torch.Generator(device).manual_seed(seed)
        rate, log_std = settings.rate, _INITIAL_LOG_STD
        if demonstrations is not None:
            imitation = settings.imitation
            rate, log_std = imitation.rate, imitation.log_std
            vectors = self._vectors.magnified(demonstrations.vectors)
            self._demonstrations = demonstrations = replace(demonstrations, vectors=vectors)
            clone(self._actor, demonstrations, imitation.cloning, self.random)
        self._actor.to(device), self._critic.to(device)
        self._log_std = nn.Parameter(torch.full((flat.action_size,), log_std, device=device))
        policy, critic = [*self._actor.parameters(), self._log_std], [*self._critic.parameters()]
        self._weights, self._rates = [*policy, *critic], (rate, settings.rate)
        self._optimizer = torch.optim.Adam([{"params": policy, "lr": rate}, {"params": critic, "lr": settings.rate}])
        self._seed = seed
        self._table: Any = None
        self._mean_reward = 0.0

    def reset_in(self, envs: VectorEnvironment, seed: int) -> None:
        """Begin new episodes in these environments, which may be the same ones."""
        self._envs, self._table = envs, envs.reset({"seed": seed})

    def network(self) -> nn.Module:
        """Return a copy of the policy's network on the CPU, from vectors of `flat_for` to action vectors."""
        actor = copy.deepcopy(self._actor).cpu()
        return nn.Sequential(ScaledDifferences(self._vectors.flat), *actor) if self._settings.magnified else actor

    def policy(self) -> NetworkPolicy:
        """Return a copy of the current policy for NumPy: the mean of the actions."""
        layers = [
            (part.weight.detach().cpu().numpy().T.copy(), part.bias.detach().cpu().numpy().copy())
            for part in self._actor
            if isinstance(part, nn.Linear)
        ]
        magnified = ScaledDifferences.MAGNIFIED if self._settings.magnified else 0.0
        name, robot = self._envs.task.name, self._envs.batch.spec
        return NetworkPolicy(layers, self._vectors.flat, name, robot, magnified, self._settings.activation)

    def update(self, progress: float) -> dict[str, float]:
        """Collect `PpoSettings.horizon` steps of each environment, and learn from them.

        Args:
            progress: share of all updates made so far, 0 to 1, which the schedules use.

        Returns:
            The update's metrics by name, as `improve_by_ppo` yields them.
        """
        settings = self._settings
        if self._table is None:
            self.reset_in(self._envs, self._seed)
        losses: list[tuple[torch.Tensor, torch.Tensor]] = []
        actor_obs, critic_obs, action, old_mean, next_obs, value, advantage, not_done = self._collect()
        returns, old_log_std = advantage + value, self._log_std.detach().clone()
        old_log_prob = _log_prob(old_mean, old_log_std, action)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = group["lr"] if settings.target_kl else rate * (1.0 - 0.9 * progress)
        for _ in range(settings.epochs):
            order = torch.randperm(len(actor_obs), generator=self.random, device=actor_obs.device)
            for rows in order.split(settings.minibatch):
                mean = self._actor(actor_obs[rows])
                if settings.target_kl:
                    self._adapt_rate(_divergence(old_mean[rows], old_log_std, mean, self._log_std))
                ratio = (_log_prob(mean, self._log_std, action[rows]) - old_log_prob[rows]).exp()
                normalised = advantage[rows]
                clipped = ratio.clamp(1 - _CLIP, 1 + _CLIP)
                policy_loss = -torch.minimum(ratio * normalised, clipped * normalised).mean()
                value_loss = (self._critic(critic_obs[rows])[:, 0] - returns[rows]).square().mean()
                losses.append((policy_loss.detach(), value_loss.detach()))
                loss = self._policy_loss(policy_loss, progress, mean, next_obs[rows], not_done[rows]) + 0.5 * value_loss
                self._optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self._weights, settings.max_norm)
                self._optimizer.step()
        mean_policy_loss, mean_value_loss = torch.tensor(losses).mean(dim=0).tolist()
        return {
            "train/reward": self._mean_reward,
            "train/policy_loss": mean_policy_loss,
            "train/value_loss": mean_value_loss,
            "train/action_std": float(self._log_std.detach().exp().mean()),
            "train/learning_rate": self._optimizer.param_groups[0]["lr"],
        }

    def _adapt_rate(self, divergence: float) -> None:
        for group in self._optimizer.param_groups:
            if divergence < self._settings.target_kl / 2 and group["lr"] < _LARGEST_RATE:
                group["lr"] *= 1.5
            elif divergence > self._settings.target_kl * 2:
                group["lr"] /= 1.5

    def _policy_loss(
        self, loss: torch.Tensor, progress: float, mean: torch.Tensor, next_obs: torch.Tensor, not_done: torch.Tensor
    ) -> torch.Tensor:
        """Return PPO's loss with action smoothness, entropy and imitation; 0 while only the critic learns."""
        settings, imitation, demonstrations = self._settings, self._settings.imitation, self._demonstrations
        if demonstrations is not None and progress < imitation.critic_only:
            return torch.zeros(())
        if settings.action_smoothness:
            change = (mean - self._actor(next_obs)).square().sum(-1)
            loss = loss + settings.action_smoothness * (change * not_done).mean()
        if settings.entropy:
            loss = loss - settings.entropy * self._log_std.sum()
        weight = 0.0 if demonstrations is None else imitation.weight * (1.0 - progress / imitation.fading)
        if demonstrations is not None and weight > 0:
            vectors, actions = demonstrations.drawn(imitation.batch, self.random)
            error = (actions - self._actor(vectors)) / self._log_std.detach().exp()
            loss = loss + weight * 0.5 * error.square().sum(-1).mean()
        return loss

    def _collect(self) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return self._collected()

    def _collected(self) -> tuple[torch.Tensor, ...]:
        """Return observations of actor and critic, actions, means, next observations, values, advantages, not done."""
        envs, settings, table = self._envs, self._settings, self._table
        act = envs.on_arrays(self._vectors.flat.act)
        actor_obs, critic_obs = self._vectors.of(table)
        rows, rewards = [], []
        for _ in range(settings.horizon):
            mean = self._actor(actor_obs)
            noise = torch.randn(mean.shape, generator=self.random, device=mean.device)
            action = mean + self._log_std.exp() * noise
            named = act(action if envs.arrays == "torch" else action.numpy(), table["observation"])
            table, reward_table = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": named})
            truncated, terminated = (torch.as_tensor(table[end]) > 0 for end in ("truncated", "terminated"))
            value = self._critic(critic_obs)[:, 0]
            # The reward of a robot whose physics failed may be no number.
            reward = torch.as_tensor(mean_reward(reward_table["reward"])).nan_to_num()
            rewards.append(reward.mean())
            scaled = settings.reward_scale * reward.float() + settings.discount * truncated * value
            next_actor_obs, next_critic_obs = self._vectors.of(table)
            not_done = (~(truncated | terminated)).float()
            rows.append((actor_obs, critic_obs, action, mean, next_actor_obs, value, scaled, not_done))
            actor_obs, critic_obs = next_actor_obs, next_critic_obs
        self._table, self._mean_reward = table, float(torch.stack(rewards).mean())
        return with_advantages(rows, self._critic(critic_obs)[:, 0], settings.discount, _LAMBDA)

    def state_dict(self) -> dict[str, Any]:
        """Return the learned state for `load_state_dict`, without episodes and random generators."""
        return {
            "actor": self._actor.state_dict(),
            "critic": self._critic.state_dict(),
            "log_std": self._log_std.detach().clone(),
            "optimizer": self._optimizer.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned for the same settings."""
        self._actor.load_state_dict(state["actor"])
        self._critic.load_state_dict(state["critic"])
        with torch.no_grad():
            self._log_std.copy_(state["log_std"])
        self._optimizer.load_state_dict(state["optimizer"])


def _log_prob(mean: torch.Tensor, log_std: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of the density of actions (N, A), but for a constant, (N,)."""
    return (-0.5 * ((action - mean) / log_std.exp()).square() - log_std).sum(-1)


def _divergence(old_mean: torch.Tensor, old_log_std: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> float:
    """Return the mean KL divergence from the old normal distributions of actions to the new ones."""
    variance_ratio = (2 * (old_log_std - log_std)).exp()
    distance = ((old_mean - mean) / log_std.exp()).square()
    divergence = 0.5 * (variance_ratio + distance - 1) + log_std - old_log_std
    return float(divergence.sum(-1).mean().detach())


def with_advantages(
    rows: Sequence[tuple[torch.Tensor, ...]], next_value: torch.Tensor, discount: float, lam: float
) -> tuple[torch.Tensor, ...]:
    """Return all steps with their generalised advantages (Schulman et al. 2016, arXiv:1506.02438, equation 16).

    Args:
        rows: the steps of N environments in order. The last three tensors of a row, each (N,), are the critic's
            estimate before the step, the reward, and not_done: 0 where the step ends the episode, else 1.
        next_value: the critic's estimate after the last step, (N,).
        discount: discount factor per step.
        lam: lambda; 0 gives the one-step temporal difference, 1 the Monte Carlo return.

    Returns:
        The columns of the rows, (T N, ...), with the advantage in place of the reward.
    """
    advantage, advantages = torch.zeros_like(next_value), list[torch.Tensor]()
    for *_, value, reward, not_done in reversed(rows):
        error = reward + discount * not_done * next_value - value
        advantage = error + discount * lam * not_done * advantage
        advantages.insert(0, advantage)
        next_value = value
    *others, values, _, not_done = (torch.cat(column) for column in zip(*rows, strict=True))
    return (*others, values, torch.cat(advantages), not_done)
