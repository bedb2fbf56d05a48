"""Convert LeRobot's data of an SO-101 to the robot's sensors and commands in SI units, which tasks need for rewards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hal import SourceError
from hal.drivers.calibration import load_calibration
from hal.robots.so101 import JOINTS, SO101, sensors_from_joints
from hal.robots.so101_units import JointUnits
from rlenv_formats.foreign import inside
from rlenv_formats.lerobot.features import Features

__all__ = [
    "COMMANDS", "DECLARATION", "SENSORS", "declare_units", "declared_units", "fill", "in_range", "joint_units",
    "why_not",
]  # fmt: skip

KINDS = ("so101", "so101_follower", "so100", "so100_follower", "so_follower")
ELEMENTS = tuple(f"{joint}.pos" for joint in JOINTS)
SENSORS, COMMANDS = SO101.sensors, SO101.commands
MARGIN = 10.0
"""Largest distance of a measured joint from the range -100 to 100 percent; beyond it the unit can't be percent."""

DECLARATION = Path("meta") / "rlenv_robot.json"
"""File in a data set that declares its units; LeRobot ignores it."""


def why_not(robot_type: str, features: Features) -> str | None:
    """Return None if the columns are an SO-101's joints, otherwise the reason; "" if the robot is of another type."""
    if robot_type not in KINDS:
        return ""
    for part, name in ((features.observation, "state"), (features.action, "target")):
        fields = [feature.field for feature in part if feature.field.name == name]
        if len(fields) != 1 or fields[0].elements != ELEMENTS:
            return f"{part[0].column if part else name} is not named {', '.join(ELEMENTS)}"
    return None


def joint_units(unit: str, calibration: str | Path | None) -> JointUnits:
    """Return the conversion for a unit and the recording arm's calibration file, if any.

    Raises:
        ValueError: the unit is unknown, or the calibration can't be read.
    """
    return JointUnits(unit, None if calibration is None else load_calibration(calibration).joints)


def declared_units(root: Path) -> JointUnits | None:
    """Return the units that a data set declares in `DECLARATION`, or None if it declares none.

    Raises:
        SourceError: the declaration or its calibration can't be read.
    """
    file = root / DECLARATION
    if not file.is_file():
        return None
    try:
        declared = json.loads(file.read_text(encoding="utf-8"))
        calibration = declared.get("calibration")
        place = None if calibration is None else inside(file.parent, calibration, str(file))
        return joint_units(declared["joint_units"], place)
    except (OSError, KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise SourceError(
            f'{file}: {error!r:.200}; expected {{"joint_units": "degrees" or "percent"}} and, where known, '
            '"calibration": the name of a file beside it'
        ) from error


def declare_units(root: Path, unit: str, calibration: Path | None) -> JointUnits:
    """Write a data set's units into it, with a copy of the calibration.

    Raises:
        ValueError: the unit is unknown, or the calibration can't be read.
        OSError: the folder can't be written.
    """
    units = joint_units(unit, calibration)
    declared = {"joint_units": unit}
    if calibration is not None:
        declared["calibration"] = "calibration.json"
        (root / "meta" / "calibration.json").write_bytes(calibration.read_bytes())
    (root / DECLARATION).write_text(json.dumps(declared, indent=1) + "\n", encoding="utf-8")
    return units


def in_range(units: JointUnits, *values: np.ndarray) -> bool:
    """Return whether values are plausible: within the range of their unit (percent or degrees), widened by `MARGIN`."""
    arm = 360.0 if units.unit == "degrees" else 100.0
    low, high = np.array([-arm] * 5 + [0.0]) - MARGIN, np.array([arm] * 5 + [100.0]) + MARGIN
    return all(bool(((value >= low) & (value <= high)).all()) for value in values)


def fill(rows: np.ndarray, state: np.ndarray, target: np.ndarray, units: JointUnits) -> None:
    """Set the sensors and applied commands in the rows of one episode (`hal.robots.so101.sensors_from_joints`).

    Args:
        rows: shape (T,), with ``stamp_ns`` filled.
        state: measured positions in LeRobot's units, shape (T, 6).
        target: the goals that led to rows 1 to T - 1, in LeRobot's units, shape (T - 1, 6).
        units: units of ``state`` and ``target``.
    """
    observed, commands = {"joint_position": units.to_radians(state)}, {"joint_target": units.to_radians(target)}
    sensors = sensors_from_joints(observed, commands, rows["stamp_ns"])
    for name, value in sensors.items():
        rows[f"sensor_{name}"] = value
    rows["applied_joint_target"] = sensors["joint_goal"]
