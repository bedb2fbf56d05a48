"""Things that are clamped to the SO-101's table, such as a cabinet: a reset alone moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from hal.robot import RobotSpec
from hal.robots.so101 import CHAIN
from sim.model import Columns, Reader, SimModel
from sim.robots.so101 import with_arm, with_nominal_servos

__all__ = ["FixtureScatter", "add_board", "add_fixed_thing", "hold_still", "look_at", "with_part"]

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


def with_part(
    spec: RobotSpec, model: mujoco.MjModel, thing: str, part: str, place: str,
    area: tuple[tuple[float, float], tuple[float, float]], turn: float, places: tuple[float, float],
) -> SimModel:  # fmt: skip
    """Return the model of the arm before a clamped thing with one moving part, both of which a reset places.

    Args:
        spec: of the robot. Its sensors beside the arm's are ``THING_position``, ``THING_yaw``, ``place``, and the rate
            of ``place`` under the name of the part.
        model: compiled, with the joints ``THING_x``, ``THING_y``, ``THING_yaw`` and that of the part.
        thing, part: names of the clamped thing and of its part's joint.
        place: the sensor of the part's place along its joint.
        area, turn, places: as for `FixtureScatter`.
    """
    first, moving = int(model.joint(f"{thing}_x").qposadr[0]), int(model.joint(part).qposadr[0])
    things: dict[str, Reader] = {
        f"{thing}_position": Columns("qpos", slice(first, first + 2)),
        f"{thing}_yaw": Columns("qpos", slice(first + 2, first + 3)),
        place: Columns("qpos", slice(moving, moving + 1)),
        f"{part}_velocity": Columns("qvel", (int(model.joint(part).dofadr[0]),)),
    }
    return with_arm(with_nominal_servos(spec), model, things, FixtureScatter(first, moving, area, turn, places))


@dataclass(frozen=True, slots=True)
class FixtureScatter:
    """Put a clamped thing at a random position on the table, facing the arm up to a random angle, its part at a place.

    Attributes:
        first: index in ``qpos`` of the thing's x, y and yaw.
        moving: index in ``qpos`` of its part.
        area: range of x and range of y, metres.
        turn: largest angle between the thing and the line from the arm's shoulder to it, rad.
        places: range of the part's places, in the unit of its joint.
    """

    first: int
    moving: int
    area: tuple[tuple[float, float], tuple[float, float]]
    turn: float
    places: tuple[float, float]

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """Draw position, angle and place, and write them into ``qpos``."""
        x, y = (generator.uniform(low, high) for low, high in self.area)
        heading = np.arctan2(y, x - CHAIN[0].offset[0])
        qpos[self.first : self.first + 3] = (x, y, heading + generator.uniform(-self.turn, self.turn))
        qpos[self.moving] = generator.uniform(*self.places)
