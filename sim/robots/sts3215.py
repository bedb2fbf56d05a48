"""The motor and the position law of the Feetech STS3215, as measured on the servo."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["DUTY_PER_P", "MAX_DUTY", "MAX_STEP_RATE", "STS3215", "ServoMotor", "position_duty"]

DUTY_PER_P = 0.166
"""Duty cycle for each unit of register 21 (P) and each rad of error. Source: Rhoban's BAM, from an oscilloscope."""

MAX_DUTY = 0.97
"""Largest duty cycle that the position law reaches. Source: Rhoban's BAM."""

MAX_STEP_RATE = 3400
"""Fastest change of the target inside the servo, encoder steps a second (STS3215 memory table, register 46)."""


@dataclass(frozen=True, slots=True)
class ServoMotor:
    """The constants of a geared direct-current motor, at its output shaft.

    Attributes:
        torque_constant: torque per current, N m/A, which equals back-EMF per speed, V s/rad.
        resistance: resistance of the winding, ohm.
        armature: inertia of the rotor behind its gears, kg m^2.
        friction: torque that must be overcome before the shaft moves, N m.
        viscous: friction torque per speed, N m s/rad.
        volts: nominal supply voltage, V.
    """

    torque_constant: float
    resistance: float
    armature: float
    friction: float
    viscous: float
    volts: float

    @property
    def damping(self) -> float:
        """Damping, N m s/rad: back-EMF and viscous friction, with the winding driven at low impedance."""
        return self.torque_constant**2 / self.resistance + self.viscous

    @property
    def stall_torque(self) -> float:
        """Torque at standstill and full duty, N m."""
        return self.torque_constant * self.volts / self.resistance

    def torque(self, duty: np.ndarray, volts: float | np.ndarray | None = None) -> np.ndarray:
        """Return the torque of a duty cycle at standstill, N m; `damping` adds the effect of speed.

        Args:
            duty: duty cycle, -1 to 1, any shape.
            volts: supply voltage, V, of the same shape or one number; by default the nominal one.
        """
        supply = self.volts if volts is None else volts
        return np.asarray(self.torque_constant * supply * duty / self.resistance)

    def stiffness(self, p: float, volts: float | None = None) -> float:
        """Return the torque per angle of error under `position_duty`, N m/rad.

        Args:
            p: content of register 21.
            volts: supply voltage, V; by default the nominal one.
        """
        supply = self.volts if volts is None else volts
        return self.torque_constant * supply * DUTY_PER_P * p / self.resistance


STS3215 = ServoMotor(
    torque_constant=1.2116, resistance=2.676, armature=0.0284, friction=0.0524, viscous=0.0591, volts=7.4
)
"""The STS3215 for 7.4 V: 17.8 N m/rad at P = 32 and 8.9 at LeRobot's P = 16; damping 0.61; stall torque 3.35 N m.

Source: Rhoban, BAM ("Better Actuator Models", ICRA 2025), commit 1b5a1ce, model m1. The friction is Coulomb friction
only, without the further terms of BAM's other models. Damping and stall torque agree with the maker's MJCF (0.60 and
3.35), the position gain (998 N m/rad there) does not.
"""


def position_duty(error: np.ndarray, p: np.ndarray | float, limit: np.ndarray | float = MAX_DUTY) -> np.ndarray:
    """Return the duty cycle of the servo's position law.

    BAM measured the law at the factory's D = 32 and I = 0; the separate effects of D and I are unknown.

    Args:
        error: goal minus measured angle, rad, any shape.
        p: content of register 21, of the same shape or one number.
        limit: largest duty cycle, such as register 48 over 1000; never above `MAX_DUTY`.
    """
    bound = np.minimum(limit, MAX_DUTY)
    return np.clip(DUTY_PER_P * np.asarray(p) * error, -bound, bound)
