"""The SO-101 arm before a cabinet with one drawer, whose pose and opening are measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hal.field import Field
from hal.robot import RobotSpec
from hal.robots.so101 import SO101
from hal.robots.vectors import component, components, from_components
from hal.spec import Spec

__all__ = [
    "CABINET_AREA", "CABINET_TURN", "HANDLE_HALF", "HANDLE_Z", "SO101_CABINET", "TRAVEL", "handle_position",
    "opening_direction",
]  # fmt: skip

TRAVEL = 0.10
"""The farthest that the drawer comes out, metres."""

HANDLE_HALF = (0.022, 0.006, 0.022)
"""Half the handle's length, width and height, metres: an upright plate that points from the drawer to the arm."""

HANDLE_Z = 0.041
"""Height of the handle's middle above the table, metres."""

CABINET_AREA = ((0.26, 0.285), (-0.05, 0.05))
"""Range of x and range of y of the closed drawer's handle at a reset, metres."""

CABINET_TURN = 0.25
"""Largest angle at a reset between the drawer's way and the line from the handle to the arm's shoulder, rad."""

SO101_CABINET: RobotSpec = replace(
    SO101,
    name="so101-cabinet",
    sensors=Spec(
        "so101_cabinet_sensors",
        (
            *SO101.sensors.fields,
            Field(
                "cabinet_position", (2,), "float32", -10.0, 10.0, "m",
                "middle of the closed drawer's handle on the table, in the base frame, from a marker on the cabinet",
                ("x", "y"),
            ),
            Field(
                "cabinet_yaw", (1,), "float32", -100.0, 100.0, "rad",
                "turn of the cabinet about the vertical, from the same marker; at 0 the drawer opens along -x",
            ),
            Field(
                "drawer_opening", (1,), "float32", -1.0, 1.0, "m",
                "how far the drawer is out, from a draw-wire encoder, or a marker on the drawer's front",
            ),
            Field(
                "drawer_velocity", (1,), "float32", -100.0, 100.0, "m/s", "rate of drawer_opening, of the same sensor"
            ),
        ),
    ),
    max_age_s={
        **SO101.max_age_s, "cabinet_position": 1.0, "cabinet_yaw": 1.0, "drawer_opening": 0.1, "drawer_velocity": 0.1,
    },
)  # fmt: skip
"""The arm, and what a marker on the cabinet and an encoder on the drawer measure. A simulation knows both exactly."""


def opening_direction(cabinet_yaw: np.ndarray) -> np.ndarray:
    """Return the direction in which the drawer opens, a unit vector on the table.

    Args:
        cabinet_yaw: the sensor, rad, shape (..., 1).

    Returns:
        Shape (..., 2), of the sensor's dtype.
    """
    return from_components(*_opening(cabinet_yaw))


def _opening(cabinet_yaw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both numbers of the direction in which the drawer opens, each of shape (...)."""
    yaw = component(cabinet_yaw, 0)
    return -np.cos(yaw), -np.sin(yaw)


def handle_position(cabinet_position: np.ndarray, cabinet_yaw: np.ndarray, drawer_opening: np.ndarray) -> np.ndarray:
    """Return the middle of the handle in the base frame.

    Args:
        cabinet_position: the sensor, metres, shape (..., 2).
        cabinet_yaw: the sensor, rad, shape (..., 1).
        drawer_opening: metres, shape (..., 1): the sensor, or any other opening.

    Returns:
        Metres, shape (..., 3), of the sensors' dtype.
    """
    x, y = components(cabinet_position)
    (ahead, aside), opening = _opening(cabinet_yaw), component(drawer_opening, 0)
    return from_components(x + opening * ahead, y + opening * aside, HANDLE_Z)
