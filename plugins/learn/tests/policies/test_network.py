"""The network policy: its layers, and its file. `test_feedback` has what both policies share."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from hal import RobotError
from rlenv_learn.policies.network import NetworkPolicy
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.feedback import SearchedPolicy, load_arrays, save_arrays
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.registry import task
from tests.rlenv_robot.policies.test_feedback import (  # noqa: F401
    test_a_file_gives_the_policy_back,
    test_a_population_acts_as_its_members_do_one_by_one,
    test_actions_of_any_task_are_legal,
)

NAMES = ["go2-walk", "so101-pair-lift", "so101-reach"]


def policy_of(name: str) -> NetworkPolicy:
    flat, rng = flat_for(task(name)), np.random.default_rng(0)
    sizes = (flat.size, 16, 8, flat.action_size)
    layers = [(rng.normal(size=(a, b)) * 0.3, rng.normal(size=b) * 0.1) for a, b in itertools.pairwise(sizes)]
    return NetworkPolicy(layers, flat, name)


def observations(name: str, *leading: int) -> dict[str, np.ndarray]:
    return task(name).observation.sample(np.random.default_rng(1), leading)


@pytest.fixture
def policy(request: pytest.FixtureRequest) -> SearchedPolicy:
    """Return the policy of the tests that every searched policy must pass."""
    return policy_of(request.param)


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_dense_layers_with_tanh_between(name: str) -> None:
    policy, obs = policy_of(name), observations(name, 3, 5)
    value = policy.vectors.observe(obs).astype(np.float64)
    for weights, bias in policy.layers[:-1]:
        value = np.tanh(value @ weights + bias)
    chosen = np.clip(value @ policy.layers[-1][0] + policy.layers[-1][1], -1, 1)
    expected = policy.vectors.act(chosen, obs)
    for field, action in policy.act(obs).items():
        np.testing.assert_allclose(action, expected[field], atol=1e-5)


def test_a_second_look_and_relu_compute_and_save_as_pytorch_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from rlenv_learn.policies.flat import FlatPolicy, ScaledDifferences

    flat, obs = flat_for(task("so101-push")), observations("so101-push", 7)
    closer = ScaledDifferences(flat)
    parts = [closer, torch.nn.Linear(closer.size, 9), torch.nn.ReLU(), torch.nn.Linear(9, flat.action_size)]
    layers = [(part.weight.detach().numpy().T, part.bias.detach().numpy()) for part in (parts[1], parts[3])]
    NetworkPolicy(layers, flat, "so101-push", None, ScaledDifferences.MAGNIFIED, "relu").save(tmp_path / "p.npz", {})
    expected = FlatPolicy(torch.nn.Sequential(*parts), flat).act(obs)
    policy = NetworkPolicy.load(tmp_path / "p.npz")
    np.testing.assert_allclose(policy.act(obs)["arm_target"], expected["arm_target"], atol=1e-5)
    assert policy.with_parameters(policy.parameters).activation == "relu"
    for wrong in ({"magnified": 0.0}, {"magnified": 5.0, "activation": "gelu"}):
        with pytest.raises(ValueError, match=r"numbers|gelu"):
            NetworkPolicy(layers, flat, **wrong)


def test_layers_that_do_not_fit_and_damaged_files_are_refused(tmp_path: Path) -> None:
    policy = policy_of("so101-reach")
    with pytest.raises(ValueError, match="33 numbers"):
        NetworkPolicy(policy.layers[1:], policy.vectors)
    policy.save(tmp_path / "p.npz", {})
    header, arrays = load_arrays(tmp_path / "p.npz")
    save_arrays(tmp_path / "short.npz", header, {key: value for key, value in arrays.items() if "0" not in key})
    with pytest.raises(RobotError, match="damaged"):
        load_policy(tmp_path / "short.npz")
    save_arrays(tmp_path / "other.npz", {**header, "digests": {"observation": "", "action": ""}}, arrays)
    with pytest.raises(RobotError, match="digest"):
        load_policy(tmp_path / "other.npz")
