"""Randomise the looks of the SO-101's table: lights, colours, textures and camera poses.

Policies from images are trained within this range, so that they work under unseen looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np

from sim.model import SimModel
from sim.robots.so101 import so101, so101_mjcf

__all__ = ["TEXTURES", "so101_cube_textured", "so101_looks"]

TEXTURES = ("checker", "stripes", "stains", "grain")
"""The textures of the table, in grey levels that their materials colour; later textures are on top."""

_SIDE = 128
_SIZE_M = (0.40, 0.45)
_SEEN = [1.0] * 3 + [0.0] * 7
"""Whether a texture is visible, in each of ten episodes."""

_CUBE_REDS = {"[0]": [0.60, 0.95], "[1]": [0.05, 0.30], "[2]": [0.05, 0.30]}


def so101_cube_textured(looks: bool = True) -> SimModel:
    """Make the nominal model with the cube, and a sheet for each of `TEXTURES` on the table.

    Without randomisation the last sheet covers the others; `so101_looks` draws which sheets are visible. The dynamics
    are those of `sim.robots.so101.so101`.

    Args:
        looks: whether the model has its visual parts, which include the sheets.
    """
    nominal = so101(cube=True, looks=looks)
    if not looks:
        return nominal
    mjcf = so101_mjcf(cube=True)
    for number, name in enumerate(TEXTURES):
        _add_sheet(mjcf, name, 1e-4 * (number + 1))
    return replace(nominal, model=mjcf.compile())


def so101_looks(cameras: tuple[str, ...] = ("overhead", "view")) -> Mapping[str, Any]:
    """Return ``randomise`` for the looks of `so101_cube_textured`, drawn for each episode.

    Lights: brightness by a factor of 0.5 to 1.4, the key light's position by 0.3 m. Colours: table, textures, floor,
    arm and the cube, which stays red. Textures: each is visible in three of ten episodes. Cameras fixed to the world: 1
    cm along each axis, 0.6 degrees (0.005 of a quaternion) about each axis, and 0.5 degrees of the field of view.

    Args:
        cameras: names of the cameras whose poses are drawn.
    """
    randomise: dict[str, Any] = {
        "light.*.diffuse": {"uniform": [0.5, 1.4], "scale": True},
        "material.print.rgba": {"uniform": [0.6, 1.03], "scale": True},
        "material.servo.rgba": {"uniform": [0.5, 1.0], "scale": True},
        "material.floor.rgba": {"uniform": [0.4, 1.0], "scale": True},
    }
    for axis in (0, 1):
        randomise[f"light.key.pos[{axis}]"] = {"uniform": [-0.3, 0.3], "add": True, "unit": "m"}
    for channel in range(3):
        randomise[f"material.table.rgba[{channel}]"] = {"uniform": [0.3, 0.95], "unit": "1"}
        for name in TEXTURES:
            randomise[f"material.{name}.rgba[{channel}]"] = {"uniform": [0.3, 1.0], "unit": "1"}
    for name in TEXTURES:
        randomise[f"material.{name}.rgba[3]"] = {"choice": _SEEN, "unit": "1"}
    for place, span in _CUBE_REDS.items():
        randomise[f"material.cube.rgba{place}"] = {"uniform": span, "unit": "1"}
    for camera in cameras:
        for axis in range(3):
            randomise[f"camera.{camera}.pos[{axis}]"] = {"uniform": [-0.01, 0.01], "add": True, "unit": "m"}
            randomise[f"camera.{camera}.quat[{axis + 1}]"] = {"uniform": [-0.005, 0.005], "add": True, "unit": "1"}
        randomise[f"camera.{camera}.fovy"] = {"uniform": [-0.5, 0.5], "add": True, "unit": "degree"}
    return randomise


def _add_sheet(mjcf: mujoco.MjSpec, name: str, height_m: float) -> None:
    """Add a sheet with a texture just above the table, which touches nothing."""
    grey = np.repeat(_pattern(name)[:, :, None], 3, axis=2)
    mjcf.add_texture(
        name=name, type=mujoco.mjtTexture.mjTEXTURE_2D.value, width=_SIDE, height=_SIDE, nchannel=3,
        data=grey.ravel().tolist(),
    )  # fmt: skip
    material = mjcf.add_material(name=name, specular=0.1, shininess=0.1, texrepeat=[3, 3])
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
    mjcf.worldbody.add_geom(
        name=f"sheet_{name}", type=mujoco.mjtGeom.mjGEOM_BOX, size=[*_SIZE_M, height_m / 2],
        pos=[0.25, 0.0, height_m / 2], material=name, contype=0, conaffinity=0, mass=0.0, group=1,
    )  # fmt: skip


def _pattern(name: str) -> np.ndarray:
    """Return the grey levels of a texture, uint8, (128, 128)."""
    row, column = np.indices((_SIDE, _SIDE))
    if name == "checker":
        level = ((row // 32 + column // 32) % 2).astype(float)
    elif name == "stripes":
        level = (np.sin(2 * np.pi * (row + column) / 32) > 0).astype(float)
    else:
        noise = np.random.default_rng(len(name)).normal(size=(_SIDE, _SIDE))
        reach = np.fft.fftfreq(_SIDE)
        along, across = (12.0, 12.0) if name == "stains" else (40.0, 3.0)
        blur = np.exp(-np.square(along * np.pi * reach[:, None]) / 2 - np.square(across * np.pi * reach) / 2)
        smooth = np.fft.ifft2(np.fft.fft2(noise) * blur).real
        level = np.clip(0.5 + smooth / (3 * smooth.std()), 0, 1)
    return np.asarray(160 + 95 * level, np.uint8)
