"""The virtual Dynamixel's memory and access rights. Source: ROBOTIS e-Manual."""

from __future__ import annotations

from rlenv_arms import dynamixel
from rlenv_arms.dynamixel_servo import DynamixelServo


def test_a_ping_tells_model_and_firmware() -> None:
    assert DynamixelServo(1, 1060).instruct(dynamixel.PING, b"") == (0, b"\x24\x04\x34")


def test_eeprom_is_writable_only_without_torque() -> None:
    servo = DynamixelServo(1)
    assert servo.write(64, b"\x01") == 0
    assert dynamixel.refusal(servo.write(20, b"\x01\0\0\0")) is not None
    assert servo.write(64, b"\x00") == 0
    assert servo.write(20, b"\x01\0\0\0") == 0
    servo.power_cycle()
    assert servo.read(20, 1) == (0, b"\x01")


def test_measurements_are_read_only_and_ranges_are_kept() -> None:
    servo = DynamixelServo(1)
    assert servo.write(132, b"\0\0\0\0") == 7
    assert servo.write(8, b"\x07") == 4
    assert servo.read(799, 2)[0] == 4
    assert servo.instruct(0x77, b"") == (2, b"")


def test_a_watchdog_that_acted_locks_the_goals_until_it_is_cleared() -> None:
    servo = DynamixelServo(1)
    servo.write(98, b"\x05")
    servo.expire_watchdog()
    assert servo.read(98, 1) == (0, b"\xff")
    assert servo.write(116, b"\0\x04\0\0") == 7
    assert servo.write(98, b"\x00") == 0
    assert servo.write(116, b"\0\x04\0\0") == 0


def test_a_shaft_follows_its_goal_with_torque() -> None:
    servo = DynamixelServo(1)
    servo.write(116, b"\0\x04\0\0")
    assert servo.read(132, 4)[1] == b"\0\x08\0\0"
    servo.write(64, b"\x01")
    assert servo.read(132, 4)[1] == b"\0\x04\0\0"


def test_an_alarm_sets_the_alert_bit_of_every_answer() -> None:
    servo = DynamixelServo(1)
    servo.memory[70] = 32
    assert servo.read(132, 1)[0] == dynamixel.ALERT
    assert dynamixel.refusal(dynamixel.ALERT) is None


def test_registered_writes_and_reboots() -> None:
    servo = DynamixelServo(1)
    assert servo.instruct(dynamixel.ACTION, b"") == (1, b"")
    servo.instruct(dynamixel.REG_WRITE, b"\x74\0\0\x04\0\0")
    assert servo.instruct(dynamixel.ACTION, b"") == (0, b"")
    assert servo.read(116, 4)[1] == b"\0\x04\0\0"
    servo.instruct(dynamixel.REBOOT, b"")
    assert servo.read(116, 4)[1] == b"\0\x08\0\0"
