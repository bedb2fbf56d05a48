"""Describe the SO-101 with objects on its table: sensors, sizes, and poses at a reset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hal.field import Field
from hal.limits import Limits
from hal.robot import CameraSpec, RobotSpec
from hal.robots.so101 import SO101
from hal.robots.vectors import component, components, from_components
from hal.spec import Spec

__all__ = [
    "APART", "BAR_HALF", "BOX_AREA", "BOX_TURN", "CABINET_AREA", "CABINET_TURN", "COLOURS", "GRIP_HALF",
    "GRIP_REACH", "GRIP_RISE", "HANDLE_HALF", "HANDLE_Z", "HINGE_Z", "MOST_CUBES", "PAIR_HOME", "PEG_AREA",
    "PEG_HALF", "RIM_Z", "SIDES", "SO101_BOX", "SO101_CABINET", "SO101_PAIR", "SO101_PEG", "SOCKET_AREA",
    "SOCKET_TURN", "TABLE_AREA", "TRAVEL", "TRAYS", "TRAY_HALF_M", "WIDEST", "from_right", "grip_position",
    "handle_position", "lid_normal", "opening_direction", "so101_table_spec", "turn_from_right",
]  # fmt: skip

_XY, _XYZ, _WXYZ = ("x", "y"), ("x", "y", "z"), ("w", "x", "y", "z")


class _Sensor(NamedTuple):
    """A sensor of a thing: a row of the tables below. Its values are float32, from ``-limit`` to ``limit``."""

    name: str
    shape: tuple[int, ...]
    limit: float
    unit: str
    age_s: float | None
    meaning: str
    elements: tuple[str, ...] = ()

    @property
    def field(self) -> Field:
        return Field(
            self.name, self.shape, "float32", -self.limit, self.limit, self.unit, self.meaning, self.elements
        )  # fmt: skip


def _arm_with(name: str, *sensors: _Sensor, spec_name: str = "") -> RobotSpec:
    """Return the description of an SO-101 with things, which these sensors measure."""
    spec = Spec(f"{spec_name or name.replace('-', '_')}_sensors", (*SO101.sensors, *(row.field for row in sensors)))
    ages = {row.name: row.age_s for row in sensors if row.age_s is not None}
    return replace(SO101, name=name, sensors=spec, max_age_s={**SO101.max_age_s, **ages})


# -- A box with a hinged lid ---------------------------------------------------------------------------------


WIDEST = 1.2
"""The angle at which the open lid stops, rad."""

HINGE_Z = 0.045
"""Height of the hinge above the table, metres. The hinge is on the side facing the arm, so that the lid opens towards
the arm and the gripper, which points down at the closed lid's handle, ends up pointing forward."""

GRIP_REACH, GRIP_RISE = 0.060, 0.026
"""Distance from the hinge to the middle of the handle, along the lid and perpendicular to it, metres."""

GRIP_HALF = (0.014, 0.006, 0.020)
"""Half the handle's length, width and height, metres. It is a plate that stands on the lid in the lid's plane of
motion."""

BOX_AREA = ((0.27, 0.30), (-0.04, 0.04))
"""Range of x and range of y of the closed lid's handle at a reset, metres."""

BOX_TURN = 0.12
"""Largest angle at a reset between the box and the line from the arm's shoulder to the handle, rad."""

SO101_BOX = _arm_with(
    "so101-box",
    _Sensor("box_position", (2,), 10.0, "m", 1.0,
            "middle of the closed lid's handle on the table, in the base frame, from a marker on the box", _XY),
    _Sensor("box_yaw", (1,), 100.0, "rad", 1.0,
            "turn of the box about the vertical, from the same marker; at 0 the lid opens towards -x"),
    _Sensor("lid_angle", (1,), 10.0, "rad", 0.1,
            "angle by which the lid is open, from an encoder on the hinge, or a marker on the lid"),
    _Sensor("lid_velocity", (1,), 1000.0, "rad/s", 0.1, "rate of lid_angle, of the same sensor"),
)  # fmt: skip
"""The arm, with the measurements of a marker on the box and of an encoder on its hinge. A simulation knows both
exactly."""


def lid_normal(box_yaw: np.ndarray, lid_angle: np.ndarray) -> np.ndarray:
    """Return the lid's outward normal, a unit vector; it points up if the lid is closed.

    Args:
        box_yaw: yaw of the box as measured, rad, shape (..., 1).
        lid_angle: angle of the lid as measured, rad, shape (..., 1).

    Returns:
        Shape (..., 3), of the sensors' dtype.
    """
    yaw, angle = component(box_yaw, 0), component(lid_angle, 0)
    sine = np.sin(angle)
    return from_components(-sine * np.cos(yaw), -sine * np.sin(yaw), np.cos(angle))


