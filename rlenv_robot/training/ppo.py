"""Train a network by proximal policy optimisation (PPO; Schulman et al. 2017) on a native batch; needs PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from hal import Spec
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.policies.network import NetworkPolicy
from rlenv_robot.tables import BatchObservationTable
from rlenv_robot.tasks.agents import mean_reward
from rlenv_robot.tasks.task import Task
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["PpoSettings", "improve_by_ppo", "ppo_settings"]

_LAMBDA, _CLIP, _MAX_NORM = 0.95, 0.2, 0.5
_FIRST_LOG_WIDTH = -0.7
"""Logarithm of the first standard deviation of actions: half of what an action may do."""


@dataclass(frozen=True, slots=True)
class PpoSettings:
    """The settings of a training.

    Attributes:
        steps: control steps of all environments together, unless the user says otherwise.
        num_envs: environments that step together.
        horizon: steps of each environment between two updates.
        epochs: passes over the collected steps in an update.
        minibatch: steps in one gradient.
        discount: of rewards, for each control step.
        rate: step size of Adam at the beginning; it falls linearly to a tenth at the end.
        hidden: units of each hidden layer, of policy and critic alike.
        reward_scale: factor on rewards, so that a new critic is soon right.
        calm: weight of the squared difference between the actions of successive observations in the loss (Mysore et
            al. 2021, "Regularizing action policies for smooth control"), against policies that move to and fro.
        entropy: weight of the entropy of actions.
        nominal_share: share of the updates that are made on the nominal robot, before robots are drawn.
    """

    steps: int = 1_000_000
    num_envs: int = 64
    horizon: int = 32
    epochs: int = 5
    minibatch: int = 512
    discount: float = 0.97
    rate: float = 1e-3
    hidden: tuple[int, ...] = (128, 128)
    reward_scale: float = 0.1
    calm: float = 0.1
    entropy: float = 0.0
    nominal_share: float = 0.7


_OWN_SETTINGS = {
    "so101-reach": PpoSettings(
        steps=76_800, num_envs=16, horizon=60, epochs=10, minibatch=120, discount=0.9, hidden=(64, 64),
        reward_scale=1.0,
    ),
    "go2-walk": PpoSettings(
        steps=8_000_000, num_envs=1024, horizon=24, epochs=4, minibatch=6144, discount=0.99, hidden=(256, 128, 64),
        reward_scale=0.05, calm=0.0, entropy=0.002,
    ),
}  # fmt: skip
"""Settings that were tried with a task of ours."""


def ppo_settings(task: Task) -> PpoSettings:
    """Return the settings for a task: its own where some were tried, or else general ones."""
    return _OWN_SETTINGS.get(task.name, PpoSettings())


def _dense(sizes: tuple[int, ...]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*parts[:-1])


class _Vectors:
    """The vectors of policy and critic.

    Args:
        flat: the policy's.
        state: the task's privileged state, which the critic sees in addition.
    """

    def __init__(self, flat: FlattenObservation, state: Spec) -> None:
        self.flat, self._state = flat, state
        self.critic_size = flat.size + sum(part.size for part in state)
        halves = [(np.ravel(part.high) - np.ravel(part.low)) / 2 * np.ones(part.size) for part in state]
        scale = np.concatenate(halves) if halves else np.ones(0)
        self._scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0).astype(np.float32)

    def of(self, table: BatchObservationTable) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors of policy and critic, (N, D) and (N, E)."""
        own = torch.from_numpy(self.flat.observe(table["observation"]))
        if not len(self._state):
            return own, own
        hidden = table["extra_info"]["state"]
        parts = [np.asarray(hidden[part.name], np.float32).reshape(len(own), -1) for part in self._state]
        seen = np.concatenate(parts, axis=1) / self._scale
        return own, torch.cat([own, torch.from_numpy(np.clip(seen, -20.0, 20.0))], dim=1)


