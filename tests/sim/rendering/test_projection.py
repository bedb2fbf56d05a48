"""Points lie in the image where the renderer draws them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hal import RobotError
from sim.rendering.camera import Camera, Marker, available
from sim.rendering.projection import project_points
from sim.robots.so101 import so101, so101_mjcf

WIDTH, HEIGHT = 240, 180
ROBOT = so101()
QPOS = np.array([[0.0, -0.5, 0.5, 0.6, -1.5, 0.0], [0.4, -0.9, 0.8, 0.5, -1.2, 0.3]])


def drawn_at(camera: Camera, state: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Return where a small ball is drawn, as the middle of the pixels that it changes."""
    ball = Marker(point.tolist(), radius=0.004, rgba=(1.0, 0.0, 1.0, 1.0))
    bare, marked = camera.render(state).astype(int), camera.render(state, [ball]).astype(int)
    share = np.abs(marked - bare).sum(axis=2) > 60
    y, x = np.nonzero(share)
    return np.array([x.mean(), y.mean()])


@pytest.mark.skipif(available() is not None, reason=f"{available()}")
@pytest.mark.parametrize("name", ["overhead", "view", "wrist"])
def test_a_point_is_where_the_renderer_draws_a_ball(name: str) -> None:
    number = ROBOT.camera_id(name)
    model = ROBOT.model
    models = {
        "cam_pos": np.array([model.cam_pos, model.cam_pos + np.array([0.01, -0.02, 0.015])]),
        "cam_fovy": np.array([model.cam_fovy, model.cam_fovy + 2.0]),
        "geom_rgba": np.zeros((2, *model.geom_rgba.shape)),  # nothing hides the ball
        "mat_rgba": np.zeros((2, *model.mat_rgba.shape)),
    }
    ahead = {"overhead": [0.25, 0.05, 0.02], "view": [0.1, -0.1, 0.05], "wrist": [0.3, 0.05, 0.02]}[name]
    points = np.array([[ahead, ahead + np.array([0.02, -0.03, 0.01])]] * 2)
    pixels = project_points(ROBOT, name, WIDTH, HEIGHT, QPOS, points, models)
    assert model.cam_fovy[number] == so101().model.cam_fovy[number]  # the robot's own model stays as it is
    compared = 0
    with Camera(ROBOT, name, WIDTH, HEIGHT) as camera:
        for row in range(2):
            camera.set_model({key: value[row] for key, value in models.items()})
            for place in range(2):
                if (np.abs(pixels[row, place] - [WIDTH / 2, HEIGHT / 2]) < [WIDTH / 2 - 8, HEIGHT / 2 - 8]).all():
                    seen = drawn_at(camera, QPOS[row], points[row, place])
                    np.testing.assert_allclose(pixels[row, place], seen, atol=0.4)
                    compared += 1
    assert compared >= 2


def test_a_point_behind_the_lens_has_no_position() -> None:
    pixels = project_points(ROBOT, "overhead", WIDTH, HEIGHT, QPOS[:1], np.array([[[0.24, 0.0, 1.0]]]))
    assert np.isnan(pixels).all()


def test_a_camera_without_a_fovy_is_refused() -> None:
    mjcf = so101_mjcf()
    camera = mjcf.camera("overhead")
    camera.sensor_size, camera.resolution, camera.focal_length = [0.004, 0.003], [640, 480], [0.004, 0.004]
    other = replace(ROBOT, model=mjcf.compile())
    with pytest.raises(RobotError, match="fovy"):
        project_points(other, "overhead", WIDTH, HEIGHT, QPOS, np.zeros((2, 1, 3)))
