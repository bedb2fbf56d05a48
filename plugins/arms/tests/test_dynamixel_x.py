"""The control table of the X series means what the maker says."""

from __future__ import annotations

import pytest

from hal.drivers.servo_models import find_servo, servo_models
from rlenv_arms.dynamixel_x import DYNAMIXEL_X, TABLE


def test_a_state_is_decoded_in_the_units_of_the_manual() -> None:
    start, length = DYNAMIXEL_X.state
    state = bytearray(length)
    for name, value in {
        "torque_enable": 1, "goal_position": -100, "present_load": -885, "present_speed": 100,
        "present_position": 5000, "present_voltage": 50, "present_temperature": 31, "status": 32,
    }.items():  # fmt: skip
        at = TABLE[name].address - start
        state[at : at + TABLE[name].size] = TABLE[name].pack(value)
    measured = DYNAMIXEL_X.feedback(bytes(state))
    assert (measured.position, measured.goal, measured.temperature) == (5000, -100, 31)
    assert (measured.load, measured.voltage) == (-1.0, 5.0)
    assert measured.speed == round(22.9 / 60 * 4096)  # 100 units of 0.229 rev/min
    assert DYNAMIXEL_X.alarm_names(measured.alarms) == ["overload"]


@pytest.mark.parametrize("encoder", [0, 1, 2047, 2048, 2049, 4095])
def test_an_offset_brings_the_encoder_to_the_wanted_position(encoder: int) -> None:
    offset = DYNAMIXEL_X.offset_for(encoder, 2048)
    assert (encoder + offset) % 4096 == 2048  # e-Manual: present = actual + offset
    assert DYNAMIXEL_X.encoder(encoder + offset, offset) == encoder


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"mode": 3}, "mode"),
        ({"drive_mode": 1}, "reversed"),
        ({"drive_mode": 4}, "profile"),
        ({"max_torque": 100}, "weak"),
    ],
)
def test_settings_that_mislead_an_arm_are_named(changes: dict[str, int], code: str) -> None:
    fit = {"mode": 4, "drive_mode": 0, "max_torque": 885}
    assert [misfit.code for misfit in DYNAMIXEL_X.misfits(fit)] == []
    assert [misfit.code for misfit in DYNAMIXEL_X.misfits(fit | changes)] == [code]


def test_servos_are_found_by_their_names() -> None:
    assert {find_servo(name).number for name in servo_models()} == {777, 1060, 1190, 1200}
    with pytest.raises(ValueError, match="unknown"):
        find_servo("xl320")
