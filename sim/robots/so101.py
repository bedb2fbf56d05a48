"""The simulated SO-101 arm at its table, with or without a cube to pick."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources

import mujoco
import numpy as np

from hal.robot import Actuation
from hal.robots.so101 import CUBE_AREA, CUBE_HALF, JOINTS, SIDEWAYS, SO101, SO101_CUBE
from sim.model import Columns, Indices, Reader, SimModel
from sim.robots.sts3215 import STS3215

__all__ = [
    "LINKS", "NOMINAL_GAINS", "NOMINAL_SERVO", "REST", "STIFF_SERVO", "SUBSTEPS", "Servo", "addresses", "so101",
    "so101_cube", "so101_mjcf",
]  # fmt: skip

SUBSTEPS = 8
"""Physics steps of 1/240 s in the control period of 1/30 s."""

LINKS = ("base", "shoulder", "upper_arm", "lower_arm", "wrist", "gripper", "jaw")
"""The bodies of the model, from the table to the finger that moves."""

REST = (0.0, -1.70, 1.60, 0.90, SIDEWAYS, 0.0)
"""Joint angles of the folded arm, as it lies when it is switched off, rad; the keyframe of the model."""


@dataclass(frozen=True, slots=True)
class Servo:
    """The figures of all six servos in a simulated arm, as MuJoCo takes them.

    Attributes:
        kp: torque per angle of error, N m/rad.
        kv: torque of the position loop per speed, N m s/rad.
        damping: torque of motor and gears per speed, N m s/rad.
        friction: torque that must be overcome before the joint moves, N m.
        armature: inertia of the rotor behind its gears, kg m^2.
        torque: the largest torque, N m.
    """

    kp: float
    kv: float
    damping: float
    friction: float
    armature: float
    torque: float


NOMINAL_SERVO = Servo(kp=8.9, kv=0.0, damping=0.608, friction=0.135, armature=0.0284, torque=3.25)
"""The STS3215 at the gain P = 16 that LeRobot sets (`sim.robots.sts3215.STS3215`), at 7.4 V.

The friction is the mean of the six loaded joints of a real arm (`sim.robots.twin.IDENTIFIED`, 0.04 to 0.23). BAM
measured 0.0524 in a servo without load. Goals of a real arm that are replayed open loop leave an error of 1.2 of
LeRobot's units in 305 and 346 frames; with `STIFF_SERVO` it is 3.0 and 3.1, and with BAM's own friction 1.5.
"""

NOMINAL_GAINS = {"stiffness": NOMINAL_SERVO.kp, "p": 16, "i": 0, "d": 32, "volts": STS3215.volts}
"""The gains of `NOMINAL_SERVO` for a manifest (`hal.robot.GAINS`): the registers that LeRobot writes, at 7.4 V."""

STIFF_SERVO = Servo(kp=998.22, kv=2.731, damping=0.60, friction=0.052, armature=0.028, torque=3.35)
"""The servo of the public simulation model (SO-ARM100, ``Simulation/SO101``), with which version 0.1 trained."""


def so101(cube: bool = False, looks: bool = True, servo: Servo = NOMINAL_SERVO) -> SimModel:
    """Make the nominal model, in which policies are trained.

    Args:
        cube: whether a 25 mm cube lies on the table, at a position that the reset's seed draws from `CUBE_AREA`, with
            the sensors ``cube_position`` and ``cube_orientation``. Without the cube a step takes less time.
        looks: whether the model has its visual parts. Without them the motion is the same, bit for bit, and a batch
            steps a third faster.
        servo: the figures of the servos: `NOMINAL_SERVO`, `STIFF_SERVO`, or your own.
    """
    model = so101_mjcf(cube, looks, servo).compile()
    joints = addresses(model)
    tip = 3 * model.site("tip").id
    sensors: dict[str, Reader] = {
        "joint_position": Columns("qpos", joints),
        "joint_velocity": Columns("qvel", _velocities(model)),
        "joint_goal": Columns("ctrl"),
        # Equals forward_kinematics of the exact angles; a test compares the two to a micrometre.
        "gripper_position": Columns("site_xpos", tuple(range(tip, tip + 3))),
    }
    if cube:
        sensors |= _cube_sensors(model)
    spec = SO101_CUBE if cube else SO101
    if servo == NOMINAL_SERVO:
        spec = replace(spec, actuation=Actuation.for_all(spec.commands, NOMINAL_GAINS))
    return SimModel(
        spec=spec,
        model=model,
        substeps=SUBSTEPS,
        sensors=sensors,
        commands={"joint_target": slice(0, 6)},
        start={"joint_target": joints},
        keyframe=0,
        scatter=_CubeScatter(int(model.joint("cube").qposadr[0])) if cube else None,
    )


def so101_cube(looks: bool = True) -> SimModel:
    """Make the nominal model with the cube, as `so101` does."""
    return so101(cube=True, looks=looks)


def so101_mjcf(cube: bool = False, looks: bool = True, servo: Servo = NOMINAL_SERVO) -> mujoco.MjSpec:
    """Return the editable MJCF, which can be changed before it is compiled; its only keyframe is ``rest``."""
    path = resources.files("sim.models").joinpath("so101.xml")
    mjcf = mujoco.MjSpec.from_string(path.read_text(encoding="utf-8"))
    rest = list(REST)
    if cube:
        rest += [0.24, 0.0, CUBE_HALF, 1.0, 0.0, 0.0, 0.0]
    else:
        mjcf.delete(mjcf.body("cube"))
    if not looks:
        for geom in [geom for geom in mjcf.geoms if not (geom.contype or geom.conaffinity or geom.mass)]:
            mjcf.delete(geom)
    for name in JOINTS:
        _fit(mjcf.actuator(name), mjcf.joint(name), servo)
    mjcf.add_key(name="rest", qpos=rest, ctrl=list(REST))
    return mjcf


def _fit(actuator: mujoco.MjsActuator, joint: mujoco.MjsJoint, servo: Servo) -> None:
    actuator.gainprm[0] = servo.kp
    actuator.biasprm[:3] = (0.0, -servo.kp, -servo.kv)
    actuator.forcerange[:] = (-servo.torque, servo.torque)
    joint.damping[0], joint.frictionloss, joint.armature = servo.damping, servo.friction, servo.armature


def addresses(model: mujoco.MjModel) -> Indices:
    """Return the indices of the six joints in ``qpos``."""
    return tuple(int(model.joint(name).qposadr[0]) for name in JOINTS)


def _velocities(model: mujoco.MjModel) -> Indices:
    return tuple(int(model.joint(name).dofadr[0]) for name in JOINTS)


def _cube_sensors(model: mujoco.MjModel) -> dict[str, Reader]:
    first = int(model.joint("cube").qposadr[0])
    return {
        "cube_position": Columns("qpos", slice(first, first + 3)),
        "cube_orientation": Columns("qpos", slice(first + 3, first + 7)),
    }


class _CubeScatter:
    """Put the cube at a random position on the table, turned by a random angle."""

    def __init__(self, first: int) -> None:
        self._first = first

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        (x0, x1), (y0, y1) = CUBE_AREA
        angle = generator.uniform(-np.pi / 4, np.pi / 4)  # a cube looks the same after a quarter turn
        position = (generator.uniform(x0, x1), generator.uniform(y0, y1), CUBE_HALF)
        turn = (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
        qpos[self._first : self._first + 7] = (*position, *turn)
