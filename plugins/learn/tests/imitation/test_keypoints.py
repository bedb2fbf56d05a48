"""Points are found in images: the arithmetic is exact, and a network learns where a thing is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.keypoints import (  # noqa: E402
    STRIDE,
    KeypointNetwork,
    expected_pixels,
    keypoint_loss,
    learn_keypoints,
    vary_colours,
)

HEIGHT, WIDTH = 5, 7


def sure(x: int, y: int, offset: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
    """Heat maps of one point that name a single cell, and the offset there; it is wrong in all other cells."""
    logits, offsets = torch.full((1, 1, HEIGHT, WIDTH), -60.0), torch.full((1, 1, 2, HEIGHT, WIDTH), 7.0)
    logits[0, 0, y, x] = 0.0
    offsets[0, 0, :, y, x] = torch.tensor(offset)
    return logits, offsets


@given(st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1), st.floats(-3, 3, width=32), st.floats(-3, 3, width=32))
def test_a_sure_cells_offer_is_the_position(x: int, y: int, right: float, down: float) -> None:
    """The middle of the first cell of four pixels is at 1.5, since the middle of the first pixel is at 0."""
    pixels, share = expected_pixels(*sure(x, y, (right, down)))
    np.testing.assert_allclose(pixels[0, 0], [1.5 + 4 * x + right, 1.5 + 4 * y + down], atol=1e-4)
    assert float(share) == pytest.approx(1.0)


def test_a_point_between_cells_is_their_mean() -> None:
    logits = torch.full((1, 1, HEIGHT, WIDTH), -60.0)
    logits[0, 0, 2, 3] = logits[0, 0, 2, 4] = 0.0
    pixels, share = expected_pixels(logits, torch.zeros(1, 1, 2, HEIGHT, WIDTH))
    np.testing.assert_allclose(pixels[0, 0], [1.5 + 4 * 3.5, 1.5 + 4 * 2], atol=1e-4)
    assert float(share) == pytest.approx(0.5)


def test_the_loss_is_least_at_the_truth_and_ignores_points_outside() -> None:
    logits, offsets = sure(3, 2, (0.0, 0.0))
    there = keypoint_loss(logits, offsets, torch.tensor([[[13.5, 9.5]]]))
    assert float(there) == pytest.approx(0.0, abs=1e-4)
    for aside in (0.5, 2.0, -3.0):
        assert float(keypoint_loss(logits, offsets, torch.tensor([[[13.5 + aside, 9.5]]]))) > float(there) + 0.1
    both = torch.cat([logits, logits], 1), torch.cat([offsets, offsets], 1)
    for outside in (float("nan"), -40.0, 500.0):
        pixels = torch.tensor([[[13.5, 9.5], [outside, 3.0]]])
        assert float(keypoint_loss(*both, pixels)) == pytest.approx(float(there), abs=1e-6)


def test_colours_vary_by_the_generator_alone_and_stay_in_range() -> None:
    images = torch.rand(6, 3, 8, 12, generator=torch.Generator().manual_seed(1))
    one, same, other = (vary_colours(images, torch.Generator().manual_seed(seed)) for seed in (2, 2, 3))
    assert torch.equal(one, same)
    assert (one != other).any()
    assert (one - images).abs().mean() > 0.02
    assert 0 <= float(one.min()) <= float(one.max()) <= 1


@pytest.mark.slow
def test_a_square_is_found_where_the_training_never_had_it() -> None:
    """Squares of six pixels on noise: their middles are learned to a pixel, in cells of four."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0), torch.set_num_threads(1)
    places = rng.integers(3, 22, (400, 2))
    images = rng.integers(0, 120, (400, 24, 24, 3), np.uint8)
    for image, (x, y) in zip(images, places, strict=True):
        image[y - 3 : y + 3, x - 3 : x + 3] = (230, 40, 40)
    pixels = (places - 0.5)[:, None].astype(np.float32)
    network = KeypointNetwork(1, width=8)
    losses = list(learn_keypoints(network, images[:300], pixels[:300], 120))
    assert not network.training
    with torch.no_grad():
        found, share = expected_pixels(*network(torch.from_numpy(images[300:]).permute(0, 3, 1, 2) / 255.0))
    error = np.linalg.norm(found[:, 0].numpy() - pixels[300:, 0], axis=1)
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    assert np.median(error) < 1.0
    assert share.shape == (100, 1)
    assert STRIDE == 4
