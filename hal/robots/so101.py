"""The SO-101 arm with six Feetech STS3215 servos: its description and its kinematics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hal.field import Bound, Field
from hal.limits import Limits
from hal.robot import CameraSpec, RobotSpec
from hal.spec import Spec

__all__ = [
    "CHAIN", "CUBE_AREA", "CUBE_HALF", "GRASP", "JOINTS", "ROLL_ZERO", "SIDEWAYS", "SO101", "SO101_CUBE",
    "TICKS_PER_TURN", "TIP", "Link", "finger_axis", "forward_kinematics", "inverse_kinematics", "sensors_from_joints",
    "steepest",
]  # fmt: skip

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
"""The joints in the order of the servos, ids 1 to 6."""

CONVENTION = "so101_new_calib"
"""Zero and sign of the joint angles: those of the maker's model of this name. Versions before 0.2 mirrored it."""

LOW = (-1.91986, -1.74533, -1.69, -1.65806, -2.74385, -0.17453)
HIGH = (1.91986, 1.74533, 1.69, 1.65806, 2.84121, 1.74533)
"""Joint ranges, rad (SO-ARM100 repository, SO101 simulation model, new calibration)."""

TICKS_PER_TURN = 4096
"""Resolution of the servo's magnetic encoder (STS3215 memory table: 0.0879 degrees a step)."""

ROLL_ZERO = np.pi / 2 + 0.0486795
"""Turn of the gripper at ``wrist_roll`` 0, rad; in this pose the jaw is above the fixed finger and opens upwards.

The turn is right-handed about the gripper's forward axis and starts where the jaw is to the left of the fixed finger.
Source: SO-ARM100, ``Simulation/SO101/so101_new_calib.urdf``, origin of the joint ``wrist_roll``.
"""

SIDEWAYS = ROLL_ZERO - np.pi
"""Angle of ``wrist_roll`` with the jaw to the right of the fixed finger, rad (-1.5221); operators work near it."""

HOME = (0.0, -0.5, 0.5, 0.6, -1.5221, 0.0)
"""Joint angles of the home pose, rad: upper arm leaning back, forearm level, gripper down and forward."""


@dataclass(frozen=True, slots=True)
class Link:
    """Describe the place of a joint's frame in its parent's frame.

    Attributes:
        joint: name of the joint.
        offset: the joint's origin in the parent's frame, metres.
        axis: the axis of its rotation, ``x``, ``y`` or ``z`` of the parent's frame.
        sign: 1.0 where a positive angle is a right-handed turn about the axis, otherwise -1.0.
        zero: the turn about the axis at angle 0, rad.
    """

    joint: str
    offset: tuple[float, float, float]
    axis: str
    sign: float = 1.0
    zero: float = 0.0


CHAIN = (
    Link("shoulder_pan", (0.0388, 0.0, 0.0624), "z", sign=-1.0),
    Link("shoulder_lift", (0.0304, 0.0, 0.0542), "y"),
    Link("elbow_flex", (0.0280, 0.0, 0.1126), "y"),
    Link("wrist_flex", (0.1349, 0.0, 0.0052), "y"),
    Link("wrist_roll", (0.0611, 0.0, 0.0), "x", sign=-1.0, zero=ROLL_ZERO),
)
"""The chain of joints from the table's surface under the base to the gripper.

At zero angles the upper arm points up and the forearm points forward.
Signs, zeros and distances are the maker's (SO-ARM100, ``Simulation/SO101/so101_new_calib.urdf``), rounded to 0.1 mm.
LeRobot feeds measured degrees into that file unchanged. The sideways offsets of the printed brackets, which cancel to
0.2 mm at the gripper, are left out. ``tests/hal/robots/test_so101_official.py`` compares the two in 1,000 poses.
"""

TIP = (0.0981, -0.0079, 0.0)
"""The maker's tool frame (``gripperframe``) in the frame of wrist_roll, metres: the tip of the fixed finger's face.

The frame's x axis points along the fingers and its y axis from the fixed finger to the jaw.
"""

GRASP = (0.0981, 0.0, 0.0)
"""The middle between the finger tips at gripper angle 0, in the frame of wrist_roll, metres; on the roll axis."""


def _turn(axis: str, angle: np.ndarray) -> np.ndarray:
    """Return rotation matrices about a coordinate axis, shape (..., 3, 3)."""
    cosine, sine = np.cos(angle), np.sin(angle)
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    matrix = np.zeros((*np.shape(angle), 3, 3), cosine.dtype)
    matrix[..., 3 - first - second, 3 - first - second] = 1
    matrix[..., first, first] = matrix[..., second, second] = cosine
    matrix[..., first, second], matrix[..., second, first] = -sine, sine
    return matrix


