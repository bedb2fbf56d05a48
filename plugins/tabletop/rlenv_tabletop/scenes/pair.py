"""Two simulated SO-101 arms that face each other, and a bar on the table between them."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

import mujoco
import numpy as np

from hal.robot import Actuation
from hal.robots.so101 import JOINTS
from rlenv_tabletop.robots.pair import APART, BAR_HALF, SIDES, SO101_PAIR, from_right
from sim.model import Columns, Computed, Indices, Reader, SimModel
from sim.robots.so101 import NOMINAL_GAINS, REST, SUBSTEPS, so101_mjcf
from sim.robots.twin import IDENTIFIED, TwinServos, arm_twin

__all__ = ["BAR_AREA", "BAR_TURN", "so101_pair", "so101_pair_mjcf", "so101_pair_twin"]

BAR_AREA = ((0.28, 0.32), (-0.04, 0.04))
"""Range of x and range of y of the bar's middle at a reset, metres."""

BAR_TURN = 0.2
"""Largest angle between the bar and the line through the bases at a reset, rad."""

_SOLID, _SHELL = 1, 8
"""The bits of collisions with table and cube, and within one arm, in ``so101.xml``."""


def so101_pair(looks: bool = True) -> SimModel:
    """Make the nominal model of the two arms and the bar.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
    """
    model = so101_pair_mjcf(looks).compile()
    bar, dof = int(model.joint("bar").qposadr[0]), int(model.joint("bar").dofadr[0])
    sensors: dict[str, Reader] = {
        "bar_position": Columns("qpos", slice(bar, bar + 3)),
        "bar_orientation": Columns("qpos", slice(bar + 3, bar + 7)),
        "bar_velocity": Columns("qvel", slice(dof, dof + 3)),
        "bar_turning": Columns("qvel", slice(dof + 3, dof + 6)),
    }
    commands: dict[str, Indices] = {}
    start: dict[str, Indices] = {}
    for side in SIDES:
        names = [f"{side}_{joint}" for joint in JOINTS]
        joints = tuple(int(model.joint(name).qposadr[0]) for name in names)
        tip = 3 * model.site(f"{side}_tip").id
        tips = Columns("site_xpos", slice(tip, tip + 3))
        sensors |= {
            f"{side}_joint_position": Columns("qpos", joints),
            f"{side}_joint_velocity": Columns("qvel", tuple(int(model.joint(name).dofadr[0]) for name in names)),
            f"{side}_joint_goal": Columns("ctrl", tuple(int(model.actuator(name).id) for name in names)),
            f"{side}_gripper_position": tips if side == "left" else Computed(from_right, (tips,)),
        }
        commands[f"{side}_joint_target"] = tuple(int(model.actuator(name).id) for name in names)
        start[f"{side}_joint_target"] = joints
    spec = replace(SO101_PAIR, actuation=Actuation.for_all(SO101_PAIR.commands, NOMINAL_GAINS))
    return SimModel(spec, model, SUBSTEPS, sensors, commands, start, keyframe=0, scatter=_BarScatter(bar))


def so101_pair_mjcf(looks: bool = True) -> mujoco.MjSpec:
    """Return the editable MJCF; its only keyframe is ``rest``, and names begin with ``left_`` or ``right_``."""
    path = resources.files(__package__).joinpath("pair.xml")
    scene = mujoco.MjSpec.from_string(path.read_text(encoding="utf-8"))
    poses = {"left": ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)), "right": ((APART, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0))}
    for side, (position, turn) in poses.items():
        arm = so101_mjcf(looks=looks)
        arm.delete(arm.key("rest"))
        for geom in arm.geoms:
            own = 1 if side == "left" else 2  # each arm's links collide with links of that arm alone
            shells = [own * (bits & _SHELL) for bits in (geom.contype, geom.conaffinity)]
            others = (0, 0)
            if geom.contype & _SOLID:  # each arm collides with table and bar, and with the other arm
                others = (1, 4) if side == "left" else (5, 0)
            geom.contype, geom.conaffinity = shells[0] + others[0], shells[1] + others[1]
        scene.worldbody.add_frame(pos=position, quat=turn).attach_body(arm.body("base"), f"{side}_", "")
    if not looks:
        for geom in [geom for geom in scene.geoms if not (geom.contype or geom.conaffinity or geom.mass)]:
            scene.delete(geom)
    bar = [APART / 2, 0.0, BAR_HALF[2], 1.0, 0.0, 0.0, 0.0]
    scene.add_key(name="rest", qpos=[*bar, *REST, *REST], ctrl=[*REST, *REST])
    return scene


class _BarScatter:
    """Put the bar at a random position on the table, turned by a small random angle."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        (x0, x1), (y0, y1) = BAR_AREA
        angle = generator.uniform(-BAR_TURN, BAR_TURN)
        position = (generator.uniform(x0, x1), generator.uniform(y0, y1), BAR_HALF[2])
        turn = (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
        qpos[self._first : self._first + 7] = (*position, *turn)


def so101_pair_twin(seed: int = 0, servos: TwinServos = IDENTIFIED) -> SimModel:
    """Make a stand-in for two real arms with the bar between them; arguments as for `sim.robots.twin.so101_twin`.

    Seed 0 has the identified arm twice; any other number makes two different siblings, and a bar of another mass and
    friction (`sim.robots.twin.thing_factors`).
    """
    sides = [f"{side}_" for side in SIDES]
    return arm_twin(so101_pair(), so101_pair_mjcf(), seed, servos, things=["bar"], sides=sides)
