"""An SO-101 whose joints are moved by virtual servos: MuJoCo's bodies, the servo's own law, its supply and its heat."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np

from hal.drivers.calibration import STEP_RAD, nominal_calibration
from hal.drivers.sts3215 import STEPS
from hal.robots.so101 import JOINTS
from sim.batch import write_no_log_file
from sim.robots.so101 import REST, so101_mjcf
from sim.robots.sts3215 import DUTY_PER_P, MAX_DUTY, MAX_STEP_RATE, STS3215, ServoMotor
from sim.servo_bus.feetech_servo import FeetechServo

__all__ = ["ServoArm", "so101_servos"]

_MOST_CATCHING_UP_NS = 1_000_000_000
_HAND_SPEED = 2.0
"""Fastest motion of a joint by hand, rad/s."""

_MEASURED_EVERY = 5
"""Physics steps between two updates of alarms and temperature."""


def so101_servos(
    zeros: Sequence[int] = (STEPS // 2,) * 6,
    *,
    calibrated: bool = True,
    volts: float = 7.4,
    p: int = 16,
) -> list[FeetechServo]:
    """Return the six servos of an SO-101, ids 1 to 6.

    Args:
        zeros: what each encoder reads at its joint's zero, steps.
        calibrated: whether homing offsets and limits are those of a calibration, with present position 2048 at zero;
            otherwise they are as delivered.
        volts: of the supply.
        p: content of register 21; LeRobot's is 16.
    """
    servos = []
    for index, (joint, zero) in enumerate(zip(nominal_calibration().joints.values(), zeros, strict=True)):
        settings: dict[str, int] = {"p": p, "phase": 12, "return_delay": 0}
        if calibrated:
            offset = zero % STEPS - STEPS // 2
            settings |= {
                "homing_offset": max(min(offset, 2047), -2047),
                "min_position": joint.range_min, "max_position": joint.range_max,
            }  # fmt: skip
        servos.append(FeetechServo(index + 1, (3, 10), volts, **settings))
    return servos


class ServoArm:
    """Move a simulated arm by what the registers of its servos say.

    Each physics step, a servo moves its inner target towards its goal by at most 3400 steps/s, and drives its motor in
    proportion to the distance (`sim.robots.sts3215`). Without torque the motor's winding is open, in damping it is
    shorted to the share of register 48; back-EMF slows it accordingly. The registers D, I, 24, 25 and 41 change
    nothing, since nobody has measured their effect. Backlash is left out.

    Args:
        servos: in the order of the joints.
        zeros: what each encoder reads at its joint's zero, steps.
        pose: of the arm at first, rad.
        motor: of every servo.
        supply_ohm: resistance of the supply and its cable, by which the voltage sags.
        cube: whether a cube lies on the table; its pose is in ``data``.

    Attributes:
        model, data: MuJoCo's, for looking at.
        hand: pose to which a person's hand takes the joints that have no torque, and in which it keeps them, rad,
            shape (6,); None: nobody touches the arm.
        time_ns: up to when the arm has moved.
    """

    def __init__(
        self,
        servos: Sequence[FeetechServo],
        zeros: Sequence[int] = (STEPS // 2,) * 6,
        pose: Sequence[float] = REST,
        motor: ServoMotor = STS3215,
        supply_ohm: float = 0.08,
        *,
        cube: bool = False,
    ) -> None:
        write_no_log_file()
        self.servos, self._motor, self._supply_ohm = tuple(servos), motor, supply_ohm
        self._zeros = tuple(zeros)
        self.model = _torque_driven(motor, cube)
        self.data = mujoco.MjData(self.model)
        self._qpos = [int(self.model.joint(name).qposadr[0]) for name in JOINTS]
        self._dofs = [int(self.model.joint(name).dofadr[0]) for name in JOINTS]
        self.data.qpos[self._qpos] = pose
        mujoco.mj_forward(self.model, self.data)
        self.time_ns = 0
        self.hand: np.ndarray | None = None
        self._step_ns = round(self.model.opt.timestep * 1e9)
        self._open_volts = [servo.volts for servo in self.servos]
        self._targets: list[float | None] = [None] * len(self.servos)
        self._losses = [0.0] * len(self.servos)
        self._steps = 0
        self._measure()

    @property
    def joints(self) -> np.ndarray:
        """The true joint angles, rad, shape (6,)."""
        return np.array(self.data.qpos[self._qpos])

    def advance(self, now_ns: int) -> None:
        """Move the arm up to a time by whole physics steps. Of a pause over a second only the end counts."""
        if now_ns - self.time_ns > _MOST_CATCHING_UP_NS:
            self.time_ns = now_ns - self._step_ns
        while self.time_ns + self._step_ns <= now_ns:
            self._step()
            self.time_ns += self._step_ns

    def power_cycle(self, servo_id: int | None = None) -> None:
        """Have the supply fail and come back: servos start anew, without torque.

        Args:
            servo_id: of the one whose plug is loose; None for all servos.

        Raises:
            ValueError: there is no such servo.
        """
        affected = [index for index, servo in enumerate(self.servos) if servo_id in (None, servo.servo_id)]
        if not affected:
            raise ValueError(f"there is no servo {servo_id}, there are {[servo.servo_id for servo in self.servos]}")
        for index in affected:
            self.servos[index].power_cycle()
            self._targets[index] = None
        self._measure()

    def _step(self) -> None:
        model, data, motor = self.model, self.data, self._motor
        seconds = self.model.opt.timestep
        back_emf = motor.torque_constant**2 / motor.resistance
        total = 0.0
        for index, servo in enumerate(self.servos):
            dof = self._dofs[index]
            speed = float(data.qvel[dof])
            drive = servo.drive
            duty, damping, current = 0.0, 0.0, 0.0
            if drive == "on":
                duty, damping = self._duty(index, servo, seconds), back_emf
                current = (duty * servo.volts - motor.torque_constant * speed) / motor.resistance
            else:
                self._targets[index] = None
                if drive == "damping":
                    share = servo.torque_share
                    damping = back_emf * share
                    current = -motor.torque_constant * speed * share / motor.resistance
            data.ctrl[index] = motor.torque_constant * servo.volts * duty / motor.resistance
            model.dof_damping[dof] = motor.viscous + damping
            servo.duty, servo.current = duty, current
            self._losses[index] = current * current * motor.resistance
            total += abs(duty * current)
        before = None if self.hand is None else self.joints
        mujoco.mj_step(model, data)
        if self.hand is not None and before is not None:
            self._move_by_hand(self.hand, before, seconds)
        for servo, volts in zip(self.servos, self._open_volts, strict=True):
            servo.volts = max(volts - total * self._supply_ohm, 0.0)
        self._steps += 1
        self._measure(_MEASURED_EVERY * seconds if self._steps % _MEASURED_EVERY == 0 else 0.0)

    def _move_by_hand(self, pose: np.ndarray, before: np.ndarray, seconds: float) -> None:
        """Move the joints without torque towards a pose at the hand's speed; the hand carries their load."""
        stride = _HAND_SPEED * seconds
        for index, servo in enumerate(self.servos):
            if servo.drive != "on":
                way = max(min(float(pose[index] - before[index]), stride), -stride)
                self.data.qpos[self._qpos[index]] = before[index] + way
                self.data.qvel[self._dofs[index]] = way / seconds

    def _duty(self, index: int, servo: FeetechServo, seconds: float) -> float:
        present = servo.present
        target = self._targets[index]
        if target is None:
            target = float(present)  # the inner target starts where the shaft is
        rate = min(servo.get("goal_speed") or MAX_STEP_RATE, MAX_STEP_RATE)
        stride = abs(rate) * seconds
        target += max(min(servo.goal - target, stride), -stride)
        self._targets[index] = target
        error = target - present
        if abs(error) <= servo.memory[26]:
            return 0.0
        limit = min(servo.torque_share, MAX_DUTY)
        return max(min(DUTY_PER_P * servo.memory[21] * error * STEP_RAD, limit), -limit)

    def _measure(self, passed_s: float = 0.0) -> None:
        """Turn the shafts' angles into the encoders' steps."""
        for index, servo in enumerate(self.servos):
            angle = float(self.data.qpos[self._qpos[index]])
            servo.encoder = round(self._zeros[index] + angle / STEP_RAD) % STEPS
            servo.speed = float(self.data.qvel[self._dofs[index]]) / STEP_RAD
            if passed_s:
                servo.pass_time(passed_s, self._losses[index])

    def set_supply(self, volts: float) -> None:
        """Change the open-circuit voltage of the supply."""
        self._open_volts = [volts] * len(self.servos)
        for servo in self.servos:
            servo.volts = volts


def _torque_driven(motor: ServoMotor, cube: bool) -> mujoco.MjModel:
    """Return the model of the arm with a torque in place of each position servo."""
    mjcf = so101_mjcf(cube, looks=False)
    for name in JOINTS:
        actuator, joint = mjcf.actuator(name), mjcf.joint(name)
        actuator.gaintype = mujoco.mjtGain.mjGAIN_FIXED
        actuator.gainprm[0] = 1.0
        actuator.biastype = mujoco.mjtBias.mjBIAS_NONE
        actuator.biasprm[:3] = 0.0
        actuator.ctrllimited = mujoco.mjtLimited.mjLIMITED_FALSE
        actuator.forcelimited = mujoco.mjtLimited.mjLIMITED_FALSE
        actuator.inheritrange = 0.0
        joint.damping[0] = motor.viscous
        joint.frictionloss = motor.friction
        joint.armature = motor.armature
    for key in list(mjcf.keys):
        mjcf.delete(key)
    return mjcf.compile()
