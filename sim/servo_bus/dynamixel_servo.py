"""A Dynamixel XL330-M288 or XL430-W250 as seen from its serial line: memory, access rights, ranges and its watchdog.

Source: ROBOTIS e-Manual, control tables of the two models. A shaft without load is at its goal at once.
"""

from __future__ import annotations

from hal.drivers import dynamixel

__all__ = ["DynamixelServo"]

_BAUD_RATES = (9600, 57_600, 115_200, 1_000_000, 2_000_000, 3_000_000, 4_000_000)
_RAM = 64
_SIZE = 800
_FAIL, _UNKNOWN, _RANGE, _LENGTH, _ACCESS = 1, 2, 4, 5, 7

_DEFAULTS = {  # address: (size, content)
    6: (1, 52), 7: (1, 1), 8: (1, 3), 9: (1, 250), 11: (1, 3), 12: (1, 255), 13: (1, 2), 24: (4, 10), 31: (1, 70),
    32: (2, 70), 34: (2, 35), 36: (2, 885), 38: (2, 1750), 44: (4, 445), 48: (4, 4095), 52: (4, 0), 63: (1, 53),
    68: (1, 2), 76: (2, 1600), 78: (2, 180), 84: (2, 400), 116: (4, 2048), 132: (4, 2048), 144: (2, 50), 146: (1, 25),
}  # fmt: skip
_READ_ONLY = ((0, 7), (70, 71), (120, 148))
_BOUNDS = {7: (0, 252), 8: (0, 6), 11: (0, 16), 64: (0, 1), 65: (0, 1), 68: (0, 2), 98: (0, 127)}
_WATCHDOG = 98
_GOALS = range(100, 120)


class DynamixelServo:
    """A virtual Dynamixel.

    Args:
        servo_id: its id.
        model: 1200 (XL330-M288), 1190 (XL330-M077) or 1060 (XL430-W250).

    Attributes:
        memory: its registers, byte by byte.
        turnaround_s: time between request and answer, seconds; its return delay is left out.
    """

    def __init__(self, servo_id: int, model: int = 1200) -> None:
        self.memory = bytearray(_SIZE)
        self.turnaround_s = 0.0001
        for address, (size, content) in {0: (2, model), **_DEFAULTS}.items():
            self.memory[address : address + size] = content.to_bytes(size, "little")
        self.memory[7] = servo_id
        self._kept = bytes(self.memory)
        self._pending: tuple[int, bytes] | None = None

    @property
    def servo_id(self) -> int:
        """The id to which it answers now."""
        return self.memory[7]

    @property
    def baud(self) -> int:
        """The rate at which it listens now, bits a second."""
        return _BAUD_RATES[self.memory[8]]

    @property
    def _alert(self) -> int:
        return dynamixel.ALERT if self.memory[70] else 0

    def power_cycle(self) -> None:
        """Keep EEPROM (registers 0 to 63) alone."""
        self.memory[:] = self.memory[:_RAM] + self._kept[_RAM:]
        self._pending = None

    def expire_watchdog(self) -> None:
        """Let the bus watchdog act, if it is armed: it reads -1, and goals can't be written until 0 clears it."""
        if self.memory[_WATCHDOG] not in (0, 255):
            self.memory[_WATCHDOG] = 255

    def instruct(self, instruction: int, params: bytes) -> tuple[int, bytes] | None:
        """Carry out an instruction; return error byte and data of the answer, or None for silence."""
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
        """Return the alert bit and registers, or the error of a range beyond the memory."""
        if address + count > _SIZE:
            return _RANGE | self._alert, b""
        return self._alert, bytes(self.memory[address : address + count])

    def write(self, address: int, data: bytes) -> int:
        """Write registers, and return the error byte: EEPROM needs torque 0, goals a watchdog that has not acted."""
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
        if self.memory[64]:
            self.memory[132:136] = self.memory[116:120]
        return self._alert
