"""Simulate an arm that is given as a table of joints: a chain of capsules over a table."""

from __future__ import annotations

from dataclasses import replace

import mujoco
import numpy as np

from hal.drivers.arm_table import ArmJoint, ArmTable
from hal.errors import SpecError
from hal.robot import Actuation, Range, elements_of
from sim.model import Columns, SimModel
from sim.robots.servo_motors import at_joint, law_of

__all__ = ["arm_mjcf", "arm_sim_model"]

_PHYSICS_HZ = 240
"""Least number of physics steps a second."""

_COLOURS = ((0.93, 0.60, 0.20, 1.0), (0.25, 0.28, 0.33, 1.0))


def arm_mjcf(arm: ArmTable) -> mujoco.MjSpec:
    """Return the editable MJCF of an arm; its only keyframe is ``rest``.

    Each joint has a position servo with the table's gains, at the nominal voltage of its servo's model. Bodies collide
    with the table, but not with each other.

    Raises:
        SpecError: a joint has no body.
    """
    mjcf = mujoco.MjSpec()
    mjcf.modelname = arm.name
    mjcf.compiler.degree = False
    mjcf.option.timestep = 1.0 / arm.rate_hz / _substeps(arm)
    mjcf.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    visual = mjcf.visual.headlight
    visual.ambient[:], visual.diffuse[:], visual.specular[:] = 0.45, 0.45, 0.0
    mjcf.add_texture(
        name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.90, 0.92, 0.94], rgb2=[0.62, 0.69, 0.77], width=64, height=384,
    )  # fmt: skip
    world = mjcf.worldbody
    world.add_geom(
        name="table", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.5, 0.5, 0.01], rgba=[0.83, 0.77, 0.68, 1],
        contype=1, conaffinity=0,
    )  # fmt: skip
    world.add_light(pos=[0.3, -0.4, 1.2], dir=[-0.2, 0.3, -1.0], diffuse=[0.5, 0.5, 0.5])
    _add_base(world, arm.joints[0])
    body = world
    for number, joint in enumerate(arm.joints):
        body = _add_joint(mjcf, body, joint, _COLOURS[number % 2])
    reach = sum(float(np.linalg.norm(joint.body.origin)) for joint in arm.joints if joint.body is not None)
    middle = arm.joints[len(arm.joints) // 2].name
    world.add_camera(
        name="view", pos=[1.1 * reach + 0.1, -1.1 * reach - 0.1, 0.8 * reach + 0.1],
        mode=mujoco.mjtCamLight.mjCAMLIGHT_TARGETBODY,
        targetbody=f"{middle}_body",
    )  # fmt: skip
    mjcf.add_exclude(bodyname1="world", bodyname2=f"{arm.joints[0].name}_body")
    rest = [joint.rest for joint in arm.joints]
    mjcf.add_key(name="rest", qpos=rest, ctrl=rest)
    return mjcf


def _add_base(world: mujoco.MjsBody, first: ArmJoint) -> None:
    """Draw what stands between the table and the first joint; nothing touches it."""
    if first.body is not None and first.body.origin[2] > 2 * first.body.radius:
        x, y, height = first.body.origin
        world.add_geom(
            name="base", type=mujoco.mjtGeom.mjGEOM_CYLINDER, fromto=[x, y, 0.0, x, y, height - first.body.radius],
            size=[1.4 * first.body.radius, 0, 0], rgba=list(_COLOURS[1]), contype=0, conaffinity=0,
        )  # fmt: skip


def _add_joint(
    mjcf: mujoco.MjSpec, parent: mujoco.MjsBody, joint: ArmJoint, colour: tuple[float, ...]
) -> mujoco.MjsBody:
    shape = joint.body
    if shape is None:
        raise SpecError(f"joint {joint.name!r} has no body, so it can't be simulated: give its origin, axis, end ...")
    body: mujoco.MjsBody = parent.add_body(name=f"{joint.name}_body", pos=list(shape.origin))
    law = law_of(joint.model)
    motor = at_joint(law.motor, joint.gear)
    body.add_joint(
        name=joint.name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=list(shape.axis), range=[joint.low, joint.high],
        limited=mujoco.mjtLimited.mjLIMITED_TRUE, damping=motor.damping, frictionloss=motor.friction,
        armature=motor.armature,
    )  # fmt: skip
    body.add_geom(
        name=joint.name, type=mujoco.mjtGeom.mjGEOM_CAPSULE, fromto=[0, 0, 0, *shape.end], size=[shape.radius, 0, 0],
        mass=shape.mass, rgba=list(colour), contype=0, conaffinity=1,
    )  # fmt: skip
    kp = law.stiffness(joint.register_values["p"], law.motor.volts) * joint.gear**2
    torque = motor.stall_torque * min(joint.torque_limit, law.max_duty)
    actuator = mjcf.add_actuator(name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
    actuator.gaintype, actuator.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
    actuator.gainprm[0], actuator.biasprm[:3] = kp, (0.0, -kp, 0.0)
    actuator.ctrlrange[:], actuator.ctrllimited = (joint.low, joint.high), mujoco.mjtLimited.mjLIMITED_TRUE
    actuator.forcerange[:], actuator.forcelimited = (-torque, torque), mujoco.mjtLimited.mjLIMITED_TRUE
    return body


def _substeps(arm: ArmTable) -> int:
    return max(int(np.ceil(_PHYSICS_HZ / arm.rate_hz)), 1)


def arm_sim_model(arm: ArmTable) -> SimModel:
    """Return the nominal simulation of an arm, which begins at the pose of the arm without torque.

    Raises:
        SpecError: a joint has no body, or the table's description has sensors other than those of the joints.
    """
    model = arm_mjcf(arm).compile()
    addresses = tuple(int(model.joint(name).qposadr[0]) for name in arm.names)
    velocities = tuple(int(model.joint(name).dofadr[0]) for name in arm.names)
    gains = {}
    for element, joint in zip(elements_of(arm.spec.commands), arm.joints, strict=True):
        law = law_of(joint.model)
        stiffness = law.stiffness(joint.register_values["p"], law.motor.volts)
        values = {"stiffness": stiffness, "volts": law.motor.volts, **joint.register_values}
        gains[element] = {name: Range.of(value) for name, value in values.items()}
    return SimModel(
        spec=replace(arm.spec, actuation=Actuation(gains)),
        model=model,
        substeps=_substeps(arm),
        sensors={
            "joint_position": Columns("qpos", addresses),
            "joint_velocity": Columns("qvel", velocities),
            "joint_goal": Columns("ctrl"),
        },
        commands={"joint_target": slice(0, len(arm.joints))},
        start={"joint_target": addresses},
        keyframe=0,
    )
