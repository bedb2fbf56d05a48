"""The part of the control table of Dynamixel's X series (XL330 and XL430, Protocol 2.0) that an arm needs.

Source: ROBOTIS e-Manual, XL330-M288, XL330-M077 and XL430-W250. Numbers are little-endian, two's complement. This
module was not tested on real servos, only with `rlenv_arms.dynamixel_servo` and the maker's SDK.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hal.drivers.registers import Feedback, Register
from hal.drivers.servo_family import RegisterMisfit, ServoFamily, ServoModel
from rlenv_arms import dynamixel

if TYPE_CHECKING:
    from hal.drivers.bus import ServoBus

__all__ = [
    "ALARMS", "BAUD_RATES", "DYNAMIXEL_X", "EXTENDED_POSITION", "TABLE", "WATCHDOG_S", "XL330_M077", "XL330_M288",
    "XL430_W250", "DynamixelX",
]  # fmt: skip

STEPS = 4096
"""Encoder steps per turn."""

BAUD_RATES = (9600, 57_600, 115_200, 1_000_000, 2_000_000, 3_000_000, 4_000_000)
"""Baud rates, indexed by the content of register 8."""

ALARMS = {0: "voltage", 2: "temperature", 3: "encoder", 4: "electrical shock", 5: "overload"}
"""Bit of register 70, Hardware Error Status -> its meaning."""

EXTENDED_POSITION = 4
"""Content of register 11, Operating Mode, that allows homing offsets of any size and goals over several turns."""

FULL_DUTY = 885
"""Content of registers 36, 100 and 124 for the full duty cycle, in units of 0.113 %."""

_STEPS_PER_S = 0.229 / 60 * STEPS
"""Unit of registers 44 and 128, steps per second: 0.229 revolutions per minute."""

WATCHDOG_S = 0.02 * 25
"""Silence on the bus after which a servo stops by itself, seconds (register 98, unit 20 ms)."""


def _kept(address: int, size: int = 1, default: int = 0, high: int | None = None, *, signed: bool = False) -> Register:
    most = (1 << 8 * size) - 1 if high is None else high
    return Register(address, size, default, 0, most, kept=True, negative="complement" if signed else None)


def _set(address: int, size: int = 1, default: int = 0, *, signed: bool = False) -> Register:
    return Register(address, size, default, 0, (1 << 8 * size) - 1, negative="complement" if signed else None)


def _measured(address: int, size: int = 1) -> Register:
    return Register(
        address, size, high=(1 << 8 * size) - 1, read_only=True, negative="complement" if size > 1 else None
    )


TABLE = {
    "model": Register(0, 2, 1200, high=65535, kept=True, read_only=True),
    "firmware": Register(6, default=52, kept=True, read_only=True),
    "id": _kept(7, default=1, high=252),
    "baud_rate": _kept(8, default=1, high=6),
    "return_delay": _kept(9, default=250, high=254),
    "drive_mode": _kept(10),
    "mode": _kept(11, default=3, high=16),
    "homing_offset": _kept(20, 4, signed=True),
    "max_temperature": _kept(31, default=70, high=100),
    "max_voltage": _kept(32, 2, 70),
    "min_voltage": _kept(34, 2, 35),
    "max_torque": _kept(36, 2, FULL_DUTY, FULL_DUTY),
    "max_position": _kept(48, 4, 4095, 4095),
    "min_position": _kept(52, 4, 0, 4095),
    "shutdown": _kept(63, default=53),
    "torque_enable": _set(64),
    "status_return": _set(68, default=2),
    "status": _measured(70),
    "d": _set(80, 2, 0),
    "i": _set(82, 2, 0),
    "p": _set(84, 2, 400),
    "watchdog": _set(98),
    "torque_limit": _set(100, 2, FULL_DUTY, signed=True),
    "acceleration": _set(108, 4),
    "goal_speed": _set(112, 4),
    "goal_position": _set(116, 4, 2048, signed=True),
    "moving": _measured(122),
    "present_load": _measured(124, 2),
    "present_current": _measured(126, 2),
    "present_speed": _measured(128, 4),
    "present_position": _measured(132, 4),
    "present_voltage": Register(144, 2, high=65535, read_only=True),
    "present_temperature": _measured(146),
}
"""Name of a register, common to all families -> the register.