def forward_kinematics(joint_position: np.ndarray, tool: tuple[float, float, float] = TIP) -> np.ndarray:
    """Return the position of a point of the gripper.

    Args:
        joint_position: rad, shape (..., 5) or (..., 6); the gripper's own angle does not matter.
        tool: the point in the frame of wrist_roll, metres: `TIP` or `GRASP`.

    Returns:
        Position in the base frame (x forward, z up, origin on the table), metres, shape (..., 3).
    """
    angles = _floating(joint_position)
    point = np.broadcast_to(np.asarray(tool, angles.dtype), (*angles.shape[:-1], 3))
    for index, link in reversed(list(enumerate(CHAIN))):
        turn = np.asarray(link.zero, angles.dtype) + np.asarray(link.sign, angles.dtype) * angles[..., index]
        turned = (_turn(link.axis, turn) @ point[..., None])[..., 0]
        point = turned + np.asarray(link.offset, angles.dtype)
    return point


def _floating(values: np.ndarray) -> np.ndarray:
    """Convert whole numbers to floats, so that no constant of this module is rounded to a whole number."""
    array = np.asarray(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _joints(name: str, unit: str, meaning: str, low: Bound, high: Bound) -> Field:
    return Field(name, (6,), "float32", low, high, unit, meaning, JOINTS, CONVENTION)


_TURN = 2 * np.pi  # servos report a little outside their range when pushed

SO101 = RobotSpec(
    name="so101",
    sensors=Spec("so101_sensors", (
        _joints("joint_position", "rad", "measured joint angles", -_TURN, _TURN),
        _joints("joint_velocity", "rad/s", "measured joint velocities", -50.0, 50.0),
        _joints("joint_goal", "rad", "the goal that the servos hold, read back", LOW, HIGH),
        Field("gripper_position", (3,), "float32", -1.0, 1.0, "m",
              "tip of the fixed finger's inner face (the maker's gripperframe) in the base frame, from joint_position",
              ("x", "y", "z")),
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
    max_rate={"joint_position": 3400 * 2 * np.pi / TICKS_PER_TURN},
)  # fmt: skip
"""The arm as LeRobot drives it, at 30 Hz. Its 4 rad/s are under the servo's no-load speed at 12 V, 45 rpm (4.7 rad/s).

The ``max_rate`` of 5.2 rad/s is from the servo's memory table: 3400 steps a second in register 46.
"""


def sensors_from_joints(
    observed: Mapping[str, np.ndarray], commands: Mapping[str, np.ndarray], stamp_ns: np.ndarray
) -> dict[str, np.ndarray]:
    """Compute all of the arm's sensors from a recording of only its joints and goals.

    Velocities are differences of positions over differences of stamps, 0 in row 0. The goal in row 0 was not recorded;
    the measured position, clipped to the joints' range, replaces it.

    Args:
        observed: ``joint_position``, measured, rad, shape (T, 6).
        commands: ``joint_target``, the goals that led to rows 1 to T - 1, rad, shape (T - 1, 6).
        stamp_ns: time stamps of the rows, nanoseconds, ascending, shape (T,).

    Returns:
        The fields of ``SO101.sensors`` by name, each of length T.

    Raises:
        KeyError: joints or goals were not recorded.
    """
    position, target = observed["joint_position"], commands["joint_target"]
    velocity, goal = np.zeros(position.shape), np.empty(position.shape)
    velocity[1:] = np.diff(position, axis=0) / (np.diff(stamp_ns)[:, None] / 1e9)
    goal[0], goal[1:] = np.clip(position[0], LOW, HIGH), target
    return {
        "joint_position": position,
        "joint_velocity": velocity,
        "joint_goal": goal,
        "gripper_position": forward_kinematics(position),
    }


# -- Inverse kinematics of the SO-101, in closed form ---------------------------------------------------------


_PAN_X, _PAN_Z = CHAIN[0].offset[0], CHAIN[0].offset[2]
_LIFT_X, _LIFT_Z = CHAIN[1].offset[0], CHAIN[1].offset[2]
_UPPER = np.hypot(CHAIN[2].offset[0], CHAIN[2].offset[2])
_UPPER_ANGLE = np.arctan2(CHAIN[2].offset[2], CHAIN[2].offset[0])
_LOWER = np.hypot(CHAIN[3].offset[0], CHAIN[3].offset[2])
_LOWER_ANGLE = np.arctan2(CHAIN[3].offset[2], CHAIN[3].offset[0])
_HAND = CHAIN[4].offset[0] + TIP[0]  # `TIP` and `GRASP` differ beside the roll axis only

_STEEPNESS = np.arange(np.pi / 2, 0.3, -0.05)
"""The pitches that `steepest` tries, rad, from straight down to nearly level."""


def inverse_kinematics(
    position: np.ndarray,
    pitch: np.ndarray | float,
    roll: np.ndarray | float,
    tool: tuple[float, float, float] = TIP,
) -> np.ndarray:
    """Return the five joint angles, with the elbow up, for which `forward_kinematics` gives ``position``.

    Shoulder, elbow and wrist turn about parallel axes, so the sum of their angles is the gripper's pitch. The law of
    cosines then solves the triangle of upper arm, forearm and the line from shoulder to wrist.

    Args:
        position: the tool's point in the base frame, metres, shape (..., 3).
        pitch: the gripper's pitch below the horizontal, rad; pi/2 points straight down. Shape (...) or a number.
        roll: the angle of ``wrist_roll``, rad, likewise.
        tool: `TIP` or `GRASP`.

    Returns:
        Angles in rad, shape (..., 5); NaN where the position is out of reach or a joint is out of its range.
    """
    point = np.asarray(position, np.float64)
    turn = ROLL_ZERO - np.asarray(roll)
    lateral = tool[1] * np.cos(turn)  # distance of the point from the plane in which the arm moves
    offset = tool[1] * np.sin(turn)  # distance of the point from the roll axis within that plane
    x, y = point[..., 0] - _PAN_X, point[..., 1]
    with np.errstate(invalid="ignore", divide="ignore"):  # out of reach becomes NaN
        forward = np.sqrt(x**2 + y**2 - lateral**2)
        pan = np.arctan2(lateral, forward) - np.arctan2(y, x)
        wrist_x = forward - _LIFT_X - _HAND * np.cos(pitch) - offset * np.sin(pitch)
        wrist_z = point[..., 2] - _PAN_Z - _LIFT_Z + _HAND * np.sin(pitch) - offset * np.cos(pitch)
        reach = np.hypot(wrist_x, wrist_z)
        bend = np.arccos((_UPPER**2 + reach**2 - _LOWER**2) / (2 * _UPPER * reach))
    upper = np.arctan2(wrist_z, wrist_x) + bend
    lower = np.arctan2(wrist_z - _UPPER * np.sin(upper), wrist_x - _UPPER * np.cos(upper))
    lift = _UPPER_ANGLE - upper
    elbow = _LOWER_ANGLE - lower - lift
    angles = np.stack(np.broadcast_arrays(pan, lift, elbow, pitch - lift - elbow, roll), axis=-1)
    legal = (angles >= LOW[:5]) & (angles <= HIGH[:5])
    return np.where(legal.all(axis=-1, keepdims=True), angles, np.nan)


def steepest(
    position: np.ndarray, roll: np.ndarray | float = SIDEWAYS, tool: tuple[float, float, float] = TIP
) -> np.ndarray:
    """Return the steepest pitch, at most straight down, with which the gripper reaches a position.

    Args:
        position: the tool's point in the base frame, metres, shape (..., 3).
        roll: the angle of ``wrist_roll``, rad, shape (...) or a number.
        tool: as for `inverse_kinematics`.

    Returns:
        Pitches in rad, shape (...); NaN where no pitch of 0.3 rad or more reaches the position.
    """
    point = np.asarray(position, np.float64)[..., None, :]
    reached = ~np.isnan(inverse_kinematics(point, _STEEPNESS, np.asarray(roll)[..., None], tool)[..., 0])
    return np.where(reached.any(axis=-1), _STEEPNESS[reached.argmax(axis=-1)], np.nan)


def finger_axis(pan: np.ndarray, pitch: np.ndarray | float, roll: np.ndarray) -> np.ndarray:
    """Return the direction from the fixed finger to the jaw in the base frame.

    Args:
        pan: the angle of ``shoulder_pan``, rad, shape (...).
        pitch: the gripper's pitch below the horizontal, rad, shape (...) or a number.
        roll: the angle of ``wrist_roll``, rad, shape (...).

    Returns:
        Unit vectors, shape (..., 3).
    """
    yaw, turn = -np.asarray(pan), ROLL_ZERO - np.asarray(roll)
    forward = np.sin(turn) * np.sin(pitch)
    lateral = np.cos(turn)
    axis = (
        np.cos(yaw) * forward - np.sin(yaw) * lateral,
        np.sin(yaw) * forward + np.cos(yaw) * lateral,
        np.sin(turn) * np.cos(pitch),
    )
    return np.stack(np.broadcast_arrays(*axis), axis=-1)


# -- The SO-101 and a cube on its table, whose position a tracker measures ------------------------------------


CUBE_AREA = ((0.17, 0.30), (-0.12, 0.12))
"""Ranges of x and y of the cube's centre at a reset, metres; the gripper reaches all of this area."""

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
"""The arm with a sensor of the cube's pose, which a simulation knows and a real arm gets from a tracker."""
