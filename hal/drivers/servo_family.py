"""Describe a maker's servos to a driver: their protocol, their registers, and the registers' meanings."""

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
    """A register content that keeps an arm from being switched on.

    Attributes:
        code: a short machine-readable word, such as ``mode``.
        problem: the register's content and the required one.
        cure: the remedy.
    """

    code: str
    problem: str
    cure: str


class ServoFamily(ABC):
    """Servos that share one protocol and one table of registers.

    Every table has the registers ``model``, ``homing_offset``, ``min_position``, ``max_position``, ``max_voltage``,
    ``min_voltage``, ``max_torque``, ``mode``, ``p``, ``i``, ``d``, ``torque_enable`` (0 off, 1 on), ``goal_position``,
    ``torque_limit`` (largest duty cycle), ``present_position`` and ``status`` (alarms). A servo that restarts loads
    ``torque_limit`` from ``max_torque``.

    Attributes:
        name: name of the family.
        codec: the module of the protocol.
        table: register name -> register.
        steps: steps of the encoder in a turn.
        identity: address and length of the block that is compared with the calibration, from address 0.
        state: address and length of the block that is read in each control period.
        settings: address and length of the part of `state` that a loss of power or another program changes.
        same_on_all: register -> content on every servo of a running arm. Those in EEPROM are only compared.
        at_calibration: EEPROM registers that a calibration writes in addition to offset and limits.
        counts_turns: whether positions and goals continue beyond the end of a turn.
        full_duty: content of ``torque_limit`` for the full duty cycle.
        braking: the register, and its content, that makes the motor brake the shaft without driving it.
        disabling_alarms: alarm bits at which a servo takes its torque away, or lowers it, and no setting shows that.
        measures_current: whether `feedback` has the motor's current.
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
    disabling_alarms: int = 0
    measures_current: bool = False

    def registers(self, data: bytes, address: int) -> dict[str, int]:
        """Return the contents of all registers that lie entirely within a block of memory, by name.

        Args:
            data: the block.
            address: address of its first byte.
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
        """Return the homing offset that makes the servo report ``position`` when its encoder reads ``encoder``."""

    @abstractmethod
    def misfits(self, registers: Mapping[str, int]) -> Iterator[RegisterMisfit]:
        """Yield each EEPROM setting that would keep the servo from reaching its goals."""

    def release_watchdog(self, bus: ServoBus, servos: Sequence[int]) -> Sequence[int]:
        """Release the servos that their own watchdog has stopped, so that they accept goals again and hold in place.

        Returns:
            The released servos.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        return ()

    def disarm_watchdog(self, bus: ServoBus, servos: Sequence[int]) -> None:  # most have none
        """Disarm the watchdog of servos without torque, which get no more requests.

        Raises:
            ConnectionLost: the serial line is lost.
        """

    @abstractmethod
    def write_kept(self, bus: ServoBus, servo: int, contents: Mapping[str, int]) -> None:
        """Write EEPROM registers by name.

        Raises:
            DeadlineExceeded, ServoRefused: the servo does not accept a value.
        """


@dataclass(frozen=True, slots=True)
class ServoModel:
    """Describe a servo model.

    Attributes:
        name: the model's name, such as ``sts3215``.
        family: the model's protocol and registers.
        number: content of the register ``model``.
        gains: contents of the registers ``p``, ``i`` and ``d`` that a driver writes by default.
        stiffness: torque at the shaft for each unit of ``p``, each volt of the supply and each rad of error,
            N m/(rad V); None if nobody has measured it.
        max_rate: fastest motion of the shaft, steps a second.
        volts: lowest and highest supply that a driver's setting may name, V.
        max_acceleration: fastest change of the shaft's rate without a load, steps a second squared: stall torque over
            the rotor's inertia behind its gears; None if nobody has measured it.
        law: ``module:name`` of the `sim.robots.servo_motors.PositionLaw` that simulates the servo; empty if there is
            none.
        virtual: ``module:name`` of the function that makes a virtual servo (`sim.servo_bus.arm.MakeServo`), likewise.
    """

    name: str
    family: ServoFamily
    number: int
    gains: Mapping[str, int]
    stiffness: float | None
    max_rate: float
    volts: tuple[float, float]
    max_acceleration: float | None = None
    law: str = ""
    virtual: str = ""
