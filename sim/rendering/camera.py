"""Draw images of a simulated robot without a screen, with OpenGL if it is available."""

from __future__ import annotations

import copy
import ctypes
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, Self

import mujoco
import numpy as np

from hal.errors import RobotError, missing_plugin
from sim.model import SimModel
from sim.rendering.egl import EglContext, drawn_by_callers, load_triton_first
from sim.rendering.rays import RayCamera
from sim.rendering.scene import Marker, grounds, pose, set_fields, sky_is_hidden
from sim.state import posed, posing

__all__ = ["Camera", "Eye", "Marker", "Renderer", "available", "film", "open_camera", "renderer_name", "seen"]

_MAX_GEOMS = 2000
_GL_RENDERER = 0x1F01

_SIDES, _RINGS = 16, 8
"""Numbers of corners with which round parts are drawn. MuJoCo's 28 and 16 take a third of the time of an image in
software. A part with a radius of 20 pixels becomes at most 20 (1 - cos(pi / 16)) = 0.4 pixels narrower."""

_SEEN = frozenset({"body_pos", "body_quat", "jnt_pos", "jnt_axis", "qpos0", "geom_pos", "geom_quat", "geom_rgba"})
_SEEN_KINDS = ("mat_", "cam_", "light_")


class Camera:
    """Draw a robot's states from one camera of its model, without running physics. Not thread-safe.

    Args:
        sim_model: the robot to draw.
        name: the name of a camera of the MJCF.
        width: width of the images, pixels.
        height: height of the images, pixels.
        fine: whether to draw shadows, reflections, smooth edges and rounder parts; in software this takes many times
            as long.

    Raises:
        RobotError: the model has no such camera, or this machine can't draw (see `available`).
    """

    def __init__(self, sim_model: SimModel, name: str, width: int, height: int, *, fine: bool = False) -> None:
        camera = sim_model.camera_id(name)
        self._sim_model, self.width, self.height = sim_model, width, height
        self._model = copy.copy(sim_model.model)  # the sizes below are the camera's, not the robot's
        self._model.vis.global_.offwidth, self._model.vis.global_.offheight = width, height
        quality = self._model.vis.quality
        quality.offsamples = 4 if fine else 0
        if not fine:
            quality.shadowsize, quality.numslices, quality.numstacks = 0, _SIDES, _RINGS
        self._data = mujoco.MjData(self._model)
        self._view = mujoco.MjvCamera()
        self._view.type, self._view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
        self._option = mujoco.MjvOption()
        self._scene = mujoco.MjvScene(self._model, _MAX_GEOMS)
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            self._scene.flags[flag] = fine
        self._grounds, self._aspect = grounds(self._model, self._option), width / height
        self._gl: Any = _open_gl(width, height)
        try:
            self._context = mujoco.MjrContext(self._model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        except mujoco.FatalError as error:
            self._gl.free()
            raise RobotError(f"images of {width} x {height} pixels can't be drawn here: {error}") from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        _release(self._gl)
        self._pixels = np.empty((height, width, 3), np.uint8)

    def set_model(self, fields: Mapping[str, np.ndarray]) -> None:
        """Set fields of the drawn model: field -> values. `seen` selects the fields that images show."""
        set_fields(self._model, fields)

    def render(self, state: np.ndarray, markers: Sequence[Marker] = (), out: np.ndarray | None = None) -> np.ndarray:
        """Draw one state.

        Args:
            state: the whole ``qpos``, shape (nq,), or only the robot's pose in the form of its start command (the
                joint positions of an arm); everything else is then as in the model's keyframe.
            markers: balls to draw with the robot.
            out: the array for the image, uint8 of shape (height, width, 3); None makes a new array.

        Returns:
            RGB, uint8, shape (height, width, 3).

        Raises:
            RobotError: the state has another shape, or the camera is closed.
        """
        if self._gl is None:
            raise RobotError("this camera is closed, make a new one")
        pose(self._sim_model, self._model, self._data, state)
        # The headlight shines from the scene's last camera: without this call an image would depend on the one before.
        mujoco.mjv_updateCamera(self._model, self._data, self._view, self._scene)
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(self._model, self._data, self._option, None, self._view, everything, self._scene)
        hidden = sky_is_hidden(self._model, self._data, self._scene, self._aspect, self._grounds)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SKYBOX] = not hidden
        for marker in markers:
            self._add(marker)
        return self._draw(out)

    def _add(self, marker: Marker) -> None:
        scene = self._scene
        if scene.ngeom == scene.maxgeom:
            raise RobotError(f"an image holds {scene.maxgeom} bodies and markers, draw fewer")
        size, rgba = np.full(3, float(marker.radius)), np.asarray(marker.rgba, np.float32)
        sphere = mujoco.mjtGeom.mjGEOM_SPHERE.value
        position, turn = np.asarray(marker.position, float), np.eye(3).ravel()
        mujoco.mjv_initGeom(scene.geoms[scene.ngeom], sphere, size, position, turn, rgba)
        scene.ngeom += 1

    def _draw(self, out: np.ndarray | None) -> np.ndarray:
        self._gl.make_current()
        rectangle = mujoco.MjrRect(0, 0, self.width, self.height)
        mujoco.mjr_render(rectangle, self._scene, self._context)
        mujoco.mjr_readPixels(self._pixels, None, rectangle, self._context)
        _release(self._gl)
        image = np.empty_like(self._pixels) if out is None else out
        image[:] = self._pixels[::-1]  # OpenGL counts rows from below
        return image

    def close(self) -> None:
        """Free the graphics memory. Safe to call more than once."""
        if self._gl is not None:
            self._gl.make_current()
            self._context.free()
            self._gl.free()
            self._gl = None

    def __enter__(self) -> Camera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Eye(Protocol):
    """A camera that draws states: `Camera`, `sim.rendering.rays.RayCamera`, or one of another package's renderer."""

    width: int
    height: int

    def set_model(self, fields: Mapping[str, np.ndarray]) -> None:
        """Set fields of the drawn model, as `Camera.set_model` does."""
        ...

    def render(self, state: np.ndarray, markers: Sequence[Marker] = (), out: np.ndarray | None = None) -> np.ndarray:
        """Draw one state, as `Camera.render` does."""
        ...

    def close(self) -> None:
        """Free the memory. Safe to call more than once."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


Renderer = Callable[[SimModel, str, int, int, bool], Eye | None]
"""A function that opens a camera for fine images, from a model, a camera's name, a width and a height.

