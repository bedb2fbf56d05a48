"""The camera that needs no OpenGL: against geometry done by hand, and against OpenGL where there is one."""

from __future__ import annotations

import numpy as np
import pytest

import sim.rendering.camera
from hal import CameraSpec, RobotError, RobotSpec, Spec
from hal.robots.so101 import HOME
from sim.model import SimModel
from sim.rendering.camera import Camera, Marker, available, open_camera
from sim.rendering.rays import RayCamera
from sim.robot import SimRobot
from sim.robots.go2 import go2
from sim.robots.so101 import so101

BALL_AND_WALL = """
<mujoco><worldbody>
  <light pos="0 0 3"/>
  <camera name="eye" pos="0 0 1" xyaxes="1 0 0 0 1 0" fovy="90"/>
  <geom name="ground" type="plane" size="0 0 1" rgba="0 0 1 1"/>
  <body pos="0.4 0 0"><joint name="up" type="slide" axis="0 0 1"/>
    <geom name="ball" type="sphere" size="0.2" rgba="1 0 0 1" contype="0" conaffinity="0"/></body>
</worldbody></mujoco>
"""


@pytest.fixture
def scene() -> SimModel:
    """A camera a metre above the ground that looks straight down, and a ball to its right."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(BALL_AND_WALL)
    spec = RobotSpec("scene", Spec("none"), Spec("none"), 1 / model.opt.timestep, cameras=(CameraSpec("eye", 40, 20),))
    return SimModel(spec, model, 1, {}, {})


def test_distances_are_those_of_geometry(scene):
    with RayCamera(scene, "eye", 40, 20) as eye:
        depth = eye.depth(np.array([0.0]))
    across, up = np.meshgrid((np.arange(40) - 19.5) / 10, (9.5 - np.arange(20)) / 10)
    length = np.sqrt(across**2 + up**2 + 1)
    hit = np.abs(across / length * 0 + np.hypot(across - 0.4 * 1.0, up)) < 0.15  # pixels surely on the ball
    assert np.allclose(depth[:, :15], length[:, :15], atol=1e-9)  # ground a metre below, one ray a pixel
    assert (depth[hit] < length[hit]).all()
    assert depth[hit].min() == pytest.approx(np.hypot(1.0, 0.4) - 0.2, abs=0.01)


def test_rows_are_counted_from_the_top_and_colours_are_those_of_the_geoms(scene):
    with RayCamera(scene, "eye", 40, 20) as eye:
        image = eye.render(np.array([0.0]), [Marker((-0.5, 0.3, 0.0), 0.1, (0, 1, 0, 1))])
    red, green, blue = (image[..., channel] > image.sum(axis=-1) * 0.6 for channel in range(3))
    assert np.argwhere(red).mean(axis=0) == pytest.approx((9.5, 23.5), abs=0.7)
    rows, columns = np.nonzero(green)
    assert rows.mean() < 9
    assert columns.mean() < 19
    assert blue.sum() == 800 - red.sum() - green.sum()


def test_a_marker_behind_something_is_hidden(scene):
    hidden = Marker((0.4, 0.0, -0.5), 0.1, (0, 1, 0, 1))
    with RayCamera(scene, "eye", 40, 20) as eye:
        bare = eye.render(np.array([0.0]))
        assert np.array_equal(bare, eye.render(np.array([0.0]), [hidden]))


@pytest.mark.skipif(available() is not None, reason=f"{available()}")
@pytest.mark.parametrize("model", [so101, go2])
def test_rays_and_opengl_see_the_same(model):
    """Edges agree to a pixel or so: the two images differ clearly at few of them."""
    model = model()
    pose = model.model.key_qpos[0]
    with Camera(model, "view", 160, 120) as drawn, RayCamera(model, "view", 160, 120) as cast:
        first, second = drawn.render(pose).astype(int), cast.render(pose).astype(int)
    assert np.abs(first - second).mean() < 25
    outline_first, outline_second = (np.abs(np.diff(p.sum(axis=-1), axis=1)) > 120 for p in (first, second))
    near = np.zeros_like(outline_second)
    for shift in (-2, -1, 0, 1, 2):
        near |= np.roll(outline_second, shift, axis=1)
    assert (outline_first & near).sum() > 0.7 * outline_first.sum()


def test_without_opengl_cameras_cast_rays_and_log_it(monkeypatch, caplog):
    monkeypatch.setattr(sim.rendering.camera, "available", lambda: "there is no EGL; install libegl1")
    sim.rendering.camera._say_once.cache_clear()
    arm = SimRobot(so101(), cameras=("overhead",))
    try:
        image = arm.reset({}).images["overhead"].data
    finally:
        arm.close()
    with open_camera(so101(), "overhead", 640, 480) as camera:
        assert isinstance(camera, RayCamera)
        assert np.array_equal(camera.render(np.array(HOME)), image)
    assert [record.message for record in caplog.records] == [
        "images are cast ray by ray, without shadows and more slowly: there is no EGL; install libegl1"
    ]


def test_an_unknown_name_and_a_closed_camera_are_refused(scene):
    with pytest.raises(RobotError, match="no camera 'front', it has eye"):
        RayCamera(scene, "front", 8, 8)
    camera = RayCamera(scene, "eye", 8, 8)
    camera.close()
    camera.close()
    with pytest.raises(RobotError, match="closed"):
        camera.render(np.array([0.0]))
