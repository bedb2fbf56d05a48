"""The relation between a servo's steps and a joint's angle, and the files that keep it.

A calibration is the joint's range in steps, as LeRobot stores it. Zero and scale come from the model: the middle of
that range is the middle of the model's range, and a step is 2 pi / 4096 on every arm. So an angle in rad means the same
pose on every arm, where LeRobot's units depend on how far somebody swept the joint.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hal.drivers.sts3215 import STEPS
from hal.errors import RobotError
from hal.field import JsonDict
from hal.robots.so101 import HIGH, JOINTS, LOW
from hal.robots.so101_units import STEP_RAD, JointCalibration

__all__ = [
    "STEP_RAD", "Calibration", "CalibrationError", "JointCalibration", "calibration_from_sweep", "load_calibration",
    "nominal_calibration", "portability_report", "save_calibration",
]  # fmt: skip

FORMAT = "rlenv-robot calibration"
_MOST_BYTES = 1 << 20
_WHOLE_TURN = "wrist_roll"
"""The joint that LeRobot takes to have a whole turn, whatever its stops."""


class CalibrationError(RobotError, ValueError):
    """A calibration is incomplete, contradicts itself, or does not fit the robot."""


class Calibration:
    """The calibration of an SO-101.

    Args:
        joints: by name, one for each of `JOINTS`.
        servos: by joint, what the servos were when it was made: ``model`` and ``firmware``; empty where unknown.

    Raises:
        CalibrationError: a joint is missing or unknown, two share a servo, or a number is not possible.
    """

    def __init__(
        self, joints: Mapping[str, JointCalibration], servos: Mapping[str, Mapping[str, object]] | None = None
    ) -> None:
        unknown, missing = sorted(joints.keys() - set(JOINTS)), [name for name in JOINTS if name not in joints]
        if unknown or missing:
            raise CalibrationError(
                f"joints are missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}; "
                f"wanted are {', '.join(JOINTS)}"
            )
        for name, joint in joints.items():
            _check(name, joint)
        ids = [joint.id for joint in joints.values()]
        if len(set(ids)) < len(ids):
            raise CalibrationError(f"two joints have the same servo id, the ids are {ids}")
        self.joints = {name: joints[name] for name in JOINTS}
        self.servos = {name: dict(facts) for name, facts in (servos or {}).items()}
        self._sign = np.array([-1.0 if joint.drive_mode else 1.0 for joint in self.joints.values()])
        middles = [(joint.range_min + joint.range_max) / 2 for joint in self.joints.values()]
        self._zero = np.array(middles) - self._sign * np.array([_middle(name) for name in JOINTS]) / STEP_RAD

    @property
    def ids(self) -> tuple[int, ...]:
        """The servos' ids in the order of the joints."""
        return tuple(joint.id for joint in self.joints.values())

    def angles(self, steps: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return joint angles, rad, for positions in steps, shape (..., 6)."""
        return np.asarray((np.asarray(steps, np.float64) - self._zero) * self._sign * STEP_RAD)

    def steps(self, angles: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return positions in whole steps for joint angles, rad, shape (..., 6).

        Raises:
            ValueError: an angle is not a finite number.
        """
        values = np.asarray(angles, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"an angle is not a finite number: {values.tolist()}")
        return np.asarray(np.rint(values * self._sign / STEP_RAD + self._zero), np.int64)

    def misfits(self, tolerance_deg: float = 3.0) -> list[str]:
        """Return a line for each joint whose swept travel differs from the model's by more than allowed."""
        lines = []
        for index, (name, joint) in enumerate(self.joints.items()):
            wanted = math.degrees(HIGH[index] - LOW[index])
            difference = joint.travel_deg - wanted
            if name != _WHOLE_TURN and abs(difference) > tolerance_deg:
                lines.append(
                    f"{name}: the swept travel is {joint.travel_deg:.1f} degrees, the model's {wanted:.1f}; the zero "
                    f"may be wrong by {abs(difference) / 2:.1f} degrees. Sweep it again: rlenv-robot calibrate"
                )
        return lines

    def to_lerobot(self) -> JsonDict:
        """Return the contents of LeRobot's calibration file."""
        return {name: asdict(joint) for name, joint in self.joints.items()}

    def to_dict(self) -> JsonDict:
        """Return plain data, as `save_calibration` writes it."""
        return {"format": FORMAT, "version": 1, "robot": "so101", "joints": self.to_lerobot(), "servos": self.servos}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Calibration) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


def _middle(name: str) -> float:
    """Return the angle at the middle of a calibrated range, rad."""
    index = JOINTS.index(name)
    return 0.0 if name == _WHOLE_TURN else (LOW[index] + HIGH[index]) / 2


