"""Simulate SO-101s that differ from the model of the training: late, sagging, sticking and quantised like a real arm.

Source of the numbers: the first of two teleoperated pick-and-place episodes of a real SO-101 (30 Hz, goals and
measured positions). `IDENTIFIED` was fitted to it by replaying the goals open loop; the second episode was held
back to validate the result. `tests/sim/robots/test_twin.py` repeats the validation and checks the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import mujoco
import numpy as np

from hal.robots.so101 import JOINTS, TICKS_PER_TURN, forward_kinematics
from sim.model import Columns, Computed, Reader, SimModel
from sim.robots.so101 import LINKS, CubeScene, so101_mjcf, with_cube, with_so101

__all__ = [
    "IDENTIFIED", "WIDEST_PLAY", "TwinServos", "arm_twin", "quantised_position", "quantised_velocity",
    "so101_cube_twin", "so101_twin", "thing_factors",
]  # fmt: skip

Six = tuple[float, float, float, float, float, float]

_CUBE = CubeScene()

SPEED_STEP = 50
"""Resolution of the speed that a servo reports, encoder steps a second (STS3215 memory table: 0.732 rpm)."""


WIDEST_PLAY = math.radians(2.0)
"""Play of the worst gears, rad. Published STS3215 have 0.5 to 1.3 degrees, by load; the maker's model of the arm has
1."""

_PLAY_ARMATURE, _PLAY_DAMPING = 0.01, 0.01
"""Inertia, kg m^2, and damping, N m s/rad, of a link within its play (SO-ARM100, ``so101_new_calib.xml``)."""

_STOP_SOLREF, _STOP_SOLIMP = (0.01, 1.0), (0.95, 0.99)
"""Stiffness of the ends of the play, in MuJoCo's terms: at 1 N m a tooth yields by less than 0.02 degrees."""


@dataclass(frozen=True, slots=True)
class TwinServos:
    """The parameters of a real arm's servos. Tuples have one number for each joint.

    Attributes:
        stiffness: torque per angle of error, N m/rad. It is low, so gravity makes the arm sag.
        damping: torque per speed, N m s/rad. Damping over stiffness is the lag of the arm, seconds.
        friction: torque that must be overcome before the joint moves, N m.
        offset: distance below its goal at which a servo stops without load, rad.
        armature: inertia of the rotor behind its gears, kg m^2.
        delay_substeps: delay of a goal on the bus and in the servo's firmware, physics steps of 1/240 s.
        mass: mass of all links as a factor of the nominal mass, to allow for cables and screws.
        play: angle through which each link moves freely behind its servo, rad. The encoders don't see it.
    """

    stiffness: Six
    damping: Six
    friction: Six
    offset: Six
    armature: float
    delay_substeps: int
    mass: float
    play: float = 0.0

    def sibling(self, seed: int) -> TwinServos:
        """Return the parameters of another arm of the same make.

        Stiffness, damping, friction and mass are within 20 % of this arm's, offsets within 0.015 rad (about one of
        LeRobot's units), the delay is 0 to 15 substeps (62.5 ms), the play 0 to `WIDEST_PLAY`. The seed draws all of
        them uniformly.
        """
        rng = np.random.default_rng(seed)

        def near(values: Six) -> Six:
            return tuple((np.asarray(values) * rng.uniform(0.8, 1.2, 6)).tolist())

        return replace(
            self,
            stiffness=near(self.stiffness),
            damping=near(self.damping),
            friction=near(self.friction),
            offset=tuple((np.asarray(self.offset) + rng.uniform(-0.015, 0.015, 6)).tolist()),
            delay_substeps=int(rng.integers(0, 16)),
            mass=self.mass * float(rng.uniform(0.8, 1.2)),
            play=float(rng.uniform(0.0, WIDEST_PLAY)),
        )


