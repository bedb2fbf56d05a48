"""Collected views show the points where they say, under drawn looks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SpecError
from rlenv_learn.imitation.views import Landmarks, collect_views
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.tasks.cube import Push
from rlenv_tabletop.scripted import ScriptedPush
from rlenv_vision.image_task import with_images
from rlenv_vision.so101_looks import so101_cube_textured, so101_looks
from sim.rendering.camera import available

WIDTH, HEIGHT, EVERY = 96, 64, 4
HIDDEN = ("cube_position", "cube_orientation")


class TexturedPush(Push):
    """The task on a table with textures."""

    robot_model = replace(find_robot_model("so101-cube"), simulated=so101_cube_textured)


MARKS = Landmarks(Push().observation["cube_position"], (Push().observation["gripper_position"],))


@pytest.mark.skipif(available() is not None, reason=f"{available()}")
def test_the_cube_is_red_where_a_view_says_that_it_is() -> None:
    task = with_images(TexturedPush(steps=8), {"view": (WIDTH, HEIGHT)}, HIDDEN)
    timing = {"sensor_rate": {"view_image": 30 / EVERY}}
    # A blue table without textures: red is the cube, unless the arm hides it.
    looks = dict(so101_looks(("view",)))
    looks |= {name: {"choice": [0.0], "unit": "1"} for name in looks if name.endswith("rgba[3]")}
    looks |= {f"material.table.rgba[{n}]": {"choice": [value], "unit": "1"} for n, value in enumerate((0.2, 0.4, 0.9))}
    with rr.make_vector(task, 8, seed=0, randomise=looks, timing=timing, threads=1) as envs:
        views = collect_views(envs, ScriptedPush(), rr.flat_for(Push()), MARKS, 40, EVERY)
    assert len(views) >= 40
    assert views.images["view_image"].shape == (len(views), HEIGHT, WIDTH, 3)
    assert views.pixels["view_image"].shape == (len(views), len(MARKS), 2)
    x, y = np.round(views.pixels["view_image"][:, 0]).astype(int).T
    red, green, blue = views.images["view_image"][np.arange(len(views)), y, x].astype(int).T
    assert np.mean((red > 1.5 * green) & (red > 1.5 * blue)) > 0.8
    aside = views.images["view_image"][np.arange(len(views)), y, (x + WIDTH // 3) % WIDTH].astype(int).T
    assert np.mean(aside[0] > 1.5 * aside[2]) < 0.3  # it is the cube's colour, not the image's
    assert len({tuple(pixel) for pixel in views.pixels["view_image"][:, 0].tolist()}) > 15


def test_a_task_without_images_is_refused() -> None:
    with rr.make_vector("so101-push", 2, seed=0) as envs, pytest.raises(SpecError, match="image observations"):
        collect_views(envs, ScriptedPush(), rr.flat_for(Push()), MARKS, 4)