def _check(name: str, joint: JointCalibration) -> None:
    bounds = {"id": (0, 253), "drive_mode": (0, 1), "homing_offset": (-4095, 4095)}
    bounds |= dict.fromkeys(("range_min", "range_max"), (0, STEPS - 1))
    for key, (low, high) in bounds.items():
        value = getattr(joint, key)
        if type(value) is not int or not low <= value <= high:
            raise CalibrationError(f"{name}.{key} is {value!r}, allowed are whole numbers from {low} to {high}")
    if joint.range_min >= joint.range_max:
        raise CalibrationError(
            f"{name}: range_min {joint.range_min} is not below range_max {joint.range_max}; sweep the joint again"
        )


def nominal_calibration(offsets: Sequence[int] = (0,) * 6) -> Calibration:
    """Return the calibration of an arm that reads 2048 at every zero, with these homing offsets."""
    joints = {}
    for index, name in enumerate(JOINTS):
        low, high = 0, STEPS - 1
        if name != _WHOLE_TURN:
            low, high = (STEPS // 2 + round(bound / STEP_RAD) for bound in (LOW[index], HIGH[index]))
        joints[name] = JointCalibration(index + 1, 0, offsets[index], low, high)
    return Calibration(joints)


def calibration_from_sweep(
    name: str, servo: int, lowest: int, highest: int, tolerance_deg: float = 3.0
) -> JointCalibration:
    """Return a joint's calibration from the encoder's readings at the two ends of its travel.

    Args:
        name: of the joint.
        servo: its id.
        lowest, highest: the encoder without any homing offset, counted on over a wrap: ``highest`` may exceed 4095.
        tolerance_deg: most difference of the travel from the model's.

    Raises:
        CalibrationError: the travel differs by more, so that at least one end was not reached.
    """
    index = JOINTS.index(name)
    travel, wanted = math.degrees((highest - lowest) * STEP_RAD), math.degrees(HIGH[index] - LOW[index])
    if abs(travel - wanted) > tolerance_deg:
        raise CalibrationError(
            f"{name}: the swept travel is {travel:.1f} degrees, the model's {wanted:.1f}, allowed is a difference of "
            f"{tolerance_deg:g}; move the joint gently to both of its stops, and to nothing else"
        )
    middle_rad = (LOW[index] + HIGH[index]) / 2
    zero = (lowest + highest) / 2 - middle_rad / STEP_RAD
    offset = round(zero) % STEPS - STEPS // 2
    nominal = nominal_calibration().joints[name]
    return JointCalibration(servo, 0, max(min(offset, 2047), -2047), nominal.range_min, nominal.range_max)


# -- Files -----------------------------------------------------------------------------------------------------------


def load_calibration(path: str | Path) -> Calibration:
    """Return the calibration in a file, ours or LeRobot's (``calibration/robots/<type>/<id>.json``).

    Raises:
        CalibrationError: the file is missing, is no JSON, or holds no calibration of an SO-101.
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
        raise CalibrationError(f"{path}: {error}; make one with rlenv-robot calibrate") from error
    if not isinstance(plain, dict):
        raise CalibrationError(f"{path}: holds a {type(plain).__name__}, wanted is a table of joints")
    ours = plain.get("format") == FORMAT
    try:
        joints = {name: _joint(name, values) for name, values in (plain["joints"] if ours else plain).items()}
        return Calibration(joints, plain.get("servos", {}) if ours else None)
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
    """Write a calibration, whole or not at all.

    Args:
        path: of the file; its folder is made if need be.
        calibration: what to write.
        lerobot: whether to write LeRobot's format, which keeps neither model nor firmware of the servos.
    """
    file = Path(path).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = calibration.to_lerobot() if lerobot else calibration.to_dict()
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(json.dumps(plain, indent=4) + "\n", encoding="utf-8")
    os.replace(beside, file)


def portability_report(calibration: Calibration) -> list[str]:
    """Return a line for each joint: the angles that LeRobot's units mean on this arm.

    A policy that was trained in LeRobot's units moves an arm with another swept range elsewhere.
    """
    lines = []
    for index, (name, joint) in enumerate(calibration.joints.items()):
        steps = np.array([[joint.range_min] * 6, [joint.range_max] * 6])
        low, high = np.sort(np.degrees(calibration.angles(steps)[:, index]))
        model = (-180.0, 180.0) if name == _WHOLE_TURN else np.degrees((LOW[index], HIGH[index]))
        lines.append(
            f"{name}: LeRobot's full range is {low:.1f} to {high:.1f} degrees on this arm and {model[0]:.1f} to "
            f"{model[1]:.1f} on the model; its DEGREES d are {math.degrees(_middle(name)):+.1f} + d here"
        )
    return lines
