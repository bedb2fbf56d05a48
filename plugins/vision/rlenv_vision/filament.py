"""Render images with Filament, MuJoCo's newest renderer: soft shadows, indirect light, physically based materials.

This module needs the extra ``filament`` (the package mujoco-studio) and Vulkan, and is meant for a GPU.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from hal.errors import RobotError
from rlenv_vision.vulkan import DeviceKind, devices
from sim.model import SimModel
from sim.rendering.scene import Marker, pose, set_fields

__all__ = ["FilamentCamera", "missing", "on_gpu", "open_filament"]

_MAX_GEOMS = 2000
_SHUTTER = 1.3e5
"""Candela of a lamp for a ``diffuse`` of 1. Filament exposes like a camera in daylight, and MJCF's lights have no unit.
With this factor the table of the SO-101 is as bright as in OpenGL."""
_HEAD = 9e4
"""Filament's intensity of the headlight for a ``diffuse`` of 1, chosen in the same way."""
_ROUND = (24, 48, 4)
"""Stacks, slices and quads of a drawn marker."""


@functools.cache
def missing() -> str | None:
    """Return None if Filament can draw on this machine, otherwise what is missing. The result is cached."""
    if importlib.util.find_spec("mujoco.studio") is None:
        return "MuJoCo's Filament renderer is not installed: pip install 'rlenv-robot[filament]'"
    core, studio = (importlib.metadata.version(f"mujoco-{part}") for part in ("core", "studio"))
    if core != studio:
        return f"mujoco-core is {core}, mujoco-studio {studio}: install one version of both"
    if not devices():
        return (
            "Vulkan offers no device: install a GPU's driver and libvulkan1, or mesa-vulkan-drivers to draw in software"
        )
    return None


def on_gpu() -> bool:
    """Return whether Filament can draw on a GPU of this machine."""
    return missing() is None and any(device.kind is not DeviceKind.CPU for device in devices())


def open_filament(sim_model: SimModel, name: str, width: int, height: int, chosen: bool) -> FilamentCamera | None:
    """Open a camera that draws with Filament, or return None if there is no GPU and Filament was not chosen.

    This function is a `sim.rendering.camera.Renderer`.

    Args:
        sim_model: the simulated robot to draw.
        name: the name of a camera of the MJCF.
        width: width of the images, pixels.
        height: height of the images, pixels.
        chosen: whether the user has chosen Filament, so that it also draws in software.

    Raises:
        RobotError: the model has no such camera, or Filament is chosen and `missing`.
    """
    if chosen and (why := missing()):
        raise RobotError(f"RLENV_ROBOT_RENDERER is 'filament', which can't draw here: {why}")
    return FilamentCamera(sim_model, name, width, height) if chosen or on_gpu() else None


