"""Describe the quadruped on a course: a Go2 with sensors of the ground around it and of the episode's time."""

from __future__ import annotations

from dataclasses import replace

from hal.field import Field
from hal.robot import RobotSpec
from hal.robots.go2 import GO2
from hal.spec import Spec

__all__ = ["MOST_SCANNED", "SCAN_SPACING_M", "course_name", "go2_course_spec", "height_scan"]

SCAN_SPACING_M = 0.1
"""Distance between neighbouring points of a height scan, metres, as common in the training of walking policies."""

MOST_SCANNED = 31
"""Largest number of points of a height scan in one direction."""

_GROUND = Field(
    "ground_height", (1,), "float32", -1e4, 1e4, "m", "of the ground under the trunk's middle, in the world"
)
_ELAPSED = Field("elapsed", (1,), "float32", 0.0, 1e6, "s", "time of the episode")


def height_scan(scan: tuple[int, int]) -> Field:
    """Return the field of a height scan.

    Args:
        scan: number of points ahead and to the left."""
    meaning = (
        f"the trunk's height over the ground at {scan[0]} points ahead by {scan[1]} to the left, {SCAN_SPACING_M} m "
        "apart, around the trunk and turned with it; from behind right on"
    )
    return Field("height_scan", scan, "float32", -10.0, 1e4, "m", meaning)


def course_name(scan: tuple[int, int] = (0, 0)) -> str:
    """Return the name of the robot model with a height scan of this size."""
    return f"go2-course-{scan[0]}x{scan[1]}" if scan != (0, 0) else "go2-course"


def go2_course_spec(scan: tuple[int, int] = (0, 0)) -> RobotSpec:
    """Return the Go2's description with additional sensors: height of the ground, time, and a height scan.

    Args:
        scan: number of points ahead and to the left; (0, 0) for no scan.

    Raises:
        ValueError: the numbers are out of range.
    """
    if scan != (0, 0) and not all(1 <= number <= MOST_SCANNED for number in scan):
        raise ValueError(f"height_scan is {scan}, allowed are (0, 0) for none, or two numbers from 1 to {MOST_SCANNED}")
    fields = (*GO2.sensors.fields, _GROUND, _ELAPSED, *((height_scan(scan),) if scan != (0, 0) else ()))
    return replace(GO2, name=course_name(scan), sensors=Spec("go2_course_sensors", fields))