The last argument is True if the user has chosen this renderer: it then raises `hal.RobotError` if it can't draw.
If False, it returns None when OpenGL is the better choice. A package declares a renderer in the entry-point group
``rlenv_robot.renderers``.
"""

_CHOICE = "RLENV_ROBOT_RENDERER"
_log = logging.getLogger(__name__)


def open_camera(sim_model: SimModel, name: str, width: int, height: int, *, fine: bool = False) -> Eye:
    """Open a `Camera`, or a `sim.rendering.rays.RayCamera` on a machine without OpenGL.

    The fallback is logged once, with the reason and the packages to install. With ``fine``, a package's `Renderer` may
    draw instead. The environment variable RLENV_ROBOT_RENDERER selects it: a renderer's name, such as ``filament``, or
    ``opengl`` for none.

    Raises:
        RobotError: the model has no such camera, or the environment variable names an unknown renderer.
    """
    if fine:
        for renderer, chosen in _renderers():
            eye = renderer(sim_model, name, width, height, chosen)
            if eye is not None:
                return eye
    why = available()
    if why is None:
        return Camera(sim_model, name, width, height, fine=fine)
    _say_once(why)
    return RayCamera(sim_model, name, width, height)


def _renderers() -> Iterator[tuple[Renderer, bool]]:
    """Yield the renderers of packages that may draw fine images, and whether a person asks for it."""
    choice = os.environ.get(_CHOICE, "").strip().lower()
    points = _declared()
    if choice not in ("", "opengl", *points):
        allowed = " and ".join(repr(word) for word in (*sorted(points), "opengl"))
        where = "" if points else f"; 'filament' is in {missing_plugin('rlenv_vision')}"
        raise RobotError(f"{_CHOICE} is {choice!r}, allowed are {allowed}; unset it for the default{where}")
    for word, point in points.items():
        if choice in ("", word):
            yield point.load(), choice == word


@functools.cache
def _declared() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="rlenv_robot.renderers")}


@functools.cache
def _say_once(why: str) -> None:
    _log.warning("images are cast ray by ray, without shadows and more slowly: %s", why)


def seen(models: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Select the fields that are visible in images from those in which randomised models differ (`SimBatch.models`)."""
    return {name: values for name, values in models.items() if name in _SEEN or name.startswith(_SEEN_KINDS)}


