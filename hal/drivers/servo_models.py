"""The servos that a table of joints may name."""

from __future__ import annotations

from hal.drivers.dynamixel_x import XL330_M077, XL330_M288, XL430_W250
from hal.drivers.servo_family import ServoModel
from hal.drivers.sts3215 import STS3215

__all__ = ["SERVOS", "find_servo"]

SERVOS = {model.name: model for model in (STS3215, XL330_M077, XL330_M288, XL430_W250)}
"""Name -> model."""


def find_servo(name: str) -> ServoModel:
    """Return a model of servo by its name.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in SERVOS:
        raise ValueError(f"servo {name!r} is unknown, known are {', '.join(SERVOS)}")
    return SERVOS[name]
