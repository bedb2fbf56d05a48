"""The SO-101 arm with an upright peg and a socket for it, whose poses are measured."""

from __future__ import annotations

from dataclasses import replace

from hal.field import Field
from hal.robot import RobotSpec
from hal.robots.so101 import SO101
from hal.spec import Spec

__all__ = ["PEG_AREA", "PEG_HALF", "RIM_Z", "SO101_PEG", "SOCKET_AREA", "SOCKET_TURN"]

PEG_HALF = (0.010, 0.010, 0.025)
"""Half the peg's width, depth and height, metres; it stands on the table."""

RIM_Z = 0.020
"""Height of the socket's rim, metres; the socket is open down to the table."""

PEG_AREA = ((0.18, 0.23), (-0.10, -0.04))
"""Range of x and range of y of the peg's middle at a reset, metres; half of the pegs are on the other side (y > 0)."""

SOCKET_AREA = ((0.19, 0.23), (0.03, 0.08))
"""Range of x and range of y of the socket's middle at a reset, metres; it is on the side where the peg is not."""

SOCKET_TURN = 0.4
"""Largest turn of the socket at a reset, rad. A peg and a socket look the same after a quarter turn."""

SO101_PEG: RobotSpec = replace(
    SO101,
    name="so101-peg",
    sensors=Spec(
        "so101_peg_sensors",
        (
            *SO101.sensors.fields,
            Field(
                "peg_position", (3,), "float32", -10.0, 10.0, "m",
                "middle of the peg in the base frame, from markers on its sides", ("x", "y", "z"),
            ),
            Field(
                "peg_orientation", (4,), "float32", -1.0, 1.0, "1",
                "unit quaternion of the peg, from the same markers", ("w", "x", "y", "z"),
            ),
            Field(
                "socket_position", (2,), "float32", -10.0, 10.0, "m",
                "middle of the socket in the base frame, from a marker beside it", ("x", "y"),
            ),
            Field(
                "socket_yaw", (1,), "float32", -100.0, 100.0, "rad",
                "turn of the socket about the vertical, from the same marker",
            ),
        ),
    ),
    max_age_s={
        **SO101.max_age_s, "peg_position": 0.1, "peg_orientation": 0.1, "socket_position": 1.0, "socket_yaw": 1.0,
    },
)  # fmt: skip
"""The arm, and what markers on the peg and beside the socket measure. A simulation knows both exactly."""
