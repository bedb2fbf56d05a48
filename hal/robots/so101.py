"""The SO-101 arm: six Feetech STS3215 servos. What it is, where its gripper is, and what LeRobot calls its units."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hal.field import Bound, Field
from hal.limits import Limits
from hal.robot import CameraSpec, RobotSpec
from hal.spec import Spec

__all__ = [
    "CHAIN", "CUBE_AREA", "CUBE_HALF", "JOINTS", "SO101", "SO101_CUBE", "TICKS_PER_TURN", "TIP", "Link", "finger_axis",
    "forward_kinematics", "from_lerobot", "inverse_kinematics", "steepest", "to_lerobot",
]  # fmt: skip

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
"""The joints in servo order, ids 1 to 6."""

LOW = (-1.91986, -1.74533, -1.69, -1.65806, -2.74385, -0.17453)
HIGH = (1.91986, 1.74533, 1.69, 1.65806, 2.84121, 1.74533)
"""Joint ranges, rad (SO-ARM100 repository, SO101 simulation model, new calibration)."""

TICKS_PER_TURN = 4096
"""Resolution of the servo's magnetic encoder (STS3215 memory table: 0.0879 degrees a step)."""

HOME = (0.0, -0.5, 0.5, 0.6, 0.0, 0.0)
"""Upper arm leaning back, forearm level, gripper pointing down and forward over the table."""


@dataclass(frozen=True, slots=True)
class Link:
    """A joint's frame in its parent's: ``offset`` in metres, then a turn about ``axis`` (``x``, ``y`` or ``z``)."""

    joint: str
    offset: tuple[float, float, float]
    axis: str


CHAIN = (
    Link("shoulder_pan", (0.0388, 0.0, 0.0624), "z"),
    Link("shoulder_lift", (0.0304, 0.0, 0.0542), "y"),
    Link("elbow_flex", (0.0280, 0.0, 0.1126), "y"),
    Link("wrist_flex", (0.1349, 0.0, 0.0052), "y"),
    Link("wrist_roll", (0.0611, 0.0, 0.0), "x"),
)
"""From the table's surface under the base to the gripper, at zero angles: upper arm up, forearm forward.

Distances between joint axes of the public SO-101 drawing, rounded to 0.1 mm; the small sideways offsets of
the printed brackets are left out, so the arm is symmetric here.
"""

TIP = (0.0981, 0.0, 0.0)
"""The point between the finger tips in the frame of wrist_roll, metres."""


def _turn(axis: str, angle: np.ndarray) -> np.ndarray:
    """Rotation matrices about a coordinate axis, shape (..., 3, 3)."""
    cosine, sine = np.cos(angle), np.sin(angle)
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    matrix = np.zeros((*np.shape(angle), 3, 3), cosine.dtype)
    matrix[..., 3 - first - second, 3 - first - second] = 1
    matrix[..., first, first] = matrix[..., second, second] = cosine
    matrix[..., first, second], matrix[..., second, first] = -sine, sine
    return matrix


def forward_kinematics(joint_position: np.ndarray) -> np.ndarray:
    """Where the point between the finger tips is.

    Args:
        joint_position: rad, shape (..., 5) or (..., 6); the gripper's own angle does not matter.

    Returns:
        Position in the base frame (x forward, z up, origin on the table), metres, shape (..., 3).
    """
    angles = _floating(joint_position)
    point = np.broadcast_to(np.asarray(TIP, angles.dtype), (*angles.shape[:-1], 3))
    for index, link in reversed(list(enumerate(CHAIN))):
        turned = (_turn(link.axis, angles[..., index]) @ point[..., None])[..., 0]
        point = turned + np.asarray(link.offset, angles.dtype)
    return point


def from_lerobot(units: np.ndarray) -> np.ndarray:
    """LeRobot's calibrated units (-100..100, gripper 0..100) as angles in rad, shape (..., 6)."""
    units = _floating(units)
    low, high, start, end = _calibration(units.dtype)
    return np.asarray(low + (units - start) * (high - low) / (end - start))


def to_lerobot(joint_position: np.ndarray) -> np.ndarray:
    """Angles in rad as LeRobot's calibrated units, shape (..., 6)."""
    joint_position = _floating(joint_position)
    low, high, start, end = _calibration(joint_position.dtype)
    return np.asarray(start + (joint_position - low) * (end - start) / (high - low))


