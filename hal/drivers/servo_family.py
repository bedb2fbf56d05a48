"""Describe a maker's servos to a driver: their protocol, their registers, and the meaning of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hal.drivers.packets import Codec
from hal.drivers.registers import Feedback, Register

if TYPE_CHECKING:
    from hal.drivers.bus import ServoBus

__all__ = ["RegisterMisfit", "ServoFamily", "ServoModel"]


class RegisterMisfit(NamedTuple):
    """A register of a servo with which an arm is not switched on.

    Attributes:
        code: a short machine-readable word, such as ``mode``.
        problem: the content, and the wanted one.
        cure: what to do.
    """

    code: str
    problem: str
    cure: str


class ServoFamily(ABC):
    """The servos of one protocol and one table of registers.

    Every table has the registers ``model``, ``homing_offset``, ``min_position``, ``max_position``, ``max_voltage``,
    ``min_voltage``, ``max_torque``, ``mode``, ``p``, ``i``, ``d``, ``torque_enable`` (0 off, 1 on), ``goal_position``,
    ``torque_limit`` (largest duty cycle), ``present_position`` and ``status`` (alarms). A servo that starts anew loads
    ``torque_limit`` from ``max_torque``.

    Attributes:
        name: of the family.
        codec: the module of its protocol.
        table: the registers by name.
        steps: of the encoder in a turn.
        identity: address and length of the block that is compared with the calibration, from address 0.
        state: address and length of the block that is read in each control period.
        settings: address and length of the part of `state` that a loss of power or another program changes.
        same_on_all: registers that hold the same on every servo of a running arm. Those in EEPROM are compared only.
        at_calibration: registers of EEPROM that a calibration writes, beside offset and limits.
        counts_turns: whether positions and goals go on over the end of a turn.
        full_duty: content of ``torque_limit`` for the full duty cycle.
        braking: the register and its content with which the motor brakes the shaft and drives it nowhere.
    """

    name: str
    codec: Codec
    table: Mapping[str, Register]
    steps: int
    identity: tuple[int, int]
    state: tuple[int, int]
    settings: tuple[int, int]
    same_on_all: Mapping[str, int]
    at_calibration: Mapping[str, int] = {}
    counts_turns: bool = False
    full_duty: int
    braking: tuple[str, int]

    def registers(self, data: bytes, address: int) -> dict[str, int]:
        """Return the registers that lie whole in a block of memory, by name.

        Args:
            data: the block.
            address: of its first byte.
        """
        return {
            name: register.unpack(data[register.address - address :])
            for name, register in self.table.items()
            if address <= register.address and register.address + register.size <= address + len(data)
        }

    @abstractmethod
    def feedback(self, state: bytes) -> Feedback:
        """Return the measurements in the bytes of `state`."""

    @abstractmethod
    def firmware(self, registers: Mapping[str, int]) -> str:
        """Return the version of the servo's firmware."""

    @abstractmethod
    def alarm_names(self, alarms: int) -> list[str]:
        """Return the names of the alarm bits that are set; an unknown bit shows its number."""

    @abstractmethod
    def encoder(self, position: int, offset: int) -> int:
        """Return the encoder's own reading at a present position under a homing offset, without wrapping it."""

    @abstractmethod
    def offset_for(self, encoder: float, position: int) -> int:
        """Return the homing offset with which the servo reports a position where the encoder reads a number."""

    @abstractmethod
    def misfits(self, registers: Mapping[str, int]) -> Iterator[RegisterMisfit]:
        """Yield each setting in EEPROM with which the servo would not go where its goals say."""

    def release_watchdog(self, bus: ServoBus, servos: Sequence[int]) -> Sequence[int]:
        """Let servos take goals again whose own watchdog has stopped them; they hold where they are.

        Returns:
            Those servos.

        Raises:
            ConnectionLost: the line is gone.
        """
        return ()

    def disarm_watchdog(self, bus: ServoBus, servos: Sequence[int]) -> None:  # most have none
        """Switch off the watchdog of servos that have no torque, since nobody will ask them anything.

        Raises:
            ConnectionLost: the line is gone.
        """

    @abstractmethod
    def write_kept(self, bus: ServoBus, servo: int, contents: Mapping[str, int]) -> None:
        """Write registers of EEPROM, by name.

        Raises:
            DeadlineExceeded, ServoRefused: the servo does not take one.
        """


@dataclass(frozen=True, slots=True)
class ServoModel:
    """A model of servo.

    Attributes:
        name: such as ``sts3215``.
        family: its protocol and registers.
        number: content of the register ``model``.
        gains: contents of the registers ``p``, ``i`` and ``d`` that a driver writes unless told otherwise.
        stiffness: torque at the shaft for each unit of ``p``, each volt of the supply and each rad of error,
            N m/(rad V); None where nobody has measured it.
        max_rate: fastest motion of the shaft, steps a second.
        volts: lowest and highest supply that a driver's setting may name, V.
        law: place (``module:name``) of the `sim.robots.servo_motors.PositionLaw` with which it is simulated; empty
            where there is none.
        virtual: place of the function that makes a virtual one (`sim.servo_bus.arm.MakeServo`); empty likewise.
    """

    name: str
    family: ServoFamily
    number: int
    gains: Mapping[str, int]
    stiffness: float | None
    max_rate: float
    volts: tuple[float, float]
    law: str = ""
    virtual: str = ""
