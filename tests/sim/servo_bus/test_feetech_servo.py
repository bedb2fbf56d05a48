"""The virtual servo's memory: EEPROM and lock, ranges, alarms, instructions. Sources: Feetech's memory table."""

from __future__ import annotations

import pytest

from hal.drivers import feetech
from sim.servo_bus.feetech_servo import FeetechServo


def test_a_kept_register_outlasts_a_power_cut_only_if_unlocked() -> None:
    servo = FeetechServo(1)
    servo.write(21, b"\x10")  # lock is 1 from the factory: the change acts ...
    assert servo.get("p") == 16
    servo.power_cycle()
    assert servo.get("p") == 32, "... until the power goes"
    servo.write(55, b"\x00")
    servo.write(21, b"\x10")
    servo.power_cycle()
    assert (servo.get("p"), servo.kept_writes, servo.get("lock")) == (16, 1, 1)


def test_the_id_changes_at_once() -> None:
    servo = FeetechServo(1)
    servo.write(5, b"\x09")
    assert servo.servo_id == 9


def test_what_is_read_only_or_out_of_range_stays() -> None:
    servo = FeetechServo(1)
    servo.write(3, b"\x01\x02")
    servo.write(33, b"\x04")
    servo.write(48, (1001).to_bytes(2, "little"))
    assert (servo.get("model"), servo.get("mode"), servo.get("torque_limit")) == (777, 0, 1000)


def test_two_bytes_at_register_24_overwrite_the_integral_limit() -> None:
    servo = FeetechServo(1)
    servo.write(24, b"\x10\x07")
    assert (servo.get("min_startup"), servo.get("integral_limit")) == (16, 7)


def test_the_torque_limit_is_loaded_from_eeprom() -> None:
    servo = FeetechServo(1, max_torque=500)
    assert servo.get("torque_limit") == 500


@pytest.mark.parametrize(("encoder", "offset", "present"), [(2048, 0, 2048), (100, 200, 3996), (4000, -200, 104)])
def test_the_offset_is_taken_from_the_encoder_within_a_turn(encoder: int, offset: int, present: int) -> None:
    servo = FeetechServo(1, homing_offset=offset)
    servo.encoder = encoder
    assert servo.present == present


def test_calibrating_makes_the_present_position_the_target() -> None:
    servo = FeetechServo(1)
    servo.encoder = 3000
    servo.instruct(feetech.CALIBRATE, b"\x00\x04")
    assert servo.present == 1024
    servo.write(40, b"\x80")
    assert (servo.present, servo.get("torque_enable")) == (2048, 0)


def test_a_registered_write_waits_for_the_action() -> None:
    servo = FeetechServo(1)
    servo.instruct(feetech.REG_WRITE, b"\x2a\x00\x04")
    assert servo.get("goal_position") != 1024
    servo.instruct(feetech.ACTION, b"")
    assert servo.get("goal_position") == 1024


def test_restoring_keeps_the_id() -> None:
    servo = FeetechServo(7, p=16)
    servo.instruct(feetech.RESTORE, b"")
    assert (servo.servo_id, servo.get("p")) == (7, 32)


def test_response_level_0_acknowledges_reads_and_pings_only() -> None:
    servo = FeetechServo(1, response_level=0)
    assert servo.instruct(feetech.WRITE, b"\x2a\x00\x04") is None
    assert servo.instruct(feetech.PING, b"") == (0, b"")
    assert servo.instruct(feetech.READ, b"\x03\x02") == (0, b"\x09\x03")
    assert servo.instruct(0x77, b"") is None, "an unknown instruction is no instruction"


def test_a_wrong_supply_and_heat_raise_alarms_with_every_answer() -> None:
    servo = FeetechServo(1, volts=12.0)
    servo.temperature = 71.0
    assert feetech.alarm_names(servo.read(56, 2)[0]) == ["voltage", "temperature"]
    servo.volts, servo.temperature = 7.4, 40.0
    assert servo.read(56, 2)[0] == 0


def test_an_overload_weakens_the_servo_until_torque_is_written() -> None:
    servo = FeetechServo(1)
    servo.write(40, b"\x01")
    servo.duty = 0.97
    for _ in range(210):
        servo.pass_time(0.01)
    assert feetech.alarm_names(servo.read(56, 2)[0]) == ["overload"]
    assert servo.torque_share == 0.2
    servo.write(40, b"\x01")
    assert (servo.read(56, 2)[0], servo.torque_share) == (0, 1.0)


def test_a_servo_warms_by_its_losses_and_cools() -> None:
    servo = FeetechServo(1)
    servo.pass_time(60.0, loss_w=5.0)
    warm = servo.temperature
    assert warm > 27.0
    for _ in range(60):
        servo.pass_time(60.0)
    assert 25.0 <= servo.temperature < 26.0
