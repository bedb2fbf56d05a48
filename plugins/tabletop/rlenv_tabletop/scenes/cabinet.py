"""The simulated SO-101 arm before a cabinet with one drawer."""

from __future__ import annotations

import mujoco
import numpy as np

from rlenv_tabletop.robots.cabinet import CABINET_AREA, CABINET_TURN, HANDLE_HALF, HANDLE_Z, SO101_CABINET, TRAVEL
from rlenv_tabletop.scenes.fixture import add_board, add_fixed_thing, hold_still, look_at, with_part
from sim.model import SimModel
from sim.robots.so101 import REST, so101_mjcf
from sim.robots.twin import IDENTIFIED, TwinServos, arm_twin

__all__ = ["so101_cabinet", "so101_cabinet_mjcf", "so101_cabinet_twin"]

_MASS_KG, _FRICTION_N, _DAMPING = 0.12, 0.8, 3.0
"""The drawer: its mass, and the force that it resists with at rest and for each m/s. Assumed, not measured."""

_CARCASS = (0.30, 0.45, 0.60, 1.0)
_FRONT = (0.93, 0.91, 0.86, 1.0)
_METAL = (0.25, 0.26, 0.28, 1.0)


def so101_cabinet(looks: bool = True, opening: tuple[float, float] = (0.0, 0.0)) -> SimModel:
    """Make the nominal model of the arm and the cabinet.

    Args:
        looks: whether the model has its visual parts, as for `sim.robots.so101.so101`.
        opening: range from which a reset draws how far the drawer is out, metres, within 0 to `TRAVEL`.

    Raises:
        ValueError: the range is none.
    """
    if not 0 <= opening[0] <= opening[1] <= TRAVEL:
        raise ValueError(f"opening is {opening}, it must be a range within 0 to {TRAVEL} m")
    model = so101_cabinet_mjcf(looks).compile()
    return with_part(SO101_CABINET, model, "cabinet", "drawer", "drawer_opening", CABINET_AREA, CABINET_TURN, opening)


def so101_cabinet_mjcf(looks: bool = True) -> mujoco.MjSpec:
    """Return the editable MJCF; its only keyframe is ``rest``, with a closed drawer ahead of the arm.

    The cabinet's frame lies on the table under the closed handle; it opens along -x.
    """
    mjcf = so101_mjcf(looks=looks)
    mjcf.delete(mjcf.key("rest"))
    look_at(mjcf, (0.08, -0.72, 0.42), (0.20, 0.0, 0.09))
    cabinet = add_fixed_thing(mjcf, "cabinet")
    front = HANDLE_HALF[0]
    for name, low, high in (
        ("bottom", (front + 0.008, -0.062, 0.0), (0.145, 0.062, 0.005)),
        ("top", (front + 0.008, -0.062, 0.067), (0.145, 0.062, 0.072)),
        ("left", (front + 0.008, 0.057, 0.005), (0.145, 0.062, 0.067)),
        ("right", (front + 0.008, -0.062, 0.005), (0.145, -0.057, 0.067)),
        ("back", (0.140, -0.057, 0.005), (0.145, 0.057, 0.067)),
    ):
        add_board(cabinet, f"cabinet_{name}", low, high, _CARCASS)
    drawer = cabinet.add_body(name="drawer")
    joint = drawer.add_joint(
        name="drawer", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=(-1, 0, 0), range=(0.0, TRAVEL),
        frictionloss=_FRICTION_N,
    )  # fmt: skip
    joint.damping[0] = _DAMPING
    hold_still(joint)
    drawer.explicitinertial = True
    drawer.mass, drawer.ipos, drawer.inertia = _MASS_KG, (0.07, 0.0, 0.03), (2e-4, 2e-4, 3e-4)
    for name, low, high, rgba in (
        ("front", (front, -0.060, 0.004), (front + 0.007, 0.060, 0.068), _FRONT),
        ("floor", (front + 0.007, -0.054, 0.008), (0.136, 0.054, 0.011), _FRONT),
        ("left", (front + 0.007, 0.050, 0.011), (0.136, 0.054, 0.052), _FRONT),
        ("right", (front + 0.007, -0.054, 0.011), (0.136, -0.050, 0.052), _FRONT),
        ("back", (0.132, -0.050, 0.011), (0.136, 0.050, 0.052), _FRONT),
    ):
        add_board(drawer, f"drawer_{name}", low, high, rgba)
    half = np.array(HANDLE_HALF)
    middle = np.array((0.0, 0.0, HANDLE_Z))
    add_board(drawer, "handle", middle - half, middle + half, _METAL)
    mjcf.add_key(name="rest", qpos=[*REST, 0.27, 0.0, 0.0, 0.0], ctrl=list(REST))
    return mjcf


def so101_cabinet_twin(
    seed: int = 0, servos: TwinServos = IDENTIFIED, opening: tuple[float, float] = (0.0, 0.0)
) -> SimModel:
    """Make a stand-in for the arm before a cabinet; arguments as for `sim.robots.twin.so101_twin` and `so101_cabinet`.

    A sibling's drawer also has another mass and friction (`sim.robots.twin.thing_factors`).
    """
    return arm_twin(so101_cabinet(opening=opening), so101_cabinet_mjcf(), seed, servos, parts=["drawer"])