def _floating(values: np.ndarray) -> np.ndarray:
    """Whole numbers as floats: the constants here must not be rounded to their type."""
    array = np.asarray(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _calibration(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    numbers = (LOW, HIGH, (-100.0,) * 5 + (0.0,), (100.0,) * 6)
    low, high, start, end = (np.asarray(number, dtype) for number in numbers)
    return low, high, start, end


def _joints(name: str, unit: str, meaning: str, low: Bound, high: Bound) -> Field:
    return Field(name, (6,), "float32", low, high, unit, meaning, JOINTS)


_TURN = 2 * np.pi  # servos report a little outside their range when pushed

SO101 = RobotSpec(
    name="so101",
    sensors=Spec("so101_sensors", (
        _joints("joint_position", "rad", "measured joint angles", -_TURN, _TURN),
        _joints("joint_velocity", "rad/s", "measured joint velocities", -50.0, 50.0),
        _joints("joint_goal", "rad", "the goal that the servos hold, read back", LOW, HIGH),
        Field("gripper_position", (3,), "float32", -1.0, 1.0, "m",
              "point between the finger tips in the base frame, from joint_position", ("x", "y", "z")),
    )),
    commands=Spec("so101_commands", (_joints("joint_target", "rad", "goal angles of the servos", LOW, HIGH),)),
    rate_hz=30.0,
    limits=Limits(max_velocity={"joint_target": 4.0}, max_lead={"joint_target": 0.8}),
    cameras=(
        CameraSpec("overhead", 640, 480, "looks down on the table"),
        CameraSpec("wrist", 640, 480, "rides on the gripper and looks at the finger tips"),
    ),
    home={"joint_target": HOME},
    measured_by={"joint_target": "joint_position"},
    max_age_s={"joint_position": 0.1, "joint_velocity": 0.1},
)  # fmt: skip
"""The arm as LeRobot drives it, at 30 Hz. 4 rad/s is under the servo's no-load speed of 45 rpm (4.7 rad/s) at 12 V."""


# -- Inverse kinematics of the SO-101, in closed form: joint angles that bring the finger tips somewhere -----


_PAN_X, _PAN_Z = CHAIN[0].offset[0], CHAIN[0].offset[2]
_LIFT_X, _LIFT_Z = CHAIN[1].offset[0], CHAIN[1].offset[2]
_UPPER = np.hypot(CHAIN[2].offset[0], CHAIN[2].offset[2])
_UPPER_ANGLE = np.arctan2(CHAIN[2].offset[2], CHAIN[2].offset[0])
_LOWER = np.hypot(CHAIN[3].offset[0], CHAIN[3].offset[2])
_LOWER_ANGLE = np.arctan2(CHAIN[3].offset[2], CHAIN[3].offset[0])
_HAND = CHAIN[4].offset[0] + TIP[0]

_STEEPNESS = np.arange(np.pi / 2, 0.3, -0.05)
"""Pitches that `steepest` tries, rad, from straight down."""


def inverse_kinematics(position: np.ndarray, pitch: np.ndarray | float, roll: np.ndarray | float) -> np.ndarray:
    """The five angles of the arm with its elbow up, for which `forward_kinematics` gives ``position``.

    Shoulder, elbow and wrist turn about parallel axes, so their sum is the gripper's pitch, and what is left is a
    triangle of upper arm, forearm and the way from shoulder to wrist (law of cosines).

    Args:
        position: of the point between the finger tips in the base frame, metres, shape (..., 3).
        pitch: of the gripper below the horizontal, rad; pi/2 points straight down. Shape (...) or a number.
        roll: of the wrist, rad, likewise.

    Returns:
        Angles in rad, shape (..., 5); NaN where the place is out of reach or a joint out of its range.
    """
    point = np.asarray(position, np.float64)
    pan = np.arctan2(point[..., 1], point[..., 0] - _PAN_X)
    ahead = np.hypot(point[..., 1], point[..., 0] - _PAN_X) - _LIFT_X - _HAND * np.cos(pitch)
    above = point[..., 2] - _PAN_Z - _LIFT_Z + _HAND * np.sin(pitch)
    reach = np.hypot(ahead, above)
    with np.errstate(invalid="ignore", divide="ignore"):  # out of reach becomes NaN
        bend = np.arccos((_UPPER**2 + reach**2 - _LOWER**2) / (2 * _UPPER * reach))
    upper = np.arctan2(above, ahead) + bend
    lower = np.arctan2(above - _UPPER * np.sin(upper), ahead - _UPPER * np.cos(upper))
    lift = _UPPER_ANGLE - upper
    elbow = _LOWER_ANGLE - lower - lift
    angles = np.stack(np.broadcast_arrays(pan, lift, elbow, pitch - lift - elbow, roll), axis=-1)
    legal = (angles >= LOW[:5]) & (angles <= HIGH[:5])
    return np.where(legal.all(axis=-1, keepdims=True), angles, np.nan)


def steepest(position: np.ndarray, roll: np.ndarray | float = 0.0) -> np.ndarray:
    """The steepest pitch, straight down at most, with which a place can be reached.

    Args:
        position: metres, shape (..., 3).
        roll: rad, shape (...) or a number.

    Returns:
        Rad, shape (...); NaN where no pitch of 0.3 rad or more reaches it.
    """
    point = np.asarray(position, np.float64)[..., None, :]
    found = ~np.isnan(inverse_kinematics(point, _STEEPNESS, np.asarray(roll)[..., None])[..., 0])
    return np.where(found.any(axis=-1), _STEEPNESS[found.argmax(axis=-1)], np.nan)


def finger_axis(pan: np.ndarray, pitch: np.ndarray | float, roll: np.ndarray) -> np.ndarray:
    """The direction from the fixed finger to the jaw in the base frame, unit vectors of shape (..., 3)."""
    ahead = np.sin(roll) * np.sin(pitch)
    beside = np.cos(roll)
    axis = (
        np.cos(pan) * ahead - np.sin(pan) * beside,
        np.sin(pan) * ahead + np.cos(pan) * beside,
        np.sin(roll) * np.cos(pitch),
    )
    return np.stack(np.broadcast_arrays(*axis), axis=-1)


# -- The SO-101 and a cube on its table, with somebody who tells where the cube is ---------------------------


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
