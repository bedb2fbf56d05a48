"""Images are shifted in training by as much as their size allows, and reduced by the mean of areas."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.camera_network import CameraNetwork, ImageReduction, shifted  # noqa: E402


@pytest.mark.parametrize(("side", "most"), [(96, 4), (48, 2), (20, 1)])
def test_the_shift_is_a_24th_of_the_side(side: int, most: int) -> None:
    images, generator = torch.zeros(2, 2, 3, side, side + 10), torch.Generator().manual_seed(0)
    images[..., side // 2, side // 2] = 1
    places = [np.argwhere(shifted(images, generator)[1, 1, 2].numpy())[0] - side // 2 for _ in range(200)]
    assert (np.min(places, 0).tolist(), np.max(places, 0).tolist()) == ([-most, -most], [most, most])


def test_images_are_reduced_as_opencv_reduces_them() -> None:
    cv2, rng = pytest.importorskip("cv2"), np.random.default_rng(0)
    image = rng.integers(0, 256, (96, 120, 3), np.uint8)
    small = ImageReduction((96, 120), (48, 40))(torch.from_numpy(image).permute(2, 0, 1)).permute(1, 2, 0).numpy()
    assert np.abs(small - cv2.resize(image, (40, 48), interpolation=cv2.INTER_AREA).astype(float)).max() <= 1


def test_windows_are_shifted_by_different_draws_and_their_images_by_one() -> None:
    images = torch.zeros(40, 2, 3, 96, 96)
    images[..., 48, 48] = 1
    places = [[np.argwhere(image[0].numpy())[0].tolist() for image in window]
              for window in shifted(images, torch.Generator().manual_seed(0))]  # fmt: skip
    assert all(first == second for first, second in places)
    assert len({tuple(first) for first, _ in places}) > 20


def test_features_tell_where_a_small_object_is_before_any_training() -> None:
    # Positions that vary by a few hundredths are drowned by the numbers beside them.
    torch.manual_seed(0)
    network, images = CameraNetwork(), 0.1 * torch.rand(64, 3, 96, 96)
    places = torch.randint(8, 80, (64,))
    for image, place in zip(images, places.tolist(), strict=True):
        image[:, 44:52, place : place + 8] = 1
    features = network.train()(images).detach()
    assert 0.5 < features.std(0, unbiased=False).min() <= features.std(0, unbiased=False).max() < 1.01
    related = np.corrcoef(features.T, places)[-1, :-1]
    assert np.abs(related).max() > 0.9
    network.eval()
    torch.testing.assert_close(network(images[:1]), network(images[:2])[:1])
