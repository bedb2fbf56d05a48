"""Emulate a Feetech STS3215 as seen from its serial line: memory, locks, ranges and alarms.

Assumptions where the maker's tables are silent: a write beyond a register's range leaves the register unchanged; an
overload ends when ``torque_enable`` is written; an answer's error byte is register 65.
"""

from __future__ import annotations

from hal.drivers import feetech
from hal.drivers.arm_table import ArmJoint
from hal.drivers.sts3215 import BAUD_RATES, CURRENT_A, STEPS, TABLE
from sim.robots.sts3215 import MAX_STEP_RATE

__all__ = ["FeetechServo", "make_servo"]

_SIZE = 96
_BY_ADDRESS = {register.address: (name, register) for name, register in TABLE.items()}
_OWNER = {
    register.address + offset: register for register in TABLE.values() for offset in range(register.size)
}  # byte -> its register

_VOLTAGE, _TEMPERATURE, _OVERLOAD = 1 << 0, 1 << 2, 1 << 5

_AMBIENT_C, _HEAT_C_PER_J, _COOLING_S = 25.0, 0.012, 900.0
"""Ambient temperature, rise of the case for each joule of loss, and time constant of cooling. Fitted by eye to a user's
71 degrees after 110 minutes of oscillation (SO-ARM100 issue 134): about 0.05 W/K. Not measured here."""


