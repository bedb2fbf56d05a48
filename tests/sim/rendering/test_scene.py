from __future__ import annotations

import mujoco
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.mjcf.robot import from_mjcf
from sim.model import SimModel
from sim.rendering.camera import Camera, available
from sim.rendering.scene import grounds
from sim.robots.go2 import go2
from sim.robots.so101 import so101

drawing = pytest.mark.skipif(available() is not None, reason=f"{available()}")

ROOM = """<mujoco>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="1 0 0" rgb2="0 0 1" width="32" height="192"/>
  </asset>
  <worldbody>
    <geom name="ground" type="plane" size="2 3 0.1" rgba="0.2 0.7 0.2 {alpha}"/>
    <camera name="eye" pos="0 0 1" fovy="50"/>
    <body><joint name="hinge" axis="0 0 1"/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
  </worldbody>
  <actuator><motor name="motor" joint="hinge" ctrlrange="-1 1"/></actuator>
</mujoco>"""


def room(alpha: float = 1.0) -> Camera:
    return Camera(from_mjcf(ROOM.format(alpha=alpha)), "eye", 48, 36)


def sky_drawn(camera: Camera) -> bool:
    return bool(camera._scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX])


@pytest.fixture(scope="module")
def pair() -> tuple[Camera, Camera]:
    """The same camera twice; the second always draws the sky."""
    one, other = room(), room()
    other._grounds = ()
    return one, other


@drawing
@settings(max_examples=120, deadline=None)
@given(
    place=st.tuples(st.floats(-2.5, 2.5), st.floats(-3.5, 3.5), st.floats(-0.3, 2.0)),
    turn=st.tuples(*[st.floats(-1, 1)] * 4).filter(lambda turn: np.linalg.norm(turn) > 0.1),
    down=st.booleans(),
)
@example(place=(1.0, -2.0, 0.0), turn=(1.0, 0.0, 0.5, 0.5), down=False)  # in the ground, one eye of the scene above it
@example(place=(1.8, -1.9, 0.25), turn=(1.0, 0.14, -0.14, 0.85), down=False)  # the ground's edge between the two eyes
def test_an_image_is_the_same_without_a_hidden_sky(
    pair: tuple[Camera, Camera], place: tuple[float, ...], turn: tuple[float, ...], down: bool
) -> None:
    if down:  # a camera that looks down, a little askew, is the case that matters
        turn = (1.0, 0.3 * turn[1], 0.3 * turn[2], turn[3])
    for camera in pair:
        camera._model.cam_pos[0] = place
        camera._model.cam_quat[0] = np.array(turn) / np.linalg.norm(turn)
    state = np.zeros(1)
    np.testing.assert_array_equal(pair[0].render(state), pair[1].render(state))


@drawing
def test_the_sky_is_left_out_when_the_camera_looks_down_only(pair: tuple[Camera, Camera]) -> None:
    camera, _ = pair
    camera._model.cam_pos[0], camera._model.cam_quat[0] = (0, 0, 1), (1, 0, 0, 0)
    camera.render(np.zeros(1))
    assert not sky_drawn(camera)
    for place, turn in (((0, 0, 1), (0, 1, 0, 0)), ((0, 0, -1), (1, 0, 0, 0)), ((1.9, 0, 1), (1, 0, 0, 0))):
        camera._model.cam_pos[0], camera._model.cam_quat[0] = place, turn
        camera.render(np.zeros(1))
        assert sky_drawn(camera)


@drawing
def test_the_sky_is_visible_through_a_transparent_ground() -> None:
    with room(alpha=0.5) as camera:
        camera.render(np.zeros(1))
        assert sky_drawn(camera)
    with room() as camera:
        camera.set_model({"geom_rgba": np.array([[0.2, 0.7, 0.2, 0.5], [1, 1, 1, 1]])})
        camera.render(np.zeros(1))
        assert sky_drawn(camera)


def test_a_plane_without_edges_hides_nothing() -> None:
    assert grounds(go2().model, mujoco.MjvOption()) == ()


@drawing
@pytest.mark.parametrize(("model", "name"), [(so101(cube=True), "wrist"), (go2(), "view")])
def test_an_image_does_not_depend_on_the_previous_one(model: SimModel, name: str) -> None:
    """MuJoCo's headlight shines from where the camera was in the last scene; these cameras move."""
    state = np.array(model.model.key_qpos[0])
    moved = state.copy()
    moved[:4] += 0.2
    with Camera(model, name, 64, 48) as fresh, Camera(model, name, 64, 48) as used:
        used.render(moved)
        np.testing.assert_array_equal(used.render(state), fresh.render(state))
