"""Convert LeRobot's joint units for an SO-101: degrees, or percent of a calibrated range.

The angle that a LeRobot number stands for depends only on its unit and on the arm's calibration. By default LeRobot
records degrees since version 0.4.4, and before that percent of the range that the user swept with that arm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hal.robots.so101 import HIGH, JOINTS, LOW, TICKS_PER_TURN

__all__ = ["STEP_RAD", "UNITS", "JointCalibration", "JointUnits"]

UNITS = ("degrees", "percent")
"""Units of the five arm joints. The gripper is recorded in percent, 0 (closed) to 100, under both."""

STEP_RAD = 2 * math.pi / TICKS_PER_TURN
"""Angle of one step of the encoder, rad."""

_RAD_PER_DEGREE = (TICKS_PER_TURN - 1) / 360 * STEP_RAD
"""LeRobot counts 4095 ticks to a turn (``motors_bus.py``, ``_normalize``), the encoder has 4096."""


@dataclass(frozen=True, slots=True)
class JointCalibration:
    """The calibration of one joint, with the keys of LeRobot's files.

    Attributes:
        id: id of the servo.
        drive_mode: 1 if a positive angle decreases the steps, else 0.
        homing_offset: content of register 31, steps: present position = encoder - offset.
        range_min: present position at the lower end of the joint's travel, steps; register 9.
        range_max: present position at the upper end, steps; register 11.
    """

    id: int
    drive_mode: int
    homing_offset: int
    range_min: int
    range_max: int

    @property
    def travel_rad(self) -> float:
        """The swept range, rad."""
        return (self.range_max - self.range_min) * STEP_RAD

    @property
    def travel_deg(self) -> float:
        """The swept range, degrees."""
        return math.degrees(self.travel_rad)

    def lerobot_degrees(self, steps: float) -> float:
        """Return a position in LeRobot's mode DEGREES: degrees from the middle of the swept range."""
        return (steps - (self.range_min + self.range_max) / 2) * 360 / (TICKS_PER_TURN - 1)

    def lerobot_percent(self, steps: float) -> float:
        """Return a position in LeRobot's mode RANGE_M100_100, percent, without its clamping."""
        percent = (steps - self.range_min) / (self.range_max - self.range_min) * 200 - 100
        return -percent if self.drive_mode else percent


class JointUnits:
    """Convert between LeRobot's numbers and angles of the SO-101's model.

    The zero of the five arm joints is the middle of the swept range, which LeRobot's degrees count from and its users
    feed into the maker's model unchanged. A calibration that was swept to both stops therefore agrees with the model.
    Without a calibration, percent are of the model's range, and of a whole turn for ``wrist_roll``, which LeRobot does
    not sweep.

    Args:
        unit: one of `UNITS`.
        calibration: the calibration of the arm that recorded the numbers, by joint, such as the ``joints`` of
            `hal.drivers.calibration.load_calibration`.

    Attributes:
        assumed: the assumptions of the conversion, one sentence each; empty with a calibration.

    Raises:
        ValueError: the unit is unknown.
    """

    def __init__(self, unit: str, calibration: Mapping[str, JointCalibration] | None = None) -> None:
        if unit not in UNITS:
            raise ValueError(f"joint units are {unit!r}, allowed are {' and '.join(UNITS)}")
        self.unit = unit
        scale, zero = np.empty(6), np.zeros(6)
        ranges = _model_ranges() if calibration is None else {
            joint: swept.travel_rad for joint, swept in calibration.items()
        }  # fmt: skip
        for index, joint in enumerate(JOINTS):
            inverted = calibration is not None and bool(calibration[joint].drive_mode)
            if joint == "gripper":
                scale[index], zero[index] = ranges[joint] / 100, LOW[index]
                if inverted:
                    scale[index], zero[index] = -scale[index], LOW[index] + ranges[joint]
            elif unit == "degrees":
                scale[index] = _RAD_PER_DEGREE
            else:
                scale[index] = (-1 if inverted else 1) * ranges[joint] / 200
                zero[index] = (
                    0.0 if calibration is not None or joint == "wrist_roll" else (LOW[index] + HIGH[index]) / 2
                )
        self._scale, self._zero = scale, zero
        self.assumed: tuple[str, ...] = ()
        if calibration is None:
            parts = "gripper's percent are" if unit == "degrees" else "joints' percent are"
            self.assumed = (f"the {parts} taken to be of the model's range, since no calibration was given",)

    def to_dict(self) -> dict[str, object]:
        """Return JSON data: the unit, and for each joint ``scale`` and ``zero``, where rad = zero + scale * number."""
        return {"unit": self.unit, "scale": self._scale.tolist(), "zero": self._zero.tolist()}

    def to_radians(self, values: np.ndarray) -> np.ndarray:
        """Convert LeRobot's numbers to angles, rad, shape (..., 6), float64."""
        return np.asarray(self._zero + np.asarray(values, np.float64) * self._scale)

    def from_radians(self, joint_position: np.ndarray) -> np.ndarray:
        """Convert angles, rad, to LeRobot's numbers, shape (..., 6), float64. Nothing is clipped."""
        return np.asarray((np.asarray(joint_position, np.float64) - self._zero) / self._scale)


def _model_ranges() -> dict[str, float]:
    ranges = {joint: high - low for joint, low, high in zip(JOINTS, LOW, HIGH, strict=True)}
    return ranges | {"wrist_roll": 2 * np.pi}
