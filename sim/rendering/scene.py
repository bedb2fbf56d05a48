"""Pose the models to draw, add markers to images, and test whether drawing the sky can be skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from sim.model import SimModel
from sim.state import whole_state

__all__ = ["Marker", "grounds", "pose", "set_fields", "sky_is_hidden"]


@dataclass(frozen=True, slots=True)
class Marker:
    """A ball that exists only in images, such as a goal or a point of a path.

    Attributes:
        position: the centre in the world frame, metres.
        radius: the radius, metres.
        rgba: red, green, blue and opacity, 0 to 1.
    """

    position: Sequence[float]
    radius: float = 0.012
    rgba: tuple[float, float, float, float] = (0.10, 0.65, 0.35, 0.75)


def set_fields(model: mujoco.MjModel, fields: Mapping[str, np.ndarray]) -> None:
    """Set fields of a model: field -> values, in any shape of the right size."""
    for name, values in fields.items():
        field = getattr(model, name)
        field[:] = np.reshape(values, field.shape)


def pose(sim_model: SimModel, model: mujoco.MjModel, data: mujoco.MjData, state: np.ndarray) -> None:
    """Place bodies, cameras and lights according to a state.

    Args:
        sim_model: the robot to draw.
        model: the model that is drawn for it.
        data: the data of ``model``.
        state: as for `sim.rendering.camera.Camera.render`.

    Raises:
        RobotError: the state has another shape.
    """
    data.qpos[:] = whole_state(sim_model, state)
    mujoco.mj_kinematics(model, data)
    mujoco.mj_comPos(model, data)
    mujoco.mj_camlight(model, data)


# -- Images that show nothing of the sky, which then need not be drawn -----------------------------------------


_PLANE = mujoco.mjtGeom.mjGEOM_PLANE.value
_COLOUR = mujoco.mjtTextureRole.mjTEXROLE_RGB.value


def grounds(model: mujoco.MjModel, option: mujoco.MjvOption) -> tuple[int, ...]:
    """Return the ids of the geoms that may hide the sky: drawn planes with edges and an opaque texture."""
    return tuple(
        geom
        for geom in range(model.ngeom)
        if model.geom_type[geom] == _PLANE
        and (model.geom_size[geom, :2] > 0).all()
        and option.geomgroup[model.geom_group[geom]]
        and _opaque_texture(model, model.geom_matid[geom])
    )


def _opaque_texture(model: mujoco.MjModel, material: int) -> bool:
    texture = model.mat_texid[material, _COLOUR] if material >= 0 else -1
    return bool(texture < 0 or model.tex_nchannel[texture] == 3)


def sky_is_hidden(
    model: mujoco.MjModel, data: mujoco.MjData, scene: mujoco.MjvScene, aspect: float, geoms: tuple[int, ...]
) -> bool:
    """Return whether one of these planes fills the whole image of a camera, from edge to edge.

    A plane with edges is convex, and so is its projection: if the rays through the four corners of an image meet the
    plane, all other rays do. The depths of the rays also have their extremes in the corners.

    Args:
        model: the model.
        data: its state, with positions up to date.
        scene: the scene after `mujoco.mjv_updateScene`. It has two eyes; the image's viewpoint is between them.
        aspect: width of the image over its height.
        geoms: the planes to test, from `grounds`.
    """
    camera, other = scene.camera
    if camera.orthographic:
        return False
    eye, forward, up = (camera.pos + other.pos) / 2.0, camera.forward.astype(float), camera.up.astype(float)
    low, high, near = camera.frustum_bottom, camera.frustum_top, camera.frustum_near
    half, middle = (high - low) / 2 * aspect, (camera.frustum_center + other.frustum_center) / 2
    right = np.cross(forward, up)
    corners = np.array([forward * near + right * (middle + x) + up * y for x in (-half, half) for y in (low, high)])
    return any(_fills(model, data, eye, corners, camera.frustum_far / near, geom) for geom in geoms)


def _fills(
    model: mujoco.MjModel, data: mujoco.MjData, eye: np.ndarray, corners: np.ndarray, farthest: float, geom: int
) -> bool:
    """Return whether all rays meet the plane from above, at 1 to ``farthest`` times their lengths."""
    material = model.geom_matid[geom]
    if model.geom_rgba[geom, 3] < 1 or (material >= 0 and model.mat_rgba[material, 3] < 1):
        return False
    turn = data.geom_xmat[geom].reshape(3, 3)
    start, rays = (eye - data.geom_xpos[geom]) @ turn, corners @ turn
    if start[2] <= 0 or (rays[:, 2] >= 0).any():
        return False
    times = -start[2] / rays[:, 2]
    if times.min() <= 1 or times.max() >= farthest:
        return False
    hits = np.abs(start[:2] + times[:, None] * rays[:, :2])
    return bool((hits < model.geom_size[geom, :2]).all())
