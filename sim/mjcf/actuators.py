"""What the controls of a MuJoCo model mean: target, torque or something else, in which unit and range."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

__all__ = ["Actuator", "ActuatorKind", "actuators"]

_HINGE, _SLIDE = mujoco.mjtJoint.mjJNT_HINGE.value, mujoco.mjtJoint.mjJNT_SLIDE.value


@dataclass(frozen=True, slots=True)
class ActuatorKind:
    """A field that actuators of one kind and unit share: its name, its unit, and a sentence."""

    field: str
    unit: str
    meaning: str


_KINDS = {
    ("position", _HINGE): ActuatorKind("angle_target", "rad", "targets of position servos"),
    ("position", _SLIDE): ActuatorKind("distance_target", "m", "targets of position servos"),
    ("velocity", _HINGE): ActuatorKind("angular_velocity_target", "rad/s", "targets of velocity servos"),
    ("velocity", _SLIDE): ActuatorKind("velocity_target", "m/s", "targets of velocity servos"),
    ("motor", _HINGE): ActuatorKind("torque", "N m", "of motors"),
    ("motor", _SLIDE): ActuatorKind("force", "N", "of motors"),
}
_OTHER = ActuatorKind("control", "1", "as the model's actuators take it")


@dataclass(frozen=True, slots=True)
class Actuator:
    """One actuator with one control.

    Attributes:
        name: its own, else its joint's, else its number.
        kind: what it is told.
        column: in ``ctrl``.
        low, high: range of the control; infinite where there is none.
        qpos: for a position servo, where its joint is in ``qpos``; else None.
    """

    name: str
    kind: ActuatorKind
    column: int
    low: float
    high: float
    qpos: int | None


def actuators(model: mujoco.MjModel) -> list[Actuator]:
    """Every actuator that takes one control, in order."""
    made = []
    for number in range(model.nactuator):
        column, width = int(model.actuator_ctrladr[number]), int(model.actuator_ctrlnum[number])
        for part in range(width):
            made.append(_actuator(model, number, column + part, f"[{part}]" if width > 1 else ""))
    return made


def _actuator(model: mujoco.MjModel, number: int, column: int, suffix: str) -> Actuator:
    joint = _joint(model, number)
    kind = _KINDS.get((_law(model, number), int(model.jnt_type[joint])), _OTHER) if joint is not None else _OTHER
    kind = _OTHER if suffix else kind
    low, high = -np.inf, np.inf
    if model.actuator_ctrllimited[column]:
        low, high = model.actuator_ctrlrange.reshape(-1, 2)[column].tolist()
    elif kind.field in ("angle_target", "distance_target") and model.jnt_limited[joint]:
        low, high = model.jnt_range[joint].tolist()
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, number)
    if not name and joint is not None:
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
    place = int(model.jnt_qposadr[joint]) if kind.field in ("angle_target", "distance_target") else None
    return Actuator((name or f"actuator_{number}") + suffix, kind, column, low, high, place)


def _joint(model: mujoco.MjModel, number: int) -> int | None:
    """The hinge or slide that it moves directly, with a gear of 1; else None."""
    gear = model.actuator_gear[model.actuator_outadr[number], 0]
    if model.actuator_trntype[number] != mujoco.mjtTrn.mjTRN_JOINT.value or gear != 1:
        return None
    joint = int(model.actuator_trnid[number, 0])
    return joint if model.jnt_type[joint] in (_HINGE, _SLIDE) else None


def _law(model: mujoco.MjModel, number: int) -> str:
    """force = gain ctrl + bias: of a position servo, a velocity servo, a motor, or of something else."""
    gain, bias = float(model.actuator_gainprm[number, 0]), model.actuator_biasprm[number]
    plain = model.actuator_gaintype[number] == mujoco.mjtGain.mjGAIN_FIXED.value
    still = model.actuator_dyntype[number] == mujoco.mjtDyn.mjDYN_NONE.value
    if plain and model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_AFFINE.value and gain:
        if bias[1] == -gain:  # whatever filter is before it: the target is an angle
            return "position"
        if bias[1] == 0 and bias[2] == -gain:
            return "velocity"
    if plain and still and gain == 1 and model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_NONE.value:
        return "motor"
    return "other"