def grip_position(box_position: np.ndarray, box_yaw: np.ndarray, lid_angle: np.ndarray) -> np.ndarray:
    """Return the middle of the lid's handle in the base frame.

    Args:
        box_position: position of the box as measured, metres, shape (..., 2).
        box_yaw: yaw of the box as measured, rad, shape (..., 1).
        lid_angle: angle of the lid, measured or any other, rad, shape (..., 1).

    Returns:
        Metres, shape (..., 3), of the sensors' dtype.
    """
    (x, y), yaw, angle = components(box_position), component(box_yaw, 0), component(lid_angle, 0)
    sine, cosine = np.sin(angle), np.cos(angle)
    ahead = GRIP_REACH * (cosine - 1) - GRIP_RISE * sine
    height = HINGE_Z + GRIP_REACH * sine + GRIP_RISE * cosine
    return from_components(x + ahead * np.cos(yaw), y + ahead * np.sin(yaw), height)


# -- A cabinet with one drawer -------------------------------------------------------------------------------


TRAVEL = 0.10
"""Largest opening of the drawer, metres."""

HANDLE_HALF = (0.022, 0.006, 0.022)
"""Half the handle's length, width and height, metres. It is an upright plate that points from the drawer to the arm."""

HANDLE_Z = 0.041
"""Height of the handle's middle above the table, metres."""

CABINET_AREA = ((0.26, 0.285), (-0.05, 0.05))
"""Range of x and range of y of the closed drawer's handle at a reset, metres."""

CABINET_TURN = 0.25
"""Largest angle at a reset between the drawer's opening direction and the line from the handle to the arm's shoulder,
rad."""

SO101_CABINET = _arm_with(
    "so101-cabinet",
    _Sensor("cabinet_position", (2,), 10.0, "m", 1.0,
            "middle of the closed drawer's handle on the table, in the base frame, from a marker on the cabinet", _XY),
    _Sensor("cabinet_yaw", (1,), 100.0, "rad", 1.0,
            "turn of the cabinet about the vertical, from the same marker; at 0 the drawer opens along -x"),
    _Sensor("drawer_opening", (1,), 1.0, "m", 0.1,
            "how far the drawer is out, from a draw-wire encoder, or a marker on the drawer's front"),
    _Sensor("drawer_velocity", (1,), 100.0, "m/s", 0.1, "rate of drawer_opening, of the same sensor"),
)  # fmt: skip
"""The arm, with the measurements of a marker on the cabinet and of an encoder on the drawer. A simulation knows both
exactly."""


def opening_direction(cabinet_yaw: np.ndarray) -> np.ndarray:
    """Return the direction in which the drawer opens, a unit vector on the table.

    Args:
        cabinet_yaw: yaw of the cabinet as measured, rad, shape (..., 1).

    Returns:
        Shape (..., 2), of the sensor's dtype.
    """
    return from_components(*_opening(cabinet_yaw))


