"""Compute the friction of geared joints, which grows with the torque in their gears and at rest.

MuJoCo's ``frictionloss`` is Coulomb friction, independent of the load. In gears friction grows with the load: a joint
that holds a weight sticks more than the same joint without it. The law is that of Rhoban's BAM (Duclusaud et al.,
"Extended friction models for the physics simulation of servo actuators", ICRA 2025, models M1 to M6; ``bam/model.py``):

    frictionloss + |m t_m - e t_e| + rest (s + |m_s t_m - e_s t_e| + q)

with the torque ``t_m`` of the joint's actuator, the torque ``t_e`` of gravity and of the other links' motion, and
``rest = exp(-(|speed| / stribeck speed) ** shape)``. ``q`` counts where the two torques oppose each other:
``e_q t_e^2`` where the motor drives, else ``m_q t_m^2``. Back-EMF is part of a joint's damping here, not of ``t_m``.

With ``load_friction`` (``m``) alone, the friction of a control period depends on the state at its beginning. With any
other term, it is computed again in every physics step. It depends only on the state, so snapshots and batches of any
size reproduce it bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import mujoco
import numpy as np

from hal.errors import SpecError
from sim.model import as_slice

__all__ = ["BASE", "FRICTION", "TERMS", "LoadFriction", "Term", "friction_torque"]

FRICTION = "dof_frictionloss"
"""The field of the model that the friction changes."""

BASE = "load.base"
"""Name of an array beside the model's fields, (num, nv): the friction without load, in motion."""


class Term(NamedTuple):
    """A parameter of the law, which is an attribute of a joint.

    Attributes:
        field: name of its array beside the model's fields, (num, nv).
        default: value of a joint for which it is not given.
        lowest: lowest allowed value.
        highest: highest allowed value.
        problem: why a higher value is not allowed.
    """

    field: str
    default: float = 0.0
    lowest: float = 0.0
    highest: float = np.inf
    problem: str = ""


_STUCK = "it must be below 1: gears would not move"

TERMS: Mapping[str, Term] = {
    "load_friction": Term("load.share", highest=0.99, problem=_STUCK),
    "external_friction": Term("load.external", highest=0.99, problem=_STUCK),
    "stribeck_friction": Term("load.stribeck"),
    "stribeck_load_friction": Term("load.stribeck_share", highest=0.99, problem=_STUCK),
    "stribeck_external_friction": Term("load.stribeck_external", highest=0.99, problem=_STUCK),
    "load_quadratic_friction": Term("load.quadratic"),
    "external_quadratic_friction": Term("load.external_quadratic"),
    "stribeck_speed": Term("load.stribeck_speed", 0.2, lowest=1e-3),
    "stribeck_shape": Term("load.stribeck_shape", 1.35, lowest=0.1, highest=20.0, problem="it must be at most 20"),
}
"""The parameters by their names in a profile: m, e (shares), s (N m), m_s, e_s (shares), m_q, e_q (1/(N m)),
Stribeck's speed (rad/s) and the exponent. The defaults of the last two are BAM's initial values of a fit."""


def friction_torque(
    terms: Mapping[str, np.ndarray | float],
    base: np.ndarray,
    motor: np.ndarray,
    external: np.ndarray,
    speed: np.ndarray,
) -> np.ndarray:
    """Return the friction that a joint has to overcome, N m.

    Args:
        terms: values by name (`TERMS`), in shapes that broadcast; a missing one has its default.
        base: friction without load, in motion, N m.
        motor: torque of the actuator, N m.
        external: torque of gravity and of the other links' motion, N m.
        speed: speed of the joint, rad/s.
    """

    def value(name: str) -> np.ndarray | float:
        return terms.get(name, TERMS[name].default)

    friction = base + np.abs(value("load_friction") * motor - value("external_friction") * external)
    if not terms.keys() - {"load_friction", "external_friction"}:
        return np.asarray(friction)
    rest = np.exp(-((np.abs(speed) / value("stribeck_speed")) ** value("stribeck_shape")))
    more = value("stribeck_friction") + np.abs(
        value("stribeck_load_friction") * motor - value("stribeck_external_friction") * external
    )
    driven = np.abs(motor) > np.abs(external)
    quadratic = np.where(
        driven, value("external_quadratic_friction") * external**2, value("load_quadratic_friction") * motor**2
    )
    return np.asarray(friction + rest * (more + np.where(motor * external < 0, quadratic, 0.0)))


