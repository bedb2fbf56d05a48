"""Encode the solids of a robot's model as one message for Foxglove's 3D panel."""

from __future__ import annotations

from collections import defaultdict

import mujoco
import numpy as np
from foxglove import messages as fg

from sim.body_frames import BodyFrames

__all__ = ["scene_update"]

_GEOM = mujoco.mjtGeom
_HIDDEN_GROUP = 3
"""Groups from this one on hold what collides and is not looked at (MuJoCo's viewer hides them too)."""

_GROUND_M = 4.0
"""Width and depth of a plane that has no end, metres."""


def scene_update(model: mujoco.MjModel, frames: BodyFrames) -> fg.SceneUpdate:
    """Return all visible solids of a model, with one entity per body that is locked to the body's frame.

    Args:
        model: the model of the robot.
        frames: the names of its bodies' frames.
    """
    solids: dict[int, list[int]] = defaultdict(list)
    for geom in range(model.ngeom):
        if model.geom_group[geom] < _HIDDEN_GROUP and _rgba(model, geom)[3] > 0:
            solids[int(model.geom_bodyid[geom])].append(geom)
    return fg.SceneUpdate(entities=[_entity(model, frames.names[body], geoms) for body, geoms in solids.items()])


def _rgba(model: mujoco.MjModel, geom: int) -> np.ndarray:
    material = int(model.geom_matid[geom])
    values: np.ndarray = model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]
    return values


def _entity(model: mujoco.MjModel, frame: str, geoms: list[int]) -> fg.SceneEntity:
    cubes, spheres, cylinders, triangles = [], [], [], []
    for geom in geoms:
        kind, size = _GEOM(int(model.geom_type[geom])), model.geom_size[geom]
        position, turn = model.geom_pos[geom], model.geom_quat[geom]
        pose, color = _pose(position, turn), fg.Color(**dict(zip("rgba", _rgba(model, geom).tolist(), strict=True)))
        if kind == _GEOM.mjGEOM_BOX:
            cubes.append(fg.CubePrimitive(pose=pose, size=_vector(2 * size), color=color))
        elif kind == _GEOM.mjGEOM_PLANE:
            width, depth = (2 * half if half > 0 else _GROUND_M for half in size[:2])
            cubes.append(fg.CubePrimitive(pose=pose, size=_vector((width, depth, 1e-3)), color=color))
        elif kind == _GEOM.mjGEOM_SPHERE:
            spheres.append(fg.SpherePrimitive(pose=pose, size=_vector([2 * size[0]] * 3), color=color))
        elif kind == _GEOM.mjGEOM_ELLIPSOID:
            spheres.append(fg.SpherePrimitive(pose=pose, size=_vector(2 * size), color=color))
        elif kind in (_GEOM.mjGEOM_CYLINDER, _GEOM.mjGEOM_CAPSULE):
            round_size = _vector((2 * size[0], 2 * size[0], 2 * size[1]))
            cylinders.append(
                fg.CylinderPrimitive(pose=pose, size=round_size, color=color, bottom_scale=1.0, top_scale=1.0)
            )
            if kind == _GEOM.mjGEOM_CAPSULE:
                spheres += [_cap(position, turn, end * size[1], size[0], color) for end in (-1, 1)]
        elif kind == _GEOM.mjGEOM_MESH:
            triangles.append(_mesh(model, int(model.geom_dataid[geom]), pose, color))
    return fg.SceneEntity(
        frame_id=frame, id=frame, frame_locked=True,
        cubes=cubes, spheres=spheres, cylinders=cylinders, triangles=triangles,
    )  # fmt: skip


def _cap(position: np.ndarray, turn: np.ndarray, along: float, radius: float, color: fg.Color) -> fg.SpherePrimitive:
    """Return the round end of a capsule."""
    offset = np.zeros(3)
    mujoco.mju_rotVecQuat(offset, np.array([0.0, 0.0, along]), turn)
    return fg.SpherePrimitive(pose=_pose(position + offset, turn), size=_vector([2 * radius] * 3), color=color)


def _mesh(model: mujoco.MjModel, mesh: int, pose: fg.Pose, color: fg.Color) -> fg.TriangleListPrimitive:
    corners = slice(int(model.mesh_vertadr[mesh]), int(model.mesh_vertadr[mesh] + model.mesh_vertnum[mesh]))
    faces = slice(int(model.mesh_faceadr[mesh]), int(model.mesh_faceadr[mesh] + model.mesh_facenum[mesh]))
    points = [fg.Point3(x=x, y=y, z=z) for x, y, z in model.mesh_vert[corners].tolist()]
    return fg.TriangleListPrimitive(
        pose=pose, points=points, color=color, indices=model.mesh_face[faces].ravel().tolist()
    )


def _vector(values: np.ndarray | tuple[float, ...] | list[float]) -> fg.Vector3:
    x, y, z = (float(value) for value in values)
    return fg.Vector3(x=x, y=y, z=z)


def _pose(position: np.ndarray, turn: np.ndarray) -> fg.Pose:
    w, x, y, z = (float(value) for value in turn)
    return fg.Pose(position=_vector(position), orientation=fg.Quaternion(x=x, y=y, z=z, w=w))
