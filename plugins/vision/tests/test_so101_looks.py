"""Textures and drawn looks change images alone."""

from __future__ import annotations

import numpy as np
import pytest

from hal.robots.so101 import HOME
from rlenv_vision.so101_looks import TEXTURES, so101_cube_textured, so101_looks
from sim.batch import SimBatch
from sim.randomize.randomise import Randomise
from sim.rendering.batch import ImageBatch
from sim.rendering.camera import available
from sim.robots.so101 import so101_cube

LOOKS = Randomise.from_dict(so101_looks())


def test_the_motion_is_the_nominal_arms_bit_for_bit() -> None:
    target = np.array([HOME], np.float32) + np.float32(0.2)
    runs = []
    for model, looks in (
        (so101_cube(), None),
        (so101_cube_textured(), LOOKS),
        (so101_cube_textured(looks=False), None),
    ):
        batch = SimBatch(model, 1, randomise=looks)
        states = [batch.reset(seeds=[3]), *(batch.step({"joint_target": target}) for _ in range(20))]
        runs.append([[state.sensors[name].tobytes() for name in sorted(state.sensors)] for state in states])
        batch.close()
    assert runs[0] == runs[1] == runs[2]


def test_each_episode_draws_its_looks_within_the_range() -> None:
    batch = SimBatch(so101_cube_textured(), 200, randomise=LOOKS)
    batch.reset(seeds=np.arange(200))
    drawn = batch.drawn
    batch.close()
    for name in TEXTURES:
        shown = drawn[f"material.{name}.rgba[3]"]
        assert set(shown) == {0.0, 1.0}
        assert 0.15 < shown.mean() < 0.45
    for camera in ("overhead", "view"):
        moved = drawn[f"camera.{camera}.pos[0]"]
        assert 0.008 < np.abs(moved).max() <= 0.01
    assert np.ptp(drawn["light.key.pos[0]"]) > 0.5


@pytest.mark.skipif(available() is not None, reason=f"{available()}")
def test_images_of_two_looks_differ_nearly_everywhere() -> None:
    batch = ImageBatch(SimBatch(so101_cube_textured(), 3, randomise=LOOKS), ["overhead"], (64, 64), threads=1)
    images = batch.reset(seeds=[1, 2, 1]).images["overhead"]
    batch.close()
    np.testing.assert_array_equal(images[0], images[2])  # type: ignore[index]
    assert (images[0] != images[1]).any(axis=2).mean() > 0.9  # type: ignore[index]
