"""The memory table of the Feetech STS3215.

Sources: Feetech, ``ftservo-wiki``, ``docs/en/reference/parameter/memory-sts.md``; Waveshare's table V3.6; Feetech's
``SMS_STS.cpp``. Numbers are little-endian.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hal.drivers import feetech
from hal.drivers.registers import Feedback, Register, from_sign_magnitude
from hal.drivers.servo_family import RegisterMisfit, ServoFamily, ServoModel

if TYPE_CHECKING:
    from hal.drivers.bus import ServoBus

__all__ = [
    "BAUD_RATES", "CURRENT_A", "FEEDBACK", "FEETECH_STS", "MODEL", "SETTINGS", "STATE", "STEPS", "STIFFNESS", "STS3215",
    "TABLE", "FeetechSts", "decode_feedback",
]  # fmt: skip

MODEL = 777
"""Content of register 3. The variants for 7.4 V and for 12 V share it; registers 14 and 15 tell them apart."""

STEPS = 4096
"""Steps of the encoder in a turn."""

STIFFNESS = 1.2116 * 0.166 / 2.676
"""Torque of the position law at the shaft for each unit of register 21 (P), each volt of the supply and each rad of
error, N m/(rad V). Source: Rhoban's BAM, model m1: torque constant times duty over resistance."""

CURRENT_A = 0.0065
"""Current that one unit of registers 28 and 69 stands for, A."""

BAUD_RATES = (1_000_000, 500_000, 250_000, 128_000, 115_200, 76_800, 57_600, 38_400)
"""Content of register 6 -> rate, bits a second."""


def _kept(address: int, size: int = 1, default: int = 0, high: int = 255, low: int = 0) -> Register:
    return Register(address, size, default, low, high, kept=True)


def _measured(address: int, size: int = 1, negative: int | None = None) -> Register:
    return Register(address, size, high=(1 << 8 * size) - 1, read_only=True, negative=negative)


TABLE = {
    "firmware_major": Register(0, default=3, kept=True, read_only=True),
    "firmware_minor": Register(1, default=10, kept=True, read_only=True),
    "model": Register(3, 2, MODEL, high=65535, kept=True, read_only=True),
    "id": _kept(5, default=1, high=253),
    "baud_rate": _kept(6, high=7),
    "return_delay": _kept(7),
    "response_level": _kept(8, default=1, high=1),
    "min_position": _kept(9, 2, 0, 4095),
    "max_position": _kept(11, 2, 4095, 4095),
    "max_temperature": _kept(13, default=70, high=100),
    "max_voltage": _kept(14, default=80),
    "min_voltage": _kept(15, default=40),
    "max_torque": _kept(16, 2, 1000, 1000),
    "phase": _kept(18, default=12),
    "unload_condition": _kept(19, default=44),
    "alarm_led": _kept(20, default=47),
    "p": _kept(21, default=32, high=254),
    "d": _kept(22, default=32, high=254),
    "i": _kept(23, default=0, high=254),
    "min_startup": _kept(24, default=16, high=254),
    "integral_limit": _kept(25, default=0, high=254),
    "clockwise_dead_zone": _kept(26, default=1, high=32),
    "counterclockwise_dead_zone": _kept(27, default=1, high=32),
    "protection_current": _kept(28, 2, 500, 511),
    "angle_resolution": _kept(30, default=1, high=128, low=1),
    "homing_offset": Register(31, 2, 0, 0, 65535, kept=True, negative=11),
    "mode": _kept(33, default=0, high=3),
    "protective_torque": _kept(34, default=20, high=100),
    "protection_time": _kept(35, default=200, high=254),
    "overload_torque": _kept(36, default=80, high=100),
    "velocity_p": _kept(37, default=10, high=100),
    "overcurrent_time": _kept(38, default=200, high=254),
    "velocity_i": _kept(39, default=200, high=254),
    "torque_enable": Register(40, high=128),
    "acceleration": Register(41, high=254),
    "goal_position": Register(42, 2, high=65535, negative=15),
    "goal_time": Register(44, 2, high=65535),
    "goal_speed": Register(46, 2, high=65535, negative=15),
    "torque_limit": Register(48, 2, 1000, high=1000),
    "lock": Register(55, default=1, high=1),
    "present_position": _measured(56, 2, 15),
    "present_speed": _measured(58, 2, 15),
    "present_load": _measured(60, 2, 10),
    "present_voltage": _measured(62),
    "present_temperature": _measured(63),
    "status": _measured(65),
    "moving": _measured(66),
    "goal_echo": _measured(67, 2, 15),
    "present_current": _measured(69, 2, 15),
    "moving_threshold": _kept(80, default=1),
    "max_acceleration": _kept(85, default=254, high=254),
}
"""The registers by name.

``homing_offset``: present position = encoder - offset. ``torque_enable``: 0 is off, 1 on, 2 damping; 128 makes
the present position 2048. ``acceleration``: in units of 100 steps/s^2. ``present_load``: duty cycle in units of 0.1 %.
``lock``: while it is 1, a change of a register with ``kept=True`` is lost when the power is cut. In position mode the
servo ignores register 44 (``goal_time``); register 71 is undefined.
"""

