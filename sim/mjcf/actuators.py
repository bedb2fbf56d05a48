"""The meaning of the controls of a MuJoCo model: target, torque or something else, with unit and range."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

__all__ = ["Actuator", "ActuatorKind", "actuators"]

_HINGE, _SLIDE = mujoco.mjtJoint.mjJNT_HINGE.value, mujoco.mjtJoint.mjJNT_SLIDE.value


@dataclass(frozen=True, slots=True)
class ActuatorKind:
    """A command field for actuators of one kind and unit: its name, its unit and its meaning."""

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
        name: the name of the actuator, otherwise of its joint, otherwise ``actuator_<number>``.
        kind: the command field of the actuator.
        column: the index of its control in ``ctrl``.
        low, high: the range of the control; infinite where the control has no range.
        qpos: the index of the joint in ``qpos`` for a position servo, otherwise None.
    """

    name: str
    kind: ActuatorKind
    column: int
    low: float
    high: float
    qpos: int | None


def actuators(model: mujoco.MjModel) -> list[Actuator]:
    """Return every control of the model's actuators, in order."""
    controls = []
    for number in range(model.nactuator):
        column, width = int(model.actuator_ctrladr[number]), int(model.actuator_ctrlnum[number])
        for part in range(width):
            controls.append(_actuator(model, number, column + part, f"[{part}]" if width > 1 else ""))
    return controls


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
    qpos = int(model.jnt_qposadr[joint]) if kind.field in ("angle_target", "distance_target") else None
    return Actuator((name or f"actuator_{number}") + suffix, kind, column, low, high, qpos)


def _joint(model: mujoco.MjModel, number: int) -> int | None:
    """Return the hinge or slide that the actuator moves directly, with a gear of 1; None for any other actuator."""
    gear = model.actuator_gear[model.actuator_outadr[number], 0]
    if model.actuator_trntype[number] != mujoco.mjtTrn.mjTRN_JOINT.value or gear != 1:
        return None
    joint = int(model.actuator_trnid[number, 0])
    return joint if model.jnt_type[joint] in (_HINGE, _SLIDE) else None


def _law(model: mujoco.MjModel, number: int) -> str:
    """Return the kind of the force law ``force = gain ctrl + bias``: position, velocity, motor or other."""
    gain, bias = float(model.actuator_gainprm[number, 0]), model.actuator_biasprm[number]
    fixed = model.actuator_gaintype[number] == mujoco.mjtGain.mjGAIN_FIXED.value
    immediate = model.actuator_dyntype[number] == mujoco.mjtDyn.mjDYN_NONE.value
    if fixed and model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_AFFINE.value and gain:
        if bias[1] == -gain:  # with any filter before it: the target is a position
            return "position"
        if bias[1] == 0 and bias[2] == -gain:
            return "velocity"
    if fixed and immediate and gain == 1 and model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_NONE.value:
        return "motor"
    return "other"
