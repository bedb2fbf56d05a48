"""The SO-101 arm at a table with several cubes, whose poses a tracker measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hal.field import Field
from hal.robot import RobotSpec
from hal.robots.so101 import SO101
from hal.spec import Spec

__all__ = ["COLOURS", "MOST_CUBES", "TABLE_AREA", "TRAYS", "TRAY_HALF_M", "so101_table_spec"]

COLOURS = ("red", "green", "blue", "yellow")
"""The colours of the cubes, in the order of the sensors."""

MOST_CUBES = len(COLOURS)
"""Most cubes on a table."""

TABLE_AREA = ((0.17, 0.29), (-0.10, 0.10))
"""Range of x and range of y of the cubes' middles at a reset, metres."""

TRAYS: Mapping[str, tuple[float, float]] = {"left": (0.21, 0.165), "right": (0.21, -0.165)}
"""Tray -> x and y of its middle in the base frame, metres; beside the area where cubes lie at a reset."""

TRAY_HALF_M = 0.035
"""Half the edge of a tray, a square area of the table's surface without a rim, metres."""


def so101_table_spec(cubes: int) -> RobotSpec:
    """Return the description of the arm with a number of cubes on its table.

    Args:
        cubes: from 1 to `MOST_CUBES`.

    Raises:
        ValueError: another number.
    """
    if not 1 <= cubes <= MOST_CUBES:
        raise ValueError(f"cubes is {cubes}, it must be from 1 to {MOST_CUBES}")
    about = f"of {', '.join(COLOURS[:cubes])}"
    fields = (
        Field(
            "cube_positions", (cubes, 3), "float32", -10.0, 10.0, "m", f"middles of the cubes, {about}", ("x", "y", "z")
        ),
        Field(
            "cube_orientations",
            (cubes, 4),
            "float32",
            -1.0,
            1.0,
            "1",
            f"unit quaternions, {about}",
            ("w", "x", "y", "z"),
        ),
    )
    return replace(
        SO101,
        name=f"so101-table-{cubes}",
        sensors=Spec("so101_table_sensors", (*SO101.sensors.fields, *fields)),
        max_age_s={**SO101.max_age_s, "cube_positions": 0.1, "cube_orientations": 0.1},
    )
