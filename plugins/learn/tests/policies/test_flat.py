from __future__ import annotations

import numpy as np
import pytest

from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import task

torch = pytest.importorskip("torch", reason="torch is not installed")

from rlenv_learn.policies.flat import ScaledDifferences  # noqa: E402


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
