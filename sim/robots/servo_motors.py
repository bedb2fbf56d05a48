"""The motors of the servos that a table of joints may name."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.robots.sts3215 import DUTY_PER_P, MAX_DUTY, STS3215, ServoMotor

__all__ = ["MOTORS", "PositionLaw", "at_joint"]

_XL330_M288 = ServoMotor(
    torque_constant=0.3867, resistance=4.017, armature=0.00181, friction=0.0128, viscous=0.00366, volts=5.0
)
"""Rhoban, BAM, commit 1b5a1ce, XL330, model m1."""

_GEARS = 77.5 / 288.4
"""Ratio of the gears of the XL330-M077 to those of the M288, around the same motor (ROBOTIS e-Manual)."""

_XL430_W250 = ServoMotor(torque_constant=1.88, resistance=15.0, armature=0.006, friction=0.03, viscous=0.02, volts=12.0)
"""Torque constant and resistance follow from speed without load and stall torque at 12 V (ROBOTIS e-Manual: 61 rev/min,
1.5 N m). Armature and friction are estimates between those of the XL330 and the STS3215: nobody has measured them."""


def at_joint(motor: ServoMotor, gear: float) -> ServoMotor:
    """Return a motor as its joint feels it, behind gears that turn the servo so many times for a turn of the joint."""
    return replace(
        motor,
        torque_constant=motor.torque_constant * gear,
        armature=motor.armature * gear**2,
        friction=motor.friction * gear,
        viscous=motor.viscous * gear**2,
    )


@dataclass(frozen=True, slots=True)
class PositionLaw:
    """The motor of a servo, and how its position law drives it.

    Attributes:
        motor: at the servo's shaft.
        duty_per_p: duty cycle for each unit of the register ``p`` and each rad of error at the shaft.
        max_duty: largest duty cycle.
    """

    motor: ServoMotor
    duty_per_p: float
    max_duty: float

    def stiffness(self, p: float, volts: float) -> float:
        """Return the torque at the shaft per angle of error, N m/rad.

        Args:
            p: content of the register.
            volts: of the supply, V.
        """
        return self.motor.torque_constant * volts * self.duty_per_p * p / self.motor.resistance


MOTORS = {
    "sts3215": PositionLaw(STS3215, DUTY_PER_P, MAX_DUTY),
    "xl330-m288": PositionLaw(_XL330_M288, 4096 / 6.283185 / 256 / 885, 1.0),
    "xl330-m077": PositionLaw(at_joint(_XL330_M288, _GEARS), 4096 / 6.283185 / 256 / 885, 1.0),
    "xl430-w250": PositionLaw(_XL430_W250, 4096 / 6.283185 / 128 / 885, 1.0),
}
"""Name of the servo (`hal.drivers.servo_models.SERVOS`) -> its motor and law.

A Dynamixel's duty is P / 128 for each step of error, in units of 1/885 (e-Manual); BAM found 256 on the XL330.
"""
