"""Soft actor-critic with prior data (RLPD; Ball et al. 2023, arXiv:2302.02948) and an imitation loss, in PyTorch.

Until the policy has made `RlpdSettings.warm_up` choices, the actor only imitates demonstrations and corrections, as
HG-DAgger does (Kelly et al. 2019, arXiv:1810.02890).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rlenv_learn.gripper_view import GripperView
from rlenv_learn.online.replay import Steps
from rlenv_learn.policies.flat import ScaledDifferences
from rlenv_robot.adapters.flat import FlattenObservation

__all__ = ["Actor", "CriticEnsemble", "Improvement", "Rlpd", "RlpdSettings", "View", "load_arrays", "module_arrays"]

Improvement = Literal["gradient", "filter"]
"""Ways of learning from the critics. ``gradient``: by the gradient of their mean value (RLPD). ``filter``: by imitating
recorded steps whose actions the critics value more than the actor's own (CRR; Wang et al. 2020, arXiv:2006.15134), so
that the actor never chooses actions far from recorded ones."""

View = Literal["vector", "gripper"]
"""``vector``: the task's vector with magnified differences; ``gripper``: the vector relative to an SO-101's heading and
gripper (`rlenv_learn.gripper_view.GripperView`), or ``vector`` where the task has no such arm."""

_LOG_STD_RANGE = (-5.0, 0.0)
"""Smallest and largest log_std of actions before tanh."""

_HUBER_BETA = 0.05
"""Error of an action beyond which the imitation loss is linear."""


@dataclass(frozen=True, slots=True)
class RlpdSettings:
    """The settings of a learner; the defaults are for one processor core.

    Attributes:
        hold: control periods for which the robot holds one choice of the policy. 3 periods of an arm at 30 Hz are the
            10 Hz of HIL-SERL (Luo et al. 2024, arXiv:2410.21845).
        discount: discount factor per control period.
        critics: number of critics in the ensemble.
        subset: number of target critics drawn for each update; the smallest of their values is the target.
        hidden: units of each hidden layer of a critic.
        actor_hidden: units of each hidden layer of the actor.
        view: input of actor and critics, see `View`.
        average: share of the newest weights in the running average of the actor's weights, at each update. The averaged
            weights act, and are saved as the policy; 1 uses the newest weights.
        batch: steps in one update; half of them are demonstrations and corrections.
        rate: step size of Adam.
        target_rate: share of the critics' weights in the running average that forms the target critics, at each update
            (tau).
        ratio: updates of the critics for each choice of the policy (update-to-data ratio).
        actor_every: number of critic updates for one update of the actor.
        entropy: target entropy of actions, for each element of the action vector.
        temperature: initial weight of the entropy in the actor's loss.
        imitation: initial weight of the distance between the actor's and the demonstrated actions in the actor's loss
            (Nair et al. 2018, arXiv:1709.10089); 0 for plain RLPD.
        imitations: additional updates of the actor after each update; they only imitate demonstrations and corrections.
        imitated: number of the policy's choices over which ``imitation`` falls linearly to a tenth.
        noise: initial standard deviation of the actor's actions before tanh.
        cloning: updates that imitate the demonstrations before any other learning; 0 for random initial weights.
        improvement: how the actor learns from the critics, see `Improvement`.
        warm_up: number of the policy's choices before the actor learns from the critics; until then it only imitates.
            With None the actor never learns from the critics: the method is HG-DAgger, not RLPD.
        value_range: smallest and largest value that the rewards allow; targets are clipped to this range.
    """

    hold: int = 3
    discount: float = 0.99
    critics: int = 3
    subset: int = 2
    hidden: tuple[int, ...] = (64, 64)
    actor_hidden: tuple[int, ...] = (256, 256)
    view: View = "vector"
    average: float = 1.0
    batch: int = 256
    rate: float = 1e-3
    target_rate: float = 0.01
    ratio: float = 1.0
    actor_every: int = 1
    entropy: float = -2.0
    temperature: float = 1e-5
    imitation: float = 1.0
    imitations: int = 0
    imitated: int = 12_000
    noise: float = 0.067
    cloning: int = 2000
    improvement: Improvement = "gradient"
    warm_up: int | None = 9000
    value_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        counts = {"hold": self.hold, "critics": self.critics, "subset": self.subset, "actor_every": self.actor_every}
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, it must be at least 1")
        if self.subset > self.critics:
            raise ValueError(f"subset is {self.subset}, it must be at most critics, {self.critics}")
        if self.batch < 2 or self.batch % 2:
            raise ValueError(f"batch is {self.batch}, it must be an even number from 2, for two halves")
        if not 0 < self.average <= 1:
            raise ValueError(
                f"average is {self.average}, it must be above 0 and at most 1, which is the newest weights"
            )
        low, high = np.exp(_LOG_STD_RANGE)
        if not low < self.noise < high:
            raise ValueError(f"noise is {self.noise}, it must be above {low:.4f} and below {high:g}")
        for setting, chosen, allowed in (("view", self.view, View), ("improvement", self.improvement, Improvement)):
            if chosen not in get_args(allowed):
                raise ValueError(f"{setting} is {chosen!r}, allowed are {', '.join(map(repr, get_args(allowed)))}")
        if not 0 <= self.discount < 1:
            raise ValueError(f"discount is {self.discount}, it must be from 0 to below 1")


# -- networks ----------------------------------------------------------------------------------------------------------


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

    def __init__(self, flat: FlattenObservation, settings: RlpdSettings, generator: torch.Generator) -> None:
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
        low, high = _LOG_STD_RANGE
        log_std = low + (high - low) * torch.sigmoid(_logit(self.width(hidden)))
        before_tanh = self.mean(hidden) + log_std.exp() * noise
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), which does not lose digits.
        log_derivative = 2 * (np.log(2.0) - before_tanh - functional.softplus(-2 * before_tanh))
        density = -0.5 * noise.square() - log_std - 0.5 * np.log(2 * np.pi) - log_derivative
        return torch.tanh(before_tanh), density.sum(-1)


def _logit(log_std: torch.Tensor) -> torch.Tensor:
    """Return the argument at which a sigmoid over `_LOG_STD_RANGE` has about this value, scaled to the slope 1."""
    low, high = _LOG_STD_RANGE
    return 4 * (log_std - (low + high) / 2) / (high - low)


def _dense(inputs: int, outputs: int, share: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(_uniform((outputs, inputs), share * (3.0 / inputs) ** 0.5, generator))
        layer.bias.zero_()
    return layer


# -- learning ----------------------------------------------------------------------------------------------------------


class Rlpd:
    """Hold the actor and the critics, and update them.

    The critics are RLPD's: layer normalisation, targets from the smallest value of a drawn subset of target critics,
    many updates for each step, and batches that are half demonstrations. In addition, targets are clipped to the values
    that the rewards allow, without the entropy (as in RLPD for sparse rewards). The actor may begin as a clone, and
    imitate with or without the critics (`RlpdSettings`). Equal seeds give equal results on the same machine.

    Args:
        flat: the vectors; one action vector holds for `RlpdSettings.hold` control periods.
        settings: settings of the learner.
        seed: seed of the networks and of all draws.
    """

    def __init__(self, flat: FlattenObservation, settings: RlpdSettings, seed: int = 0) -> None:
        self.flat, self.settings, self.updates = flat, settings, 0
        self.random = torch.Generator().manual_seed(seed)
        self.actor = Actor(flat, settings, self.random)
        self.average = copy.deepcopy(self.actor)
        inputs = self.actor.features.size + flat.action_size
        self.critics = CriticEnsemble(settings.critics, inputs, settings.hidden, self.random)
        self.targets = CriticEnsemble(settings.critics, inputs, settings.hidden, self.random)
        self.targets.load_state_dict(self.critics.state_dict())
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

    def update(self, steps: Steps, demonstrated: int, act: bool = True) -> dict[str, float]:
        """Update the critics, and the actor in every `RlpdSettings.actor_every`-th call.

        Args:
            steps: the batch, B steps, demonstrations first.
            demonstrated: number of demonstrations in the batch.
            act: whether the actor learns from the critics; otherwise it only imitates.

        Returns:
            Metrics by name: the critics' loss and mean value, and the actor's metrics if it was updated.
        """
        self.updates += 1
        features = self.actor.features(steps.observation)
        value = self.critics(torch.cat([features, steps.action], dim=1))
        critic_loss = (value - self.target_values(steps)).square().mean(dim=1).sum()
        self._step(self._critic_steps, self._critic_weights, critic_loss)
        with torch.no_grad():
            torch._foreach_lerp_(self._target_weights, self._critic_weights, self.settings.target_rate)
        metrics = {"train/critic_loss": critic_loss.item() / self.settings.critics, "train/value": value.mean().item()}
        if self.updates % self.settings.actor_every == 0:
            if act and self.settings.improvement == "filter":
                metrics |= self._imitate_better(steps, demonstrated)
            elif act:
                metrics |= self._update_actor(steps, features, demonstrated)
            elif demonstrated and self.settings.imitation:
                metrics["train/imitation_loss"] = self.clone(steps.first(demonstrated))
        return metrics

    def target_values(self, steps: Steps) -> torch.Tensor:
        """Return the critics' targets, (B,): ``reward + discount * smallest next value``, clipped."""
        settings = self.settings
        with torch.no_grad():
            action, _ = self.actor.draw(steps.next_observation, self._noise(len(steps.action)))
            next_input = torch.cat([self.actor.features(steps.next_observation), action], dim=1)
            chosen = torch.randperm(settings.critics, generator=self.random)[: settings.subset]
            smallest = self.targets(next_input, chosen).amin(dim=0)
        return (steps.reward + steps.discount * smallest).clamp(*settings.value_range)

    def _update_actor(self, steps: Steps, features: torch.Tensor, demonstrated: int) -> dict[str, float]:
        settings = self.settings
        action, density = self.actor.draw(steps.observation, self._noise(len(steps.action)))
        value = self.critics(torch.cat([features, action], dim=1)).mean(dim=0)
        temperature = self.log_temperature.detach().exp()
        loss = (temperature * density - value).mean()
        metrics = {"train/policy_loss": loss.item(), "train/entropy": -density.mean().item()}
        if settings.imitation and demonstrated:
            imitation_loss = self._imitation_loss(steps.first(demonstrated))
            share = max(0.1, 1 - 0.9 * self.updates / (settings.ratio * settings.imitated))
            loss = loss + settings.imitation * share * imitation_loss
            metrics["train/imitation_loss"] = imitation_loss.item()
        self._update_actor_weights(loss)
        surplus = -density.detach().mean() - settings.entropy * action.shape[1]
        self._step(self._temperature_steps, [self.log_temperature], self.log_temperature * surplus)
        return metrics | {"train/temperature": self.log_temperature.exp().item()}

    def better(self, steps: Steps, demonstrated: int) -> torch.Tensor:
        """Return the mask of the steps to imitate, bool (B,): demonstrations, and steps better than the actor's choice.

        A step is better if the critics' mean value of its action exceeds that of the mode of the actor's actions.

        Args:
            steps: the batch, B steps, demonstrations first.
            demonstrated: number of demonstrations in the batch.
        """
        with torch.no_grad():
            features = self.actor.features(steps.observation)
            recorded = self.critics(torch.cat([features, steps.action], dim=1)).mean(dim=0)
            chosen = self.critics(torch.cat([features, self.actor(steps.observation)], dim=1)).mean(dim=0)
        return (recorded > chosen) | (torch.arange(len(recorded)) < demonstrated)

    def _imitate_better(self, steps: Steps, demonstrated: int) -> dict[str, float]:
        better = self.better(steps, demonstrated)
        share = better[demonstrated:].float().mean().item() if demonstrated < len(better) else 0.0
        return {"train/imitation_loss": self.clone(steps.chosen(better.numpy())), "train/better_share": share}

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
