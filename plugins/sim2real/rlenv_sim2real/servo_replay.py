"""Replay goals with many variants of an arm at once, which differ in the parameters of their servos."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace

import mujoco
import numpy as np
from mujoco.batch import Batch

from hal import SourceError
from rlenv_sim2real.motion import ArmJoints, RecordedMotion
from rlenv_sim2real.open_loop import without_contacts
from rlenv_sim2real.payload import Carrier
from sim.model import SimModel
from sim.randomize.load_friction import TERMS, friction_torque

__all__ = ["KINDS", "PER_JOINT", "Kind", "ServoReplay", "ServoValues"]


@dataclass(frozen=True)
class Kind:
    """A kind of parameter.

    Attributes:
        unit: the unit of its values.
        positive: whether it is a positive quantity, of which a factor is estimated instead of the value.
        step: typical change: of the logarithm for positive kinds, else in the kind's unit.
        lowest: lower limit of the estimate: a factor of the nominal value for positive kinds, else a value.
        highest: upper limit of the estimate, likewise.
        meaning: a description for people.
        prior: standard deviation of real arms from the nominal value, in units of ``step``. The parameters of STS3215
            differ by a third (BAM's, ours and published ones), zeros of calibrated arms by half a degree.
        begin: initial value of a search, in units of ``step`` from the nominal value; not at an edge where the slope is
            0.
    """

    unit: str
    positive: bool
    step: float
    lowest: float
    highest: float
    meaning: str
    prior: float = 1.0
    begin: float = 0.0


KINDS: Mapping[str, Kind] = {
    "stiffness": Kind(
        "N m/rad", True, 1.0, 0.02, 150.0, "torque per angle of error (gain, error gain and supply)", 0.3
    ),
    "damping": Kind("N m s/rad", True, 1.0, 0.02, 50.0, "torque per speed (back-EMF, viscous friction and D)", 0.3),
    "friction": Kind("N m", True, 1.0, 0.01, 50.0, "torque that is overcome before the joint moves", 0.5),
    "offset": Kind("rad", False, 0.05, -0.6, 0.6, "distance below its goal at which the servo stops without load", 0.2),
    "armature": Kind(
        "kg m^2", True, 1.0, 0.05, 20.0, "inertia of the rotors behind their gears, one for all joints", 0.3
    ),
    "delay": Kind("s", False, 0.02, 0.0, 0.4, "delay of the goals, one for all joints"),
    "backlash": Kind("rad", False, 0.02, 0.0, 0.2, "play between motor and joint, one for all joints"),
    "payload": Kind("kg", False, 0.05, 0.0, 1.0, "point mass that is carried at the fingertip", begin=0.2),
    "load_friction": Kind("1", False, 0.05, 0.0, 0.6, "share of the motor's torque that becomes friction", 2.0, 0.6),
    "external_friction": Kind("1", False, 0.05, 0.0, 0.6, "share of gravity's torque that becomes friction", 2.0, 0.6),
    "stribeck_friction": Kind("N m", False, 0.05, 0.0, 1.0, "friction that a joint at rest has in addition", 2.0, 0.6),
    "stribeck_load_friction": Kind(
        "1", False, 0.05, 0.0, 0.6, "load_friction that a joint at rest has in addition", 2.0, 0.6
    ),
    "stribeck_external_friction": Kind("1", False, 0.05, 0.0, 0.6, "external_friction at rest, in addition", 2.0, 0.6),
    "load_quadratic_friction": Kind(
        "1/(N m)", False, 0.05, 0.0, 1.0, "friction at rest by the motor's torque squared", 2.0
    ),
    "external_quadratic_friction": Kind("1/(N m)", False, 0.05, 0.0, 1.0, "the same by gravity's torque squared", 2.0),
    "stribeck_speed": Kind("rad/s", True, 1.0, 0.05, 20.0, "speed at which the friction of rest is over"),
    "stribeck_shape": Kind("1", True, 1.0, 0.5, 8.0, "exponent with which it ends"),
}
"""Kinds of parameters by name. Back-EMF, supply voltage and controller gains affect a motion through these only."""

PER_JOINT = ("stiffness", "damping", "friction", "offset")
"""The kinds with one value per joint."""

ServoValues = Mapping[str, np.ndarray]
"""Kind -> values of the variants: (N, n) for those of `PER_JOINT`, else (N,)."""

_VEL = mujoco.mjtStage.mjSTAGE_VEL.value

_CHUNK = 240
"""Frames that are simulated in one call; it bounds the memory."""


class ServoReplay:
    """Simulate a motion's goals with N variants of an arm's servos, by MuJoCo's batched rollout.

    The servo law is torque = stiffness (goal - offset - angle) - damping speed, with Coulomb friction, as in
    `sim.robots.twin`. A delay need not be a whole number of physics steps: in the step in which a goal arrives, the old
    and the new goal are averaged by their shares, so that the result is a smooth function of the delay.

    Args:
        sim_model: the arm; its contacts are switched off.
        threads: native threads; 0 for one per processor.

    Raises:
        SourceError: the robot has no joints with position servos.
    """

    def __init__(self, sim_model: SimModel, threads: int = 0) -> None:
        self.sim_model = without_contacts(sim_model)
        self.joints = ArmJoints.of(self.sim_model)
        self._threads = threads
        model = self.sim_model.model
        self._actuators = self._servos(model)
        self._carrier = Carrier.of(model, self.joints)
        self._batch: Batch | None = None

    def _servos(self, model: mujoco.MjModel) -> np.ndarray:
        affine = model.actuator_biastype == mujoco.mjtBias.mjBIAS_AFFINE.value
        position = affine & (model.actuator_gainprm[:, 0] > 0)
        if not position[self.joints.ctrl].all():
            raise SourceError(f"not all joints of {self.sim_model.spec.name!r} have position servos in its model")
        return self.joints.ctrl

    @property
    def carrier(self) -> Carrier:
        """The body that carries a payload, and the point at which it does."""
        return self._carrier

    def finer(self, factor: int) -> ServoReplay:
        """Return a replay of the same arm with a physics step that is smaller by a whole factor."""
        model = copy.copy(self.sim_model.model)
        model.opt.timestep /= factor
        finer = replace(self.sim_model, model=model, substeps=factor * self.sim_model.substeps)
        return ServoReplay(finer, self._threads)

    def element_names(self, number: int) -> tuple[str, str]:
        """Return the names of a joint's actuator and of the joint in the MuJoCo model."""
        model = self.sim_model.model
        joint = int(model.dof_jntid[self.joints.qvel[number]])
        return str(model.actuator(int(self._actuators[number])).name), str(model.joint(joint).name)

    def has_speed_gain(self, number: int) -> bool:
        """Return whether the model's servo has a gain on the speed, which a fit counts as damping."""
        return bool(self.sim_model.model.actuator_biasprm[self._actuators[number], 2])

    def nominal(self) -> dict[str, np.ndarray]:
        """Return the nominal parameters: kind -> (n,), or () for a kind that all joints share."""
        model, joints = self.sim_model.model, self.joints
        stiffness = model.actuator_gainprm[self._actuators, 0].copy()
        return {
            "stiffness": stiffness,
            "damping": _dof(model.dof_damping)[joints.qvel] - model.actuator_biasprm[self._actuators, 2],
            "friction": _dof(model.dof_frictionloss)[joints.qvel].copy(),
            "offset": -model.actuator_biasprm[self._actuators, 0] / stiffness,
            "armature": np.asarray(_dof(model.dof_armature)[joints.qvel].mean()),
            "delay": np.asarray(0.0),
            "backlash": np.asarray(0.0),
            "payload": np.asarray(0.0),
        } | {name: np.asarray(term.default) for name, term in TERMS.items()}

    def run(self, values: ServoValues, motion: RecordedMotion) -> np.ndarray:
        """Simulate a motion with every variant, starting at its first measured angles at rest.

        Args:
            values: the values of the N variants; a missing kind is nominal. The stiffness is multiplied by the motion's
                `RecordedMotion.gain`.
            motion: with the control period of the simulation.

        Returns:
            Angles at each frame, rad, (N, T, n); NaN after the physics of a variant failed.
        """
        count = len(next(iter(values.values())))
        full = {kind: values.get(kind, np.broadcast_to(value, (count, *value.shape)))
                for kind, value in self.nominal().items()}  # fmt: skip
        full["stiffness"] = full["stiffness"] * motion.gain
        batch = self._begin(full, count)
        batch.bind("qpos")[:, self.joints.qpos] = motion.measured[0]
        batch.bind("qvel")[:, self.joints.qvel] = 0.0
        substeps, total = self.sim_model.substeps, len(motion)
        goals = _played(np.concatenate([motion.held[None], motion.goals]), full["backlash"])
        low, high = self._goal_range()
        goals = np.clip(goals, low, high)
        angles = np.empty((count, total, len(self.joints.names)))
        angles[:, 0] = motion.measured[0]
        delay = full["delay"] / self.sim_model.model.opt.timestep
        load = _LoadedRun(batch, self.sim_model.model, self.joints, full) if _loaded(full) else None
        control = np.zeros((count, _CHUNK * substeps, batch.model.nu))
        control[:] = batch.bind("ctrl")[:, None, :]
        for first in range(0, total - 1, _CHUNK):
            frames = min(_CHUNK, total - 1 - first)
            steps = np.arange(first * substeps, (first + frames) * substeps)
            part = control[:, : len(steps)]
            part[:, :, self.joints.ctrl] = _delayed(goals, steps, delay, substeps)
            if load is None:
                record = batch.rollout(len(steps), part)["qpos"][:, substeps - 1 :: substeps, self.joints.qpos]
            else:
                record = load.run(part, substeps)
            angles[:, first + 1 : first + frames + 1] = record
        failed = batch.warning[:, :, 1].any(axis=1)
        angles[failed] = np.nan
        return angles

    def _goal_range(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of the joints' goals, (n,) each; infinite where the model does not limit them."""
        model = self.sim_model.model
        low, high = (model.actuator_ctrlrange[self._actuators, side] for side in (0, 1))
        limited = model.actuator_ctrllimited[self._actuators].astype(bool)
        return np.where(limited, low, -np.inf), np.where(limited, high, np.inf)

    def _begin(self, values: ServoValues, count: int) -> Batch:
        """Return the batch with the variants' figures, reset to the model's start."""
        model, joints = self.sim_model.model, self.joints
        if self._batch is None or self._batch.nsim != count:
            self._batch = Batch(model, count, self._threads)
        batch = self._batch
        gain, bias = batch.expand("actuator_gainprm"), batch.expand("actuator_biasprm")
        gain[:, self._actuators, 0] = values["stiffness"]
        bias[:, self._actuators, 0] = -values["stiffness"] * values["offset"]
        bias[:, self._actuators, 1] = -values["stiffness"]
        bias[:, self._actuators, 2] = 0.0
        for field, kind in (("dof_damping", "damping"), ("dof_frictionloss", "friction"), ("dof_armature", "armature")):
            live = batch.expand(field)
            live = live.reshape(count, model.nv, -1)[:, :, 0]
            live[:, joints.qvel] = values[kind] if values[kind].ndim == 2 else values[kind][:, None]
        carrier = self._carrier
        loaded = [carrier.loaded(payload) for payload in values["payload"]]
        for field in ("body_mass", "body_ipos", "body_iquat", "body_inertia"):
            batch.expand(field)[:, carrier.body] = [getattr(body, field) for body in loaded]
        batch.set_const()
        batch.reset(None, self.sim_model.keyframe, mujoco.mjtStage.mjSTAGE_NONE.value)
        return batch


def _loaded(values: ServoValues) -> bool:
    """Return whether the friction of any variant depends on load or speed."""
    return any(values[name].any() for name, term in TERMS.items() if term.default == 0.0)


class _LoadedRun:
    """Step variants whose friction depends on load and speed, and is computed again in every step of the physics.

    Args:
        batch: the variants, reset to their start.
        model: the nominal model.
        joints: the joints of the arm.
        values: the variants' figures, (N, n) or (N,).
    """

    def __init__(self, batch: Batch, model: mujoco.MjModel, joints: ArmJoints, values: ServoValues) -> None:
        self._batch, self._joints, self._values = batch, joints, values
        used = {name for name, term in TERMS.items() if term.default == 0.0 and values[name].any()}
        if any("stribeck" in name or "quadratic" in name for name in used):
            used |= {"stribeck_speed", "stribeck_shape"}
        self._terms = {name: values[name][:, None] for name in TERMS if name in used}
        limited = model.actuator_forcelimited[joints.ctrl].astype(bool)
        low, high = model.actuator_forcerange[joints.ctrl].T
        self._low, self._high = np.where(limited, low, -np.inf), np.where(limited, high, np.inf)
        self._friction = batch.expand("dof_frictionloss").reshape(batch.nsim, model.nv, -1)[:, :, 0]
        self._qpos, self._qvel, self._ctrl = (batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._bias = batch.bind("qfrc_bias")
        batch.forward(None, _VEL)

    def run(self, control: np.ndarray, substeps: int) -> np.ndarray:
        """Run the physics under controls, (N, S, nu); return the angles at the end of each period, (N, T, n)."""
        joints, values = self._joints, self._values
        angles = np.empty((control.shape[0], control.shape[1] // substeps, len(joints.names)))
        for step in range(control.shape[1]):
            self._ctrl[:] = control[:, step]
            error = control[:, step, joints.ctrl] - values["offset"] - self._qpos[:, joints.qpos]
            motor = np.clip(values["stiffness"] * error, self._low, self._high)
            self._friction[:, joints.qvel] = friction_torque(
                self._terms, values["friction"], motor, -self._bias[:, joints.qvel], self._qvel[:, joints.qvel]
            )
            self._batch.step(None, 1, _VEL)
            if (step + 1) % substeps == 0:
                angles[:, step // substeps] = self._qpos[:, joints.qpos]
        return angles


def _dof(values: np.ndarray) -> np.ndarray:
    """Return the first coefficient of each degree of freedom, (nv,)."""
    return np.asarray(values).reshape(len(values), -1)[:, 0]


def _played(goals: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Return the output of a play operator of each width for the goals, (N, T + 1, n); goals are (T + 1, n)."""
    played = np.broadcast_to(goals, (len(width), *goals.shape)).copy()
    if width.any():
        half = width[:, None] / 2
        for frame in range(1, len(goals)):
            played[:, frame] = np.clip(played[:, frame - 1], goals[frame] - half, goals[frame] + half)
    return played


def _delayed(goals: np.ndarray, steps: np.ndarray, delay: np.ndarray, substeps: int) -> np.ndarray:
    """Return the goal that acts in each physics step, (N, S, n).

    Args:
        goals: (N, T + 1, n), the first one held before frame 0.
        steps: numbers of the physics steps from frame 0, (S,).
        delay: the delay of each variant in physics steps, (N,).
        substeps: physics steps in a period.
    """
    whole = np.floor(delay).astype(int)
    share = (delay - whole)[:, None, None]
    rows = np.arange(len(goals))[:, None]

    def goal_of(step: np.ndarray) -> np.ndarray:
        return np.asarray(goals[rows, np.clip(step // substeps + 1, 0, goals.shape[1] - 1)])

    arrived = steps[None, :] - whole[:, None]
    return np.asarray((1 - share) * goal_of(arrived) + share * goal_of(arrived - 1))
