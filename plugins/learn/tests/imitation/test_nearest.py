"""The nearest frame answers with its own chunk; numbers and images count alike."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.nearest import NearestFrame  # noqa: E402


def remembered(size: int = 40, count: int = 60) -> tuple[NearestFrame, torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    vectors, images, chunks = torch.randn(count, 1, 3), torch.rand(count, 1, 3, size, size), torch.randn(count, 4, 2)
    vectors[:, :, 2] = 0.5  # a number that never changes
    model = NearestFrame(3, {"top": (size, size)}, 128)
    model.fit(
        iter([(vectors[:25], {"top": images[:25]}, chunks[:25]), (vectors[25:], {"top": images[25:]}, chunks[25:])])
    )
    return model, vectors, images, chunks


def test_each_frame_of_several_blocks_answers_with_its_own_chunk() -> None:
    model, vectors, images, chunks = remembered()
    torch.testing.assert_close(model(vectors, {"top": images}), chunks)


@pytest.mark.parametrize("equal", ["numbers", "images"])
def test_where_one_is_always_equal_the_other_decides(equal: str) -> None:
    torch.manual_seed(0)
    vectors, images, chunks = torch.randn(40, 1, 3), torch.rand(40, 1, 3, 40, 40), torch.randn(40, 4, 2)
    if equal == "numbers":
        vectors[:] = vectors[0].clone()
    else:
        images[:] = images[0].clone()
    model = NearestFrame(3, {"top": (40, 40)}, 128)
    model.fit(iter([(vectors, {"top": images}, chunks)]))
    torch.testing.assert_close(model(vectors, {"top": images}), chunks)
