"""The registers in a servo's memory, and the measurements that a driver reads in each control period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Feedback", "Register", "from_sign_magnitude", "to_sign_magnitude"]


@dataclass(frozen=True, slots=True)
class Register:
    """A number in a servo's memory, little-endian.

    Attributes:
        address: address of the first byte.
        size: number of bytes.
        default: content as delivered.
        low: smallest raw number that the servo accepts.
        high: largest raw number that the servo accepts.
        kept: whether the register lies in EEPROM, so that it survives a power cut.
        read_only: whether only the servo writes it.
        negative: encoding of negative numbers: two's ``complement``, or the number of the sign bit above the
            magnitude; None for a register without negative numbers.
    """

    address: int
    size: int = 1
    default: int = 0
    low: int = 0
    high: int = 255
    kept: bool = False
    read_only: bool = False
    negative: int | Literal["complement"] | None = None

    def pack(self, value: int) -> bytes:
        """Return the bytes of a number.

        Raises:
            ValueError: the number does not fit into the register.
        """
        if self.negative == "complement":
            raw = value + (1 << 8 * self.size) if -(1 << 8 * self.size - 1) <= value < 0 else value
        else:
            raw = value if self.negative is None else to_sign_magnitude(value, self.negative)
        if not 0 <= raw < 1 << 8 * self.size:
            raise ValueError(f"{value} does not fit into the {self.size} bytes of register {self.address}")
        return raw.to_bytes(self.size, "little")

    def unpack(self, data: bytes) -> int:
        """Return the number in the register's bytes."""
        if self.negative == "complement":
            return int.from_bytes(data[: self.size], "little", signed=True)
        raw = int.from_bytes(data[: self.size], "little")
        return raw if self.negative is None else from_sign_magnitude(raw, self.negative)


def from_sign_magnitude(raw: int, sign_bit: int) -> int:
    """Decode a number from sign and magnitude; bits above the sign are ignored."""
    magnitude = raw & ((1 << sign_bit) - 1)
    return -magnitude if raw >> sign_bit & 1 else magnitude


def to_sign_magnitude(value: int, sign_bit: int) -> int:
    """Encode a number as sign and magnitude.

    Raises:
        ValueError: the magnitude does not fit below the sign.
    """
    if abs(value) >= 1 << sign_bit:
        raise ValueError(f"{value} does not fit below sign bit {sign_bit}: at most {(1 << sign_bit) - 1} either way")
    return (1 << sign_bit | -value) if value < 0 else value


@dataclass(frozen=True, slots=True)
class Feedback:
    """The measurements of one servo.

    Attributes:
        position: position of the encoder, steps, homing offset included.
        speed: speed, steps a second.
        load: duty cycle, -1 to 1.
        voltage: supply voltage, V.
        temperature: temperature, degrees Celsius.
        alarms: alarm bits (`hal.drivers.servo_family.ServoFamily.alarm_names`).
        goal: the goal that the servo holds, steps.
        current: motor current, A; 0 if the servo does not measure it.
    """

    position: int
    speed: int
    load: float
    voltage: float
    temperature: int
    alarms: int
    goal: int
    current: float
