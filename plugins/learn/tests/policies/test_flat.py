from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hal import RobotError
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.registry import task

torch = pytest.importorskip("torch", reason="torch is not installed")

from rlenv_learn.policies.flat import ACTIVATIONS, FlatPolicy, ScaledDifferences  # noqa: E402


@pytest.mark.parametrize("name", ["so101-push", "so101-pair-lift"])
def test_a_centimetre_between_fingers_and_thing_is_large(name: str) -> None:
    chosen = task(name)
    flat, side = flat_for(chosen), "left_" if name == "so101-pair-lift" else ""
    thing = f"{side}handle_position" if side else "cube_position"
    finer = ScaledDifferences(flat)
    obs = {field.name: np.zeros((2, *field.shape), field.numpy_dtype) for field in flat.observation}
    obs[thing][1, 0] = 0.01
    vector = torch.from_numpy(flat.observe(obs))
    given = finer(vector).numpy()
    assert given.shape == (2, finer.size)
    np.testing.assert_array_equal(given[:, : flat.size], vector.numpy())
    near = next(gap for gap in flat.differences if gap.minuend == thing)
    assert np.abs(given[1, flat.size :]).max() == pytest.approx(np.tanh(5 * 0.01 / near.scale), rel=1e-5)
    assert not given[0].any()


def test_without_differences_nothing_is_added() -> None:
    flat = flat_for(task("go2-walk"))
    assert not flat.differences
    vector = torch.ones(3, flat.size)
    assert torch.equal(ScaledDifferences(flat)(vector), vector)


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu"])
def test_a_network_written_for_numpy_chooses_the_same_actions(tmp_path: Path, activation: str) -> None:
    chosen = task("so101-push")
    flat = flat_for(chosen)
    torch.manual_seed(0)
    finer = ScaledDifferences(flat)
    layer = ACTIVATIONS[activation]  # type: ignore[index]
    hidden = [layer(), torch.nn.Linear(8, 8), layer(), torch.nn.Linear(8, flat.action_size)]
    policy = FlatPolicy(torch.nn.Sequential(finer, torch.nn.Linear(finer.size, 8), *hidden), flat)
    policy.save_npz(tmp_path / "p.npz", "so101-push", {"seed": 3})
    loaded = load_policy(tmp_path / "p.npz")
    loaded.check(chosen.observation, chosen.action)
    rng = np.random.default_rng(0)
    for _ in range(5):
        obs = chosen.observation.sample(rng)
        for name, action in policy.act(obs).items():
            np.testing.assert_allclose(loaded.act(obs)[name], action, atol=1e-5)


def test_a_network_that_numpy_can_t_run_is_refused(tmp_path: Path) -> None:
    flat = flat_for(task("so101-push"))
    dense = torch.nn.Linear(flat.size, flat.action_size)
    for parts in ([dense, torch.nn.Sigmoid()], [dense, torch.nn.Tanh()], [torch.nn.Identity()]):
        with pytest.raises(RobotError, match=r"write \.onnx"):
            FlatPolicy(torch.nn.Sequential(*parts), flat).save_npz(tmp_path / "p.npz", "so101-push")
    assert not (tmp_path / "p.npz").exists()
