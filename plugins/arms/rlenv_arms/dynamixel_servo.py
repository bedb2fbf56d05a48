"""Simulate a Dynamixel XL330 or XL430-W250 behind its serial line: memory, access rights, ranges, watchdog and motor.

Source: ROBOTIS e-Manual, control tables of the models. Two assumptions go beyond it: a servo that its watchdog stopped
continues to its goal once the watchdog is cleared, and a goal PWM of 0 shorts the winding.
"""

from __future__ import annotations

from hal.drivers.arm_table import ArmJoint
from rlenv_arms import dynamixel
from rlenv_arms.dynamixel_x import BAUD_RATES, EXTENDED_POSITION, FULL_DUTY, TABLE
from sim.robots.servo_motors import PositionLaw, at_joint
from sim.robots.sts3215 import ServoMotor

__all__ = ["XL330_M077", "XL330_M288", "XL430_W250", "DynamixelServo", "make_servo"]

_RAM = 64
_SIZE = 800
_FAIL, _UNKNOWN, _RANGE, _LENGTH, _ACCESS = 1, 2, 4, 5, 7
_OTHERS = {12: (1, 255), 13: (1, 2), 24: (4, 10), 38: (2, 1750), 44: (4, 445), 76: (2, 1600), 78: (2, 180)}
"""Registers that no driver of ours uses: address -> size and content."""

_XL430 = {"max_temperature": 72, "max_voltage": 140, "min_voltage": 60, "shutdown": 52, "p": 640, "d": 4000}
"""Contents of an XL430-W250 that differ from those of an XL330."""

_READ_ONLY = ((0, 7), (70, 71), (120, 148))
_BOUNDS = {7: (0, 252), 8: (0, 6), 11: (0, 16), 64: (0, 1), 65: (0, 1), 68: (0, 2), 98: (0, 127)}
_WATCHDOG = 98
_GOALS = range(100, 120)
_VOLTAGE, _TEMPERATURE = 1 << 0, 1 << 2
_STEPS = 4096
_SPEED_UNIT = 0.229 / 60 * _STEPS

_AMBIENT_C, _HEAT_C_PER_J, _COOLING_S = 25.0, 0.03, 600.0
"""Ambient temperature, rise of the case's temperature per joule of loss, and time constant of cooling in seconds. A
guess for a case of 18 g."""

_XL330_M288 = ServoMotor(
    torque_constant=0.3867, resistance=4.017, armature=0.00181, friction=0.0128, viscous=0.00366, volts=5.0
)
"""Rhoban, BAM, commit 1b5a1ce, XL330, model m1."""

_GEARS = 77.5 / 288.4
"""Ratio of the gears of the XL330-M077 to those of the M288, around the same motor (ROBOTIS e-Manual)."""

_XL430_W250 = ServoMotor(torque_constant=1.88, resistance=15.0, armature=0.006, friction=0.03, viscous=0.02, volts=12.0)
"""Torque constant and resistance follow from no-load speed and stall torque at 12 V (ROBOTIS e-Manual: 61 rev/min, 1.5
N m). Armature and friction are estimates between those of the XL330 and the STS3215, without measurements."""

XL330_M288 = PositionLaw(_XL330_M288, 4096 / 6.283185 / 256 / 885, 1.0)
XL330_M077 = PositionLaw(at_joint(_XL330_M288, _GEARS), 4096 / 6.283185 / 256 / 885, 1.0)
XL430_W250 = PositionLaw(_XL430_W250, 4096 / 6.283185 / 128 / 885, 1.0)
"""A Dynamixel's duty is P / 128 for each step of error, in units of 1/885 (e-Manual); BAM found 256 on the XL330."""

_LAWS = {1200: XL330_M288, 1190: XL330_M077, 1060: XL430_W250}
"""Content of the register ``model`` -> motor and position law."""


