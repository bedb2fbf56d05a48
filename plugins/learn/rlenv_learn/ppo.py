"""Train a network by proximal policy optimisation (PPO; Schulman et al. 2017) on a native batch; needs PyTorch.

With demonstrations the policy begins as their clone, the critic learns before the policy changes, and the loss of the
policy has a term of imitation that fades (after DAPG; Rajeswaran et al. 2018, arXiv:1709.10087).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from hal import Spec
from rlenv_learn.imitation.cloning import Demonstrations, clone
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.policies.flat import ScaledDifferences
from rlenv_robot.policies.network import Activation, NetworkPolicy
from rlenv_robot.tables import BatchObservationTable
from rlenv_robot.tasks.agents import mean_reward
from rlenv_robot.tasks.task import Task
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["ImitationSettings", "PpoSettings", "improve_by_ppo", "ppo_settings", "with_advantages"]

_LAMBDA, _CLIP, _MAX_NORM = 0.95, 0.2, 0.5
_FIRST_LOG_WIDTH = -0.7
"""Logarithm of the first standard deviation of actions: half of what an action may do."""


@dataclass(frozen=True, slots=True)
class ImitationSettings:
    """The settings of a training that begins from demonstrations.

    Attributes:
        cloning: updates of 256 demonstrated steps each, before the first step in the environments.
        log_width: logarithm of the first standard deviation of actions. It is small, or else noise hides the clone.
        rate: step size of Adam for the policy at the beginning; the critic's stays that of the other settings.
        patience: share of the updates in which the critic alone learns.
        weight: weight of the imitation in the loss at the beginning: the negative log-likelihood of demonstrated
            actions, with the standard deviation of the moment.
        fading: share of the updates after which that weight has fallen to 0, linearly.
        batch: demonstrated steps in each gradient.
    """

    cloning: int = 3000
    log_width: float = -2.0
    rate: float = 3e-4
    patience: float = 0.05
    weight: float = 0.1
    fading: float = 0.5
    batch: int = 128


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
        activation: the function between layers.
        reward_scale: factor on rewards, so that a new critic is soon right.
        calm: weight of the squared difference between the actions of successive observations in the loss (Mysore et
            al. 2021, "Regularizing action policies for smooth control"), against policies that move to and fro.
        entropy: weight of the entropy of actions.
        nominal_share: share of the updates that are made on the nominal robot, before robots are drawn.
        magnified: whether policy and critic take a second, closer look at the differences of the vector
            (`rlenv_robot.policies.flat.ScaledDifferences`), as for a grasp that is decided by millimetres.
        episode: length of the episodes of the training, control periods; 0 for that of the task. Trials are as long as
            the task says.
        imitation: what holds with demonstrations in addition.
    """

    steps: int = 1_000_000
    num_envs: int = 64
    horizon: int = 32
    epochs: int = 5
    minibatch: int = 512
    discount: float = 0.97
    rate: float = 1e-3
    hidden: tuple[int, ...] = (128, 128)
    activation: Activation = "tanh"
    reward_scale: float = 0.1
    calm: float = 0.1
    entropy: float = 0.0
    nominal_share: float = 0.7
    magnified: bool = False
    episode: int = 0
    imitation: ImitationSettings = ImitationSettings()


_TABLE = PpoSettings(
    steps=500_000, epochs=4, minibatch=256, discount=0.99, activation="relu", reward_scale=0.02, calm=0.02,
    nominal_share=0.0, magnified=True, imitation=ImitationSettings(rate=1e-3),
)  # fmt: skip
"""Settings for arms at a table, tried from demonstrations; from nothing they are a start."""

