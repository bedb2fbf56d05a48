from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import sim.rendering.camera
from hal import RobotError
from hal.robots.so101 import HOME, SO101, forward_kinematics
from sim.model import SimModel
from sim.rendering.camera import Camera, Marker, available, film, open_camera
from sim.robot import SimRobot
from sim.robots.so101 import REST, so101

drawing = pytest.mark.skipif(available() is not None, reason=f"{available()}")


def red(image: np.ndarray) -> int:
    """Number of pixels that are clearly red."""
    channels = image.astype(int)
    return int(((channels[..., 0] > 120) & (channels[..., 1] < 90) & (channels[..., 2] < 90)).sum())


@drawing
@pytest.mark.parametrize("name", ["view", "overhead", "wrist"])
def test_images_show_the_pose(name: str) -> None:
    with Camera(so101(), name, 160, 120) as camera:
        first, again, other = (camera.render(np.array(pose)) for pose in (HOME, HOME, (0.7, *HOME[1:5], 1.2)))
    assert first.shape == (120, 160, 3)
    assert first.dtype == np.uint8
    assert first.std() > 10
    np.testing.assert_array_equal(first, again)
    assert np.abs(first.astype(int) - other).mean() > 1


@drawing
def test_rows_are_counted_from_the_top() -> None:
    """Overhead, the base of the arm is at the lower edge of the image, and what is ahead is above."""
    with Camera(so101(), "overhead", 160, 120) as camera:
        bare = camera.render(np.array(HOME))
        ahead = camera.render(np.array(HOME), [Marker((0.42, 0.0, 0.0), 0.02, (1, 0, 0, 1))])
        left = camera.render(np.array(HOME), [Marker((0.24, 0.20, 0.0), 0.02, (1, 0, 0, 1))])
    rows, _ = np.nonzero((bare != ahead).any(axis=-1))
    _, columns = np.nonzero((bare != left).any(axis=-1))
    assert rows.mean() < 45
    assert columns.mean() < 60


@drawing
def test_markers_are_drawn_where_they_are_and_do_not_stay() -> None:
    tip = forward_kinematics(np.array(HOME))
    with Camera(so101(), "view", 160, 120) as camera:
        bare = camera.render(np.array(HOME))
        marked = camera.render(np.array(HOME), [Marker(tip, 0.05, (1, 0, 0, 1))])
        np.testing.assert_array_equal(camera.render(np.array(HOME)), bare)
        with pytest.raises(RobotError, match="draw fewer"):
            camera.render(np.array(HOME), [Marker(tip)] * 3000)
    assert red(bare) == 0
    assert red(marked) > 50


@drawing
def test_a_state_is_a_pose_or_all_of_qpos() -> None:
    model = so101(cube=True)
    with Camera(model, "overhead", 160, 120) as camera:
        pose = camera.render(np.array(HOME))
        whole = camera.render(np.array([*HOME, 0.24, 0.0, 0.0125, 1, 0, 0, 0]))
        moved = camera.render(np.array([*HOME, 0.24, 0.2, 0.0125, 1, 0, 0, 0]))
        with pytest.raises(RobotError, match=r"13 \(qpos\) or 6"):
            camera.render(np.zeros(5))
    np.testing.assert_array_equal(pose, whole)
    assert (pose != moved).any()
    assert red(moved) > 10  # at the other place the gripper hides the cube


@drawing
def test_an_image_too_large_for_the_driver_is_refused() -> None:
    with pytest.raises(RobotError, match="100000 x 100000"):
        Camera(so101(), "view", 100_000, 100_000)


@drawing
def test_threads_may_draw_one_after_the_other() -> None:
    with Camera(so101(), "view", 64, 48) as camera, ThreadPoolExecutor(1) as other:
        here, there = camera.render(np.array(HOME)), other.submit(camera.render, np.array(HOME)).result()
        np.testing.assert_array_equal(here, there)
        np.testing.assert_array_equal(here, camera.render(np.array(HOME)))


@drawing
def test_a_closed_camera_is_refused() -> None:
    camera = Camera(so101(), "view", 32, 24)
    camera.close()
    camera.close()
    with pytest.raises(RobotError, match="closed"):
        camera.render(np.array(HOME))


