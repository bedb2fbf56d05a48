"""The simulated SO-101 arm before a box with a hinged lid."""

from __future__ import annotations

import mujoco
import numpy as np

from rlenv_tabletop.robots.box import (
    BOX_AREA,
    BOX_TURN,
    GRIP_HALF,
    GRIP_REACH,
    GRIP_RISE,
    HINGE_Z,
    SO101_BOX,
    WIDEST,
)
from rlenv_tabletop.scenes.fixture import add_board, add_fixed_thing, hold_still, look_at, with_part
from sim.model import SimModel
from sim.robots.so101 import REST, so101_mjcf
from sim.robots.twin import IDENTIFIED, TwinServos, arm_twin

__all__ = ["so101_box", "so101_box_mjcf", "so101_box_twin"]

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
    model = so101_box_mjcf(looks).compile()
    return with_part(SO101_BOX, model, "box", "lid", "lid_angle", BOX_AREA, BOX_TURN, angle)


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


def so101_box_twin(seed: int = 0, servos: TwinServos = IDENTIFIED, angle: tuple[float, float] = (0.0, 0.0)) -> SimModel:
    """Make a stand-in for the real arm before a box; arguments as for `sim.robots.twin.so101_twin` and `so101_box`.

    A sibling's lid also has another mass and friction (`sim.robots.twin.thing_factors`).
    """
    return arm_twin(so101_box(angle=angle), so101_box_mjcf(), seed, servos, parts=["lid"])