FEEDBACK = (56, 15)
"""Address and length of the block with all measurements and the goal's echo, so that one read suffices."""

SETTINGS = (33, 23)
"""Address and length of the block before `FEEDBACK`, from ``mode`` to ``lock``: all settings that a loss of power or
another program changes, such as torque and its limit."""

STATE = (SETTINGS[0], SETTINGS[1] + FEEDBACK[1])
"""Address and length of both blocks. Six servos send them in 278 bytes: 2.8 ms at 1 Mbaud, 1.4 ms without settings."""


def decode_feedback(data: bytes) -> Feedback:
    """Return the measurements in the bytes of the block `FEEDBACK`."""
    return Feedback(
        position=from_sign_magnitude(data[0] | data[1] << 8, 15),
        speed=from_sign_magnitude(data[2] | data[3] << 8, 15),
        load=from_sign_magnitude(data[4] | data[5] << 8, 10) / 1000,
        voltage=data[6] / 10,
        temperature=data[7],
        alarms=data[9],
        goal=from_sign_magnitude(data[11] | data[12] << 8, 15),
        current=from_sign_magnitude(data[13] | data[14] << 8, 15) * CURRENT_A,
    )


class FeetechSts(ServoFamily):
    """Feetech's servos of the STS series."""

    name = "Feetech STS"
    codec = feetech
    table = TABLE
    steps = STEPS
    identity = (0, 40)
    state = STATE
    settings = SETTINGS
    same_on_all: Mapping[str, int] = {"mode": 0, "acceleration": 254, "goal_speed": 0, "lock": 1}
    full_duty = 1000
    braking = ("torque_enable", 2)
    disabling_alarms = 0b101110
    measures_current = True

    def feedback(self, state: bytes) -> Feedback:
        """Return the measurements in the bytes of `state`."""
        return decode_feedback(state[SETTINGS[1] :])

    def firmware(self, registers: Mapping[str, int]) -> str:
        """Return the firmware's major and minor number."""
        return f"{registers['firmware_major']}.{registers['firmware_minor']}"

    def alarm_names(self, alarms: int) -> list[str]:
        """Return the names of the bits of register 65 that are set."""
        return feetech.alarm_names(alarms)

    def encoder(self, position: int, offset: int) -> int:
        """Return the encoder's own reading: present position = encoder - offset."""
        return position + offset

    def offset_for(self, encoder: float, position: int) -> int:
        """Return the homing offset, of 11 bits and a sign, with which the servo reports a position."""
        offset = (round(encoder) - position + STEPS // 2) % STEPS - STEPS // 2
        return max(min(offset, 2047), -2047)

    def misfits(self, registers: Mapping[str, int]) -> Iterator[RegisterMisfit]:
        """Yield each EEPROM setting that would keep the servo from reaching its goals."""
        unlock = "Set it with Feetech's tool, or restore the servo (instruction 06) and calibrate again"
        if registers["angle_resolution"] != 1:
            problem = f"angle_resolution (30) is {registers['angle_resolution']}, wanted is 1: its steps are larger"
            yield RegisterMisfit("resolution", problem, unlock)
        if registers["phase"] & 1 << 4:
            yield RegisterMisfit("multi_turn", "phase (18) has bit 4 set: it counts several turns", unlock)
        if registers["phase"] & (1 << 0 | 1 << 7):
            problem = f"phase (18) is {registers['phase']}: drive or feedback is reversed"
            yield RegisterMisfit("reversed", problem, unlock)
        if registers["mode"] != 0:
            problem = f"mode (33) is {registers['mode']}, wanted is 0: it does not hold positions"
            yield RegisterMisfit("mode", problem, unlock)
        if registers["max_torque"] < 200:
            problem = f"max_torque (16) is {registers['max_torque'] / 10:g} %, it can't carry the arm"
            yield RegisterMisfit("weak", problem, unlock)

    def write_kept(self, bus: ServoBus, servo: int, contents: Mapping[str, int]) -> None:
        """Write EEPROM registers with the ``lock`` at 0, so that the change survives a power cut."""
        bus.write(servo, TABLE["lock"].address, b"\x00")
        for name, content in contents.items():
            bus.write(servo, TABLE[name].address, TABLE[name].pack(content))
        bus.write(servo, TABLE["lock"].address, b"\x01")


FEETECH_STS = FeetechSts()

STS3215 = ServoModel(
    "sts3215", FEETECH_STS, MODEL, {"p": 16, "i": 0, "d": 32}, stiffness=STIFFNESS, max_rate=3400, volts=(4.0, 14.0),
    max_acceleration=3.35 / 0.0284 * STEPS / (2 * math.pi),
    law="sim.robots.servo_motors:STS3215_LAW", virtual="sim.servo_bus.feetech_servo:make_servo",
)  # fmt: skip
"""The servo of the SO-101, with the gains that LeRobot writes.

Its ``max_rate`` is the fastest change of the goal inside the servo (memory table, register 46). Its
``max_acceleration`` is 118 rad/s^2: the stall torque of 3.35 N m over the armature of 0.0284 kg m^2 (BAM, 7.4 V; the
variant for 12 V has 2.94 N m by its data sheet).
"""
