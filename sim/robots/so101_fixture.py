"""Things that are clamped to the SO-101's table, such as a cabinet: a reset alone moves them."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

__all__ = ["add_board", "add_fixed_thing", "hold_still", "look_at"]

_CLAMP_N, _CLAMP_NM = 300.0, 30.0
"""Force and torque that a clamped thing resists, several times those of the arm."""

_CLAMPED_KG, _CLAMPED_KG_M2 = 20.0, 1.0
"""Inertia of a clamped thing's joints, so that what little it gives under a load is slow."""

_HELD = 0.999
"""Impedance of dry friction. With MuJoCo's own 0.95 a drawer of 0.12 kg creeps 2 mm/s under half a newton that its
friction should hold; with this one 0.04 mm/s ("Solver parameters": the slip is (1 - d)/d of the force times the inverse
inertia)."""


def add_fixed_thing(mjcf: mujoco.MjSpec, name: str) -> mujoco.MjsBody:
    """Add a body with joints ``NAME_x``, ``NAME_y`` and ``NAME_yaw``, whose friction no arm overcomes.

    So its pose is part of ``qpos``, where a reset can scatter it, and yet it stays where it is.

    Returns:
        The body at the origin of the table; its boards have no mass of their own.
    """
    body = mjcf.worldbody.add_body(name=name)
    body.explicitinertial = True
    body.mass, body.inertia = 1.0, (2e-3, 2e-3, 2e-3)
    for axis, direction in (("x", (1, 0, 0)), ("y", (0, 1, 0))):
        slide = body.add_joint(
            name=f"{name}_{axis}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=direction, frictionloss=_CLAMP_N
        )
        slide.armature = _CLAMPED_KG
        hold_still(slide)
    hinge = body.add_joint(name=f"{name}_yaw", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, 0, 1), frictionloss=_CLAMP_NM)
    hinge.armature = _CLAMPED_KG_M2
    hold_still(hinge)
    return body


def hold_still(joint: mujoco.MjsJoint) -> None:
    """Let a joint's dry friction hold it without creeping, and its limits stop it within a fraction of a millimetre."""
    joint.solimp_friction[:2] = (_HELD, _HELD)
    joint.solimp_limit[:3] = (0.98, _HELD, 0.001)


def add_board(
    body: mujoco.MjsBody, name: str, low: Sequence[float] | np.ndarray, high: Sequence[float] | np.ndarray,
    rgba: tuple[float, float, float, float],
) -> mujoco.MjsGeom:  # fmt: skip
    """Add a box that the arm and cubes collide with, and other boards and the table do not.

    Args:
        body: the body, in whose frame the corners are.
        name: of the geom.
        low, high: two opposite corners, metres, shape (3,).
        rgba: its colour, 0 to 1.
    """
    corners = np.asarray(low, float), np.asarray(high, float)
    return body.add_geom(
        name=name, type=mujoco.mjtGeom.mjGEOM_BOX, pos=np.mean(corners, axis=0), size=(corners[1] - corners[0]) / 2,
        mass=0.0, rgba=rgba, contype=0, conaffinity=1, condim=4, friction=(0.6, 0.02, 0.0002), group=1,
    )  # fmt: skip


def look_at(mjcf: mujoco.MjSpec, place: tuple[float, float, float], point: tuple[float, float, float]) -> None:
    """Move the camera ``view``, and turn it.

    Args:
        mjcf: the model.
        place: where the camera is, metres.
        point: what is in the middle of its images, metres.
    """
    forward = np.subtract(point, place)
    right = np.cross(forward, (0.0, 0.0, 1.0))
    up = np.cross(right, forward)
    camera = mjcf.camera("view")
    camera.pos, camera.fovy = place, 34.0
    camera.alt.xyaxes = [*right / np.linalg.norm(right), *up / np.linalg.norm(up)]
