"""The SO-101's cube with a marker on each face."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from hal.cameras.source import opencv
from hal.robots.so101 import CUBE_HALF
from rlenv_vision.tags import FACES, CubeTags
from sim.model import SimModel
from sim.robots.so101 import so101, so101_mjcf

__all__ = ["CUBE_TAGS", "so101_tagged_cube"]

CUBE_TAGS = CubeTags(edge_m=2 * CUBE_HALF, tag_m=0.020)
"""Markers of 20 mm on the cube of 25 mm: a white margin of 2.5 mm around each."""

_CELLS = 6
"""Cells along a marker's side in the family ``4X4_50``, including the black border."""

_PIXELS_A_CELL = 20


def so101_tagged_cube(tags: CubeTags = CUBE_TAGS) -> SimModel:
    """Make the nominal model with markers on the cube's faces and the dynamics of `sim.robots.so101.so101`.

    Raises:
        RobotError: OpenCV is not installed.
    """
    mjcf = so101_mjcf(cube=True)
    for number, face in zip(tags.ids, FACES, strict=True):
        _add_face(mjcf, tags, number, face)
    model = mjcf.compile()
    nominal = so101(cube=True)
    if model.nq != nominal.model.nq or model.nsite != nominal.model.nsite:
        raise AssertionError("markers are visual parts: the states must stay those of the nominal model")
    return replace(nominal, model=model)


def _add_face(mjcf: mujoco.MjSpec, tags: CubeTags, number: int, face: np.ndarray) -> None:
    """Add a square with the marker's image just outside a face of the cube."""
    image = _marker(tags, number)
    name, side = f"tag_{number}", image.shape[0]
    mjcf.add_texture(
        name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, width=side, height=side, nchannel=3,
        data=np.repeat(image[::-1, :, None], 3, axis=2).ravel().tolist(),
    )  # fmt: skip
    material = mjcf.add_material(name=name, specular=0.0, shininess=0.0)
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    half = tags.edge_m / 2
    square = np.array([(-1, -1, 0), (1, -1, 0), (1, 1, 0), (-1, 1, 0)]) * half
    corners = square @ face.T + face[:, 2] * (half + 1e-4)
    inner = corners - face[:, 2] * 1e-3  # a mesh needs a volume
    vertices = np.concatenate([corners, inner])
    coordinates = np.array([(0, 0), (1, 0), (1, 1), (0, 1)] * 2, float)
    front, back = [(0, 1, 2), (0, 2, 3)], [(4, 6, 5), (4, 7, 6)]
    sides = [(a, a + 4, b + 4) for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))]
    sides += [(a, b + 4, b) for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))]
    mjcf.add_mesh(
        name=name, uservert=vertices.ravel(), usertexcoord=coordinates.ravel(),
        userface=np.array(front + back + sides).ravel(),
        userfacetexcoord=np.array(front + back + sides).ravel(),
    )  # fmt: skip
    mjcf.body("cube").add_geom(
        type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, material=name, contype=0, conaffinity=0, mass=0.0, group=2
    )


def _marker(tags: CubeTags, number: int) -> np.ndarray:
    """Return the image of a face, grey: the marker with its white margin; the first row is the upper one."""
    cv2 = opencv()
    dictionary = cv2.aruco.getPredefinedDictionary(getattr(cv2.aruco, f"DICT_{tags.family}"))
    side = _CELLS * _PIXELS_A_CELL
    marker = cv2.aruco.generateImageMarker(dictionary, number, side)
    margin = round(side * (tags.edge_m / tags.tag_m - 1) / 2)
    return np.asarray(cv2.copyMakeBorder(marker, *[margin] * 4, cv2.BORDER_CONSTANT, value=255))
