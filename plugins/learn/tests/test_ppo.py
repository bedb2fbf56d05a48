"""PPO learns, and repeats itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from rlenv_learn.policies.network import NetworkPolicy
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import task
from rlenv_robot.training.rollout import evaluate
from tests.fakes import LEVER_MJCF

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from rlenv_learn.imitation.cloning import Demonstrations  # noqa: E402
from rlenv_learn.policies.flat import FlatPolicy  # noqa: E402
from rlenv_learn.ppo import ImitationSettings, PpoLearner, PpoSettings, improve_by_ppo, ppo_settings  # noqa: E402


@pytest.mark.slow
def test_a_mujoco_model_learns_to_raise_its_tip(tmp_path: Path) -> None:
    (tmp_path / "lever.xml").write_text(LEVER_MJCF)
    name, options = str(tmp_path / "lever.xml"), {"reward_from": "tip[2]", "steps": 40}
    settings = PpoSettings(num_envs=16, horizon=20, minibatch=80, reward_scale=1.0, hidden=(32,))
    with rlenv_robot.make_vector(name, 16, seed=0, **options) as envs:
        policies = [policy for _, policy, _ in improve_by_ppo(envs, settings, 16_000, 0)]
    with rlenv_robot.make_vector(name, 16, autoreset="disabled", **options) as envs:
        first, last = (np.mean([one.total for one in evaluate(envs, policies[n], 5)]) for n in (0, -1))
    assert last > first + 1


@pytest.mark.parametrize("name", ["go2-walk", "so101-pair-lift", "so101-reach"])
def test_the_same_seed_gives_the_same_policy_and_leaves_the_generators_alone(name: str) -> None:
    settings = replace(ppo_settings(task(name)), num_envs=4, horizon=10, minibatch=20, epochs=2)
    weights = []
    torch.manual_seed(11)
    before = torch.get_rng_state()
    for seed in (7, 7, 8):
        with rlenv_robot.make_vector(name, 4, seed=seed) as envs:
            updates = list(improve_by_ppo(envs, settings, 80, seed))
        assert [steps for steps, *_ in updates] == [40, 80]
        metrics = updates[0][2]
        assert metrics["train/learning_rate"] == settings.rate
        assert metrics["train/action_std"] == pytest.approx(np.exp(-0.7), rel=0.1)
        assert all(np.isfinite(value) for value in metrics.values())
        weights.append(np.concatenate([part.ravel() for layer in updates[-1][1].layers for part in layer]))
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])
    assert torch.equal(before, torch.get_rng_state())


def weights_of(policy: NetworkPolicy) -> np.ndarray:
    return np.concatenate([part.ravel() for layer in policy.layers for part in layer])


def test_demonstrations_give_the_start_and_the_critic_learns_before_the_policy() -> None:
    flat, random = flat_for(task("so101-push")), torch.Generator().manual_seed(1)
    vectors = torch.randn((500, flat.size), generator=random)
    demonstrations = Demonstrations(vectors, torch.full((500, flat.action_size), 0.3))
    imitation = ImitationSettings(cloning=300, critic_only=0.5, log_std=-3.0)
    settings = PpoSettings(
        num_envs=4, horizon=10, minibatch=20, epochs=2, magnified=True, activation="relu", imitation=imitation
    )
    with rlenv_robot.make_vector("so101-push", 4, seed=0) as envs:
        updates = list(improve_by_ppo(envs, settings, 160, 0, None, demonstrations))
    assert [steps for steps, *_ in updates] == [0, 40, 80, 120, 160]
    start = updates[0][1]
    value = np.concatenate([vectors, torch.tanh(5 * vectors[:, flat.size - flat.difference_size :])], axis=1)
    for weights, bias in start.layers[:-1]:
        value = np.maximum(value @ weights + bias, 0)
    actions = value @ start.layers[-1][0] + start.layers[-1][1]
    assert np.abs(actions - 0.3).mean() < 0.05
    changed = [not np.array_equal(weights_of(start), weights_of(policy)) for _, policy, _ in updates]
    assert changed == [False, False, False, True, True]
    assert updates[1][2]["train/action_std"] == pytest.approx(np.exp(-3.0))
    assert updates[1][2]["train/learning_rate"] == imitation.rate


@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_imitation_holds_the_policy_at_the_demonstrations(weight: float) -> None:
    """The clone is barely trained, so that the term of imitation is all that pulls it to the demonstrations."""
    flat, random = flat_for(task("so101-reach")), torch.Generator().manual_seed(1)
    demonstrations = Demonstrations(
        0.3 * torch.randn((500, flat.size), generator=random), torch.full((500, flat.action_size), 0.5)
    )
    imitation = ImitationSettings(cloning=1, critic_only=0.0, weight=weight, fading=10.0)
    settings = PpoSettings(num_envs=4, horizon=10, minibatch=20, epochs=5, imitation=imitation)
    with rlenv_robot.make_vector("so101-reach", 4, seed=0) as envs:
        updates = list(improve_by_ppo(envs, settings, 200, 0, None, demonstrations))
    errors = []
    for policy in (updates[0][1], updates[-1][1]):
        value = demonstrations.vectors.numpy()
        for weights, bias in policy.layers[:-1]:
            value = np.tanh(value @ weights + bias)
        errors.append(np.abs(value @ policy.layers[-1][0] + policy.layers[-1][1] - 0.5).mean())
    assert (errors[1] < 0.5 * errors[0]) == (weight > 0)


def test_a_loop_of_ones_own_goes_on_from_a_state_and_has_the_policy_as_a_network() -> None:
    settings = PpoSettings(num_envs=4, horizon=10, minibatch=20, epochs=2, magnified=True, activation="elu")
    with rlenv_robot.make_vector("so101-push", 4, seed=0) as envs:
        first, second = (PpoLearner(envs, settings, seed) for seed in (0, 1))
        first.update(0.0)
        second.load_state_dict(first.state_dict())
        observation = envs.reset({"seed": 5})["observation"]
    policies = (first.policy(), second.policy(), FlatPolicy(second.network(), flat_for(task("so101-push"))))
    actions = [np.concatenate(list(policy.act(observation).values()), axis=-1) for policy in policies]
    np.testing.assert_array_equal(actions[0], actions[1])
    np.testing.assert_allclose(actions[0], actions[2], atol=1e-5)


@pytest.mark.parametrize(("target_kl", "factor"), [(0.0, 1.0), (1e9, 1.5**4), (1e-9, 1.5**-2)])
def test_the_step_size_follows_the_divergence_of_the_policy(target_kl: float, factor: float) -> None:
    """In the first of four gradients the policy has not moved, so that its divergence is 0."""
    settings = PpoSettings(num_envs=4, horizon=10, minibatch=20, epochs=2, target_kl=target_kl)
    with rlenv_robot.make_vector("so101-reach", 4, seed=0) as envs:
        metrics = PpoLearner(envs, settings, 0).update(0.0)
    assert metrics["train/learning_rate"] == pytest.approx(settings.rate * factor)


def test_environments_that_do_not_begin_anew_are_refused() -> None:
    with (
        rlenv_robot.make_vector("so101-reach", 2, autoreset="disabled") as envs,
        pytest.raises(ValueError, match="same_step"),
    ):
        next(improve_by_ppo(envs, PpoSettings(), 10, 0))