class LoadFriction:
    """Compute the friction of joints under load.

    Args:
        model: the nominal model.
        dofs: the joints' degrees of freedom, (k,), each driven by one actuator whose force is
            ``gain ctrl + bias0 + bias1 length + bias2 velocity``.
        fields: the fields in which the models of a batch differ, `BASE` and those of the given terms: name -> (num,
            size), live.

    Attributes:
        every_step: whether the friction must be computed in every physics step.

    Raises:
        SpecError: a joint is not driven by exactly one such actuator.
    """

    def __init__(self, model: mujoco.MjModel, dofs: np.ndarray, fields: Mapping[str, np.ndarray]) -> None:
        self._model, self._fields, self._numbers, self._dofs = model, fields, dofs, _columns(dofs)
        joints = model.dof_jntid[dofs]
        self._actuators = np.array([_actuator(model, int(joint)) for joint in joints], np.intp)
        self._columns, self._controls = _columns(model.jnt_qposadr[joints]), _columns(self._actuators)
        gear = model.actuator_gear[self._actuators, 0]
        self._gear = None if (gear == 1.0).all() else gear
        limited = model.actuator_forcelimited[self._actuators].astype(bool)[:, None]
        self._range = np.where(limited, model.actuator_forcerange[self._actuators], (-np.inf, np.inf)).T.copy()
        names = {name: term.field for name, term in TERMS.items() if term.field in fields}
        self.every_step = names.keys() != {"load_friction"}
        self._names = names
        self.take_up()

    def over(self, fields: Mapping[str, np.ndarray]) -> LoadFriction:
        """Return the same law over the fields of another batch, which may be on another device."""
        return LoadFriction(self._model, self._numbers, fields)

    def take_up(self) -> None:
        """Read the parameters from the fields again; to be called after every change of the fields."""
        self._gain = self._parameters("actuator_gainprm", 0)
        biases = [self._parameters("actuator_biasprm", number) for number in range(3)]
        self._bias = [None if isinstance(each, np.ndarray) and not each.any() else each for each in biases]
        self._terms = {name: self._fields[field][:, self._dofs] for name, field in self._names.items()}
        self._base = self._fields[BASE][:, self._dofs]  # in motion, without load

    def _parameters(self, field: str, number: int) -> np.ndarray:
        """Return one number of ``actuator_gainprm`` or ``actuator_biasprm`` of the actuators, (num, k) or (k,)."""
        width = getattr(self._model, field).shape[1]
        if field in self._fields:
            return self._fields[field][:, self._actuators * width + number]
        return np.asarray(getattr(self._model, field)[self._actuators, number])

    def apply(self, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray, bias: np.ndarray | None) -> None:
        """Compute the friction from the present state, and set it in the models.

        Args:
            qpos: positions of all simulations, (num, nq).
            qvel: velocities of all simulations, (num, nv).
            ctrl: controls of all simulations, (num, nu).
            bias: torque against gravity and inertia, ``qfrc_bias`` of MuJoCo, (num, nv); None with ``load_friction``
                alone, which does not depend on it.
        """
        speed = qvel[:, self._dofs]
        force = self._gain * ctrl[:, self._controls]
        lengths = (None, qpos[:, self._columns], speed)
        for parameter, length in zip(self._bias, lengths, strict=True):
            if parameter is not None:  # where it is 0 for all, there is nothing to add
                geared = length if self._gear is None or length is None else self._gear * length
                force += parameter if geared is None else parameter * geared
        motor = np.minimum(np.maximum(force, self._range[0]), self._range[1])
        if self._gear is not None:
            motor *= self._gear
        if bias is None:
            friction = self._base + np.abs(self._terms["load_friction"] * motor)
        else:
            friction = friction_torque(self._terms, self._base, motor, -bias[:, self._dofs], speed)
        self._fields[FRICTION][:, self._dofs] = friction


def _columns(numbers: np.ndarray) -> slice | np.ndarray:
    """Return evenly spaced columns as a slice, which is read without a copy."""
    columns = as_slice(tuple(numbers.tolist()))
    return columns if isinstance(columns, slice) else numbers


def _actuator(model: mujoco.MjModel, joint: int) -> int:
    """Return the one actuator of a joint."""
    on_joint = model.actuator_trntype == mujoco.mjtTrn.mjTRN_JOINT.value
    (found,) = np.nonzero(on_joint & (model.actuator_trnid[:, 0] == joint))
    fixed, affine = (
        mujoco.mjtGain.mjGAIN_FIXED.value,
        (mujoco.mjtBias.mjBIAS_NONE.value, mujoco.mjtBias.mjBIAS_AFFINE.value),
    )
    if len(found) != 1 or model.actuator_gaintype[found[0]] != fixed or model.actuator_biastype[found[0]] not in affine:
        raise SpecError(
            f"randomise.joint.{model.joint(joint).name}.load_friction: it needs one actuator at the joint, of fixed "
            f"gain and affine bias such as a position servo; the joint has {len(found)} actuators"
        )
    return int(found[0])