``torque_limit`` is Goal PWM, ``max_torque`` PWM Limit, ``status`` Hardware Error Status, ``watchdog`` Bus Watchdog,
``present_load`` Present PWM; ``acceleration`` and ``goal_speed`` belong to the motion profile, where 0 means no limit.
Present position = encoder + homing offset. Register 126 is a current on the XL330 and a load on the XL430.
"""

_STATE = (64, 83)


class DynamixelX(ServoFamily):
    """The servos of Dynamixel's X series.

    They work in extended position mode, as LeRobot sets them. In this mode a homing offset may have any size, and the
    servo ignores its own limits, so only the driver keeps goals within the calibrated range.

    A goal PWM of 0 with torque on shorts the winding, so the motor brakes the shaft without driving it.
    """

    name = "Dynamixel X"
    codec = dynamixel
    table = TABLE
    steps = STEPS
    identity = (0, 64)
    state = _STATE
    settings = (64, 52)
    same_on_all: Mapping[str, int] = {
        "mode": EXTENDED_POSITION, "watchdog": round(WATCHDOG_S / 0.02), "acceleration": 0, "goal_speed": 0,
    }  # fmt: skip
    at_calibration: Mapping[str, int] = {"mode": EXTENDED_POSITION, "return_delay": 0}
    counts_turns = True
    full_duty = FULL_DUTY
    braking = ("torque_limit", 0)

    def feedback(self, state: bytes) -> Feedback:
        """Return the measurements in the bytes of `state`, without current: register 126 is a load on some models."""
        registers = self.registers(state, _STATE[0])
        return Feedback(
            position=registers["present_position"],
            speed=round(registers["present_speed"] * _STEPS_PER_S),
            load=registers["present_load"] / FULL_DUTY,
            voltage=registers["present_voltage"] / 10,
            temperature=registers["present_temperature"],
            alarms=registers["status"],
            goal=registers["goal_position"],
            current=0.0,
        )

    def firmware(self, registers: Mapping[str, int]) -> str:
        """Return the firmware's version number."""
        return str(registers["firmware"])

    def alarm_names(self, alarms: int) -> list[str]:
        """Return the names of the bits of register 70 that are set."""
        return [ALARMS.get(bit, f"bit {bit}") for bit in range(8) if alarms >> bit & 1]

    def encoder(self, position: int, offset: int) -> int:
        """Return the encoder's reading without the homing offset: position minus offset, steps."""
        return position - offset

    def offset_for(self, encoder: float, position: int) -> int:
        """Return the homing offset with which the servo reports ``position`` at an encoder reading, steps."""
        return (position - round(encoder) + STEPS // 2) % STEPS - STEPS // 2

    def misfits(self, registers: Mapping[str, int]) -> Iterator[RegisterMisfit]:
        """Yield each setting that would keep the servo from following its goals."""
        wizard = "Set it with Dynamixel Wizard, or calibrate again: rlenv-robot robot calibrate writes it"
        if registers["mode"] != EXTENDED_POSITION:
            problem = f"operating mode (11) is {registers['mode']}, wanted is {EXTENDED_POSITION}, extended position"
            yield RegisterMisfit("mode", problem, wizard)
        if registers["drive_mode"] & 1:
            yield RegisterMisfit("reversed", "drive mode (10) has bit 0 set: the direction is reversed", wizard)
        if registers["drive_mode"] & 4:
            problem = "drive mode (10) has bit 2 set: profiles are times, so speeds mean something else"
            yield RegisterMisfit("profile", problem, wizard)
        if registers["max_torque"] < FULL_DUTY // 5:
            problem = f"PWM limit (36) is {registers['max_torque'] / FULL_DUTY:.0%}, it can't carry the arm"
            yield RegisterMisfit("weak", problem, wizard)

    def release_watchdog(self, bus: ServoBus, servos: Sequence[int]) -> Sequence[int]:
        """Clear and re-arm the watchdog of servos that it has stopped, and return those servos.

        The manual does not say whether such a servo continues to its old goal, so its goal is set to its present
        position.
        """
        watchdog, present, goal = (TABLE[name] for name in ("watchdog", "present_position", "goal_position"))
        replies = bus.sync_read(watchdog.address, watchdog.size, servos)
        stopped = [servo for servo, reply in replies.items() if reply.data == b"\xff"]
        positions = bus.sync_read(present.address, present.size, stopped) if stopped else {}
        if positions:
            bus.sync_write(watchdog.address, dict.fromkeys(positions, b"\x00"))
            bus.sync_write(goal.address, {servo: reply.data for servo, reply in positions.items()})
            bus.sync_write(watchdog.address, dict.fromkeys(positions, watchdog.pack(self.same_on_all["watchdog"])))
        return list(positions)

    def disarm_watchdog(self, bus: ServoBus, servos: Sequence[int]) -> None:
        """Disarm the watchdog, so that the servos accept the goals of another program."""
        bus.sync_write(TABLE["watchdog"].address, dict.fromkeys(servos, b"\x00"))

    def write_kept(self, bus: ServoBus, servo: int, contents: Mapping[str, int]) -> None:
        """Write EEPROM registers, which the servo refuses while its torque is on."""
        for name, content in contents.items():
            bus.write(servo, TABLE[name].address, TABLE[name].pack(content))


DYNAMIXEL_X = DynamixelX()


def _stiffness(torque_constant: float, resistance: float, divisor: float) -> float:
    """Return the torque at the shaft for each unit of P, volt and rad: the duty is P * steps / divisor / 885."""
    return torque_constant / resistance * STEPS / (2 * math.pi) / divisor / FULL_DUTY


def _rate(revolutions_per_minute: float) -> float:
    return revolutions_per_minute / 60 * STEPS


_VIRTUAL = "rlenv_arms.dynamixel_servo:make_servo"

XL330_M288 = ServoModel(
    "xl330-m288", DYNAMIXEL_X, 1200, {"p": 400, "i": 0, "d": 0},
    stiffness=_stiffness(0.3867, 4.017, 256), max_rate=_rate(123), volts=(3.5, 7.0),
    law="rlenv_arms.dynamixel_servo:XL330_M288", virtual=_VIRTUAL,
)  # fmt: skip
"""Torque constant, resistance and the divisor 256 of P: Rhoban's BAM, XL330, model m1; the e-Manual says 128. The rate
is the no-load speed at 6 V."""

XL330_M077 = ServoModel(
    "xl330-m077", DYNAMIXEL_X, 1190, {"p": 400, "i": 0, "d": 0}, stiffness=None,
    max_rate=_rate(456), volts=(3.5, 7.0), law="rlenv_arms.dynamixel_servo:XL330_M077", virtual=_VIRTUAL,
)  # fmt: skip

XL430_W250 = ServoModel(
    "xl430-w250", DYNAMIXEL_X, 1060, {"p": 640, "i": 0, "d": 4000},
    stiffness=_stiffness(1.88, 15.0, 128), max_rate=_rate(61), volts=(6.0, 14.0),
    law="rlenv_arms.dynamixel_servo:XL430_W250", virtual=_VIRTUAL,
)  # fmt: skip
"""Torque constant and resistance follow from the e-Manual's no-load speed (61 rev/min) and stall torque (1.5 N m), both
at 12 V; the divisor 128 of P is the e-Manual's. This servo's position law has not been measured."""
