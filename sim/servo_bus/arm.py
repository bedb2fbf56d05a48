"""Simulate an arm moved by virtual servos: bodies in MuJoCo, the servos' position law, their supply and their heat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, cast

import mujoco
import numpy as np

from hal.drivers.arm_table import ArmJoint, ArmTable
from hal.drivers.calibration import nominal_calibration
from hal.drivers.so101_arm import SO101_ARM
from sim.batch import write_no_log_file
from sim.robots.arm import arm_mjcf
from sim.robots.servo_motors import at_joint, law_of, load_place
from sim.robots.so101 import REST, so101_mjcf
from sim.robots.sts3215 import ServoMotor
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import Servo

__all__ = ["ArmServo", "MakeServo", "ServoArm", "arm_servos", "so101_servos"]

_MOST_CATCHING_UP_NS = 1_000_000_000
_HAND_SPEED = 2.0
"""Fastest motion of a joint by hand, rad/s."""

_MEASURED_EVERY = 5
"""Physics steps between two updates of alarms and temperature."""


class ArmServo(Servo, Protocol):
    """A virtual servo with a shaft that a simulation moves."""

    memory: bytearray
    encoder: float
    """Position of the shaft within a turn, steps."""
    speed: float
    """Speed of the shaft, steps a second."""
    duty: float
    current: float
    volts: float

    def get(self, name: str) -> int:
        """Return the number in a register."""
        ...

    @property
    def present(self) -> int:
        """The position that the servo reports, steps."""
        ...

    @property
    def goal(self) -> float:
        """The goal within its limits, steps."""
        ...

    @property
    def drive(self) -> str:
        """The state of the motor: ``off``, ``on`` or ``damping``."""
        ...

    @property
    def torque_share(self) -> float:
        """The largest duty cycle that the registers allow, 0 to 1."""
        ...

    @property
    def braking_share(self) -> float:
        """The share of back-EMF that slows a shaft in damping."""
        ...

    @property
    def dead_zone(self) -> float:
        """Largest error at which the motor stays without current, steps."""
        ...

    @property
    def goal_rate(self) -> float:
        """Fastest change of the goal inside the servo, steps a second."""
        ...

    def pass_time(self, seconds: float, loss_w: float = 0.0) -> None:
        """Let time pass: update temperature, alarms and measurements."""
        ...

    def attach(self) -> None:
        """Connect the shaft to a simulation that moves it from now on, from its present position."""
        ...


MakeServo: TypeAlias = Callable[[ArmJoint, float, dict[str, int]], ArmServo]
"""A function that makes a joint's virtual servo from its row, the supply voltage and contents of EEPROM registers."""


def arm_servos(
    arm: ArmTable,
    zeros: Sequence[int] | None = None,
    *,
    calibrated: bool = True,
    volts: float | None = None,
) -> list[ArmServo]:
    """Return the virtual servos of an arm.

    Args:
        arm: the arm's table of joints.
        zeros: reading of each encoder at its joint's zero, steps; by default the middle of a turn.
        calibrated: whether homing offsets and limits are those of a calibration that reads the middle of a turn at
            zero; if not, they are as delivered.
        volts: supply voltage, V; by default each servo's nominal one.
    """
    servos: list[ArmServo] = []
    family, middle = arm.family, arm.family.steps // 2
    for index, (joint, row) in enumerate(zip(nominal_calibration(arm=arm).joints.values(), arm.joints, strict=True)):
        zero = middle if zeros is None else zeros[index]
        settings: dict[str, int] = {"return_delay": 0}
        if calibrated:
            settings |= {
                **family.at_calibration, "homing_offset": family.offset_for(zero % family.steps, middle),
                "min_position": joint.range_min, "max_position": joint.range_max,
            }  # fmt: skip
        supply = law_of(row.model).motor.volts if volts is None else volts
        make = cast("MakeServo", load_place(row.model.virtual, f"there is no virtual {row.servo}"))
        servos.append(make(row, supply, settings))
    return servos


