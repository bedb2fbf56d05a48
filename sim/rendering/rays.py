"""Draw images without OpenGL: MuJoCo casts one ray for each pixel."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
from mujoco.batch import Batch

from hal.errors import RobotError
from sim.model import SimModel
from sim.rendering.egl import PACKAGES
from sim.rendering.scene import Marker, pose

__all__ = ["RayCamera"]

_VISIBLE = np.array([1, 1, 1, 0, 0, 0], np.uint8)
"""Groups of geoms that are drawn: those that MuJoCo's own renderer draws by default."""

_SKY_LOW, _SKY_HIGH = np.array((0.62, 0.69, 0.77)), np.array((0.90, 0.92, 0.94))
_KEY_LIGHT = np.array((-0.35, -0.45, 0.82))  # towards the light, nearly a unit vector
_AMBIENT, _HEAD, _KEY = 0.45, 0.25, 0.35
_CHECKS = 0.06


class RayCamera:
    """Draw a robot's states like `sim.rendering.camera.Camera`, but without OpenGL, shadows and textures.

    It is slower than OpenGL, but its geometry is exact, and it also measures distances.

    Args:
        sim_model: the robot to draw.
        name: the name of a camera of the MJCF.
        width: width of the images, pixels.
        height: height of the images, pixels.

    Raises:
        RobotError: the model has no such camera.
    """

    def __init__(self, sim_model: SimModel, name: str, width: int, height: int) -> None:
        camera = sim_model.camera_id(name)
        self._sim_model, self.width, self.height = sim_model, width, height
        self._model = copy.copy(sim_model.model)
        self._data: mujoco.MjData | None = mujoco.MjData(self._model)
        # mj_multiRay overlooks geoms that collide with nothing on bodies that have others. A batch casts as mj_ray
        # does, and its simulations, all in one state, share the rows of the image between threads.
        self._parts = _divisor(height, os.cpu_count() or 1)
        self._batch = Batch(self._model, self._parts, self._parts)
        self._camera = camera
        self._rays = _rays(float(self._model.cam_fovy[self._camera]), width, height)
        self._colours, self._checked = _looks(self._model)

    def set_model(self, fields: Mapping[str, np.ndarray]) -> None:
        """Refuse fields of the model, since rays are cast in the nominal model (see `Camera.set_model`).

        Raises:
            RobotError: ``fields`` is not empty.
        """
        if fields:
            raise RobotError(
                f"{', '.join(sorted(fields))} differ from simulation to simulation, which rays don't show: make OpenGL "
                f"work (apt-get install {PACKAGES}), or leave them out of the randomisation"
            )

    def render(self, state: np.ndarray, markers: Sequence[Marker] = (), out: np.ndarray | None = None) -> np.ndarray:
        """Draw one state, as `sim.rendering.camera.Camera.render` does."""
        eye, rays = self._cast(state)
        colours = self._shade(eye, rays)
        for marker in markers:
            self._add(marker, eye, rays, colours)
        image = np.empty((self.height, self.width, 3), np.uint8) if out is None else out
        image[:] = np.clip(colours * 255.0 + 0.5, 0, 255).reshape(image.shape)
        return image

    def depth(self, state: np.ndarray) -> np.ndarray:
        """Measure the distance along each pixel's ray, metres, shape (height, width); infinite if it hits nothing.

        Raises:
            RobotError: the state has another shape, or the camera is closed.
        """
        self._cast(state)
        hit = self._geom >= 0
        return np.where(hit, self._depth, np.inf).reshape(self.height, self.width)

    def _cast(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cast the rays; return the position of the eye and the directions of the rays in the world."""
        data = self._data
        if data is None:
            raise RobotError("this camera is closed, make a new one")
        pose(self._sim_model, self._model, data, state)
        eye = data.cam_xpos[self._camera].copy()
        rays = self._rays @ data.cam_xmat[self._camera].reshape(3, 3).T
        self._batch.bind("qpos")[:] = data.qpos
        share = (self._parts, -1, 3)
        depth, geom, normal = self._batch.ray(eye, rays.reshape(share), geomgroup=_VISIBLE, normal=True)
        self._depth, self._geom, self._normal = depth.ravel(), geom.ravel(), normal.reshape(-1, 3)
        return eye, rays

    def _shade(self, eye: np.ndarray, rays: np.ndarray) -> np.ndarray:
        """Return the colours of all pixels, 0..1, shape (height * width, 3)."""
        height = 0.5 + 0.5 * rays[:, 2:]
        colours: np.ndarray = _SKY_LOW + (_SKY_HIGH - _SKY_LOW) * height
        hit = np.flatnonzero(self._geom >= 0)
        geom, normal = self._geom[hit], self._normal[hit]
        facing = -(normal * rays[hit]).sum(axis=1)
        normal *= np.sign(facing)[:, None]  # the inside of a hull is visible too
        light = _AMBIENT + _HEAD * np.abs(facing) + _KEY * np.maximum(normal @ _KEY_LIGHT, 0.0)
        checked = self._checked[geom]
        if checked.any():
            point = eye + rays[hit] * self._depth[hit, None]
            odd = (np.floor(point[:, :2] * 4.0).sum(axis=1) % 2.0) * 2.0 - 1.0
            light = light * np.where(checked, 1.0 + _CHECKS * odd, 1.0)
        colours[hit] = self._colours[geom] * light[:, None]
        return colours

    def _add(self, marker: Marker, eye: np.ndarray, rays: np.ndarray, colours: np.ndarray) -> None:
        """Draw a ball where no geom is nearer: the smaller root of |eye + t ray - centre| = radius."""
        gap = eye - np.asarray(marker.position, float)
        along = rays @ gap
        inside = along**2 - gap @ gap + marker.radius**2
        distance = -along - np.sqrt(np.maximum(inside, 0.0))
        free = (self._geom < 0) | (distance < self._depth)
        hit = np.flatnonzero((inside > 0) & (distance > 0) & free)
        normal = (gap + rays[hit] * distance[hit, None]) / marker.radius
        light = _AMBIENT + _HEAD * np.abs((normal * rays[hit]).sum(axis=1)) + _KEY * np.maximum(normal @ _KEY_LIGHT, 0)
        opaque = marker.rgba[3]
        colours[hit] = (1 - opaque) * colours[hit] + opaque * np.asarray(marker.rgba[:3]) * light[:, None]

    def close(self) -> None:
        """Free memory and threads. Safe to call more than once."""
        self._data = None
        vars(self).pop("_batch", None)

    def __enter__(self) -> RayCamera:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _divisor(height: int, most: int) -> int:
    """Return the largest number of equal shares of the rows, at most ``most``."""
    return max(share for share in range(1, most + 1) if height % share == 0)


def _rays(fovy_degrees: float, width: int, height: int) -> np.ndarray:
    """Return unit vectors through the pixels' middles in the camera's frame (x right, y up), row by row from above."""
    focal = 0.5 * height / np.tan(np.deg2rad(fovy_degrees) / 2)
    across, up = np.arange(width) + 0.5 - width / 2, height / 2 - np.arange(height) - 0.5
    x, y = np.meshgrid(across / focal, up / focal)
    rays: np.ndarray = np.stack([x, y, -np.ones_like(x)], axis=-1).reshape(-1, 3)
    rays /= np.linalg.norm(rays, axis=1, keepdims=True)
    return rays


def _looks(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the colour of each geom, shape (ngeom, 3), and whether it is a ground with a checked texture."""
    colours, checked = np.array(model.geom_rgba[:, :3], float), np.zeros(model.ngeom, bool)
    for geom, material in enumerate(model.geom_matid.tolist()):
        if material < 0:
            continue
        textures = model.mat_texid[material]
        textured = textures[textures >= 0]
        colours[geom] = model.mat_rgba[material, :3]
        if len(textured):
            checked[geom] = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_PLANE.value
            colours[geom] *= _mean_colour(model, int(textured[0]))
    return colours, checked


def _mean_colour(model: mujoco.MjModel, texture: int) -> np.ndarray:
    size = model.tex_height[texture] * model.tex_width[texture] * model.tex_nchannel[texture]
    begin = model.tex_adr[texture]
    pixels = model.tex_data[begin : begin + size].reshape(-1, model.tex_nchannel[texture])
    return pixels[:, :3].mean(axis=0) / 255.0
