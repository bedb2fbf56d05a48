"""Convert the solids of a MuJoCo model to triangles, and write these as STL."""

from __future__ import annotations

from typing import NamedTuple

import mujoco
import numpy as np

__all__ = ["Triangles", "joined", "looks", "solid", "stl"]

_AROUND = 32
"""Edges around a round solid."""

_ALONG = 16
"""Rings of a sphere from pole to pole."""

_PLANE_M = 2.0, 0.5e-3
"""Half the width of a plane without an end, and half the thickness of any plane, metres."""

_HIDDEN_GROUP = 3
"""Groups from this one on hold what collides and is not looked at (MuJoCo's viewer hides them too)."""

_SHAPE = mujoco.mjtGeom


class Triangles(NamedTuple):
    """A closed surface of triangles. Seen from outside, the corners of each are anticlockwise.

    Attributes:
        corners: (N, 3), metres.
        faces: (M, 3), indices of corners.
    """

    corners: np.ndarray
    faces: np.ndarray

    def moved(self, position: np.ndarray, quaternion: np.ndarray) -> Triangles:
        """Rotate the surface by a quaternion (w, x, y, z), then translate it by a position, metres."""
        turn = np.zeros(9)
        mujoco.mju_quat2Mat(turn, np.asarray(quaternion, float))
        return Triangles(self.corners @ turn.reshape(3, 3).T + position, self.faces)


def joined(parts: list[Triangles]) -> Triangles:
    """Merge several surfaces into one."""
    starts = np.cumsum([0, *(len(part.corners) for part in parts[:-1])])
    faces = [part.faces + start for part, start in zip(parts, starts.tolist(), strict=True)]
    return Triangles(np.concatenate([part.corners for part in parts]), np.concatenate(faces))


def looks(model: mujoco.MjModel, body: int) -> list[tuple[tuple[float, ...], Triangles]]:
    """Return the visible surface of a body for each of its colours (red, green, blue, alpha, 0 to 1)."""
    colours: dict[tuple[float, ...], list[Triangles]] = {}
    for geom in np.flatnonzero(model.geom_bodyid == body).tolist():
        material = int(model.geom_matid[geom])
        rgba = model.mat_rgba[material] if material >= 0 else model.geom_rgba[geom]
        if model.geom_group[geom] < _HIDDEN_GROUP and rgba[3] > 0:
            colours.setdefault(tuple(round(float(part), 4) for part in rgba), []).append(solid(model, geom))
    return [(colour, joined(parts)) for colour, parts in colours.items()]


def solid(model: mujoco.MjModel, geom: int) -> Triangles:
    """Return a geom's surface in the frame of its body.

    Raises:
        ValueError: the geom is a height field or a signed distance field, which have no surface here.
    """
    kind, size = _SHAPE(int(model.geom_type[geom])), model.geom_size[geom]
    if kind == _SHAPE.mjGEOM_BOX:
        surface = _box(size)
    elif kind == _SHAPE.mjGEOM_PLANE:
        surface = _box(np.array([half if half > 0 else _PLANE_M[0] for half in size[:2]] + [_PLANE_M[1]]))
    elif kind == _SHAPE.mjGEOM_SPHERE:
        surface = _ball(np.full(3, size[0]), 0.0)
    elif kind == _SHAPE.mjGEOM_ELLIPSOID:
        surface = _ball(size, 0.0)
    elif kind == _SHAPE.mjGEOM_CAPSULE:
        surface = _ball(np.full(3, size[0]), float(size[1]))
    elif kind == _SHAPE.mjGEOM_CYLINDER:
        surface = _lathe(np.array([0.0, size[0], size[0], 0.0]), np.array([-1.0, -1.0, 1.0, 1.0]) * size[1])
    elif kind == _SHAPE.mjGEOM_MESH:
        surface = _mesh(model, int(model.geom_dataid[geom]))
    else:
        raise ValueError(f"geom {geom} is a {kind.name.removeprefix('mjGEOM_').lower()}, which is not a solid")
    return surface.moved(model.geom_pos[geom], model.geom_quat[geom])


def _box(half: np.ndarray) -> Triangles:
    corners = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float) * half
    quads = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    return Triangles(corners, np.array([face for a, b, c, d in quads for face in ((a, b, c), (a, c, d))]))


def _ball(radii: np.ndarray, half: float) -> Triangles:
    """Return an ellipsoid that is cut at its equator, with a tube of twice the half length between the halves."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, _ALONG + 1)
    if half:
        angles = np.insert(angles, _ALONG // 2, 0.0)
    ends = np.sign(np.arange(len(angles)) - (len(angles) - 1) / 2)
    surface = _lathe(np.cos(angles), np.sin(angles))
    along = np.concatenate([[-1.0], np.repeat(ends[1:-1], _AROUND), [1.0]])
    return Triangles(surface.corners * radii + np.outer(along * half, [0.0, 0.0, 1.0]), surface.faces)


def _lathe(radii: np.ndarray, heights: np.ndarray) -> Triangles:
    """Return the solid of a profile that turns around the z axis; the first and the last radius count as 0.

    Args:
        radii: (n,), metres.
        heights: (n,), metres, not falling.
    """
    turn = np.linspace(0, 2 * np.pi, _AROUND, endpoint=False)
    circle = np.stack([np.cos(turn), np.sin(turn), np.zeros(_AROUND)], 1)
    rings = [circle * radius + (0, 0, height) for radius, height in zip(radii[1:-1], heights[1:-1], strict=True)]
    corners = np.concatenate([[(0, 0, heights[0])], *rings, [(0, 0, heights[-1])]])
    here, following = np.arange(_AROUND), (np.arange(_AROUND) + 1) % _AROUND
    top = len(corners) - 1
    faces = [np.stack([np.zeros(_AROUND, int), 1 + following, 1 + here], 1)]
    for ring in range(len(rings) - 1):
        low, high = 1 + ring * _AROUND, 1 + (ring + 1) * _AROUND
        faces.append(np.stack([low + here, low + following, high + following], 1))
        faces.append(np.stack([low + here, high + following, high + here], 1))
    last = 1 + (len(rings) - 1) * _AROUND
    faces.append(np.stack([np.full(_AROUND, top), last + here, last + following], 1))
    return Triangles(corners, np.concatenate(faces))


def _mesh(model: mujoco.MjModel, mesh: int) -> Triangles:
    corners = slice(int(model.mesh_vertadr[mesh]), int(model.mesh_vertadr[mesh] + model.mesh_vertnum[mesh]))
    faces = slice(int(model.mesh_faceadr[mesh]), int(model.mesh_faceadr[mesh] + model.mesh_facenum[mesh]))
    return Triangles(np.array(model.mesh_vert[corners], float), np.array(model.mesh_face[faces], int))


def stl(surface: Triangles, title: str) -> bytes:
    """Return a surface as binary STL: an 80-byte title, the number of triangles, 50 bytes for each.

    Source of the layout: Marshall Burns, "Automated Fabrication", 1993, section 6.5.

    Args:
        surface: in metres.
        title: truncated to 80 bytes.
    """
    points = surface.corners[surface.faces]
    normals = np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0])
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    records = np.zeros(len(points), [("normal", "<f4", 3), ("points", "<f4", (3, 3)), ("attribute", "<u2")])
    records["normal"] = np.divide(normals, lengths, out=np.zeros_like(normals), where=lengths > 0)
    records["points"] = points
    return title.encode()[:80].ljust(80) + np.uint32(len(points)).tobytes() + records.tobytes()