class FilamentCamera:
    """A camera like `sim.rendering.camera.Camera` that draws with Filament.

    All calls must come from the thread that made the camera. Lamps keep their colours, positions and relative
    brightness. Images of one state differ by the noise of soft shadows and dithering, on average by about half a level
    of 255, so they are for people and not for policies. In software an image of 640 x 480 takes seconds.

    Args:
        sim_model: the simulated robot to draw.
        name: the name of a camera of the MJCF.
        width: width of the images, pixels.
        height: height of the images, pixels.

    Raises:
        RobotError: the model has no such camera, or something is `missing` on this machine.
    """

    def __init__(self, sim_model: SimModel, name: str, width: int, height: int) -> None:
        camera, why = sim_model.camera_id(name), missing()
        if why:
            raise RobotError(f"images can't be drawn by Filament: {why}")
        self._rf = rf = _renderer()
        from mujoco.rendering.filament.model_scene import ModelScene

        self._sim_model, self.width, self.height = sim_model, width, height
        self._model = copy.copy(sim_model.model)
        self._data = mujoco.MjData(self._model)
        self._view = mujoco.MjvCamera()
        self._view.type, self._view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
        self._option, self._seen = mujoco.MjvOption(), mujoco.MjvScene(self._model, _MAX_GEOMS)
        settings = rf.ContextConfig()
        settings.graphics_api = rf.GraphicsApi.GRAPHICS_API_VULKAN
        self._context = rf.Context(settings)
        self._context.set_clear_color([0.0, 0.0, 0.0])
        self._scene: Any = ModelScene(self._context, self._model)
        colours = rf.PixelFormat.PIXEL_FORMAT_RGB8
        self._target = self._context.create_render_target(rf.RenderTargetConfig(color_format=colours))
        self._target.resize(width, height)
        self._pixels = np.empty((height, width, 3), np.uint8)
        self._read = rf.ReadRequest(target=self._target)
        self._read.set_buffer(self._pixels)
        self._balls: list[Any] = []

    def set_model(self, fields: Mapping[str, np.ndarray]) -> None:
        """Set fields of the drawn model, as `sim.rendering.camera.Camera.set_model` does."""
        set_fields(self._model, fields)

    def render(self, state: np.ndarray, markers: Sequence[Marker] = (), out: np.ndarray | None = None) -> np.ndarray:
        """Draw one state, as `sim.rendering.camera.Camera.render` does."""
        if self._scene is None:
            raise RobotError("this camera is closed, make a new one")
        pose(self._sim_model, self._model, self._data, state)
        self._scene.update(self._data)
        self._light()
        self._mark(markers)
        self._context.wait_for_frame(self._context.render([self._request()], [self._read]))
        image = np.empty_like(self._pixels) if out is None else out
        image[:] = self._pixels
        return image

    def _light(self) -> None:
        for lamp in range(self._model.nlight):
            light, diffuse = self._scene.get_light(lamp), self._model.light_diffuse[lamp]
            if light is not None:
                brightest = float(diffuse.max())
                light.set_color(_column(diffuse / brightest if brightest else diffuse))
                light.set_intensity(_SHUTTER * brightest)

    def _mark(self, markers: Sequence[Marker]) -> None:
        scene = self._scene.scene
        for ball in self._balls:
            scene.remove_renderable(ball)
        self._balls = [self._ball(marker) for marker in markers]
        for ball in self._balls:
            scene.add_renderable(ball)

    def _ball(self, marker: Marker) -> Any:
        rf = self._rf
        ball = self._context.create_renderable(rf.RenderableParams(cast_shadow=True, receive_shadow=True))
        ball.set_geom_mesh(mujoco.mjtGeom.mjGEOM_SPHERE, *_ROUND)
        ball.set_material(rf.Material(color=_column(marker.rgba)))
        ball.set_size(_column((marker.radius,) * 3))
        ball.set_pose(_column(marker.position), _column(np.eye(3).ravel()))
        return ball

    def _request(self) -> Any:
        mujoco.mjv_updateCamera(self._model, self._data, self._view, self._seen)
        # The position between MuJoCo's two eyes: the scene keeps both.
        left, right = self._seen.camera[0], self._seen.camera[1]
        request, rf, head = self._rf.RenderRequest(), self._rf, self._model.vis.headlight
        request.scene, request.target = self._scene.scene, self._target
        request.camera = rf.Camera(
            pos=(np.asarray(left.pos) + right.pos) / 2, forward=left.forward, up=left.up,
            frustum_bottom=left.frustum_bottom, frustum_top=left.frustum_top, frustum_near=left.frustum_near,
            frustum_far=left.frustum_far,
        )  # fmt: skip
        request.viewport.left = request.viewport.bottom = 0
        request.viewport.width, request.viewport.height = self.width, self.height
        request.draw_mode = rf.DrawMode.DRAW_MODE_DEFAULT
        request.post_processing = request.reflections = request.shadows = request.skybox = request.haze = True
        request.headlight, brightest = bool(head.active), float(max(head.diffuse))
        request.headlight_color = tuple(np.asarray(head.diffuse) / brightest) if brightest else (1.0, 1.0, 1.0)
        request.headlight_intensity = _HEAD * brightest
        return request

    def close(self) -> None:
        """Free the graphics memory. Safe to call more than once."""
        if self._scene is None:
            return
        self._mark(())
        # Filament ends the process if a texture goes before what uses it.
        self._scene._renderables = self._scene._lights = None
        self._scene._scene = None
        self._scene = None
        self._read = self._target = None
        self._context = None

    def __enter__(self) -> FilamentCamera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _column(values: Any) -> np.ndarray:
    return np.asarray(values, np.float32).reshape(-1, 1)


@functools.cache
def _renderer() -> Any:
    """Return the module of MuJoCo's new renderer, after the package that holds Filament's materials."""
    importlib.import_module("mujoco.studio")
    return importlib.import_module("mujoco.mjrf")
