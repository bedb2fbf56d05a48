"""Describe the solids of a robot's model and their poses, for the page to draw."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

from hal import RobotError
from hal.field import JsonDict
from sim.model import SimModel
from sim.state import posed

__all__ = ["Scene"]

_SHAPES = {
    mujoco.mjtGeom.mjGEOM_PLANE.value: "plane",
    mujoco.mjtGeom.mjGEOM_SPHERE.value: "sphere",
    mujoco.mjtGeom.mjGEOM_CAPSULE.value: "capsule",
    mujoco.mjtGeom.mjGEOM_ELLIPSOID.value: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_CYLINDER.value: "cylinder",
    mujoco.mjtGeom.mjGEOM_BOX.value: "box",
    mujoco.mjtGeom.mjGEOM_MESH.value: "mesh",
}
_HIDDEN_GROUP = 3
"""Groups from this one on hold what collides and is not looked at (MuJoCo's viewer hides them too)."""

_MOST_CORNERS = 6000
"""Corners of all meshes together that a page is sent; a model with more is sent as boxes around its meshes."""

_DIGITS = 4
"""Digits after the point of metres and of quaternions: 0.1 mm."""


class Scene:
    """The solids of a model, and their places in measured and in commanded poses. Only one thread may use it.

    Args:
        sim_model: the simulation model of the robot.
    """

    def __init__(self, sim_model: SimModel) -> None:
        self._sim_model, self._model = sim_model, sim_model.model
        self._data = mujoco.MjData(self._model)

    def describe(self) -> JsonDict:
        """Return ``geoms`` (shape, size and pos (m), body, quat (w, x, y, z), rgba of each) and the camera's target."""
        model = self._model
        whole = sum(int(model.mesh_vertnum[mesh]) for mesh in range(model.nmesh)) <= _MOST_CORNERS
        geoms = [
            self._geom(index, whole=whole)
            for index in range(model.ngeom)
            if model.geom_group[index] < _HIDDEN_GROUP and int(model.geom_type[index]) in _SHAPES
        ]
        center, extent = model.stat.center, float(model.stat.extent)
        return {
            "geoms": [geom for geom in geoms if geom["rgba"][3] > 0],
            "center": np.round(center, _DIGITS).tolist(),
            "extent": round(extent, _DIGITS),
        }

    def _geom(self, index: int, *, whole: bool) -> JsonDict:
        model = self._model
        shape, size = _SHAPES[int(model.geom_type[index])], model.geom_size[index]
        pos, material = model.geom_pos[index], int(model.geom_matid[index])
        rgba = model.mat_rgba[material] if material >= 0 else model.geom_rgba[index]
        geom: JsonDict = {
            "shape": shape, "body": int(model.geom_bodyid[index]), "size": np.round(size, 5).tolist(),
            "pos": np.round(pos, 5).tolist(), "quat": np.round(model.geom_quat[index], 5).tolist(),
            "rgba": np.round(rgba, 3).tolist(),
        }  # fmt: skip
        if shape == "mesh":
            self._add_mesh(geom, index, whole=whole)
        return geom

    def _add_mesh(self, geom: JsonDict, index: int, *, whole: bool) -> None:
        """Add the corners and triangles of a mesh, or put the box around it in its place."""
        model, mesh = self._model, int(self._model.geom_dataid[index])
        corners = slice(int(model.mesh_vertadr[mesh]), int(model.mesh_vertadr[mesh] + model.mesh_vertnum[mesh]))
        faces = slice(int(model.mesh_faceadr[mesh]), int(model.mesh_faceadr[mesh] + model.mesh_facenum[mesh]))
        if whole:
            geom["corners"] = np.round(model.mesh_vert[corners], _DIGITS).ravel().tolist()
            geom["faces"] = model.mesh_face[faces].ravel().tolist()
        else:
            center, half = model.geom_aabb[index, :3], model.geom_aabb[index, 3:]
            turned = np.zeros(3)
            mujoco.mju_rotVecQuat(turned, center, model.geom_quat[index])
            geom |= {"shape": "box", "size": np.round(half, 5).tolist()}
            geom["pos"] = np.round(model.geom_pos[index] + turned, 5).tolist()

    def pose(self, sensors: Mapping[str, np.ndarray]) -> list[float]:
        """Return position (m) and quaternion (w, x, y, z) of each body in a measured pose: 7 numbers per body.

        The list is empty if the sensors give no pose.
        """
        try:
            return self._places(posed(self._sim_model, sensors))
        except RobotError:
            return []

    def commanded(self, sensors: Mapping[str, np.ndarray], applied: Mapping[str, np.ndarray]) -> list[float]:
        """Return the numbers of `pose` for the commanded pose; empty if the commands give none."""
        start = self._sim_model.start
        if not start or not start.keys() <= applied.keys():
            return []
        try:
            qpos = posed(self._sim_model, sensors)
        except RobotError:
            return []
        for name, columns in start.items():
            qpos[columns if isinstance(columns, slice) else list(columns)] = np.asarray(applied[name]).ravel()
        return self._places(qpos)

    def _places(self, qpos: np.ndarray) -> list[float]:
        if not np.isfinite(qpos).all():
            return []
        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        places: list[float] = np.hstack([self._data.xpos, self._data.xquat]).round(_DIGITS).ravel().tolist()
        return places
