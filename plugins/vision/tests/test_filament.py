from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest

from hal import RobotError
from hal.robots.so101 import HOME
from rlenv_vision import filament
from rlenv_vision.filament import FilamentCamera, missing, on_gpu
from rlenv_vision.vulkan import Device, DeviceKind
from sim.rendering.camera import Camera, available, film, open_camera
from sim.rendering.scene import Marker
from sim.robots.so101 import so101

drawing = pytest.mark.skipif(missing() is not None, reason=f"{missing()}")
GREEN = Marker((0.32, 0.10, 0.02), 0.02, (0.0, 1.0, 0.0, 1.0))


@pytest.fixture
def asked_anew() -> Iterator[None]:
    missing.cache_clear()
    yield
    missing.cache_clear()


def reds(image: np.ndarray) -> np.ndarray:
    red, green, blue = np.moveaxis(image.astype(int), -1, 0)
    shown: np.ndarray = (red > 80) & (red > 2.5 * green) & (red > 2.5 * blue)
    return shown


def greens(image: np.ndarray) -> int:
    red, green, blue = np.moveaxis(image.astype(int), -1, 0)
    return int(((green > 1.5 * red) & (green > 1.5 * blue)).sum())


@pytest.mark.usefixtures("asked_anew")
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "rlenv-robot[filament]" in str(missing())
    missing.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    versions = {"mujoco-core": "4.0.1", "mujoco-studio": "4.0.0"}
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    assert "mujoco-core is 4.0.1, mujoco-studio 4.0.0" in str(missing())
    missing.cache_clear()
    versions["mujoco-studio"] = "4.0.1"
    monkeypatch.setattr(filament, "devices", lambda: ())
    assert "mesa-vulkan-drivers" in str(missing())
    missing.cache_clear()
    monkeypatch.setattr(filament, "devices", lambda: (Device("soft", DeviceKind.CPU),))
    assert missing() is None
    assert not on_gpu()
    monkeypatch.setattr(filament, "devices", lambda: (Device("soft", DeviceKind.CPU), Device("H", DeviceKind.DISCRETE)))
    assert on_gpu()


@pytest.mark.parametrize(
    ("choice", "gpu", "drawn"),
    [("", True, True), ("", False, False), ("opengl", True, False), ("Filament", False, True)],
)
def test_filament_draws_where_a_gpu_is_or_where_it_is_chosen(
    choice: str, gpu: bool, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLENV_ROBOT_RENDERER", choice)
    monkeypatch.setattr(filament, "on_gpu", lambda: gpu)
    monkeypatch.setattr(filament, "missing", lambda: None)
    monkeypatch.setattr(filament, "FilamentCamera", lambda *_: contextlib.nullcontext("by Filament"))
    with open_camera(so101(), "view", 64, 48, fine=True) as eye:
        assert (eye == "by Filament") == drawn  # type: ignore[comparison-overlap]


def test_a_choice_that_can_not_draw_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filament, "missing", lambda: "it is not installed")
    with pytest.raises(RobotError, match="it is not installed"):
        FilamentCamera(so101(), "view", 64, 48)
    monkeypatch.setenv("RLENV_ROBOT_RENDERER", "filament")
    with pytest.raises(RobotError, match="it is not installed"):
        open_camera(so101(), "view", 64, 48, fine=True)
    monkeypatch.setenv("RLENV_ROBOT_RENDERER", "vulkan")
    with pytest.raises(RobotError, match="'filament' and 'opengl'"):
        open_camera(so101(), "view", 64, 48, fine=True)


@drawing
@pytest.mark.skipif(available() is not None, reason=f"{available()}")
def test_a_thing_is_where_opengl_draws_it() -> None:
    model = so101(cube=True)
    with FilamentCamera(model, "view", 320, 240) as new, Camera(model, "view", 320, 240) as old:
        one, other = (reds(camera.render(np.array(HOME))) for camera in (new, old))
    assert other.sum() > 100
    assert (one & other).sum() > 0.9 * (one | other).sum()


@drawing
def test_markers_are_drawn_and_do_not_stay() -> None:
    with FilamentCamera(so101(), "view", 160, 120) as camera:
        bare, marked, after = (camera.render(np.array(HOME), markers) for markers in ((), (GREEN,), ()))
    assert greens(bare) == greens(after) == 0
    assert greens(marked) > 10


@drawing
def test_fields_of_the_model_are_seen_and_brightness_follows_the_lamps() -> None:
    model = so101(cube=True)
    with FilamentCamera(model, "view", 160, 120) as camera, FilamentCamera(model, "view", 160, 120) as other:
        lit = camera.render(np.array(HOME)).mean()
        camera.set_model({"light_diffuse": model.model.light_diffuse * 0.3})
        dim = camera.render(np.array(HOME)).mean()
        assert reds(other.render(np.array(HOME))).any()
        colours = model.model.mat_rgba.copy()
        colours[model.model.material("cube").id] = (0.0, 0.0, 1.0, 1.0)
        other.set_model({"mat_rgba": colours})
        assert not reds(other.render(np.array(HOME))).any()
    assert dim < 0.95 * lit


@drawing
def test_a_closed_camera_says_so_and_others_go_on() -> None:
    model = so101()
    camera = FilamentCamera(model, "view", 64, 48)
    camera.close()
    camera.close()
    with pytest.raises(RobotError, match="closed"):
        camera.render(np.array(HOME))
    with FilamentCamera(model, "view", 64, 48) as next_one:
        assert next_one.render(np.array(HOME)).std() > 10


@drawing
def test_videos_with_shadows_are_drawn_so_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLENV_ROBOT_RENDERER", "filament")
    sensors = {"joint_position": np.array([HOME, HOME])}
    with open_camera(so101(), "view", 64, 48, fine=True) as eye:
        assert isinstance(eye, FilamentCamera)
    assert [image.shape for image in film(so101(), sensors, width=64, height=48)] == [(48, 64, 3)] * 2