class FeetechServo:
    """A virtual STS3215.

    Args:
        servo_id: the servo's id.
        firmware: major and minor number of the firmware.
        volts: supply voltage, V.
        settings: initial contents of EEPROM registers by name.

    Attributes:
        memory: the registers, byte by byte.
        encoder: the shaft's position, steps 0 to 4095, before the homing offset; fractions are measured as whole
            steps.
        speed: speed of the shaft, steps a second.
        duty: duty cycle of the motor, -1 to 1.
        current: current of the motor, A.
        volts: supply voltage, V.
        temperature: temperature of the case, degrees Celsius.
        turnaround_s: time between request and answer, seconds.
        kept_writes: number of lasting changes of a byte of EEPROM.
        torque_on_goal: whether a goal switches the torque on, as users report of some firmware.
    """

    def __init__(self, servo_id: int, firmware: tuple[int, int] = (3, 10), volts: float = 7.4, **settings: int) -> None:
        self.memory = bytearray(_SIZE)
        self.encoder, self.speed, self.duty, self.current = STEPS / 2, 0.0, 0.0, 0.0
        self.volts, self.temperature = volts, _AMBIENT_C
        self.torque_on_goal = False
        self.turnaround_s = 0.00014
        self.kept_writes = 0
        self._pending: tuple[int, bytes] | None = None
        self._alarms = 0
        self._overload_s = 0.0
        for name, register in TABLE.items():
            self.set(name, register.default)
        factory = {"id": servo_id, "firmware_major": firmware[0], "firmware_minor": firmware[1], **settings}
        for name, value in factory.items():
            self.set(name, value)
        self._eeprom = bytes(self.memory)
        self.power_cycle()

    def get(self, name: str) -> int:
        """Return the number in a register."""
        register = TABLE[name]
        return register.unpack(bytes(self.memory[register.address : register.address + register.size]))

    def set(self, name: str, value: int) -> None:
        """Set a register, ignoring its lock and range."""
        register = TABLE[name]
        self.memory[register.address : register.address + register.size] = register.pack(value)

    def keep(self, name: str, value: int) -> None:
        """Set an EEPROM register, as if it had held the number when the servo was switched on."""
        self.set(name, value)
        register = TABLE[name]
        self._eeprom = (
            self._eeprom[: register.address] + register.pack(value) + self._eeprom[register.address + register.size :]
        )

    def attach(self) -> None:
        """Do nothing: the shaft already stays where it is."""

    @property
    def servo_id(self) -> int:
        """The id to which the servo answers now."""
        return self.memory[5]

    @property
    def baud(self) -> int:
        """The rate at which the servo listens now, bits a second."""
        return BAUD_RATES[self.memory[6]]

    # -- power -----------------------------------------------------------------------------------------------------

    def power_cycle(self) -> None:
        """Load the registers from EEPROM: torque is off, and the torque limit is ``max_torque``."""
        self.memory[:] = self._eeprom
        for name, register in TABLE.items():
            if not register.kept:
                self.set(name, register.default)
        self.set("torque_limit", self.get("max_torque"))
        self._pending, self._alarms, self._overload_s = None, 0, 0.0
        self.duty = self.current = 0.0
        self.measure()
        self.set("goal_position", self.get("present_position"))

    # -- motor -----------------------------------------------------------------------------------------------------

    @property
    def present(self) -> int:
        """The position that the servo reports, steps."""
        return (int(self.encoder) - self.get("homing_offset")) % STEPS

    @property
    def drive(self) -> str:
        """The state of the motor: ``off``, ``on`` or ``damping``."""
        if not self.volts >= 4.0:
            return "off"
        return {1: "on", 2: "damping"}.get(self.memory[40], "off")

    @property
    def goal(self) -> float:
        """The goal within the limits of registers 9 and 11, steps."""
        goal, low, high = self.get("goal_position"), self.get("min_position"), self.get("max_position")
        return min(max(goal, low), high) if low < high else goal

    @property
    def torque_share(self) -> float:
        """The largest duty cycle that the registers allow, 0 to 1; it is reduced in an overload."""
        share = self.get("torque_limit") / 1000
        return min(share, self.get("protective_torque") / 100) if self._alarms & _OVERLOAD else share

    @property
    def braking_share(self) -> float:
        """The share of back-EMF that slows a shaft in damping, from register 48."""
        return self.torque_share

    @property
    def dead_zone(self) -> float:
        """Largest error at which the motor stays without current, steps."""
        return float(self.memory[26])

    @property
    def goal_rate(self) -> float:
        """Fastest change of the goal inside the servo, steps a second."""
        return abs(min(self.get("goal_speed") or MAX_STEP_RATE, MAX_STEP_RATE))

    def pass_time(self, seconds: float, loss_w: float = 0.0) -> None:
        """Let time pass: update temperature, alarms and measurements.

        Args:
            seconds: the time to pass, seconds.
            loss_w: mean power lost as heat, W.
        """
        self.temperature += loss_w * seconds * _HEAT_C_PER_J
        self.temperature += (_AMBIENT_C - self.temperature) * min(seconds / _COOLING_S, 1.0)
        overloaded = abs(self.duty) * 100 >= self.get("overload_torque") and abs(self.speed) < 20
        self._overload_s = self._overload_s + seconds if overloaded else 0.0
        if self._overload_s > self.get("protection_time") / 100:
            self._alarms |= _OVERLOAD
        self.measure()

    def measure(self) -> None:
        """Fill the registers that report measurements."""
        tenths = round(self.volts * 10)
        alarms = self._alarms & _OVERLOAD
        if not self.memory[15] <= tenths <= self.memory[14]:
            alarms |= _VOLTAGE
        if self.temperature >= self.memory[13]:
            alarms |= _TEMPERATURE
        self._alarms = alarms
        self.set("present_position", self.present)
        self.set("present_speed", round(self.speed / 50) * 50)
        self.set("present_load", round(max(min(self.duty, 1.0), -1.0) * 1000))
        self.set("present_voltage", max(min(tenths, 255), 0))
        self.set("present_temperature", max(min(round(self.temperature), 255), 0))
        self.set("status", alarms)
        self.set("moving", abs(self.speed) > 5)
        self.set("goal_echo", self.get("goal_position"))
        self.set("present_current", round(self.current / CURRENT_A))

    # -- instructions ----------------------------------------------------------------------------------------------

    def instruct(self, instruction: int, params: bytes) -> tuple[int, bytes] | None:
        """Carry out an instruction; return error byte and data of the answer, or None for silence."""
        if instruction == feetech.READ:
            return self.read(*params[:2]) if len(params) == 2 else None
        if instruction == feetech.PING:
            return self._alarms, b""
        if not self._act(instruction, params):
            return None
        return (self._alarms, b"") if self.memory[8] else None

    def _act(self, instruction: int, params: bytes) -> bool:
        """Carry out an instruction that only is acknowledged; return whether the servo knows it."""
        match instruction:
            case feetech.WRITE if len(params) > 1:
                self.write(params[0], params[1:])
            case feetech.REG_WRITE if len(params) > 1:
                self._pending = (params[0], params[1:])
            case feetech.ACTION:
                pending, self._pending = self._pending, None
                if pending is not None:
                    self.write(*pending)
            case feetech.RESTORE:
                servo_id = self.servo_id
                for name, register in TABLE.items():
                    if register.kept and not register.read_only:
                        self.set(name, register.default)
                self.set("id", servo_id)
                self._eeprom = bytes(self.memory)
            case feetech.RESTART:
                self.power_cycle()
            case feetech.RESET_STATUS:
                self._alarms, self._overload_s = 0, 0.0
            case feetech.CALIBRATE:
                self._calibrate(int.from_bytes(params[:2], "little") if params else STEPS // 2)
            case _:
                return False
        return True

    def _calibrate(self, target: int) -> None:
        """Choose the homing offset with which the present position is ``target``."""
        offset = (int(self.encoder) - target + STEPS // 2) % STEPS - STEPS // 2
        self._put(31, TABLE["homing_offset"].pack(max(min(offset, 2047), -2047)))

    def read(self, address: int, count: int) -> tuple[int, bytes]:
        """Return the alarms and the bytes of registers; bytes beyond the memory are 0."""
        self.measure()
        return self._alarms, bytes(self.memory[address : address + count]).ljust(count, b"\0")

    def write(self, address: int, data: bytes) -> int:
        """Write registers, and return the alarms; read-only registers and values out of range are ignored."""
        at = 0
        while at < len(data):
            register = _OWNER.get(address + at)
            if register is None or register.address != address + at or register.size > len(data) - at:
                at += 1  # a byte that belongs to no register, or half of one
                continue
            part = data[at : at + register.size]
            if not register.read_only and register.low <= int.from_bytes(part, "little") <= register.high:
                self._put(register.address, part)
            at += register.size
        return self._alarms

    def _put(self, address: int, data: bytes) -> None:
        """Write one register, with what its name makes the servo do."""
        name, register = _BY_ADDRESS[address]
        if name == "torque_enable":
            if data[0] == 128:
                self._calibrate(STEPS // 2)
                return
            self._alarms &= ~_OVERLOAD
            self._overload_s = 0.0
        elif name == "goal_position" and self.torque_on_goal and not self.memory[40]:
            self.memory[40] = 1
        self.memory[address : address + len(data)] = data
        if register.kept and not self.memory[55]:
            if self._eeprom[address : address + len(data)] != data:
                self.kept_writes += 1
            self._eeprom = self._eeprom[:address] + data + self._eeprom[address + len(data) :]
        if name == "max_torque":
            self.set("torque_limit", self.get("max_torque"))


def make_servo(row: ArmJoint, volts: float, settings: dict[str, int]) -> FeetechServo:
    """Make the virtual servo of a joint (a `sim.servo_bus.arm.MakeServo`)."""
    gains = {name: value for name, value in row.register_values.items() if TABLE[name].kept}
    return FeetechServo(row.id, (3, 10), volts, phase=12, **gains, **settings)
