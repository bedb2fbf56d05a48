"""Simulate a quadruped in the dimensions of Unitree's Go2 on flat ground."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources

import mujoco
import numpy as np

from hal.robots.go2 import FEET, GO2, JOINTS, STANCE
from sim.model import Columns, Computed, SimModel

__all__ = ["ASSUMED", "STANDING_HEIGHT", "SUBSTEPS", "Go2Faults", "go2", "go2_mjcf", "go2_twin"]

SUBSTEPS = 5
"""Physics steps of 1/250 s in the control period of 1/50 s."""

STANDING_HEIGHT = 0.288
"""Height of the trunk's centre, metres, at which the feet just touch the ground in `hal.robots.go2.STANCE`:
2 * 0.213 cos(0.9) for the legs, 0.022 for the foot, and a little clearance."""


def go2(looks: bool = True) -> SimModel:
    """Make the simulated robot on flat ground.

    Args:
        looks: whether the model has its visual parts. Without them the motion is the same, bit for bit, and a batch
            steps faster.
    """
    model = go2_mjcf(looks).compile()
    if tuple(model.joint(index).name for index in range(1, model.njnt)) != JOINTS:
        raise AssertionError("the model's joints are not in the robot's order")
    return SimModel(
        spec=GO2,
        model=model,
        substeps=SUBSTEPS,
        sensors={
            "joint_position": Columns("qpos", slice(7, 19)),
            "joint_velocity": Columns("qvel", slice(6, 18)),
            "joint_goal": Columns("ctrl"),
            "joint_torque": Columns("actuator_force"),
            "angular_velocity": Columns("qvel", slice(3, 6)),  # in the body's frame
            "orientation": Columns("qpos", slice(3, 7)),
            "foot_force": Columns("sensordata"),
            "position": Columns("qpos", slice(0, 3)),
            "linear_velocity": Computed(
                _into_body, (Columns("qpos", slice(3, 7)), Columns("qvel", slice(0, 3)))
            ),
        },
        commands={"joint_target": slice(0, 12)},
        start={"joint_target": slice(7, 19)},
        keyframe=0,
    )  # fmt: skip


def go2_mjcf(looks: bool = True) -> mujoco.MjSpec:
    """Return the editable MJCF, which can be changed before it is compiled; its only keyframe is ``stance``."""
    path = resources.files("sim.models").joinpath("go2.xml")
    mjcf = mujoco.MjSpec.from_string(path.read_text(encoding="utf-8"))
    if not looks:
        for geom in [geom for geom in mjcf.geoms if not (geom.contype or geom.conaffinity)]:
            mjcf.delete(geom)
    mjcf.add_key(name="stance", qpos=[0, 0, STANDING_HEIGHT, 1, 0, 0, 0, *STANCE], ctrl=list(STANCE))
    return mjcf


@dataclass(frozen=True, slots=True)
class Go2Faults:
    """The differences of one quadruped from the nominal model.

    Attributes:
        strength: stiffness and damping of the motors' loops, as a factor of the nominal ones.
        friction: friction and viscous damping of the joints, as a factor of the nominal ones.
        delay_substeps: delay of a goal on the bus, physics steps of 1/250 s.
        payload_kg: mass fixed to the middle of the trunk, kg.
        grip: friction coefficient of feet and floor.
    """

    strength: float
    friction: float
    delay_substeps: int
    payload_kg: float
    grip: float

    @staticmethod
    def sibling(seed: int) -> Go2Faults:
        """Return the differences of another robot, drawn uniformly by the seed from ranges around `ASSUMED`.

        Strength 0.85 to 1.1, friction 0.5 to 2, delay 0 to 4 steps (16 ms), payload 0 to 2 kg, grip 0.4 to 1.
        """
        rng = np.random.default_rng(seed)
        strength, friction = float(rng.uniform(0.85, 1.1)), float(rng.uniform(0.5, 2.0))
        delay, payload = int(rng.integers(0, 5)), float(rng.uniform(0.0, 2.0))
        return Go2Faults(strength, friction, delay, payload, float(rng.uniform(0.4, 1.0)))


ASSUMED = Go2Faults(strength=0.95, friction=1.5, delay_substeps=2, payload_kg=0.5, grip=0.7)
"""The quadruped of seed 0. Its numbers are assumed, not identified, since no recording of a real one was available."""


def go2_twin(seed: int = 0) -> SimModel:
    """Make a stand-in for a real quadruped, with the same description but other physics.

    Args:
        seed: 0 for `ASSUMED`; any other number makes a different robot (`Go2Faults.sibling`).
    """
    faults = Go2Faults.sibling(seed) if seed else ASSUMED
    mjcf = go2_mjcf()
    for name in JOINTS:
        actuator, joint = mjcf.actuator(name), mjcf.joint(name)
        actuator.gainprm[0] *= faults.strength
        actuator.biasprm[1:3] *= faults.strength
        actuator.delay = faults.delay_substeps * mjcf.option.timestep
        actuator.nsample = faults.delay_substeps + 2
        joint.frictionloss *= faults.friction
        joint.damping[0] *= faults.friction
    for name in (*FEET, "floor"):
        mjcf.geom(name).friction[0] = faults.grip
    model = mjcf.compile()
    base = model.body("base").id
    model.body_inertia[base] *= 1.0 + faults.payload_kg / model.body_mass[base]
    model.body_mass[base] += faults.payload_kg
    mujoco.mj_setConst(model, mujoco.MjData(model))
    return replace(go2(), model=model)


def _into_body(orientation: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Turn vectors of the world (..., 3) into the body's frame, by its unit quaternion (..., 4; w, x, y, z): R' v."""
    scalar, axis = orientation[..., :1], -orientation[..., 1:]
    doubled = 2.0 * _cross(axis, vector)
    return vector + scalar * doubled + _cross(axis, doubled)


_NEXT, _AFTER = np.array((1, 2, 0)), np.array((2, 0, 1))


def _cross(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the cross products of vectors (..., 3): the numbers of `numpy.cross`, in a fifth of its time for one."""
    return one.take(_NEXT, -1) * other.take(_AFTER, -1) - one.take(_AFTER, -1) * other.take(_NEXT, -1)
