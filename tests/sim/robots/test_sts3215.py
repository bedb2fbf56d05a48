"""The servo's law against the figures that were measured on the servo, and against the maker's model."""

from __future__ import annotations

import numpy as np
import pytest

from sim.robots.sts3215 import MAX_DUTY, STS3215, position_duty


def test_stiffness_is_the_measured_one() -> None:
    assert STS3215.stiffness(p=32) == pytest.approx(17.8, abs=0.05)
    assert STS3215.stiffness(p=16) == pytest.approx(8.9, abs=0.05)


def test_damping_and_stall_torque_agree_with_the_makers_model() -> None:
    assert STS3215.damping == pytest.approx(0.60, abs=0.01)
    assert STS3215.stall_torque == pytest.approx(3.35, abs=0.01)


def test_a_weight_makes_the_arm_sag_as_its_users_measure() -> None:
    # 1.5 kg at 10 cm: 4.7 degrees at P = 32 and 7.4 V before friction; users measure 1.8 to 2.6 with friction.
    sag = np.degrees(1.5 * 9.81 * 0.1 / STS3215.stiffness(p=32))
    assert sag == pytest.approx(4.7, abs=0.1)


def test_the_law_is_linear_up_to_the_largest_duty() -> None:
    error = np.array([-3.0, -0.01, 0.0, 0.01, 3.0])
    duty = position_duty(error, 16)
    assert duty.tolist() == pytest.approx([-MAX_DUTY, -0.02656, 0.0, 0.02656, MAX_DUTY])
    assert STS3215.torque(duty)[3] == pytest.approx(STS3215.stiffness(16) * 0.01)


def test_a_torque_limit_bounds_the_duty_and_never_raises_it() -> None:
    assert position_duty(np.array([3.0]), 32, limit=0.5).item() == 0.5
    assert position_duty(np.array([3.0]), 32, limit=1.0).item() == MAX_DUTY


def test_more_volts_give_more_torque() -> None:
    assert STS3215.torque(np.array(0.5), volts=12.0) / STS3215.torque(np.array(0.5)) == pytest.approx(12.0 / 7.4)
