"""LeRobot's joint units for an SO-101: degrees, or percent of a calibrated range.

A number of LeRobot's means an angle by its unit and by the arm's calibration alone. Since version 0.4.4 LeRobot
records degrees unless told otherwise, before that percent of the range that the user swept with that arm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hal.robots.so101 import HIGH, JOINTS, LOW, TICKS_PER_TURN

__all__ = ["UNITS", "JointUnits", "SweptRange", "load_calibration"]

UNITS = ("degrees", "percent")
"""Units of the five arm joints. The gripper is recorded in percent, 0 (closed) to 100, under both."""

_RAD_PER_TICK = 2 * np.pi / TICKS_PER_TURN
_RAD_PER_DEGREE = (TICKS_PER_TURN - 1) / 360 * _RAD_PER_TICK
"""LeRobot counts 4095 ticks to a turn (``motors_bus.py``, ``_normalize``), the encoder has 4096."""

_FARTHEST_TICK = 3 * TICKS_PER_TURN


@dataclass(frozen=True, slots=True)
class SweptRange:
    """One joint's calibration in LeRobot's file.

    Attributes:
        low, high: ends of the range that the user swept, ticks after the homing offset.
        inverted: LeRobot's ``drive_mode`` 1: percent count from the other end. Degrees ignore it.
    """

    low: int
    high: int
    inverted: bool = False


def load_calibration(path: str | Path) -> dict[str, SweptRange]:
    """Read a calibration that LeRobot wrote for an SO-101: joint -> swept range.

    Raises:
        ValueError: the file can't be read, lacks a joint, or holds a range that no sweep gives.
    """
    path = Path(path)
    try:
        motors = json.loads(path.read_text(encoding="utf-8"))
        return {joint: _swept_range(motors[joint]) for joint in JOINTS}
    except KeyError as error:
        raise ValueError(
            f"{path} lacks {error}; a calibration of an SO-101 has {', '.join(JOINTS)}, "
            "each with range_min and range_max"
        ) from None
    except (OSError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no calibration that LeRobot wrote: {error}") from None


def _swept_range(motor: Mapping[str, object]) -> SweptRange:
    low, high, mode = motor["range_min"], motor["range_max"], motor.get("drive_mode", 0)
    if not (type(low) is int and type(high) is int and -_FARTHEST_TICK < low < high < _FARTHEST_TICK):
        raise ValueError(f"range_min {low!r} and range_max {high!r} are not two rising whole numbers of ticks")
    return SweptRange(low, high, bool(mode))


class JointUnits:
    """Convert between LeRobot's numbers and angles of the SO-101's model.

    The zero of the five arm joints is the middle of the swept range, which LeRobot's degrees count from and its users
    feed into the maker's model unchanged. A calibration that was swept to both stops therefore agrees with the model.
    Without a calibration, percent are of the model's range, and of a whole turn for ``wrist_roll``, which LeRobot does
    not sweep.

    Args:
        unit: one of `UNITS`.
        calibration: of the arm that recorded the numbers, by `load_calibration`.

    Attributes:
        assumed: what of the conversion is an assumption, one sentence each; empty where the numbers are known.

    Raises:
        ValueError: an unknown unit.
    """

    def __init__(self, unit: str, calibration: Mapping[str, SweptRange] | None = None) -> None:
        if unit not in UNITS:
            raise ValueError(f"joint units are {unit!r}, allowed are {' and '.join(UNITS)}")
        self.unit = unit
        scale, zero = np.empty(6), np.zeros(6)
        ranges = _model_ranges() if calibration is None else {
            joint: (swept.high - swept.low) * _RAD_PER_TICK for joint, swept in calibration.items()
        }  # fmt: skip
        for index, joint in enumerate(JOINTS):
            inverted = calibration is not None and calibration[joint].inverted
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

    def to_radians(self, values: np.ndarray) -> np.ndarray:
        """Convert LeRobot's numbers to angles, rad, shape (..., 6), float64."""
        return np.asarray(self._zero + np.asarray(values, np.float64) * self._scale)

    def from_radians(self, joint_position: np.ndarray) -> np.ndarray:
        """Convert angles, rad, to LeRobot's numbers, shape (..., 6), float64. Nothing is clipped."""
        return np.asarray((np.asarray(joint_position, np.float64) - self._zero) / self._scale)


def _model_ranges() -> dict[str, float]:
    ranges = {joint: high - low for joint, low, high in zip(JOINTS, LOW, HIGH, strict=True)}
    return ranges | {"wrist_roll": 2 * np.pi}