def film(
    sim_model: SimModel,
    sensors: Mapping[str, np.ndarray],
    camera: str = "view",
    width: int = 640,
    height: int = 480,
    markers: Sequence[Marker] = (),
    *,
    fine: bool = True,
) -> Iterator[np.ndarray]:
    """Draw the poses that sensors have measured, live or in an old log.

    Args:
        sim_model: the robot to draw.
        sensors: sensor name -> values, shape (T, ...). Only the sensors that the model reads directly from ``qpos``
            are used; the other elements of ``qpos`` are those of the model's keyframe.
        camera: name of the camera, as for `Camera`.
        width: width of the images, pixels.
        height: height of the images, pixels.
        markers: balls to draw in every image.
        fine: as for `Camera`.

    Yields:
        T images, each uint8 of shape (height, width, 3).

    Raises:
        RobotError: no sensor measures a pose, or the model has no such camera.
    """
    rows = {name: np.asarray(sensors[name]) for name in posing(sim_model, sensors)}
    with open_camera(sim_model, camera, width, height, fine=fine) as eye:
        for index in range(min(len(values) for values in rows.values())):
            yield eye.render(posed(sim_model, {name: values[index] for name, values in rows.items()}), markers)


def _open_gl(width: int, height: int) -> Any:
    """Make a current OpenGL context: an `EglContext` on Linux, or the context that MUJOCO_GL requests from MuJoCo.

    MuJoCo's EGL context needs PyOpenGL; where that is missing, ``MUJOCO_GL=egl`` means an `EglContext` too.
    """
    chosen = os.environ.get("MUJOCO_GL", "").strip().lower()
    if chosen in ("disable", "disabled", "off", "false", "0"):
        raise RobotError(f"images can't be drawn: MUJOCO_GL is {chosen!r}; unset it")
    if sys.platform == "linux" and not chosen:
        return EglContext()
    load_triton_first()
    try:
        with drawn_by_callers():
            context = mujoco.GLContext(width, height)
    except Exception as error:  # each back end raises exceptions of its own
        if chosen == "egl" and isinstance(error, ImportError):
            return EglContext()
        raise RobotError(f"images can't be drawn with MUJOCO_GL={chosen or 'unset'}: {error}") from error
    context.make_current()
    return context


def _release(context: object) -> None:
    if isinstance(context, EglContext):  # MuJoCo's contexts can't be released
        context.release()


def renderer_name() -> str:
    """Return the name of this machine's OpenGL renderer, such as ``llvmpipe (LLVM 15.0.6, 256 bits)``, or "".

    Raises:
        RobotError: this machine can't draw.
    """
    context = _open_gl(16, 16)
    try:
        for library in ("libOpenGL.so.0", "libGL.so.1"):
            with suppress(OSError, AttributeError):
                get_string = ctypes.CDLL(library).glGetString
                get_string.restype = ctypes.c_char_p
                return (get_string(_GL_RENDERER) or b"").decode(errors="replace")
        return ""
    finally:
        context.free()


@functools.cache
def available() -> str | None:
    """Return None if this machine can draw, otherwise the reason why it can't. The result is cached."""
    try:
        context = _open_gl(16, 16)
    except RobotError as error:
        return str(error)
    context.free()
    return None