def so101_servos(
    zeros: Sequence[int] | None = None, *, calibrated: bool = True, volts: float = 7.4, p: int = 16
) -> list[FeetechServo]:
    """Return the six servos of an SO-101, ids 1 to 6.

    Args:
        zeros: as for `arm_servos`.
        calibrated: as for `arm_servos`.
        volts: as for `arm_servos`.
        p: content of register 21; LeRobot's is 16.
    """
    servos = []
    for servo in arm_servos(SO101_ARM, zeros, calibrated=calibrated, volts=volts):
        assert isinstance(servo, FeetechServo)
        servo.keep("p", p)
        servos.append(servo)
    return servos


class ServoArm:
    """Move a simulated arm according to the registers of its servos.

    In each physics step, a servo moves its inner target towards its goal at its fastest rate, and drives its motor in
    proportion to the distance (`sim.robots.servo_motors`). Without torque the motor's winding is open; in damping it is
    shorted, and back-EMF slows the motor. The registers for D, I and acceleration have no effect, since nobody has
    measured it. Backlash is not simulated.

    Args:
        servos: the servos in the order of the joints.
        zeros: reading of each encoder at its joint's zero, steps; by default the middle of a turn.
        pose: initial pose of the arm, rad; by default that of the arm without torque.
        motor: motor of every servo, in place of its model's.
        supply_ohm: resistance of the supply and its cable, ohm, which makes the voltage sag.
        cube: whether a cube lies on an SO-101's table; its pose is in ``data``.
        arm: the table of joints.

    Attributes:
        model: the MuJoCo model; read only.
        data: its state; read only.
        hand: pose in which a person's hand holds the joints that have no torque, rad, shape (n,); None if nobody
            touches the arm.
        thing: a springy thing between the fingers: index of the joint that closes on it, angle at which the joint
            touches it, rad, and its stiffness, N m/rad, from there towards smaller angles; None for no thing.
        time_ns: time up to which the arm has been simulated, nanoseconds.
    """

    def __init__(
        self,
        servos: Sequence[ArmServo],
        zeros: Sequence[int] | None = None,
        pose: Sequence[float] | None = None,
        motor: ServoMotor | None = None,
        supply_ohm: float = 0.08,
        *,
        cube: bool = False,
        arm: ArmTable = SO101_ARM,
    ) -> None:
        write_no_log_file()
        self.arm, self.servos, self._supply_ohm = arm, tuple(servos), supply_ohm
        self._zeros = tuple(zeros) if zeros is not None else (arm.family.steps // 2,) * len(self.servos)
        laws = [law_of(joint.model) for joint in arm.joints]
        self._motors = [motor or law.motor for law in laws]  # at the servos' shafts
        self._laws = laws
        self._gears = [-joint.gear if joint.reversed else joint.gear for joint in arm.joints]
        self.model = _torque_driven(arm, self._motors, cube)
        self.data = mujoco.MjData(self.model)
        self._qpos = [int(self.model.joint(name).qposadr[0]) for name in arm.names]
        self._dofs = [int(self.model.joint(name).dofadr[0]) for name in arm.names]
        self.data.qpos[self._qpos] = _rest(arm) if pose is None else pose
        mujoco.mj_forward(self.model, self.data)
        self.time_ns = 0
        self.hand: np.ndarray | None = None
        self.thing: tuple[int, float, float] | None = None
        self._step_ns = round(self.model.opt.timestep * 1e9)
        self._open_volts = [servo.volts for servo in self.servos]
        self._targets: list[float | None] = [None] * len(self.servos)
        self._losses = [0.0] * len(self.servos)
        self._steps = 0
        self._measure()
        for servo in self.servos:
            servo.attach()

    @property
    def joints(self) -> np.ndarray:
        """The true joint angles, rad, shape (n,)."""
        return np.array(self.data.qpos[self._qpos])

    def advance(self, now_ns: int) -> None:
        """Simulate the arm up to a time in whole physics steps; of a pause over a second, only the last part."""
        if now_ns - self.time_ns > _MOST_CATCHING_UP_NS:
            self.time_ns = now_ns - self._step_ns
        while self.time_ns + self._step_ns <= now_ns:
            self._step()
            self.time_ns += self._step_ns

    def power_cycle(self, servo_id: int | None = None) -> None:
        """Interrupt the supply of one or all servos, which then restart without torque.

        Args:
            servo_id: id of the servo with a loose plug; None for all servos.

        Raises:
            ValueError: the arm has no servo of this id.
        """
        affected = [index for index, servo in enumerate(self.servos) if servo_id in (None, servo.servo_id)]
        if not affected:
            raise ValueError(f"there is no servo {servo_id}, there are {[servo.servo_id for servo in self.servos]}")
        for index in affected:
            self.servos[index].power_cycle()
            self._targets[index] = None
        self._measure()

    def _step(self) -> None:
        model, data = self.model, self.data
        seconds = self.model.opt.timestep
        total = 0.0
        for index, servo in enumerate(self.servos):
            dof, motor, gear = self._dofs[index], self._motors[index], self._gears[index]
            back_emf = motor.torque_constant**2 / motor.resistance
            speed = float(data.qvel[dof]) * gear
            drive = servo.drive
            duty, damping, current = 0.0, 0.0, 0.0
            if drive == "on":
                duty, damping = self._duty(index, servo, seconds), back_emf
                current = (duty * servo.volts - motor.torque_constant * speed) / motor.resistance
            else:
                self._targets[index] = None
                if drive == "damping":
                    share = servo.braking_share
                    damping = back_emf * share
                    current = -motor.torque_constant * speed * share / motor.resistance
            data.ctrl[index] = motor.torque_constant * servo.volts * duty / motor.resistance * gear
            model.dof_damping[dof] = (motor.viscous + damping) * gear**2
            servo.duty, servo.current = duty, current
            self._losses[index] = current * current * motor.resistance
            total += abs(duty * current)
        if self.thing is not None:
            joint, touches, stiffness = self.thing
            depth = touches - float(data.qpos[self._qpos[joint]])
            data.qfrc_applied[self._dofs[joint]] = stiffness * max(depth, 0.0)
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

    def _duty(self, index: int, servo: ArmServo, seconds: float) -> float:
        present = servo.present
        target = self._targets[index]
        if target is None:
            target = float(present)  # the inner target starts where the shaft is
        stride = servo.goal_rate * seconds
        target += max(min(servo.goal - target, stride), -stride)
        self._targets[index] = target
        error = target - present
        if abs(error) <= servo.dead_zone:
            return 0.0
        law, step_rad = self._laws[index], 2 * np.pi / self.arm.family.steps
        limit = min(servo.torque_share, law.max_duty)
        return max(min(law.duty_per_p * servo.get("p") * error * step_rad, limit), -limit)

    def _measure(self, passed_s: float = 0.0) -> None:
        """Turn the shafts' angles into the encoders' steps."""
        steps = self.arm.family.steps
        for index, servo in enumerate(self.servos):
            per_rad = self._gears[index] * steps / (2 * np.pi)
            servo.encoder = round(self._zeros[index] + float(self.data.qpos[self._qpos[index]]) * per_rad) % steps
            servo.speed = float(self.data.qvel[self._dofs[index]]) * per_rad
            if passed_s:
                servo.pass_time(passed_s, self._losses[index])

    def set_supply(self, volts: float) -> None:
        """Change the open-circuit voltage of the supply, V."""
        self._open_volts = [volts] * len(self.servos)
        for servo in self.servos:
            servo.volts = volts


def _rest(arm: ArmTable) -> Sequence[float]:
    return REST if arm is SO101_ARM else [joint.rest for joint in arm.joints]


def _torque_driven(arm: ArmTable, motors: Sequence[ServoMotor], cube: bool) -> mujoco.MjModel:
    """Return the model of the arm with a torque in place of each position servo."""
    mjcf = so101_mjcf(cube, looks=False) if arm is SO101_ARM else arm_mjcf(arm)
    for row, shaft in zip(arm.joints, motors, strict=True):
        actuator, joint, motor = mjcf.actuator(row.name), mjcf.joint(row.name), at_joint(shaft, row.gear)
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
