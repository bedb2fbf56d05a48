"""The SO-101 and a cube on its table, with somebody who tells where the cube is."""

from __future__ import annotations

from dataclasses import replace

from hal.field import Field
from hal.robot import RobotSpec
from hal.robots.so101 import SO101
from hal.spec import Spec

__all__ = ["CUBE_AREA", "CUBE_HALF", "SO101_CUBE"]

CUBE_AREA = ((0.17, 0.30), (-0.12, 0.12))
"""Where the middle of the cube lies at a reset: x and y on the table, metres; the gripper reaches all of it."""

CUBE_HALF = 0.0125
"""Half the cube's edge, metres."""

SO101_CUBE: RobotSpec = replace(
    SO101,
    name="so101-cube",
    sensors=Spec(
        "so101_cube_sensors",
        (
            *SO101.sensors.fields,
            Field("cube_position", (3,), "float32", -10.0, 10.0, "m", "middle of the cube", ("x", "y", "z")),
            Field("cube_orientation", (4,), "float32", -1.0, 1.0, "1", "unit quaternion", ("w", "x", "y", "z")),
        ),
    ),
    max_age_s={**SO101.max_age_s, "cube_position": 0.1, "cube_orientation": 0.1},
)
"""The arm, and where the cube is: what a simulation knows, and a real arm needs a tracker for (a camera, a marker)."""