IDENTIFIED = TwinServos(
    stiffness=(6.533, 5.704, 5.309, 3.251, 3.167, 6.524),
    damping=(0.635, 0.435, 0.429, 0.267, 0.306, 0.554),
    friction=(0.039, 0.197, 0.224, 0.083, 0.039, 0.226),
    offset=(0.002, 0.018, 0.015, 0.013, 0.001, -0.026),
    armature=0.013,
    delay_substeps=2,
    mass=1.0,
)
"""The arm of the recorded episodes. The table has errors of an open-loop replay over 305 and 346 frames in free air, in
LeRobot's units (a hundredth of half a joint's range), for the joints in servo order without the gripper:

========================  ===============================  ===================================
RMS from the real arm     episode 0, fitted                episode 1, held back
========================  ===============================  ===================================
twin                      0.24  0.60  0.95  0.73  0.14     0.27  0.74  1.06  0.46  0.13
nominal model             0.48  1.70  2.24  1.25  0.37     0.54  1.89  2.48  0.92  0.30
stiff servos              1.43  4.43  5.00  2.99  1.24     1.69  4.74  5.57  2.40  1.11
the goal, shifted best    0.35  2.14  3.45  1.49  0.38     0.46  3.18  3.85  1.11  0.38
========================  ===============================  ===================================

Fitted by least squares with the maker's masses. Lag behind the goal: real 4 frames of 1/30 s (5 for the elbow in one
episode, for the shoulder in the other), twin 4 (5 for the wrist in one).

Such a fit determines ratios (stiffness to gravity) better than the numbers themselves.
"""


def so101_twin(seed: int = 0, servos: TwinServos = IDENTIFIED) -> SimModel:
    """Make a stand-in for the real arm, with the same description but other physics, to test policies on first.

    Args:
        seed: 0 for the identified arm itself; any other number makes one of its siblings.
        servos: the parameters of the identified arm.

    Returns:
        A model with the spec (and so the digest) of the real arm. Positions have the resolution of a 4096-step encoder,
        velocities that of the servo's reports; ``joint_goal`` is the goal that was sent.
    """
    return arm_twin(with_so101, so101_mjcf(), seed, servos)


def so101_cube_twin(seed: int = 0, servos: TwinServos = IDENTIFIED, scene: CubeScene = _CUBE) -> SimModel:
    """Make a stand-in for the real arm and a cube; the arguments are those of `so101_twin` and `so101`.

    A sibling's cube also has another mass and friction (`thing_factors`). The cube's pose is measured exactly.
    """
    mjcf = so101_mjcf(cube=True, distractors=scene.distractors)
    return arm_twin(partial(with_cube, scene=scene), mjcf, seed, servos, things=["cube"])


def arm_twin(
    build: Callable[[mujoco.MjModel], SimModel], mjcf: mujoco.MjSpec, seed: int, servos: TwinServos = IDENTIFIED, *,
    things: Sequence[str] = (), parts: Sequence[str] = (), sides: Sequence[str] = ("",),
) -> SimModel:  # fmt: skip
    """Make a stand-in for one or several SO-101s with objects on the table, as `so101_twin` does for the arm alone.

    Args:
        build: makes the simulation from a compiled model, as for the nominal robot. The stand-in has its spec and its
            other sensors.
        mjcf: the MJCF of the nominal model; it is changed.
        seed: as for `so101_twin`. Each of several arms is another sibling.
        servos: as for `so101_twin`.
        things: names of bodies, each with a geom of its name, that get a sibling's mass and friction
            (`thing_factors`).
        parts: names of bodies, each with a joint of its name, likewise.
        sides: the prefix of the names of each arm's joints and sensors.
    """
    seeds = [seed] if len(sides) == 1 else [seed and len(sides) * seed + number for number in range(len(sides))]
    arms = {side: servos.sibling(own) if own else servos for side, own in zip(sides, seeds, strict=True)}
    for side, arm in arms.items():
        for index, name in enumerate(JOINTS):
            _change_servo(mjcf.actuator(f"{side}{name}"), mjcf.joint(f"{side}{name}"), arm, index)
        if arm.play:
            _add_play(mjcf, [f"{side}{name}" for name in JOINTS], arm.play)
    model = mjcf.compile()
    for side, arm in arms.items():
        _scale_mass(model, [f"{side}{name}" for name in LINKS], arm.mass)
    mass, friction = thing_factors(seed)
    for name in (*things, *parts):
        _scale_mass(model, [name], mass)
    model.geom_friction[[model.geom(name).id for name in things], 0] *= friction
    model.dof_frictionloss[[model.joint(name).dofadr[0] for name in parts]] *= friction
    twin = build(model)
    measured = [_measured_sensors(model, side) for side in sides]
    return replace(twin, sensors={name: sensor for each in (twin.sensors, *measured) for name, sensor in each.items()})


