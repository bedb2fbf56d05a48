"""The numbers in a servo's memory, and what a driver reads from them in each control period."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Feedback", "Register", "from_sign_magnitude", "to_sign_magnitude"]


@dataclass(frozen=True, slots=True)
class Register:
    """A number in a servo's memory, little-endian.

    Attributes:
        address: of its first byte.
        size: bytes.
        default: content as delivered.
        low: the smallest raw number that is accepted.
        high: the largest.
        kept: whether it lies in EEPROM, so that it outlasts a power cut.
        read_only: whether the servo alone writes it.
        negative: how a negative number is written: with two's ``complement``, or as the number of the bit that makes
            the magnitude below it negative; None where there are no negative ones.
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
            ValueError: it does not fit.
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
    """Return the number that a register holds as sign and magnitude; bits above the sign are ignored."""
    magnitude = raw & ((1 << sign_bit) - 1)
    return -magnitude if raw >> sign_bit & 1 else magnitude


def to_sign_magnitude(value: int, sign_bit: int) -> int:
    """Return a number as sign and magnitude.

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
        position: steps of the encoder, homing offset included.
        speed: steps a second.
        load: duty cycle, -1 to 1.
        voltage: of the supply, V.
        temperature: degrees Celsius.
        alarms: bits (`hal.drivers.servo_family.ServoFamily.alarm_names`).
        goal: the goal that the servo holds, steps.
        current: A; 0 where the servo measures none.
    """

    position: int
    speed: int
    load: float
    voltage: float
    temperature: int
    alarms: int
    goal: int
    current: float
