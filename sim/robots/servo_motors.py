"""Find the motors of the servos that a table of joints may name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module

from hal.drivers.servo_family import ServoModel
from sim.robots.sts3215 import DUTY_PER_P, MAX_DUTY, STS3215, ServoMotor

__all__ = ["STS3215_LAW", "PositionLaw", "at_joint", "law_of", "load_place"]


def at_joint(motor: ServoMotor, gear: float) -> ServoMotor:
    """Return a motor's constants at its joint, behind gears: ``gear`` turns of the servo for one of the joint."""
    return replace(
        motor,
        torque_constant=motor.torque_constant * gear,
        armature=motor.armature * gear**2,
        friction=motor.friction * gear,
        viscous=motor.viscous * gear**2,
    )


@dataclass(frozen=True, slots=True)
class PositionLaw:
    """The motor of a servo, and the position law that drives it.

    Attributes:
        motor: the motor's constants at the servo's shaft.
        duty_per_p: duty cycle for each unit of the register ``p`` and each rad of error at the shaft.
        max_duty: largest duty cycle.
    """

    motor: ServoMotor
    duty_per_p: float
    max_duty: float

    def stiffness(self, p: float, volts: float) -> float:
        """Return the torque at the shaft per angle of error, N m/rad.

        Args:
            p: content of the register ``p``.
            volts: supply voltage, V.
        """
        return self.motor.torque_constant * volts * self.duty_per_p * p / self.motor.resistance


STS3215_LAW = PositionLaw(STS3215, DUTY_PER_P, MAX_DUTY)


def law_of(model: ServoModel) -> PositionLaw:
    """Return the motor and the position law of a servo.

    Raises:
        ValueError: the model declares none.
    """
    law = load_place(model.law, f"the servo {model.name!r} is not simulated, since it names no law")
    assert isinstance(law, PositionLaw)
    return law


def load_place(place: str, problem: str) -> object:
    """Return the object at ``module:name``.

    Args:
        place: ``module:name``, from a `ServoModel`.
        problem: message of the error if ``place`` is empty.

    Raises:
        ValueError: the place is empty.
    """
    if not place:
        raise ValueError(problem)
    module, _, name = place.partition(":")
    loaded: object = getattr(import_module(module), name)
    return loaded
