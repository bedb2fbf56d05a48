"""Simulate an SO-101 with planted servo parameters by plain MuJoCo, without any code of the replay that is tested."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import mujoco
import numpy as np

from hal.robots.so101 import JOINTS
from rlenv_sim2real.motion import RecordedMotion

STEP_S = 1 / 960
"""Physics step of the hidden arm; the nominal model's is 1/240 s."""

PERIOD_S = 1 / 30
TICK = 2 * np.pi / 4096


@dataclass(frozen=True)
class HiddenArm:
    """Planted parameters of an SO-101, in the units of `rlenv_sim2real.servo_replay.KINDS`.

    Attributes:
        stiffness: N m/rad at the gain register P = 16, (6,).
        damping: N m s/rad, (6,).
        friction: N m, (6,).
        offset: rad, (6,).
        armature: kg m^2.
        delay: s.
        backlash: the whole width of the gap of each joint, rad.
        payload: a point mass at the fingertip, kg.
        hinge: whether the gap is a hinge between motor and link with stops on both sides, in place of a play operator
            between the goal and the servo. The servo then measures and controls the angle of the motor's side.
    """

    stiffness: np.ndarray
    damping: np.ndarray
    friction: np.ndarray
    offset: np.ndarray
    armature: float
    delay: float
    backlash: float
    payload: float = 0.0
    hinge: bool = False

    @staticmethod
    def drawn(seed: int, payload: bool = False, backlash: bool = True) -> HiddenArm:
        """Draw an arm whose parameters differ from the nominal ones by more than a prior of 30 % expects."""
        rng = np.random.default_rng([seed, 28])

        def around(value: float, spread: float) -> np.ndarray:
            return value * np.exp(rng.uniform(-spread, spread, 6))

        return HiddenArm(
            around(8.9, 0.5), around(0.6, 0.4), around(0.1, 0.6), rng.uniform(-0.03, 0.03, 6),
            float(rng.uniform(0.012, 0.035)), int(rng.integers(10, 50)) * STEP_S,
            float(rng.uniform(0.008, 0.03)) if backlash else 0.0, float(rng.uniform(0.03, 0.15)) if payload else 0.0,
        )  # fmt: skip

    def truth(self, kind: str, joint: str) -> float:
        """Return the planted value of a parameter."""
        value = getattr(self, kind)
        return float(value[JOINTS.index(joint)] if joint else value)

    def model(self) -> mujoco.MjModel:
        """Return the arm's model: no contacts, no actuators, parameters planted."""
        text = resources.files("sim.models").joinpath("so101.xml").read_text(encoding="utf-8")
        spec = mujoco.MjSpec.from_string(text)
        for actuator in list(spec.actuators):
            spec.delete(actuator)
        spec.delete(spec.body("cube"))
        for key in list(spec.keys):
            spec.delete(key)
        spec.option.timestep = STEP_S
        spec.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
        if self.payload:
            held = spec.body("gripper").add_body(name="held", pos=spec.site("tip").pos)
            held.mass, held.ipos, held.inertia, held.explicitinertial = self.payload, [0.0] * 3, [1e-9] * 3, True
        for index, name in enumerate(JOINTS):
            joint = spec.joint(name)
            joint.armature, joint.frictionloss = self.armature, float(self.friction[index])
            joint.damping[0] = float(self.damping[index])
            joint.limited = mujoco.mjtLimited.mjLIMITED_FALSE
            if self.hinge and self.backlash:
                _insert_play(spec, joint, self.backlash / 2)
        return spec.compile()

    def record(self, goals: np.ndarray, p: float = 16.0, episode: int = 0) -> RecordedMotion:
        """Move by goals, rad, (T, 6), at 30 Hz, from rest at the first; return the goals and the encoders' angles.

        Args:
            goals: the goals.
            p: the gain register P, by which the stiffness scales.
            episode: number of the motion.
        """
        model = self.model()
        data = mujoco.MjData(model)
        qpos = np.array([model.joint(name).qposadr[0] for name in JOINTS])
        dofs = np.array([model.joint(name).dofadr[0] for name in JOINTS])
        stiffness, gap = self.stiffness * p / 16, 0.0 if self.hinge else self.backlash / 2
        data.qpos[qpos] = goals[0]
        every = round(PERIOD_S / STEP_S)
        measured, driven = np.empty_like(goals), goals[0].copy()
        for step in range((len(goals) - 1) * every + 1):
            if step % every == 0:
                measured[step // every] = np.rint(data.qpos[qpos] / TICK) * TICK
            frame = int(np.floor((step * STEP_S - self.delay) / PERIOD_S + 1e-9))
            goal = goals[max(frame, 0)]
            driven = np.clip(driven, goal - gap, goal + gap)
            torque = stiffness * (driven - self.offset - data.qpos[qpos])
            data.qfrc_applied[dofs] = np.clip(torque, -3.25, 3.25)
            mujoco.mj_step(model, data)
        return RecordedMotion(episode, PERIOD_S, JOINTS, goals, measured, goals[0].copy())


def _insert_play(spec: mujoco.MjSpec, joint: mujoco.MjsJoint, half: float) -> None:
    """Let a second hinge, free within stops, follow the motor's on the same axis."""
    body = joint.parent
    play = body.add_joint(name=f"{joint.name}_play", type=mujoco.mjtJoint.mjJNT_HINGE, axis=joint.axis, pos=joint.pos)
    play.limited, play.range = mujoco.mjtLimited.mjLIMITED_TRUE, [-half, half]
    play.armature, play.damping[0] = 1e-4, 5e-3
    play.solref_limit = [0.004, 1.0]
