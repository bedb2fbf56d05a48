"""Simulate the body and the motors of a Go2: motor commands in, low-level states out, 500 steps a second.

The motors' law is the one of the vendor's documentation of low-level control, evaluated in every physics step and cut
at the motor's largest torque::

    torque = tau + kp * (q_des - q) + kd * (dq_des - dq)
"""

from __future__ import annotations

import mujoco
import numpy as np

from hal.robots.go2 import FEET, JOINTS
from rlenv_unitree.messages import MODE_ON, POS_STOP, VEL_STOP, Record
from sim.robots.go2 import go2_mjcf

__all__ = ["LYING", "STEPS_HZ", "Go2Body"]

STEPS_HZ = 500
"""Physics steps, motor laws and states a second: the rate of the vendor's examples (2 ms)."""

LYING = (0.0, 1.36, -2.65) * 4
"""Joint angles at which the robot lies on the ground, rad (first pose of the vendor's go2_stand_example.py)."""

_LYING_HEIGHT = 0.09
_SETTLING_STEPS = 400


class Go2Body:
    """A simulated Go2 that lies on flat ground.

    Attributes:
        model: the tree's own model of the robot, with torque motors and an IMU.
        data: its state.
    """

    def __init__(self) -> None:
        self.model = _model()
        self.data = mujoco.MjData(self.model)
        joints = [self.model.joint(name) for name in JOINTS]  # the motors' order, found in the model by name
        self._q = np.array([joint.qposadr[0] for joint in joints])
        self._v = np.array([joint.dofadr[0] for joint in joints])
        self._motors = np.array([self.model.actuator(name).id for name in JOINTS])
        self.damp(2.0)
        self.data.qpos[:7] = (0.0, 0.0, _LYING_HEIGHT, 1.0, 0.0, 0.0, 0.0)
        self.data.qpos[self._q] = LYING
        for _ in range(_SETTLING_STEPS):
            self.step()

    def apply(self, motors: Record) -> None:
        """Take over the commands of the 12 motors (``motor_cmd`` of a `GO_LOW_CMD`) until the next ones.

        A motor whose mode is not `MODE_ON` gives no torque. A ``q`` of `POS_STOP` or a ``dq`` of `VEL_STOP` switches
        that loop of the motor off.
        """
        mine = motors[: len(JOINTS)]
        on = mine["mode"] == MODE_ON
        position, velocity = on & (mine["q"] != np.float32(POS_STOP)), on & (mine["dq"] != np.float32(VEL_STOP))
        kp, kd = np.where(position, mine["kp"], 0.0), np.where(velocity, mine["kd"], 0.0)
        wished = np.where(position, mine["q"], 0.0) * kp + np.where(velocity, mine["dq"], 0.0) * kd
        self._set(np.where(on, mine["tau"], 0.0) + wished, kp, kd)

    def damp(self, kd: float) -> None:
        """Let all motors brake with this damping, N m s/rad, and nothing else."""
        zeros = np.zeros(len(JOINTS))
        self._set(zeros, zeros, zeros + kd)

    def _set(self, constant: np.ndarray, kp: np.ndarray, kd: np.ndarray) -> None:
        """Set ``torque = constant - kp * q - kd * dq``, which MuJoCo's affine actuators compute in each step."""
        self.data.ctrl[self._motors] = constant
        self.model.actuator_biasprm[self._motors, 1] = -kp
        self.model.actuator_biasprm[self._motors, 2] = -kd

    def step(self) -> None:
        """Simulate 2 ms.

        Raises:
            FloatingPointError: the simulation has become unstable.
        """
        mujoco.mj_step(self.model, self.data)
        if self.data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number:
            raise FloatingPointError(
                "the virtual Go2 became unstable; were gains far above the vendor's examples sent?"
            )

    @property
    def height(self) -> float:
        """Height of the trunk's centre above the ground, m."""
        return float(self.data.qpos[2])

    @property
    def pose(self) -> np.ndarray:
        """The joint angles in the motors' order, rad."""
        return np.array(self.data.qpos[self._q])

    def read(self, state: Record) -> None:
        """Write motors, IMU and feet into a `GO_LOW_STATE`: rad, rad/s, rad/s^2, N m, m/s^2, N."""
        data, imu = self.data, state["imu_state"]
        motors = state["motor_state"][: len(JOINTS)]
        motors["mode"] = MODE_ON
        motors["q"], motors["dq"] = data.qpos[self._q], data.qvel[self._v]
        motors["ddq"], motors["tau_est"] = data.qacc[self._v], data.actuator_force[self._motors]
        w, x, y, z = imu["quaternion"][:] = data.sensor("quaternion").data
        imu["gyroscope"], imu["accelerometer"] = data.sensor("gyroscope").data, data.sensor("accelerometer").data
        imu["rpy"] = (
            np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
            np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0)),
            np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)),
        )
        feet = [min(data.sensor(name).data[0], 32767.0) for name in FEET]
        state["foot_force"], state["foot_force_est"] = feet, feet


def _model() -> mujoco.MjModel:
    mjcf = go2_mjcf(looks=False)
    mjcf.option.timestep = 1 / STEPS_HZ
    for name in JOINTS:
        actuator = mjcf.actuator(name)
        actuator.gainprm[0], actuator.biasprm[:3] = 1.0, 0.0
        actuator.ctrllimited = False
        actuator.ctrlrange = (0.0, 0.0)
    for name, kind in (
        ("quaternion", mujoco.mjtSensor.mjSENS_FRAMEQUAT),
        ("gyroscope", mujoco.mjtSensor.mjSENS_GYRO),
        ("accelerometer", mujoco.mjtSensor.mjSENS_ACCELEROMETER),
    ):
        mjcf.add_sensor(name=name, type=kind, objtype=mujoco.mjtObj.mjOBJ_SITE, objname="imu")
    return mjcf.compile()