@drawing
@pytest.mark.requirement("R1.5", "6.2.2.3-6", "B.6.2-6")
def test_a_film_needs_only_logged_sensors() -> None:
    poses = np.linspace(REST, HOME, 4).astype(np.float32)
    sensors = {"joint_position": poses, "joint_velocity": np.zeros((4, 6)), "something_else": np.zeros(4)}
    images = list(film(so101(), sensors, width=80, height=60, fine=False))
    with Camera(so101(), "view", 80, 60) as camera:
        wanted = [camera.render(pose) for pose in poses]
    np.testing.assert_array_equal(images, wanted)


@drawing
def test_a_film_shows_the_cube_where_it_was() -> None:
    sensors = {
        "joint_position": np.array([HOME] * 2),
        "cube_position": np.array([[0.2, 0.1, 0.0125], [0.3, -0.1, 0.1]]),
    }
    first, second = film(so101(cube=True), sensors, "overhead", 80, 60)
    assert (first != second).any()


def test_a_film_without_a_pose_is_refused(pendulum: SimModel) -> None:
    with pytest.raises(RobotError, match=r"\['torque'\] .* \['angles'"):
        next(film(pendulum, {"torque": np.zeros((3, 2))}))


def test_an_unknown_camera_is_named() -> None:
    with pytest.raises(RobotError, match=r"'front'.* view, overhead, wrist"):
        Camera(so101(), "front", 32, 24)


@drawing
def test_the_states_of_a_robot_with_cameras_have_images() -> None:
    arm = SimRobot(so101(), cameras=("overhead",))
    first = arm.reset({})
    second = arm.step({"joint_target": np.float32(np.array(HOME) + 0.2)})
    arm.close()
    for robot_state in (first, second):
        image = robot_state.images["overhead"]
        assert image.encoding == "rgb8"
        assert image.stamp_ns == robot_state.stamp_ns
        assert isinstance(image.data, np.ndarray)
        assert image.data.shape == (SO101.cameras[0].height, SO101.cameras[0].width, 3)
    assert (first.images["overhead"].data != second.images["overhead"].data).any()  # type: ignore[comparison-overlap]


def test_without_opengl_the_error_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any, **__: Any) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(RobotError, match=r"libEGL.so.1: cannot open .* apt-get install libegl1 libgl1"):
        Camera(so101(), "view", 32, 24)
    monkeypatch.setattr(sim.rendering.camera, "available", available.__wrapped__)
    reason = sim.rendering.camera.available()
    assert reason is not None
    assert "apt-get install" in reason


def test_a_renderer_of_a_package_draws_fine_images_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is as an entry point's; without one the variable that names it says which plug-in has it."""
    asked: list[bool] = []

    class Point:
        @staticmethod
        def load() -> Any:
            return lambda *arguments: asked.append(arguments[-1]) or nullcontext("its camera")

    monkeypatch.setattr(sim.rendering.camera, "_declared", lambda: {"brush": Point})
    for choice in ("", "brush"):
        monkeypatch.setenv("RLENV_ROBOT_RENDERER", choice)
        with open_camera(so101(), "view", 32, 24, fine=True) as eye:
            assert eye == "its camera"  # type: ignore[comparison-overlap]
    assert asked == [False, True]
    monkeypatch.setattr(sim.rendering.camera, "_declared", dict)
    monkeypatch.setenv("RLENV_ROBOT_RENDERER", "filament")
    with pytest.raises(RobotError, match="rlenv_vision"):
        open_camera(so101(), "view", 32, 24, fine=True)


@pytest.mark.process
@drawing
def test_asking_mujoco_for_egl_works_without_pyopengl() -> None:
    code = (
        "import sim.rendering.camera; assert sim.rendering.camera.available() is None, sim.rendering.camera.available()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "MUJOCO_GL": "egl"}, timeout=60)


def test_mujoco_gl_can_disable_opengl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "disable")
    with pytest.raises(RobotError, match="MUJOCO_GL is 'disable'; unset it"):
        Camera(so101(), "view", 32, 24)


@pytest.mark.process
def test_a_simulation_without_cameras_loads_no_opengl() -> None:
    code = (
        "import sys, sim.robot, sim.batch, sim.robots.so101, sim.robots.twin\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "assert 'libEGL' not in maps and 'sim.rendering.camera' not in sys.modules and 'cv2' not in sys.modules\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=60)