_OWN_SETTINGS = {
    "so101-reach": PpoSettings(
        steps=76_800, num_envs=16, horizon=60, epochs=10, minibatch=120, discount=0.9, hidden=(64, 64),
        reward_scale=1.0,
    ),
    "so101-push": replace(_TABLE, episode=120),
    "so101-pick-place": replace(_TABLE, episode=160),
    "so101-pair-lift": replace(
        _TABLE, steps=300_000, episode=120, imitation=ImitationSettings(rate=5e-4, patience=0.1)
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


def _dense(sizes: tuple[int, ...], activation: Activation) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.Tanh() if activation == "tanh" else nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class _Vectors:
    """The vectors of policy and critic.

    Args:
        flat: the policy's.
        state: the task's privileged state, which the critic sees in addition.
        magnified: whether the differences are seen a second time, magnified.
    """

    def __init__(self, flat: FlattenObservation, state: Spec, magnified: bool) -> None:
        self.flat, self._state = flat, state
        self._closer = ScaledDifferences(flat) if magnified else None
        self.size = flat.size if self._closer is None else self._closer.size
        self.critic_size = self.size + sum(part.size for part in state)
        halves = [(np.ravel(part.high) - np.ravel(part.low)) / 2 * np.ones(part.size) for part in state]
        scale = np.concatenate(halves) if halves else np.ones(0)
        self._scale = np.where(np.isfinite(scale) & (scale > 0), scale, 1.0).astype(np.float32)

    def of(self, table: BatchObservationTable) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the vectors of policy and critic, (N, D) and (N, E)."""
        own = self.wide(torch.from_numpy(self.flat.observe(table["observation"])))
        if not len(self._state):
            return own, own
        hidden = table["extra_info"]["state"]
        parts = [np.asarray(hidden[part.name], np.float32).reshape(len(own), -1) for part in self._state]
        seen = np.concatenate(parts, axis=1) / self._scale
        return own, torch.cat([own, torch.from_numpy(np.clip(seen, -20.0, 20.0))], dim=1)

    def wide(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return vectors of ``flat`` (N, F) with the second look at their differences, if there is one, (N, D)."""
        return vectors if self._closer is None else self._closer(vectors)


def improve_by_ppo(
    envs: VectorEnvironment,
    settings: PpoSettings,
    steps: int,
    seed: int,
    nominal: VectorEnvironment | None = None,
    shown: Demonstrations | None = None,
) -> Iterator[tuple[int, NetworkPolicy, dict[str, float]]]:
    """Train from nothing, or from demonstrations; the same seed gives the same policy on the same machine.

    At the end of an episode by time the critic's estimate stands for the rewards that would have followed. PyTorch
    computes on one thread meanwhile, and its global generator stays as it was.

    Args:
        envs: with automatic resets in the same step.
        settings: of the training.
        steps: control steps of all environments together; at least one update is made.
        seed: of the network, the exploration and the episodes.
        nominal: as many environments with the nominal robot, in which the first updates are made; None for none.
        shown: demonstrations, from whose clone the training begins; None for a network of chance.

    Yields:
        With demonstrations first their clone, after 0 steps and without figures. After every update: steps so far; the
        policy, which is deterministic, the mean of the actions; and figures of the update by name: mean reward a step,
        the losses of policy and critic, the mean standard deviation of actions and the step size.

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
            learner = _Learner(envs, settings, seed, shown)
        batch = envs.num_envs * settings.horizon
        updates = max(1, steps // batch)
        first = 0 if nominal is None else round(settings.nominal_share * updates)
        if shown is not None:
            yield 0, learner.policy(), {}
        for update in range(updates):
            if update == 0 or update == first:
                learner.go_to(nominal if nominal is not None and update < first else envs, seed)
            figures = learner.update(update / updates)
            yield (update + 1) * batch, learner.policy(), figures
    finally:
        torch.set_num_threads(threads)


class _Learner:
    """Networks, optimiser and environments of one training."""

    def __init__(self, envs: VectorEnvironment, settings: PpoSettings, seed: int, shown: Demonstrations | None) -> None:
        flat = flat_for(envs.task)
        self._envs, self._settings, self._shown = envs, settings, shown
        self._vectors = _Vectors(flat, envs.task.state, settings.magnified)
        self._actor = _dense((self._vectors.size, *settings.hidden, flat.action_size), settings.activation)
        self._critic = _dense((self._vectors.critic_size, *settings.hidden, 1), settings.activation)
        with torch.no_grad():  # on average nothing moves at first
            for value in self._actor[-1].parameters():
                value.mul_(0.01)
        self._random = torch.Generator().manual_seed(seed)
        rate, width = settings.rate, _FIRST_LOG_WIDTH
        if shown is not None:
            imitation = settings.imitation
            rate, width = imitation.rate, imitation.log_width
            self._shown = shown = replace(shown, vectors=self._vectors.wide(shown.vectors))
            clone(self._actor, shown, imitation.cloning, self._random)
        self._width = nn.Parameter(torch.full((flat.action_size,), width))
        policy, critic = [*self._actor.parameters(), self._width], [*self._critic.parameters()]
        self._weights, self._rates = [*policy, *critic], (rate, settings.rate)
        self._optimizer = torch.optim.Adam([{"params": policy}, {"params": critic}])
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
        magnified = ScaledDifferences.MAGNIFIED if self._settings.magnified else 0.0
        name, robot = self._envs.task.name, self._envs.batch.spec
        return NetworkPolicy(layers, self._vectors.flat, name, robot, magnified, self._settings.activation)

    def update(self, share: float) -> dict[str, float]:
        """Collect a horizon of steps, learn from it, and return figures; ``share`` of all updates were made before."""
        settings = self._settings
        losses: list[tuple[torch.Tensor, torch.Tensor]] = []
        own, whole, action, chance, after, value, advantage, lasting = self._collect()
        goal = advantage + value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * (1.0 - 0.9 * share)
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(own), generator=self._random).split(settings.minibatch):
                mean = self._actor(own[rows])
                ratio = (self._log_probability(mean, action[rows]) - chance[rows]).exp()
                gain = advantage[rows]
                loss = -torch.minimum(ratio * gain, ratio.clamp(1 - _CLIP, 1 + _CLIP) * gain).mean()
                missed = (self._critic(whole[rows])[:, 0] - goal[rows]).square().mean()
                losses.append((loss.detach(), missed.detach()))
                loss = self._policy_loss(loss, share, mean, after[rows], lasting[rows]) + 0.5 * missed
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
            "train/learning_rate": self._rates[0] * (1.0 - 0.9 * share),
        }

    def _policy_loss(
        self, loss: torch.Tensor, share: float, mean: torch.Tensor, after: torch.Tensor, lasting: torch.Tensor
    ) -> torch.Tensor:
        """Return PPO's loss of the policy with calm, entropy and imitation; 0 while the critic alone learns."""
        settings, imitation = self._settings, self._settings.imitation
        if self._shown is not None and share < imitation.patience:
            return torch.zeros(())
        if settings.calm:
            change = (mean - self._actor(after)).square().sum(-1)
            loss = loss + settings.calm * (change * lasting).mean()
        if settings.entropy:
            loss = loss - settings.entropy * self._width.sum()
        weight = 0.0 if self._shown is None else imitation.weight * (1.0 - share / imitation.fading)
        if self._shown is not None and weight > 0:
            vectors, actions = self._shown.drawn(imitation.batch, self._random)
            missed = (actions - self._actor(vectors)) / self._width.detach().exp()
            loss = loss + weight * 0.5 * missed.square().sum(-1).mean()
        return loss

    def _log_probability(self, mean: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the density of actions, but for a constant."""
        return (-0.5 * ((action - mean) / self._width.exp()).square() - self._width).sum(-1)

    def _collect(self) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return self._collected()

    def _collected(self) -> tuple[torch.Tensor, ...]:
        """Return vectors, actions, log-probabilities, next vectors, values, advantages, and whether they go on."""
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
            rows.append((own, whole, action, chance, after, value, reward, (~(late | ended)).float()))
            own, whole = after, whole_after
        self._table, self._mean_reward = table, float(np.mean(earned_of_steps))
        return with_advantages(rows, self._critic(whole)[:, 0], settings.discount, _LAMBDA)


def with_advantages(
    rows: Sequence[tuple[torch.Tensor, ...]], following: torch.Tensor, discount: float, lam: float
) -> tuple[torch.Tensor, ...]:
    """Return all steps with their advantages: how much better than the critic's estimate they went.

    Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, equation 16).

    Args:
        rows: the steps of N environments in turn; the last three of each row are the critic's estimate before the step,
            its reward, and 1 where the episode goes on after it, else 0, (N,).
        following: the critic's estimate after the last step, (N,).
        discount: of rewards, for each step.
        lam: lambda; 0 for the error of one step, 1 for the sum of all rewards.

    Returns:
        The columns of the rows, (T N, ...), with the advantage in place of the reward.
    """
    advantage, gains = torch.zeros_like(following), list[torch.Tensor]()
    for *_, value, reward, lasting in reversed(rows):
        error = reward + discount * lasting * following - value
        advantage = error + discount * lam * lasting * advantage
        gains.insert(0, advantage)
        following = value
    *others, values, _, goes_on = (torch.cat(column) for column in zip(*rows, strict=True))
    return (*others, values, torch.cat(gains), goes_on)
