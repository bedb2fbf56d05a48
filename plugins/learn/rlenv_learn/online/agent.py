"""An agent of online learning: soft actor-critic with prior data (RLPD), or imitation alone, in PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rlenv_learn.online.networks import Actor, CriticEnsemble
from rlenv_learn.online.replay import Steps
from rlenv_learn.online.settings import OnlineSettings
from rlenv_robot.adapters.flat import FlattenObservation

__all__ = ["OnlineAgent"]

_HUBER_BETA = 0.05
"""Error of an action beyond which the imitation loss is linear."""


class OnlineAgent:
    """Hold the actor and the critics, and update them.

    With critics this is RLPD (Ball et al. 2023, arXiv:2302.02948): layer normalisation, targets from the smallest value
    of a drawn subset of target critics, many updates for each step, and batches that are half demonstrations. The
    targets are without entropy, as in the paper's tasks with sparse rewards, so they are right for returns of several
    steps too. Without critics (`OnlineSettings.critics`) the actor only imitates. Equal seeds give equal results on the
    same machine.

    Args:
        flat: the vectors; one action vector holds for `OnlineSettings.hold` control periods.
        settings: settings of the learner.
        seed: seed of the networks and of all draws.
    """

    def __init__(self, flat: FlattenObservation, settings: OnlineSettings, seed: int = 0) -> None:
        self.flat, self.settings, self.updates = flat, settings, 0
        self.random = torch.Generator().manual_seed(seed)
        self.actor = Actor(flat, settings, self.random)
        self.average = copy.deepcopy(self.actor)
        inputs = self.actor.features.size + flat.action_size
        self.critics = CriticEnsemble(settings.critics, inputs, settings.hidden, self.random)
        self.targets = copy.deepcopy(self.critics)
        self.log_temperature = nn.Parameter(torch.tensor(float(np.log(settings.temperature))))
        self._actor_weights = list(self.actor.parameters())
        self._critic_weights = list(self.critics.parameters())
        self._average_weights = [value.detach() for value in self.average.parameters()]
        self._target_weights = [value.detach() for value in self.targets.parameters()]
        self._actor_steps = torch.optim.Adam(self._actor_weights, settings.rate, fused=True)
        self._critic_steps = torch.optim.Adam(self._critic_weights, settings.rate, fused=True)
        self._temperature_steps = torch.optim.Adam([self.log_temperature], settings.rate)
        self._fill_optimizers()

    def clone(self, steps: Steps) -> float:
        """Update the actor to imitate steps, and return the imitation loss before the update."""
        loss = self._imitation_loss(steps)
        self._update_actor_weights(loss)
        return float(loss.item())

    def _update_actor_weights(self, loss: torch.Tensor) -> None:
        self._step(self._actor_steps, self._actor_weights, loss)
        with torch.no_grad():
            torch._foreach_lerp_(self._average_weights, self._actor_weights, self.settings.average)

    def update(self, steps: Steps) -> dict[str, float]:
        """Update the critics, and actor and temperature in every `OnlineSettings.actor_every`-th call.

        Without critics the actor imitates the steps.

        Args:
            steps: the batch, B steps. With critics half of them should be demonstrations, without critics all.

        Returns:
            Metrics by name: the critics' loss and mean value, and the actor's metrics if it was updated; without
            critics the imitation loss.
        """
        self.updates += 1
        if not self.settings.critics:
            return {"train/imitation_loss": self.clone(steps)}
        features = self.actor.features(steps.observation)
        value = self.critics(torch.cat([features, steps.action], dim=1))
        critic_loss = (value - self.target_values(steps)).square().mean(dim=1).sum()
        self._step(self._critic_steps, self._critic_weights, critic_loss)
        with torch.no_grad():
            torch._foreach_lerp_(self._target_weights, self._critic_weights, self.settings.target_rate)
        metrics = {"train/critic_loss": critic_loss.item() / self.settings.critics, "train/value": value.mean().item()}
        if self.updates % self.settings.actor_every == 0:
            metrics |= self._update_actor(steps, features)
        return metrics

    def target_values(self, steps: Steps) -> torch.Tensor:
        """Return the critics' targets, (B,): ``reward + discount * smallest next value``."""
        settings = self.settings
        with torch.no_grad():
            action, _ = self.actor.draw(steps.next_observation, self._noise(len(steps.action)))
            next_input = torch.cat([self.actor.features(steps.next_observation), action], dim=1)
            chosen = torch.randperm(settings.critics, generator=self.random)[: settings.subset]
            return steps.reward + steps.discount * self.targets(next_input, chosen).amin(dim=0)

    def _update_actor(self, steps: Steps, features: torch.Tensor) -> dict[str, float]:
        action, density = self.actor.draw(steps.observation, self._noise(len(steps.action)))
        value = self.critics(torch.cat([features, action], dim=1)).mean(dim=0)
        temperature = self.log_temperature.detach().exp()
        loss = (temperature * density - value).mean()
        self._update_actor_weights(loss)
        surplus = -density.detach().mean() - self.settings.entropy * action.shape[1]
        self._step(self._temperature_steps, [self.log_temperature], self.log_temperature.exp() * surplus)
        return {
            "train/policy_loss": loss.item(),
            "train/entropy": -density.mean().item(),
            "train/temperature": self.log_temperature.exp().item(),
        }

    def _imitation_loss(self, steps: Steps) -> torch.Tensor:
        """Return the Huber loss of the mode of the actor's actions, linear beyond `_HUBER_BETA`."""
        return functional.smooth_l1_loss(self.actor(steps.observation), steps.action, beta=_HUBER_BETA)

    def _noise(self, count: int) -> torch.Tensor:
        return torch.randn((count, self.flat.action_size), generator=self.random)

    @staticmethod
    def _step(optimizer: torch.optim.Optimizer, weights: list[nn.Parameter], loss: torch.Tensor) -> None:
        # Other networks' gradients are not computed.
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
            weight.grad = gradient
        optimizer.step()

    # -- state -----------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the state of networks, optimisers and random generator as named arrays."""
        result = {"updates": np.array(self.updates), "random": self.random.get_state().numpy().copy()}
        for name, value in self._named():
            result[name] = value.detach().numpy().copy()
        return result

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the state that `arrays` returned.

        Raises:
            ValueError: the arrays belong to other settings or vectors.
        """
        for name, value in self._named():
            if name not in arrays or arrays[name].shape != tuple(value.shape):
                shape = arrays[name].shape if name in arrays else "missing"
                raise ValueError(
                    f"the learner's state does not fit: {name} is {shape}, expected {tuple(value.shape)}; use the "
                    "settings with which it was saved, or begin in another folder"
                )
        with torch.no_grad():
            for name, value in self._named():
                value.copy_(torch.from_numpy(arrays[name]))
        self.random.set_state(torch.from_numpy(arrays["random"].copy()))
        self.updates = int(arrays["updates"])

    def _fill_optimizers(self) -> None:
        """Make the state of Adam, which makes it at the first step of each weight: some weights are never stepped."""
        for optimizer, weights in self._optimizers():
            for weight in weights:
                optimizer.state[weight] = {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }

    def _optimizers(self) -> tuple[tuple[torch.optim.Optimizer, list[nn.Parameter]], ...]:
        return (
            (self._actor_steps, self._actor_weights),
            (self._critic_steps, self._critic_weights),
            (self._temperature_steps, [self.log_temperature]),
        )

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every tensor of the state."""
        modules: dict[str, nn.Module]
        modules = {"actor": self.actor, "average": self.average, "critics": self.critics, "targets": self.targets}
        for part, module in modules.items():
            for name, value in module.state_dict(keep_vars=True).items():
                yield f"{part}.{name}", value
        yield "log_temperature", self.log_temperature
        for number, (optimizer, weights) in enumerate(self._optimizers()):
            for place, weight in enumerate(weights):
                for name, value in optimizer.state[weight].items():
                    yield f"adam_{number}.{place}.{name}", value
