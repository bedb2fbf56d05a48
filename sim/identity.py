"""What makes two compiled models one simulation: every number that physics go by, and none that is only looked at."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import mujoco
import numpy as np

__all__ = ["physics_digest"]

_FIELDS = (
    "actuator_", "body_", "dof_", "eq_", "exclude_", "flex", "hfield_", "jnt_", "key_", "pair_", "plugin", "qpos",
    "sensor_", "site_", "ten_", "tendon_", "tree_", "wrap_",
)  # fmt: skip
"""How the names of arrays of ``mjModel`` begin that physics, sensors and starts go by."""

_LOOKS = ("_user", "_group", "_rgba", "_matid", "_texcoord", "_texcoordadr", "adr", "bvhnum", "geomnum", "dof_length")
"""How those among them end that are looks, users' own, or say only where in memory something lies."""

_GEOM = (
    "bodyid", "conaffinity", "condim", "contype", "fluid", "friction", "gap", "margin", "pos", "priority", "quat",
    "size", "solimp", "solmix", "solref", "type",
)  # fmt: skip
_MESHES = ("mesh_face", "mesh_vert", "mesh_vertadr", "mesh_vertnum")


def physics_digest(model: mujoco.MjModel) -> str:
    """SHA-256 (hex) of a compiled model's options and of all arrays that change what it computes.

    Geoms count only if they can touch something: a model with its looks and one without are the same simulation.
    """
    digest = hashlib.sha256()
    for name, values in _parts(model):
        array = np.ascontiguousarray(values)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _parts(model: mujoco.MjModel) -> Iterator[tuple[str, np.ndarray]]:
    for name in _public(model.opt):
        yield f"opt.{name}", np.asarray(getattr(model.opt, name))
    for name in _public(model):
        if name.startswith(_FIELDS) and not name.endswith(_LOOKS) and isinstance(getattr(model, name), np.ndarray):
            yield name, getattr(model, name)
    solid = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    for name in _GEOM:
        yield f"geom_{name}", getattr(model, f"geom_{name}")[solid]
    if np.isin(model.geom_type[solid], (mujoco.mjtGeom.mjGEOM_MESH.value, mujoco.mjtGeom.mjGEOM_SDF.value)).any():
        for name in _MESHES:
            yield name, getattr(model, name)


def _public(part: object) -> list[str]:
    return sorted(name for name in dir(part) if not name.startswith("_") and not callable(getattr(part, name)))