class DynamixelServo:
    """A virtual Dynamixel servo. Without a simulated arm its shaft has no load and reaches its goal at once.

    Args:
        servo_id: the servo's id.
        model: 1200 (XL330-M288), 1190 (XL330-M077) or 1060 (XL430-W250).
        volts: supply voltage, V; by default the nominal voltage.
        settings: initial contents of EEPROM registers, by name.

    Attributes:
        memory: the registers, byte by byte.
        encoder: the shaft's position within a turn, steps 0 to 4095.
        speed: speed of the shaft, steps per second.
        duty: duty cycle of the motor, -1 to 1.
        current: supply current, A; only an XL330 reports it.
        volts: supply voltage, V.
        temperature: temperature of the case, degrees Celsius.
        has_load: whether something moves the shaft (`sim.servo_bus.arm.ServoArm`).
        turnaround_s: time between request and answer, seconds, without the return delay.
    """

    def __init__(self, servo_id: int, model: int = 1200, volts: float | None = None, **settings: int) -> None:
        self.law = _LAWS[model]
        self.memory = bytearray(_SIZE)
        self.turnaround_s = 0.0001
        self.encoder, self.speed, self.duty, self.current = _STEPS / 2, 0.0, 0.0, 0.0
        self.volts = self.law.motor.volts if volts is None else volts
        self.temperature, self.has_load = _AMBIENT_C, False
        for address, (size, content) in _OTHERS.items():
            self.memory[address : address + size] = content.to_bytes(size, "little")
        for name, register in TABLE.items():
            self.set(name, register.default)
        self.set("present_position", round(self.encoder))
        self.set("present_voltage", round(self.volts * 10))
        self.set("present_temperature", round(self.temperature))
        changes = _XL430 if model == 1060 else {}
        for name, content in {"model": model, "baud_rate": 3, **changes, "id": servo_id, **settings}.items():
            self.set(name, content)
        self._kept = bytes(self.memory)
        self._pending: tuple[int, bytes] | None = None
        self._turned = self._last = round(self.encoder)
        self._silent_s, self._halted_at = 0.0, 0
        self.measure()

    def get(self, name: str) -> int:
        """Return the number in a register."""
        register = TABLE[name]
        return register.unpack(bytes(self.memory[register.address : register.address + register.size]))

    def set(self, name: str, value: int) -> None:
        """Set the number in a register, regardless of access rights and range."""
        register = TABLE[name]
        self.memory[register.address : register.address + register.size] = register.pack(value)

    def attach(self) -> None:
        """Let something else move the shaft, with goal and turns starting from its current position."""
        self.has_load = True
        self.power_cycle()

    @property
    def servo_id(self) -> int:
        """The id to which the servo currently answers."""
        return self.memory[7]

    @property
    def baud(self) -> int:
        """The servo's current baud rate, bits per second."""
        return BAUD_RATES[self.memory[8]]

    @property
    def _alert(self) -> int:
        return dynamixel.ALERT if self.memory[70] else 0

    # -- power and motor -------------------------------------------------------------------------------------------

    def power_cycle(self) -> None:
        """Reset everything except EEPROM (registers 0 to 63), and restart the count of turns."""
        self.memory[:] = self.memory[:_RAM] + self._kept[_RAM:]
        self.set("torque_limit", self.get("max_torque"))
        self._pending, self._silent_s = None, 0.0
        self._turned = self._last = int(self.encoder) % _STEPS
        self.duty = self.current = self.speed = 0.0
        self.measure()
        if self.has_load:
            self.set("goal_position", self.present)

    @property
    def present(self) -> int:
        """The position that the servo reports, steps."""
        return self._turned + self.get("homing_offset")

    @property
    def drive(self) -> str:
        """The state of the motor: ``off``, ``on`` or ``damping``."""
        if self.volts < 3.0 or not self.memory[64]:
            return "off"
        return "on" if self.get("torque_limit") else "damping"

    @property
    def goal(self) -> float:
        """The goal, steps; within the limits of registers 52 and 48 unless the servo counts turns.

        After the watchdog has acted, the goal is the position at that time.
        """
        if self.memory[_WATCHDOG] == 255:
            return self._halted_at
        goal = self.get("goal_position")
        if self.memory[11] == EXTENDED_POSITION:
            return goal
        return min(max(goal, self.get("min_position")), self.get("max_position"))

    @property
    def torque_share(self) -> float:
        """The largest duty cycle that the registers allow, 0 to 1."""
        return abs(self.get("torque_limit")) / FULL_DUTY

    @property
    def braking_share(self) -> float:
        """The share of back-EMF that slows the shaft during damping."""
        return 1.0

    @property
    def dead_zone(self) -> float:
        """Position error up to which the motor has no current, steps."""
        return 0.0

    @property
    def goal_rate(self) -> float:
        """Largest rate of the servo's internal goal, steps per second."""
        return self.get("goal_speed") * _SPEED_UNIT or float("inf")

    def pass_time(self, seconds: float, loss_w: float = 0.0) -> None:
        """Update temperature, alarms, measurements and the watchdog for elapsed time.

        Args:
            seconds: elapsed time, seconds.
            loss_w: mean power lost as heat, W.
        """
        self.temperature += loss_w * seconds * _HEAT_C_PER_J
        self.temperature += (_AMBIENT_C - self.temperature) * min(seconds / _COOLING_S, 1.0)
        self._silent_s += seconds
        if 0 < self.memory[_WATCHDOG] <= 127 and self._silent_s > 0.02 * self.memory[_WATCHDOG]:
            self.expire_watchdog()
        self.measure()

    def measure(self) -> None:
        """Fill the registers that report measurements."""
        encoder = int(self.encoder) % _STEPS
        self._turned += (encoder - self._last + _STEPS // 2) % _STEPS - _STEPS // 2
        self._last = encoder
        if not self.has_load:
            return
        tenths = round(self.volts * 10)
        alarms = 0 if self.get("min_voltage") <= tenths <= self.get("max_voltage") else _VOLTAGE
        alarms |= _TEMPERATURE if self.temperature >= self.memory[31] else 0
        self.set("status", alarms)
        self.set("moving", abs(self.speed) > self.memory[24] * _SPEED_UNIT)
        self.set("present_load", round(max(min(self.duty, 1.0), -1.0) * FULL_DUTY))
        self.set("present_speed", round(self.speed / _SPEED_UNIT))
        self.set("present_position", self.present)
        self.set("present_voltage", max(tenths, 0))
        self.set("present_temperature", max(min(round(self.temperature), 255), 0))
        reported = self.duty * 1000 if self.get("model") == 1060 else self.current * 1000
        self.set("present_current", max(min(round(reported), 32767), -32768))

    def expire_watchdog(self) -> None:
        """Let an armed bus watchdog act: its register reads -1, and goals can't be written until a 0 clears it."""
        if self.memory[_WATCHDOG] not in (0, 255):
            self.memory[_WATCHDOG] = 255
            self._halted_at = self.present

    # -- instructions ----------------------------------------------------------------------------------------------

    def instruct(self, instruction: int, params: bytes) -> tuple[int, bytes] | None:
        """Carry out an instruction, and return the answer's error byte and data, or None for no answer."""
        self._silent_s = 0.0
        address = int.from_bytes(params[:2], "little")
        match instruction:
            case dynamixel.PING:
                return self._alert, bytes(self.memory[:2]) + bytes(self.memory[6:7])
            case dynamixel.READ:
                if len(params) != 4:
                    return _LENGTH | self._alert, b""
                return self.read(address, int.from_bytes(params[2:], "little")) if self.memory[68] else None
            case dynamixel.WRITE:
                error = self.write(address, params[2:])
            case dynamixel.REG_WRITE:
                self._pending, error = (address, params[2:]), self._alert
            case dynamixel.ACTION:
                pending, self._pending = self._pending, None
                error = _FAIL | self._alert if pending is None else self.write(*pending)
            case dynamixel.REBOOT:
                self.power_cycle()
                error = 0
            case _:
                error = _UNKNOWN | self._alert
        return (error, b"") if self.memory[68] == 2 else None

    def read(self, address: int, count: int) -> tuple[int, bytes]:
        """Return the alert bit and the registers' bytes, or an error if the range exceeds the memory."""
        self._silent_s = 0.0
        if address + count > _SIZE:
            return _RANGE | self._alert, b""
        self.measure()
        return self._alert, bytes(self.memory[address : address + count])

    def write(self, address: int, data: bytes) -> int:
        """Write registers, and return the error byte. EEPROM needs torque off, goals a watchdog that has not acted."""
        self._silent_s = 0.0
        end = address + len(data)
        if not data or end > _SIZE:
            return _LENGTH | self._alert
        read_only = any(address < high and end > low for low, high in _READ_ONLY)
        goals_locked = address in _GOALS and self.memory[_WATCHDOG] == 255
        if read_only or goals_locked or (address < _RAM and self.memory[64]):
            return _ACCESS | self._alert
        low, high = _BOUNDS.get(address, (0, 255))
        if not low <= data[0] <= high:
            return _RANGE | self._alert
        self.memory[address:end] = data
        if self.memory[64] and not self.has_load:
            self.memory[132:136] = self.memory[116:120]
        return self._alert


def make_servo(row: ArmJoint, volts: float, settings: dict[str, int]) -> DynamixelServo:
    """Return the virtual servo of a joint; a `sim.servo_bus.arm.MakeServo`."""
    return DynamixelServo(row.id, row.model.number, volts, **settings)