def _opening(cabinet_yaw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both numbers of the direction in which the drawer opens, each of shape (...)."""
    yaw = component(cabinet_yaw, 0)
    return -np.cos(yaw), -np.sin(yaw)


def handle_position(cabinet_position: np.ndarray, cabinet_yaw: np.ndarray, drawer_opening: np.ndarray) -> np.ndarray:
    """Return the middle of the drawer's handle in the base frame.

    Args:
        cabinet_position: position of the cabinet as measured, metres, shape (..., 2).
        cabinet_yaw: yaw of the cabinet as measured, rad, shape (..., 1).
        drawer_opening: opening of the drawer, measured or any other, metres, shape (..., 1).

    Returns:
        Metres, shape (..., 3), of the sensors' dtype.
    """
    x, y = components(cabinet_position)
    (ahead, aside), opening = _opening(cabinet_yaw), component(drawer_opening, 0)
    return from_components(x + opening * ahead, y + opening * aside, HANDLE_Z)


# -- A peg and a socket --------------------------------------------------------------------------------------


PEG_HALF = (0.010, 0.010, 0.025)
"""Half the peg's width, depth and height, metres; it stands on the table."""

RIM_Z = 0.020
"""Height of the socket's rim, metres; the socket is open down to the table."""

PEG_AREA = ((0.18, 0.23), (-0.10, -0.04))
"""Range of x and range of y of the peg's middle at a reset, metres; half of the pegs are on the other side (y > 0)."""

SOCKET_AREA = ((0.19, 0.23), (0.03, 0.08))
"""Range of x and range of y of the socket's middle at a reset, metres; the socket is on the side opposite to the
peg."""

SOCKET_TURN = 0.4
"""Largest turn of the socket at a reset, rad. A peg and a socket look the same after a quarter turn."""

SO101_PEG = _arm_with(
    "so101-peg",
    _Sensor("peg_position", (3,), 10.0, "m", 0.1,
            "middle of the peg in the base frame, from markers on its sides", _XYZ),
    _Sensor("peg_orientation", (4,), 1.0, "1", 0.1, "unit quaternion of the peg, from the same markers", _WXYZ),
    _Sensor("socket_position", (2,), 10.0, "m", 1.0,
            "middle of the socket in the base frame, from a marker beside it", _XY),
    _Sensor("socket_yaw", (1,), 100.0, "rad", 1.0, "turn of the socket about the vertical, from the same marker"),
)  # fmt: skip
"""The arm, with the measurements of markers on the peg and beside the socket. A simulation knows both exactly."""


# -- Cubes ---------------------------------------------------------------------------------------------------


COLOURS = ("red", "green", "blue", "yellow")
"""The colours of the cubes, in the order of the sensors."""

MOST_CUBES = len(COLOURS)
"""Largest number of cubes on a table."""

TABLE_AREA = ((0.17, 0.29), (-0.10, 0.10))
"""Range of x and range of y of the cubes' middles at a reset, metres."""

TRAYS: Mapping[str, tuple[float, float]] = {"left": (0.21, 0.165), "right": (0.21, -0.165)}
"""Tray -> x and y of its middle in the base frame, metres. The trays are beside the area of the cubes at a reset."""

TRAY_HALF_M = 0.035
"""Half the edge of a tray, a square area of the table's surface without a rim, metres."""


def so101_table_spec(cubes: int) -> RobotSpec:
    """Return the description of the arm with a number of cubes on its table.

    Args:
        cubes: from 1 to `MOST_CUBES`.

    Raises:
        ValueError: the number is out of range.
    """
    if not 1 <= cubes <= MOST_CUBES:
        raise ValueError(f"cubes is {cubes}, it must be from 1 to {MOST_CUBES}")
    about = f"of {', '.join(COLOURS[:cubes])}"
    return _arm_with(
        f"so101-table-{cubes}",
        _Sensor("cube_positions", (cubes, 3), 10.0, "m", 0.1, f"middles of the cubes, {about}", _XYZ),
        _Sensor("cube_orientations", (cubes, 4), 1.0, "1", 0.1, f"unit quaternions, {about}", _WXYZ),
        spec_name="so101_table",
    )


# -- Two arms and a bar --------------------------------------------------------------------------------------


SIDES = ("left", "right")
"""The two arms. The base of the left arm is the origin of the table; the base of the right arm is `APART` ahead, turned
by pi."""

APART = 0.60
"""Distance between the two bases along x, metres."""

BAR_HALF = (0.12, 0.0125, 0.010)
"""Half the bar's length, width and height, metres; it lies along x between the arms."""

PAIR_HOME = (0.0, -1.0, 0.8, 1.0, -1.5221, 0.0)
"""Joint angles of each arm at rest, rad; the arms are retracted, so that the two grippers are 14 cm apart."""


_APART_64, _TURN_64 = np.array((APART, 0.0, 0.0)), np.array((-1.0, -1.0, 1.0))
_APART_32, _TURN_32 = _APART_64.astype(np.float32), _TURN_64.astype(np.float32)


def from_right(point: np.ndarray) -> np.ndarray:
    """Convert a point from the frame of the right base to the table's frame, or back; shape (..., 3), metres."""
    converted: np.ndarray = turn_from_right(point) + (_APART_32 if point.dtype == np.float32 else _APART_64)
    return converted


def turn_from_right(direction: np.ndarray) -> np.ndarray:
    """Convert a direction from the frame of the right base to the table's frame, or back; shape (..., 3)."""
    converted: np.ndarray = direction * (_TURN_32 if direction.dtype == np.float32 else _TURN_64)
    return converted


def _of_side(side: str, spec: Spec) -> tuple[Field, ...]:
    return tuple(replace(field, name=f"{side}_{field.name}", meaning=f"{side} arm: {field.meaning}") for field in spec)


SO101_PAIR = RobotSpec(
    name="so101-pair",
    sensors=Spec("so101_pair_sensors", (
        *_of_side("left", SO101.sensors),
        *_of_side("right", SO101.sensors),
        *(row.field for row in (
            _Sensor("bar_position", (3,), 10.0, "m", None, "middle of the bar on the table", _XYZ),
            _Sensor("bar_orientation", (4,), 1.0, "1", None, "unit quaternion", _WXYZ),
            _Sensor("bar_velocity", (3,), 100.0, "m/s", None, "of the bar's middle", _XYZ),
            _Sensor("bar_turning", (3,), 1000.0, "rad/s", None, "of the bar, about its own axes", _XYZ),
        )),
    )),
    commands=Spec("so101_pair_commands", tuple(field for side in SIDES for field in _of_side(side, SO101.commands))),
    rate_hz=SO101.rate_hz,
    limits=Limits(
        max_velocity={f"{side}_joint_target": SO101.limits.max_velocity["joint_target"] for side in SIDES},
        max_lead={f"{side}_joint_target": SO101.limits.max_lead["joint_target"] for side in SIDES},
    ),
    cameras=(CameraSpec("overhead", 640, 480, "looks down on the table"),),
    home={f"{side}_joint_target": PAIR_HOME for side in SIDES},
    measured_by={f"{side}_joint_target": f"{side}_joint_position" for side in SIDES},
    max_age_s={f"{side}_{name}": age for side in SIDES for name, age in SO101.max_age_s.items()},
    max_rate={f"{side}_{name}": rate for side in SIDES for name, rate in SO101.max_rate.items()},
)  # fmt: skip
"""One robot with two arms on one clock. A simulation knows the pose of the bar; real arms need a tracker for it."""
