"""Friction of geared joints that grows with the torque which their gears transmit.

MuJoCo's ``frictionloss`` is Coulomb's friction, whatever the load. In gears it grows with the load (Rhoban's BAM calls
it load-dependent friction): a joint that holds a weight sticks more than the same joint without it. Here the friction
of a control period is ``frictionloss + share |torque|``, with the torque of the joint's actuator in the state in which
the period begins. It depends on the state alone, so snapshots and batches of any size repeat it bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

from hal.errors import SpecError

__all__ = ["BASE", "FRICTION", "SHARE", "LoadFriction"]

FRICTION = "dof_frictionloss"
"""The field of the model that changes."""

BASE, SHARE = "load.base", "load.share"
"""Arrays beside the model's fields, (num, nv): friction without load, and friction for each N m of torque."""


class LoadFriction:
    """Compute the friction of joints under load.

    Args:
        model: the nominal model.
        dofs: the joints' degrees of freedom, (k,), each driven by one actuator whose force is
            ``gain ctrl + bias0 + bias1 length + bias2 velocity``.
        fields: the fields in which the models of a batch differ, and `BASE` and `SHARE`: name -> (num, size), live.

    Raises:
        SpecError: a joint is driven by no such actuator.
    """

    def __init__(self, model: mujoco.MjModel, dofs: np.ndarray, fields: Mapping[str, np.ndarray]) -> None:
        self._model, self._fields, self._dofs = model, fields, dofs
        joints = model.dof_jntid[dofs]
        self._actuators = np.array([_actuator(model, int(joint)) for joint in joints], np.intp)
        self._columns = model.jnt_qposadr[joints]
        self._gear = model.actuator_gear[self._actuators, 0]
        limited = model.actuator_forcelimited[self._actuators].astype(bool)[:, None]
        self._range = np.where(limited, model.actuator_forcerange[self._actuators], (-np.inf, np.inf))

    def _parameters(self, field: str, number: int) -> np.ndarray:
        """Return one number of ``actuator_gainprm`` or ``actuator_biasprm`` of the actuators, (num, k) or (k,)."""
        width = getattr(self._model, field).shape[1]
        if field in self._fields:
            return self._fields[field][:, self._actuators * width + number]
        return np.asarray(getattr(self._model, field)[self._actuators, number])

    def apply(self, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray) -> None:
        """Set the friction of the next control period.

        Args:
            qpos, qvel, ctrl: state and controls of all simulations, (num, ...).
        """
        length, velocity = self._gear * qpos[:, self._columns], self._gear * qvel[:, self._dofs]
        force = self._parameters("actuator_gainprm", 0) * ctrl[:, self._actuators]
        for number, value in enumerate((1.0, length, velocity)):
            force = force + self._parameters("actuator_biasprm", number) * value
        torque = np.abs(self._gear * np.clip(force, self._range[:, 0], self._range[:, 1]))
        base, share = (self._fields[name][:, self._dofs] for name in (BASE, SHARE))
        self._fields[FRICTION][:, self._dofs] = base + share * torque


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
