from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("d3rlpy", reason="d3rlpy is not installed")

from rlenv_learn.offline.methods import METHODS, OfflineSettings, offline_settings, updates_of  # noqa: E402
from rlenv_learn.offline.transitions import OfflineTransitions  # noqa: E402

pytestmark = [pytest.mark.tier("learning"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def random_transitions(count: int = 300) -> OfflineTransitions:
    rng = np.random.default_rng(0)

    def normal(width: int) -> np.ndarray:
        return rng.normal(size=(count, width)).astype(np.float32)

    ones = np.ones((count, 1), np.float32)
    return OfflineTransitions(normal(3), np.tanh(normal(2)), normal(1), normal(3), 0 * ones, ones)


def test_settings_of_ours_and_of_d3rlpy() -> None:
    chosen = offline_settings("iql", {"expectile": 0.9, "hidden": [8], "n_step": 3, "reward_scale": 2})
    assert (chosen.method, chosen.hidden, chosen.n_step) == ({"expectile": 0.9}, (8,), 3)
    assert offline_settings("td3bc", {}) == OfflineSettings()


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("iql", {"alpha": 2.5}),
        ("td3bc", {"expectile": 0.7}),
        ("iql", {"expectile": "high"}),
        ("iql", {"n_step": 0}),
        ("iql", {"n_step": 1.5}),
        ("iql", {"hidden": []}),
        ("iql", {"hidden": 128}),
        ("iql", {"normalise": 1}),
        ("iql", {"gamma": float("nan")}),
        ("bc", {"method": {}}),
    ],
)
def test_a_wrong_setting_is_refused_by_name(method: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        offline_settings(method, given)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_weights(method: str) -> None:
    settings = dataclasses.replace(offline_settings(method, {"hidden": (8,)}), batch_size=16)

    def weights(seed: int) -> np.ndarray:
        *_, (_, losses, policy) = updates_of(method, random_transitions(), settings, 4, seed)
        assert losses
        return np.concatenate([part.detach().numpy().ravel() for part in policy.parameters()])

    np.testing.assert_array_equal(weights(1), weights(1))
    assert (weights(1) != weights(2)).any()


def test_layers_are_normalised_in_the_critics_alone() -> None:
    """The file of a policy has dense layers only."""
    policies = []
    for layer_norm in (False, True):
        chosen = offline_settings("td3bc", {"layer_norm": layer_norm, "hidden": [8], "batch_size": 16})
        *_, (_, _, policy) = updates_of("td3bc", random_transitions(), chosen, 8, 0)
        assert not any(isinstance(part, torch.nn.LayerNorm) for part in policy.modules())
        policies.append(np.concatenate([part.detach().numpy().ravel() for part in policy.parameters()]))
    assert (policies[0] != policies[1]).any()  # the critics' values moved it otherwise


@pytest.mark.parametrize("normalise", [False, True])
def test_critics_see_actions_in_units_of_their_spread(normalise: bool) -> None:
    data = random_transitions()
    smaller = dataclasses.replace(data, actions=data.actions / 8)
    chosen = offline_settings("iql", {"normalise": normalise, "hidden": [8], "batch_size": 16})
    losses = [next(updates_of("iql", one, chosen, 1, 0))[1]["q_loss"] for one in (data, smaller)]
    assert (abs(losses[0] - losses[1]) < 1e-6) == normalise


def test_awac_learns_values_without_entropy() -> None:
    """Without rewards all values stay near 0, where d3rlpy's entropy of weight 1 leads them away."""
    data = random_transitions()
    data = dataclasses.replace(data, rewards=0 * data.rewards)
    chosen = offline_settings("awac", {"hidden": [8], "batch_size": 64, "gamma": 0.9, "rate": 1e-2, "tau": 0.5})
    for _, losses, _ in updates_of("awac", data, chosen, 60, 0):
        last = losses["critic_loss"]
    assert last < 0.1
