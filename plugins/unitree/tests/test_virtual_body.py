"""The virtual motors obey the vendor's law, in the vendor's order, and the IMU has the field's signs."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.go2 import TORQUE_LIMIT
from rlenv_unitree.messages import GO_LOW_STATE, POS_STOP, VEL_STOP, Record, go_command
from rlenv_unitree.virtual_body import LYING, Go2Body

VENDOR_ORDER = (  # LegID of the vendor's example/go2/low_level/unitree_legged_const.py; 0, 1, 2: hip, thigh, calf
    "FR_hip", "FR_thigh", "FR_calf", "FL_hip", "FL_thigh", "FL_calf",
    "RR_hip", "RR_thigh", "RR_calf", "RL_hip", "RL_thigh", "RL_calf",
)  # fmt: skip


@pytest.fixture
def body() -> Go2Body:
    return Go2Body()


def state_of(body: Go2Body) -> Record:
    state = GO_LOW_STATE.new()
    body.read(state)
    return state


def hang(body: Go2Body) -> None:
    """Lift the robot far above the ground, at rest and with bent legs."""
    body.data.qpos[2] = 5.0
    body.data.qpos[7:] = (0.0, 0.9, -1.8) * 4
    body.data.qvel[:] = 0.0


def test_each_motor_moves_the_joint_of_its_number(body: Go2Body) -> None:
    for number, name in enumerate(VENDOR_ORDER):
        hang(body)
        mujoco.mj_forward(body.model, body.data)
        joint = body.model.joint(name)
        command = go_command()
        command["motor_cmd"]["tau"][number] = 5.0
        body.apply(command["motor_cmd"])
        body.step()
        velocity = np.abs(body.data.qvel[6:])
        assert np.argmax(velocity) == joint.dofadr[0] - 6
        motors = state_of(body)["motor_state"]
        assert motors["tau_est"][number] == pytest.approx(5.0)
        assert motors["q"][number] == pytest.approx(body.data.qpos[joint.qposadr[0]])
        assert motors["dq"][number] == pytest.approx(body.data.qvel[joint.dofadr[0]])


def test_torque_follows_the_law_in_every_step_and_stays_within_the_limits(body: Go2Body) -> None:
    rng = np.random.default_rng(0)
    hang(body)
    cut = 0
    for step in range(200):
        if step % 10 == 0:  # the law is evaluated in between too
            command = go_command()
            motors = command["motor_cmd"][:12]
            motors["q"], motors["dq"] = rng.normal((0.0, 0.9, -1.8) * 4, 0.4), rng.normal(size=12)
            motors["tau"], motors["kp"], motors["kd"] = (
                rng.normal(size=12),
                rng.uniform(0, 60, 12),
                rng.uniform(0, 3, 12),
            )
            body.apply(command["motor_cmd"])
        q, dq = body.data.qpos[7:].copy(), body.data.qvel[6:].copy()
        body.step()
        law = motors["tau"] + motors["kp"] * (motors["q"] - q) + motors["kd"] * (motors["dq"] - dq)
        expected = np.clip(law, -np.array(TORQUE_LIMIT), TORQUE_LIMIT)
        cut += np.count_nonzero(expected != law)
        assert state_of(body)["motor_state"]["tau_est"][:12] == pytest.approx(expected, abs=1e-3)
    assert cut > 0


@pytest.mark.parametrize(("member", "value", "left"), [
    ("q", POS_STOP, "velocity"), ("dq", VEL_STOP, "position"), ("mode", 0, "nothing"),
])  # fmt: skip
def test_loops_and_motors_are_switched_off(body: Go2Body, member: str, value: float, left: str) -> None:
    hang(body)
    body.data.qvel[6:] = 1.0
    command = go_command()
    motors = command["motor_cmd"]
    motors["q"], motors["dq"], motors["kp"], motors["kd"] = 0.1, 0.0, 20.0, 2.0
    motors[member] = value
    q, dq = body.data.qpos[7:].copy(), body.data.qvel[6:].copy()
    body.apply(motors)
    body.step()
    laws = {"velocity": -2.0 * dq, "position": np.clip(20.0 * (np.float32(0.1) - q), -23.7, 45.43), "nothing": 0 * q}
    assert state_of(body)["motor_state"]["tau_est"][:12] == pytest.approx(laws[left], abs=1e-3)


def test_it_lies_still_until_it_is_commanded(body: Go2Body) -> None:
    for _ in range(250):
        body.step()
    assert 0.05 < body.height < 0.12
    state = state_of(body)
    assert np.abs(state["motor_state"]["dq"][:12]).max() < 0.01
    assert state["motor_state"]["q"][:12] == pytest.approx(np.array(LYING), abs=0.25)


def test_the_imu_feels_gravity_and_tells_tilt_in_the_fields_signs(body: Go2Body) -> None:
    state = state_of(body)["imu_state"]
    assert state["accelerometer"] == pytest.approx([0, 0, 9.81], abs=0.2)  # upwards, as a sensor at rest feels it
    assert state["quaternion"] == pytest.approx([1, 0, 0, 0], abs=0.01)
    for axis in range(3):
        hang(body)
        turn = np.zeros(3)
        turn[axis] = 0.3
        mujoco.mju_axisAngle2Quat(body.data.qpos[3:7], turn / 0.3, 0.3)
        body.data.qvel[3:6] = turn
        mujoco.mj_forward(body.model, body.data)
        imu = state_of(body)["imu_state"]
        assert imu["rpy"] == pytest.approx(turn, abs=1e-6)
        assert imu["gyroscope"] == pytest.approx(turn, abs=1e-6)


def test_feet_carry_the_weight_when_it_stands(body: Go2Body) -> None:
    command = go_command()
    motors = command["motor_cmd"]
    motors["dq"], motors["kp"], motors["kd"] = 0.0, 60.0, 5.0
    for share in np.linspace(0, 1, 1000).tolist() + [1.0] * 500:
        motors["q"][:12] = (1 - share) * np.array(LYING) + share * np.array((0.0, 0.67, -1.3) * 4)
        body.apply(motors)
        body.step()
    state = state_of(body)
    weight = 9.81 * float(body.model.body_mass.sum())
    assert body.height > 0.33
    assert int(state["foot_force"].sum()) == pytest.approx(weight, rel=0.05)


def test_gains_that_break_the_simulation_are_an_error(body: Go2Body) -> None:
    command = go_command()
    command["motor_cmd"]["tau"] = 1.0
    command["motor_cmd"]["kd"], command["motor_cmd"]["dq"] = -1e12, 0.0
    body.model.actuator_forcelimited[:] = False
    body.apply(command["motor_cmd"])
    with pytest.raises(FloatingPointError, match="unstable"):
        [body.step() for _ in range(200)]
