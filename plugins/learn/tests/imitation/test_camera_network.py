"""Images are shifted in training by as much as their size allows, and reduced by the mean of areas."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.camera_network import ImageReduction, shifted  # noqa: E402


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
