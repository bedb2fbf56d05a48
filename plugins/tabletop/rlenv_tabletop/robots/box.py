"""The SO-101 arm before a box with a hinged lid, whose pose and angle are measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hal.field import Field
from hal.robot import RobotSpec
from hal.robots.so101 import SO101
from hal.robots.vectors import component, components, from_components
from hal.spec import Spec

__all__ = [
    "BOX_AREA", "BOX_TURN", "GRIP_HALF", "GRIP_REACH", "GRIP_RISE", "HINGE_Z", "SO101_BOX", "WIDEST", "grip_position",
    "lid_normal",
]  # fmt: skip

WIDEST = 1.2
"""The angle at which the open lid stops, rad."""

HINGE_Z = 0.045
"""Height of the hinge above the table, metres. The hinge is on the side of the arm, so that the lid opens towards it:
so the gripper, which points down at the handle of the closed lid, ends up pointing forward."""

GRIP_REACH, GRIP_RISE = 0.060, 0.026
"""From the hinge to the middle of the handle: along the lid, and square to it, metres."""

GRIP_HALF = (0.014, 0.006, 0.020)
"""Half the handle's length, width and height, metres: a plate that stands on the lid, in the plane of its motion."""

BOX_AREA = ((0.27, 0.30), (-0.04, 0.04))
"""Range of x and range of y of the closed lid's handle at a reset, metres."""

BOX_TURN = 0.12
"""Largest angle at a reset between the box and the line from the arm's shoulder to the handle, rad."""

SO101_BOX: RobotSpec = replace(
    SO101,
    name="so101-box",
    sensors=Spec(
        "so101_box_sensors",
        (
            *SO101.sensors.fields,
            Field(
                "box_position", (2,), "float32", -10.0, 10.0, "m",
                "middle of the closed lid's handle on the table, in the base frame, from a marker on the box",
                ("x", "y"),
            ),
            Field(
                "box_yaw", (1,), "float32", -100.0, 100.0, "rad",
                "turn of the box about the vertical, from the same marker; at 0 the lid opens towards -x",
            ),
            Field(
                "lid_angle", (1,), "float32", -10.0, 10.0, "rad",
                "angle by which the lid is open, from an encoder on the hinge, or a marker on the lid",
            ),
            Field("lid_velocity", (1,), "float32", -1000.0, 1000.0, "rad/s", "rate of lid_angle, of the same sensor"),
        ),
    ),
    max_age_s={**SO101.max_age_s, "box_position": 1.0, "box_yaw": 1.0, "lid_angle": 0.1, "lid_velocity": 0.1},
)  # fmt: skip
"""The arm, and what a marker on the box and an encoder on its hinge measure. A simulation knows both exactly."""


def lid_normal(box_yaw: np.ndarray, lid_angle: np.ndarray) -> np.ndarray:
    """Return the direction square to the lid and out of the box, a unit vector; up where the lid is closed.

    Args:
        box_yaw: the sensor, rad, shape (..., 1).
        lid_angle: the sensor, rad, shape (..., 1).

    Returns:
        Shape (..., 3), of the sensors' dtype.
    """
    yaw, angle = component(box_yaw, 0), component(lid_angle, 0)
    sine = np.sin(angle)
    return from_components(-sine * np.cos(yaw), -sine * np.sin(yaw), np.cos(angle))


def grip_position(box_position: np.ndarray, box_yaw: np.ndarray, lid_angle: np.ndarray) -> np.ndarray:
    """Return the middle of the lid's handle in the base frame.

    Args:
        box_position: the sensor, metres, shape (..., 2).
        box_yaw: the sensor, rad, shape (..., 1).
        lid_angle: rad, shape (..., 1): the sensor, or any other angle.

    Returns:
        Metres, shape (..., 3), of the sensors' dtype.
    """
    (x, y), yaw, angle = components(box_position), component(box_yaw, 0), component(lid_angle, 0)
    sine, cosine = np.sin(angle), np.cos(angle)
    ahead = GRIP_REACH * (cosine - 1) - GRIP_RISE * sine
    height = HINGE_Z + GRIP_REACH * sine + GRIP_RISE * cosine
    return from_components(x + ahead * np.cos(yaw), y + ahead * np.sin(yaw), height)