def thing_factors(seed: int) -> tuple[float, float]:
    """Return the factors of mass and friction by which a sibling's cube or bar differs from the nominal one.

    Both factors are drawn uniformly, mass from 0.8 to 1.2 and friction from 0.7 to 1.3; both are 1 for seed 0.
    """
    if seed == 0:
        return 1.0, 1.0
    rng = np.random.default_rng([seed, 1])
    return float(rng.uniform(0.8, 1.2)), float(rng.uniform(0.7, 1.3))


def _measured_sensors(model: mujoco.MjModel, prefix: str) -> dict[str, Reader]:
    """Return what the servos of one arm measure, and what software on the real arm computes from it."""
    joints = tuple(int(model.joint(f"{prefix}{name}").qposadr[0]) for name in JOINTS)
    dofs = tuple(int(model.joint(f"{prefix}{name}").dofadr[0]) for name in JOINTS)
    measured = Columns("qpos", joints)
    return {
        f"{prefix}joint_position": Computed(quantised_position, (measured,)),
        f"{prefix}joint_velocity": Computed(quantised_velocity, (Columns("qvel", dofs),)),
        f"{prefix}gripper_position": Computed(_measured_tip, (measured,)),
    }


def _scale_mass(model: mujoco.MjModel, names: Sequence[str], factor: float) -> None:
    bodies = [model.body(name).id for name in names]
    model.body_mass[bodies] *= factor
    model.body_inertia[bodies] *= factor
    mujoco.mj_setConst(model, mujoco.MjData(model))


def _change_servo(actuator: mujoco.MjsActuator, joint: mujoco.MjsJoint, servos: TwinServos, index: int) -> None:
    """Make the servo proportional and let it stop short: torque = stiffness (goal - offset - angle) - damping speed."""
    stiffness = servos.stiffness[index]
    actuator.gainprm[0] = stiffness
    actuator.biasprm[:3] = (-stiffness * servos.offset[index], -stiffness, 0.0)
    actuator.delay = servos.delay_substeps / 240
    actuator.nsample = servos.delay_substeps + 2
    joint.damping[0] = servos.damping[index]
    joint.frictionloss = servos.friction[index]
    joint.armature = servos.armature


def _add_play(mjcf: mujoco.MjSpec, names: Sequence[str], width: float) -> None:
    """Let the links move freely by an angle behind these joints, as gears with backlash do, in ``mjcf`` and its key."""
    model, key = mjcf.compile(), mjcf.keys[0]
    rest = list(key.qpos)
    for first, name in sorted(((int(model.joint(name).qposadr[0]), name) for name in names), reverse=True):
        servo = mjcf.joint(name)
        play = servo.parent.add_joint(name=f"{name}_play", type=servo.type, axis=servo.axis, pos=servo.pos)
        play.range, play.limited = (-width / 2, width / 2), mujoco.mjtLimited.mjLIMITED_TRUE
        play.armature, play.damping[0] = _PLAY_ARMATURE, _PLAY_DAMPING
        play.solref_limit, play.solimp_limit[:2] = _STOP_SOLREF, _STOP_SOLIMP
        rest.insert(first + 1, 0.0)
    key.qpos = rest


def _measured_tip(qpos: np.ndarray) -> np.ndarray:
    return forward_kinematics(quantised_position(qpos))


def quantised_position(angle: np.ndarray) -> np.ndarray:
    """Round angles to the steps of a 4096-step encoder, rad, any shape."""
    tick = 2 * np.pi / TICKS_PER_TURN
    return np.asarray(np.rint(angle / tick) * tick)


def quantised_velocity(velocity: np.ndarray) -> np.ndarray:
    """Round velocities to multiples of `SPEED_STEP`, as the servo reports them, rad/s, any shape."""
    unit = SPEED_STEP * 2 * np.pi / TICKS_PER_TURN
    return np.asarray(np.rint(velocity / unit) * unit)