def improve_by_ppo(
    envs: VectorEnvironment, settings: PpoSettings, steps: int, seed: int, nominal: VectorEnvironment | None = None
) -> Iterator[tuple[int, NetworkPolicy, dict[str, float]]]:
    """Train from nothing; the same seed gives the same steps and the same policy on the same machine.

    At the end of an episode by time the critic's estimate stands for the rewards that would have followed. PyTorch
    computes on one thread meanwhile, and its global generator stays as it was.

    Args:
        envs: with automatic resets in the same step.
        settings: of the training.
        steps: control steps of all environments together; at least one update is made.
        seed: of the network, the exploration and the episodes.
        nominal: as many environments with the nominal robot, in which the first updates are made; None for none.

    Yields:
        After every update: steps so far; the policy, which is deterministic, the mean of the actions; and figures of
        the update by name: mean reward a step, the losses of policy and critic, the mean standard deviation of actions
        and the step size.

    Raises:
        ValueError: the environments do not reset in the same step, or an action has no finite range.
    """
    if envs.autoreset != "same_step":
        raise ValueError(f"autoreset is {envs.autoreset!r}, PPO needs 'same_step'")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            learner = _Learner(envs, settings, seed)
        batch = envs.num_envs * settings.horizon
        updates = max(1, steps // batch)
        first = 0 if nominal is None else round(settings.nominal_share * updates)
        for update in range(updates):
            if update == 0 or update == first:
                learner.go_to(nominal if nominal is not None and update < first else envs, seed)
            figures = learner.update(1.0 - 0.9 * update / updates)
            yield (update + 1) * batch, learner.policy(), figures
    finally:
        torch.set_num_threads(threads)


class _Learner:
    """Networks, optimiser and environments of one training."""

    def __init__(self, envs: VectorEnvironment, settings: PpoSettings, seed: int) -> None:
        flat = flat_for(envs.task)
        self._envs, self._settings = envs, settings
        self._vectors = _Vectors(flat, envs.task.state)
        self._actor = _dense((flat.size, *settings.hidden, flat.action_size))
        self._critic = _dense((self._vectors.critic_size, *settings.hidden, 1))
        with torch.no_grad():  # on average nothing moves at first
            for value in self._actor[-1].parameters():
                value.mul_(0.01)
        self._width = nn.Parameter(torch.full((flat.action_size,), _FIRST_LOG_WIDTH))
        self._weights = [*self._actor.parameters(), self._width, *self._critic.parameters()]
        self._optimizer = torch.optim.Adam(self._weights, settings.rate)
        self._random = torch.Generator().manual_seed(seed)
        self._table: BatchObservationTable
        self._mean_reward = 0.0

    def go_to(self, envs: VectorEnvironment, seed: int) -> None:
        """Go on in other environments, whose episodes begin anew."""
        self._envs, self._table = envs, envs.reset({"seed": seed})

    def policy(self) -> NetworkPolicy:
        """Return the present policy as arrays of its own."""
        layers = [
            (part.weight.detach().numpy().T.copy(), part.bias.detach().numpy().copy())
            for part in self._actor
            if isinstance(part, nn.Linear)
        ]
        return NetworkPolicy(layers, self._vectors.flat, self._envs.task.name, self._envs.batch.spec)

    def update(self, rate: float) -> dict[str, float]:
        """Collect a horizon of steps, learn from it, and return figures; ``rate`` is a factor on the step size."""
        settings = self._settings
        losses: list[tuple[torch.Tensor, torch.Tensor]] = []
        own, whole, action, chance, value, advantage, after, lasting = self._collect()
        goal = advantage + value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        self._optimizer.param_groups[0]["lr"] = settings.rate * rate
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(own), generator=self._random).split(settings.minibatch):
                mean = self._actor(own[rows])
                ratio = (self._log_probability(mean, action[rows]) - chance[rows]).exp()
                gain = advantage[rows]
                loss = -torch.minimum(ratio * gain, ratio.clamp(1 - _CLIP, 1 + _CLIP) * gain).mean()
                missed = (self._critic(whole[rows])[:, 0] - goal[rows]).square().mean()
                losses.append((loss.detach(), missed.detach()))
                loss = loss + 0.5 * missed
                if settings.calm:
                    change = (mean - self._actor(after[rows])).square().sum(-1)
                    loss = loss + settings.calm * (change * lasting[rows]).mean()
                if settings.entropy:
                    loss = loss - settings.entropy * self._width.sum()
                self._optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self._weights, _MAX_NORM)
                self._optimizer.step()
        policy_loss, value_loss = torch.tensor(losses).mean(dim=0).tolist()
        return {
            "train/reward": self._mean_reward,
            "train/policy_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/action_std": float(self._width.detach().exp().mean()),
            "train/learning_rate": settings.rate * rate,
        }

    def _log_probability(self, mean: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the density of actions, but for a constant."""
        return (-0.5 * ((action - mean) / self._width.exp()).square() - self._width).sum(-1)

    def _collect(self) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return self._collected()

    def _collected(self) -> tuple[torch.Tensor, ...]:
        """Return vectors, actions, log-probabilities, values, advantages, next vectors, and whether these follow."""
        envs, settings, flat, table = self._envs, self._settings, self._vectors.flat, self._table
        own, whole = self._vectors.of(table)
        rows, earned_of_steps = [], []
        for _ in range(settings.horizon):
            mean = self._actor(own)
            action = mean + self._width.exp() * torch.randn(mean.shape, generator=self._random)
            chosen = flat.act(action.numpy(), table["observation"])
            table, paid = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": chosen})
            late, ended = (torch.from_numpy(table[end]) > 0 for end in ("truncated", "terminated"))
            value = self._critic(whole)[:, 0]
            # A robot whose physics failed may have earned no number.
            earned = np.nan_to_num(mean_reward(paid["reward"]))
            earned_of_steps.append(earned.mean())
            reward = settings.reward_scale * torch.from_numpy(earned).float()
            reward = reward + settings.discount * late * value
            after, whole_after = self._vectors.of(table)
            chance = self._log_probability(mean, action)
            rows.append((own, whole, action, chance, value, reward, after, (~(late | ended)).float()))
            own, whole = after, whole_after
        self._table, self._mean_reward = table, float(np.mean(earned_of_steps))
        following, advantage = self._critic(whole)[:, 0], torch.zeros(envs.num_envs)
        advantages: list[torch.Tensor] = []
        for *_, value, reward, _, lasting in reversed(rows):
            error = reward + settings.discount * lasting * following - value
            advantage = error + settings.discount * _LAMBDA * lasting * advantage
            advantages.insert(0, advantage)
            following = value
        own, whole, action, chance, value, _, after, lasting = (torch.cat(part) for part in zip(*rows, strict=True))
        return own, whole, action, chance, value, torch.cat(advantages), after, lasting
