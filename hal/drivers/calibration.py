"""The relation between a servo's steps and a joint's angle, and the files that keep it.

A calibration is the joint's range in steps, as LeRobot stores it. Zero and scale come from the arm's table of joints:
the middle of that range is the middle of the table's range, and a step is the same angle on every such arm. So an
angle in rad means the same pose on every arm, whereas LeRobot's units depend on how far somebody swept the joint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from hal.atomic_file import atomic_write
from hal.drivers.arm_table import ArmTable
from hal.drivers.so101_arm import SO101_ARM
from hal.errors import RobotError
from hal.field import JsonDict
from hal.robots.so101_units import STEP_RAD, JointCalibration

__all__ = [
    "STEP_RAD", "Calibration", "CalibrationError", "JointCalibration", "calibration_from_sweep", "load_calibration",
    "nominal_calibration", "portability_report", "save_calibration",
]  # fmt: skip

FORMAT = "rlenv-robot calibration"
_MOST_BYTES = 1 << 20


class CalibrationError(RobotError, ValueError):
    """A calibration is incomplete, contradicts itself, or does not fit the robot."""


class Calibration:
    """The calibration of an arm, which converts between steps of servos and angles of joints.

    Args:
        joints: joint name -> its calibration, one for each joint of the arm.
        servos: joint name -> ``model`` and ``firmware`` of its servo at the calibration; empty if unknown.
        arm: the arm's table of joints.

    Raises:
        CalibrationError: a joint is missing or unknown, two joints share a servo, or a number is out of its range.
    """

    def __init__(
        self,
        joints: Mapping[str, JointCalibration],
        servos: Mapping[str, Mapping[str, object]] | None = None,
        arm: ArmTable = SO101_ARM,
    ) -> None:
        unknown, missing = sorted(joints.keys() - set(arm.names)), [name for name in arm.names if name not in joints]
        if unknown or missing:
            raise CalibrationError(
                f"joints are missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}; "
                f"wanted are those of {arm.name}: {', '.join(arm.names)}"
            )
        for name, joint in joints.items():
            _check(name, joint, arm.family.steps)
        ids = [joint.id for joint in joints.values()]
        if len(set(ids)) < len(ids):
            raise CalibrationError(f"two joints have the same servo id, the ids are {ids}")
        self.arm = arm
        self.joints = {name: joints[name] for name in arm.names}
        self.servos = {name: dict(facts) for name, facts in (servos or {}).items()}
        self._sign = np.array([-1.0 if joint.drive_mode else 1.0 for joint in self.joints.values()])
        middles = [(joint.range_min + joint.range_max) / 2 for joint in self.joints.values()]
        self._step_rad = arm.step_rad
        self._zero = np.array(middles) - self._sign * np.array([joint.middle for joint in arm.joints]) / self._step_rad

    @property
    def ids(self) -> tuple[int, ...]:
        """The servos' ids in the order of the joints."""
        return tuple(joint.id for joint in self.joints.values())

    @property
    def signs(self) -> np.ndarray:
        """The direction of each servo in its joint's, 1 or -1, (n,)."""
        return self._sign

    def angles(self, steps: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return joint angles, rad, for positions in steps, shape (..., n)."""
        return np.asarray((np.asarray(steps, np.float64) - self._zero) * self._sign * self._step_rad)

    def steps(self, angles: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return positions in whole steps for joint angles, rad, shape (..., n).

        Raises:
            ValueError: an angle is not a finite number.
        """
        values = np.asarray(angles, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"an angle is not a finite number: {values.tolist()}")
        return np.asarray(np.rint(values * self._sign / self._step_rad + self._zero), np.int64)

    def misfits(self, tolerance_deg: float = 3.0) -> list[str]:
        """Return a line for each joint with a swept travel that differs from the model's by more than the tolerance."""
        lines = []
        for row, (name, joint) in zip(self.arm.joints, self.joints.items(), strict=True):
            model_travel = math.degrees(row.high - row.low)
            travel = math.degrees((joint.range_max - joint.range_min) * row.step_rad)
            difference = travel - model_travel
            if not row.whole_turn and abs(difference) > tolerance_deg:
                lines.append(
                    f"{name}: the swept travel is {travel:.1f} degrees, the model's {model_travel:.1f}; the zero "
                    f"may be wrong by {abs(difference) / 2:.1f} degrees. Sweep it again: rlenv-robot robot calibrate"
                )
        return lines

    def to_lerobot(self) -> JsonDict:
        """Return the contents of LeRobot's calibration file."""
        return {name: asdict(joint) for name, joint in self.joints.items()}

    def to_dict(self) -> JsonDict:
        """Return plain data, as `save_calibration` writes it."""
        return {
            "format": FORMAT,
            "version": 1,
            "robot": self.arm.name,
            "joints": self.to_lerobot(),
            "servos": self.servos,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calibration) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def _check(name: str, joint: JointCalibration, steps: int) -> None:
    bounds = {"id": (0, 253), "drive_mode": (0, 1), "homing_offset": (-4095, 4095)}
    bounds |= dict.fromkeys(("range_min", "range_max"), (0, steps - 1))
    for key, (low, high) in bounds.items():
        value = getattr(joint, key)
        if type(value) is not int or not low <= value <= high:
            raise CalibrationError(f"{name}.{key} is {value!r}, allowed are whole numbers from {low} to {high}")
    if joint.range_min >= joint.range_max:
        raise CalibrationError(
            f"{name}: range_min {joint.range_min} is not below range_max {joint.range_max}; sweep the joint again"
        )


def nominal_calibration(offsets: Sequence[int] | None = None, arm: ArmTable = SO101_ARM) -> Calibration:
    """Return the calibration of an arm on which every servo reads the middle of a turn at its joint's zero.

    Args:
        offsets: homing offsets in the order of the joints, steps; by default 0.
        arm: the arm's table of joints.
    """
    contents = offsets if offsets is not None else [0] * len(arm.joints)
    return Calibration(
        {name: _nominal_joint(arm, name, offset) for name, offset in zip(arm.names, contents, strict=True)}, arm=arm
    )


def _nominal_joint(arm: ArmTable, name: str, offset: int, *, reversed_: bool | None = None) -> JointCalibration:
    row, steps = arm.joint(name), arm.family.steps
    is_reversed = row.reversed if reversed_ is None else reversed_
    low, high = 0, steps - 1
    if not row.whole_turn:
        ends = (-row.high, -row.low) if is_reversed else (row.low, row.high)
        low, high = (max(min(steps // 2 + round(end / row.step_rad), steps - 1), 0) for end in ends)
    return JointCalibration(row.id, int(is_reversed), offset, low, high)


def calibration_from_sweep(
    name: str, servo: int, first: int, last: int, tolerance_deg: float = 3.0, arm: ArmTable = SO101_ARM
) -> JointCalibration:
    """Return a joint's calibration from the encoder's readings at the two ends of its travel.

    Args:
        name: name of the joint.
        servo: id of its servo.
        first: the encoder at the joint's lower end, steps, without any homing offset and without wrapping, so that it
            may exceed a turn. It is above ``last`` if a positive angle decreases the steps.
        last: the encoder at the joint's upper end, likewise.
        tolerance_deg: largest difference of the travel from the model's, degrees.
        arm: the arm's table of joints.

    Raises:
        CalibrationError: the travel differs by more, so at least one end was not reached.
    """
    row = arm.joint(name)
    travel, model_travel = math.degrees(abs(last - first) * row.step_rad), math.degrees(row.high - row.low)
    if abs(travel - model_travel) > tolerance_deg:
        raise CalibrationError(
            f"{name}: the swept travel is {travel:.1f} degrees, the model's {model_travel:.1f}, allowed is a "
            f"difference of {tolerance_deg:g}; move the joint gently to both of its stops, and to nothing else"
        )
    sign = -1.0 if first > last else 1.0
    zero = (first + last) / 2 - sign * (row.low + row.high) / 2 / row.step_rad
    offset = arm.family.offset_for(zero, arm.family.steps // 2)
    return replace(_nominal_joint(arm, name, offset, reversed_=first > last), id=servo)


# -- Files -----------------------------------------------------------------------------------------------------------


def load_calibration(path: str | Path, arm: ArmTable = SO101_ARM) -> Calibration:
    """Return the calibration in a file, ours or LeRobot's (``calibration/robots/<type>/<id>.json``).

    Args:
        path: path of the file.
        arm: the table of joints of the calibrated arm.

    Raises:
        CalibrationError: the file is missing, is not JSON, or is not a calibration of such an arm.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise CalibrationError(f"{path}: has more than {_MOST_BYTES >> 20} MiB, which no calibration needs")
        plain = json.loads(text)
    except CalibrationError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise CalibrationError(f"{path}: {error}; make one with rlenv-robot robot calibrate") from error
    if not isinstance(plain, dict):
        raise CalibrationError(f"{path}: holds a {type(plain).__name__}, wanted is a table of joints")
    ours = plain.get("format") == FORMAT
    if ours and plain.get("robot") != arm.name:
        raise CalibrationError(f"{path}: is of a {plain.get('robot')!r}, wanted is the calibration of a {arm.name!r}")
    try:
        joints = {name: _joint(name, values) for name, values in (plain["joints"] if ours else plain).items()}
        return Calibration(joints, plain.get("servos", {}) if ours else None, arm)
    except CalibrationError as error:
        raise CalibrationError(f"{path}: {error}") from error
    except (KeyError, AttributeError) as error:
        raise CalibrationError(f"{path}: no table of joints: {error!r}") from error


def _joint(name: str, values: object) -> JointCalibration:
    keys = JointCalibration.__slots__
    if not isinstance(values, dict) or set(values) != set(keys):
        listed = sorted(values) if isinstance(values, dict) else values
        raise CalibrationError(f"{name} has {listed!r:.80}, wanted are the keys {', '.join(keys)}")
    return JointCalibration(**values)


def save_calibration(path: str | Path, calibration: Calibration, *, lerobot: bool = False) -> None:
    """Write a calibration atomically.

    Args:
        path: path of the file; its folder is made if it is missing.
        calibration: the calibration to write.
        lerobot: whether to write LeRobot's format, which keeps neither model nor firmware of the servos.
    """
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = calibration.to_lerobot() if lerobot else calibration.to_dict()
    with atomic_write(file) as part:
        part.write_text(json.dumps(plain, indent=4) + "\n", encoding="utf-8")


def portability_report(calibration: Calibration) -> list[str]:
    """Return a line for each joint with the angles that LeRobot's units mean on this arm.

    A policy that was trained in LeRobot's units moves an arm with another swept range to other poses.
    """
    lines = []
    for index, (name, joint) in enumerate(calibration.joints.items()):
        row = calibration.arm.joints[index]
        steps = np.array([[joint.range_min], [joint.range_max]]).repeat(len(calibration.joints), axis=1)
        low, high = np.sort(np.degrees(calibration.angles(steps)[:, index]))
        model = (-180.0, 180.0) if row.whole_turn else np.degrees((row.low, row.high))
        lines.append(
            f"{name}: LeRobot's full range is {low:.1f} to {high:.1f} degrees on this arm and {model[0]:.1f} to "
            f"{model[1]:.1f} on the model; its DEGREES d are {math.degrees(row.middle):+.1f} + d here"
        )
    return lines
