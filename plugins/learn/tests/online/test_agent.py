"""The updates of an online agent against values computed by hand, and against PyTorch's own distributions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional  # noqa: E402

from plugins.learn.tests.online.dial import Dial  # noqa: E402
from rlenv_learn.gripper_view import GripperView  # noqa: E402
from rlenv_learn.online.agent import OnlineAgent  # noqa: E402
from rlenv_learn.online.networks import CriticEnsemble  # noqa: E402
from rlenv_learn.online.replay import Steps, held  # noqa: E402
from rlenv_learn.online.settings import OnlineSettings  # noqa: E402
from rlenv_robot.adapters.flat import flat_for  # noqa: E402
from rlenv_robot.registry import task  # noqa: E402

FLAT = held(flat_for(Dial()), 3)
SMALL = OnlineSettings(
    critics=3, subset=2, hidden=(8, 8), actor_hidden=(8, 8), batch=4, actor_every=2, rate=0.01, target_rate=0.1
)


def _steps(count: int = 4, reward: float = 0.0, discount: float = 0.9) -> Steps:
    random = torch.Generator().manual_seed(3)
    vectors = [torch.randn(count, FLAT.size, generator=random) for _ in range(2)]
    action = torch.rand(count, FLAT.action_size, generator=random) * 2 - 1
    return Steps(vectors[0], action, torch.full((count,), reward), torch.full((count,), discount), vectors[1])


def _constant(critics: CriticEnsemble, value: float) -> None:
    """Make every critic give one value everywhere."""
    with torch.no_grad():
        critics.weights[-1].zero_()
        critics.biases[-1].fill_(value)


def test_critics_that_compute_together_are_those_that_compute_alone() -> None:
    critics = CriticEnsemble(3, 5, (8, 8), torch.Generator().manual_seed(0))
    both = torch.randn(6, 5)
    together = critics(both)
    for number in range(3):
        value = both
        for layer in range(2):
            value = value @ critics.weights[layer][number] + critics.biases[layer][number]
            shape = value.shape[-1:]
            value = functional.layer_norm(
                value, shape, critics.scales[layer][number, 0], critics.shifts[layer][number, 0]
            ).relu()
        value = value @ critics.weights[2][number] + critics.biases[2][number]
        torch.testing.assert_close(together[number], value[:, 0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(critics(both, torch.tensor([2, 0])), together[[2, 0]])


def test_a_drawn_action_has_the_density_of_a_normal_bent_by_tanh() -> None:
    actor, noise = OnlineAgent(FLAT, SMALL).actor, torch.randn(5, FLAT.action_size)
    vector = torch.randn(5, FLAT.size)
    zero, shifted = actor.draw(vector, torch.zeros_like(noise))[0], actor.draw(vector, torch.ones_like(noise))[0]
    mean, width = zero.atanh(), shifted.atanh() - zero.atanh()
    action, density = actor.draw(vector, noise)
    torch.testing.assert_close(action, (mean + width * noise).tanh(), rtol=1e-4, atol=1e-5)
    bent = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, width), torch.distributions.TanhTransform(cache_size=1)
    )
    torch.testing.assert_close(density, bent.log_prob(action).sum(-1), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(actor(vector), zero)


@pytest.mark.parametrize(
    ("value", "reward", "discount", "target"), [(0.5, 0.1, 0.9, 0.55), (0.5, 0.1, 0.0, 0.1), (40.0, 2.0, 0.8, 34.0)]
)
def test_a_target_is_the_reward_and_the_discounted_next_value_without_entropy(
    value: float, reward: float, discount: float, target: float
) -> None:
    agent = OnlineAgent(FLAT, SMALL)
    _constant(agent.targets, value)
    torch.testing.assert_close(agent.target_values(_steps(4, reward, discount)), torch.full((4,), target))


def test_a_target_is_the_least_of_the_drawn_critics() -> None:
    agent = OnlineAgent(FLAT, SMALL)
    _constant(agent.targets, 0.0)
    with torch.no_grad():
        agent.targets.biases[-1][:, 0, 0] = torch.tensor([0.2, 0.4, 0.8])
    targets = {round(float(agent.target_values(_steps(discount=1.0))[0]), 3) for _ in range(40)}
    assert targets == {0.2, 0.4}  # the least of any two of three


def test_the_first_update_moves_a_constant_critic_by_the_step_size_and_its_target_by_a_share() -> None:
    agent = OnlineAgent(FLAT, SMALL)
    _constant(agent.critics, 0.3)
    _constant(agent.targets, 0.3)
    metrics = agent.update(_steps(reward=0.5, discount=0.0))
    assert metrics["train/critic_loss"] == pytest.approx(0.04)
    assert metrics["train/value"] == pytest.approx(0.3)
    # Adam's first step has the length of the step size; the gradient 2 (0.3 - 0.5) asks for more.
    moved = torch.full((3, 1, 1), 0.3 + SMALL.rate)
    torch.testing.assert_close(agent.critics.biases[-1].detach(), moved)
    share = 0.3 + SMALL.target_rate * SMALL.rate
    torch.testing.assert_close(agent.targets.biases[-1].detach(), torch.full((3, 1, 1), share))


def test_the_actor_and_the_temperature_learn_in_every_second_update() -> None:
    agent, steps = OnlineAgent(FLAT, SMALL), _steps()
    before = agent.log_temperature.item()
    assert ["train/entropy" in agent.update(steps) for _ in range(4)] == [False, True, False, True]
    # Adam's steps have the length of the step size, while the entropy is on one side of its target.
    assert agent.log_temperature.item() == pytest.approx(before - 2 * SMALL.rate, rel=1e-3)


def test_the_temperature_rises_while_the_entropy_is_below_its_target() -> None:
    agent, steps = OnlineAgent(FLAT, replace(SMALL, entropy=5.0)), _steps()
    before = agent.log_temperature.item()
    agent.update(steps), agent.update(steps)
    assert agent.log_temperature.item() > before


def test_without_critics_an_update_imitates() -> None:
    agent, steps = OnlineAgent(FLAT, replace(SMALL, critics=0)), _steps()
    losses = [agent.update(steps)["train/imitation_loss"] for _ in range(200)]
    assert losses[-1] < 0.1 * losses[0]
    assert agent.updates == 200


def test_the_average_takes_a_share_of_the_actor_at_each_of_its_updates() -> None:
    agent, steps = OnlineAgent(FLAT, replace(SMALL, average=0.25)), _steps()
    before = [weight.detach().clone() for weight in agent.average.parameters()]
    agent.clone(steps)
    for old, weight, actor in zip(before, agent.average.parameters(), agent.actor.parameters(), strict=True):
        torch.testing.assert_close(weight, old + 0.25 * (actor - old))


def test_the_first_draws_have_the_width_of_the_setting() -> None:
    actor, vector = OnlineAgent(FLAT, replace(SMALL, noise=0.15)).actor, torch.randn(5, FLAT.size)
    drawn, _ = actor.draw(vector, torch.ones(5, FLAT.action_size))
    torch.testing.assert_close(drawn.atanh() - actor(vector).atanh(), torch.full_like(drawn, 0.15), rtol=0.1, atol=0)


def test_an_arms_actor_may_see_from_its_gripper() -> None:
    flat = held(flat_for(task("so101-pick-place")), 3)
    actor = OnlineAgent(flat, replace(SMALL, view="gripper")).actor
    assert isinstance(actor.features, GripperView)
    assert actor(torch.zeros(2, flat.size)).shape == (2, 6)


def test_cloning_brings_the_actor_to_the_demonstrated_actions() -> None:
    agent, steps = OnlineAgent(FLAT, SMALL), _steps()
    losses = [agent.clone(steps) for _ in range(300)]
    assert losses[-1] < 0.1 * losses[0]


def test_a_learner_that_goes_on_from_its_arrays_learns_what_it_would_have_learned() -> None:
    agent, steps = OnlineAgent(FLAT, SMALL, seed=1), _steps(reward=0.2)
    for _ in range(4):
        agent.update(steps)
    other = OnlineAgent(FLAT, SMALL, seed=2)
    other.load(agent.arrays())
    for one in (agent, other):
        one.update(steps), one.update(steps)
    first, second = agent.arrays(), other.arrays()
    assert first.keys() == second.keys()
    assert first["updates"] == 6
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], name)


def test_a_learner_that_only_cloned_goes_on_too() -> None:
    agent, other, steps = OnlineAgent(FLAT, SMALL, seed=1), OnlineAgent(FLAT, SMALL, seed=2), _steps(reward=0.2)
    agent.clone(steps)
    other.load(agent.arrays())
    assert [agent.clone(steps), agent.update(steps)] == [other.clone(steps), other.update(steps)]


def test_arrays_of_other_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="critics"):
        OnlineAgent(FLAT, replace(SMALL, critics=2)).load(OnlineAgent(FLAT, SMALL).arrays())


@pytest.mark.parametrize(
    "wrong",
    [{"batch": 5}, {"subset": 11}, {"hold": 0}, {"n_step": 0}, {"critics": -1}, {"discount": 1.0}, {"average": 0.0},
     {"noise": 0.006}, {"view": "top"}],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_a_wrong_setting_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        OnlineSettings(**wrong)  # type: ignore[arg-type]
