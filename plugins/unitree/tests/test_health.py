"""The health check refuses a robot that is tilted, hot, discharged or out of its ranges."""

from __future__ import annotations

import numpy as np
import pytest

from hal import RobotError
from hal.robots.go2 import STANCE
from rlenv_unitree.health import Health
from rlenv_unitree.messages import GO_LOW_STATE, HG_LOW_STATE, Record
from rlenv_unitree.motors import G1_MOTORS, GO2_MOTORS


def state() -> Record:
    record = GO_LOW_STATE.new()
    record["imu_state"]["quaternion"] = (1.0, 0.0, 0.0, 0.0)
    record["motor_state"]["q"][:12] = STANCE
    record["bms_state"]["soc"] = 50
    return record


@pytest.fixture
def health() -> Health:
    return Health(GO2_MOTORS, 15.0, 85.0)


def test_a_standing_robot_is_fit(health: Health) -> None:
    assert health.problem(state()) is None
    assert health.battery_problem(state()) is None


@pytest.mark.parametrize(("roll", "fit"), [(0.79, True), (0.81, False), (-0.81, False), (3.0, False)])
def test_tilt(health: Health, roll: float, fit: bool) -> None:
    record = state()
    record["imu_state"]["quaternion"] = (np.cos(roll / 2), np.sin(roll / 2), 0.0, 0.0)
    problem = health.problem(record)
    assert (problem is None) is fit
    assert fit or f"tilted by {abs(roll):.2f} rad" in str(problem)


def test_heading_is_no_tilt(health: Health) -> None:
    record = state()
    record["imu_state"]["quaternion"] = (np.cos(1.2), 0.0, 0.0, np.sin(1.2))
    assert health.problem(record) is None


@pytest.mark.parametrize(("calf", "fit"), [(-2.85, True), (-2.9, False), (np.nan, False)])
def test_a_joint_beyond_its_range_is_named(health: Health, calf: float, fit: bool) -> None:
    record = state()
    record["motor_state"]["q"][5] = calf
    problem = health.problem(record)
    assert (problem is None) is fit
    assert fit or "joint FL_calf" in str(problem)


def test_a_hot_motor_and_a_low_battery_are_named(health: Health) -> None:
    record = state()
    record["motor_state"]["temperature"][7] = 86
    assert "motor RR_thigh has 86" in str(health.problem(record))
    record["bms_state"]["soc"] = 14
    assert "14 percent, at least 15" in str(health.battery_problem(record))


def test_motors_that_the_robot_lacks_do_not_count(health: Health) -> None:
    record = state()
    record["motor_state"]["temperature"][12:] = 200
    record["motor_state"]["q"][12:] = 9.0
    assert health.problem(record) is None


def test_a_quaternion_of_wrong_length_is_an_error(health: Health) -> None:
    record = state()
    record["imu_state"]["quaternion"] = 0.0
    with pytest.raises(RobotError, match="no unit quaternion"):
        health.problem(record)


def test_a_g1s_hotter_sensor_counts_and_its_battery_is_unknown() -> None:
    health, record = Health(G1_MOTORS, 15.0, 85.0), HG_LOW_STATE.new()
    record["imu_state"]["quaternion"] = (1.0, 0.0, 0.0, 0.0)
    record["motor_state"]["q"][:29] = G1_MOTORS.nominal.home["joint_target"]
    assert health.problem(record) is None
    assert health.battery_problem(record) is None
    record["motor_state"]["temperature"][3] = (40, 90)
    assert "left_knee has 90" in str(health.problem(record))
    assert health.report(record) == {"hottest_c": 90}


def test_limits_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="min_charge"):
        Health(GO2_MOTORS, 101.0, 85.0)
    with pytest.raises(ValueError, match="max_temperature_c"):
        Health(GO2_MOTORS, 10.0, 0.0)
