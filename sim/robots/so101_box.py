"""The simulated SO-101 arm before a box with a hinged lid."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from hal.robot import Actuation
from hal.robots.so101 import CHAIN, SO101
from hal.robots.so101_box import (
    BOX_AREA,
    BOX_TURN,
    GRIP_HALF,
    GRIP_REACH,
    GRIP_RISE,
    HINGE_Z,
    SO101_BOX,
    WIDEST,
)
from sim.model import Columns, Reader, SimModel
from sim.robots.so101 import NOMINAL_GAINS, REST, SUBSTEPS, addresses, so101, so101_mjcf
from sim.robots.so101_fixture import add_board, add_fixed_thing, hold_still, look_at

__all__ = ["so101_box", "so101_box_mjcf"]

_MASS_KG, _FRICTION_NM, _DAMPING = 0.06, 0.07, 0.01
"""The lid: its mass, and the torque that its hinge resists with at rest and for each rad/s. Gravity pulls with at most
0.024 N m, so the lid stays where it is left. Assumed, not measured."""

_WALLS = (0.20, 0.42, 0.40, 1.0)
_LID = (0.93, 0.91, 0.86, 1.0)
_METAL = (0.25, 0.26, 0.28, 1.0)


def so101_box(looks: bool = True, angle: tuple[float, float] = (0.0, 0.0)) -> SimModel:
    """Make the nominal model of the arm and the box.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
        angle: range from which a reset draws how far the lid is open, rad, within 0 to `WIDEST`.

    Raises:
        ValueError: the range is none.
    """
    if not 0 <= angle[0] <= angle[1] <= WIDEST:
        raise ValueError(f"angle is {angle}, it must be a range within 0 to {WIDEST} rad")
    arm, model = so101(looks=looks), so101_box_mjcf(looks).compile()
    first, lid = int(model.joint("box_x").qposadr[0]), int(model.joint("lid").qposadr[0])
    sensors: dict[str, Reader] = {
        **{name: arm.sensors[name] for name in SO101.sensors.names},
        "box_position": Columns("qpos", slice(first, first + 2)),
        "box_yaw": Columns("qpos", slice(first + 2, first + 3)),
        "lid_angle": Columns("qpos", slice(lid, lid + 1)),
        "lid_velocity": Columns("qvel", (int(model.joint("lid").dofadr[0]),)),
    }
    return SimModel(
        spec=replace(SO101_BOX, actuation=Actuation.for_all(SO101_BOX.commands, NOMINAL_GAINS)),
        model=model,
        substeps=SUBSTEPS,
        sensors=sensors,
        commands={"joint_target": slice(0, 6)},
        start={"joint_target": addresses(model)},
        keyframe=0,
        scatter=_BoxScatter(first, lid, angle),
    )


def so101_box_mjcf(looks: bool = True) -> mujoco.MjSpec:
    """Return the editable MJCF; its only keyframe is ``rest``, with a closed box ahead of the arm.

    The box's frame lies on the table under the handle of the closed lid; its hinge is on the side of the arm.
    """
    mjcf = so101_mjcf(looks=looks)
    mjcf.delete(mjcf.key("rest"))
    look_at(mjcf, (0.12, -0.72, 0.40), (0.20, 0.0, 0.09))
    box = add_fixed_thing(mjcf, "box")
    near, far, wide, top = -GRIP_REACH, 0.025, 0.050, HINGE_Z - 0.001
    for name, low, high in (
        ("bottom", (near, -wide, 0.0), (far, wide, 0.004)),
        ("near", (near, -wide, 0.004), (near + 0.004, wide, top)),
        ("far", (far - 0.004, -wide, 0.004), (far, wide, top)),
        ("left", (near + 0.004, wide - 0.004, 0.004), (far - 0.004, wide, top)),
        ("right", (near + 0.004, -wide, 0.004), (far - 0.004, -wide + 0.004, top)),
    ):
        add_board(box, f"box_{name}", low, high, _WALLS)
    lid = box.add_body(name="lid", pos=(-GRIP_REACH, 0.0, HINGE_Z))
    joint = lid.add_joint(
        name="lid", type=mujoco.mjtJoint.mjJNT_HINGE, axis=(0, -1, 0), range=(0.0, WIDEST), frictionloss=_FRICTION_NM
    )
    joint.damping[0] = _DAMPING
    hold_still(joint)
    lid.explicitinertial = True
    lid.mass, lid.ipos, lid.inertia = _MASS_KG, (0.040, 0.0, 0.006), (6e-5, 4e-5, 9e-5)
    add_board(lid, "lid", (0.0, -wide - 0.002, 0.0), (far - near + 0.004, wide + 0.002, 0.005), _LID)
    half, middle = np.array(GRIP_HALF), np.array((GRIP_REACH, 0.0, GRIP_RISE))
    add_board(lid, "handle", middle - half, middle + half, _METAL)
    mjcf.add_key(name="rest", qpos=[*REST, 0.28, 0.0, 0.0, 0.0], ctrl=list(REST))
    return mjcf


class _BoxScatter:
    """Put the box at a random position on the table, facing the arm up to a random angle."""

    def __init__(self, first: int, lid: int, angle: tuple[float, float]) -> None:
        self._first, self._lid, self._angle = first, lid, angle

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        x, y = (generator.uniform(low, high) for low, high in BOX_AREA)
        heading = np.arctan2(y, x - CHAIN[0].offset[0])
        qpos[self._first : self._first + 3] = (x, y, heading + generator.uniform(-BOX_TURN, BOX_TURN))
        qpos[self._lid] = generator.uniform(*self._angle)
