"""LeRobot's units against LeRobot's own formulas (``motors_bus.py``, ``_normalize`` and ``_unnormalize`` of 0.4.4)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hal.drivers.calibration import load_calibration
from hal.robots.so101 import HIGH, JOINTS, LOW
from hal.robots.so101_units import UNITS, JointCalibration, JointUnits


def swept(joint: str, low: int, high: int, inverted: bool = False, offset: int = 0) -> JointCalibration:
    return JointCalibration(JOINTS.index(joint) + 1, int(inverted), offset, low, high)


# Plausible sweeps, ticks; the elbow's of the first two are of two real arms. wrist_roll is never swept.
CALIBRATIONS = [
    dict(zip(JOINTS, map(swept, JOINTS, low, high), strict=True))
    for low, high in (
        ((743, 822, 900, 838, 0, 2031), (3447, 3213, 3110, 3180, 4095, 3505)),
        ((760, 838, 838, 870, 0, 1993), (3420, 3210, 3340, 3208, 4095, 3466)),
        ((813, 758, 890, 841, 0, 1370), (3300, 3160, 3101, 3192, 4095, 2860)),
    )
]
RAD_PER_TICK = 2 * np.pi / 4096


def lerobot(ticks: np.ndarray, unit: str, ranges: dict[str, JointCalibration]) -> np.ndarray:
    """LeRobot's numbers for raw positions, by its own formulas."""
    numbers = []
    for joint, tick in zip(JOINTS, ticks, strict=True):
        low, high, inverted = ranges[joint].range_min, ranges[joint].range_max, ranges[joint].drive_mode
        if joint == "gripper":
            value = (tick - low) / (high - low) * 100
            numbers.append(100 - value if inverted else value)
        elif unit == "percent":
            value = (tick - low) / (high - low) * 200 - 100
            numbers.append(-value if inverted else value)
        else:
            numbers.append((tick - (low + high) / 2) * 360 / 4095)
    return np.array(numbers)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("ranges", CALIBRATIONS)
@pytest.mark.parametrize("inverted", [False, True])
@given(share=hnp.arrays(float, 6, elements=st.floats(0, 1)))
def test_the_angle_is_the_turn_from_the_middle_of_the_swept_range(
    unit: str, ranges: dict[str, JointCalibration], inverted: bool, share: np.ndarray
) -> None:
    ranges = {joint: replace(motor, drive_mode=int(inverted)) for joint, motor in ranges.items()}
    low, high = (np.array([getattr(ranges[joint], end) for joint in JOINTS]) for end in ("range_min", "range_max"))
    ticks = low + share * (high - low)
    units = JointUnits(unit, ranges)
    angles = units.to_radians(lerobot(ticks, unit, ranges))
    zero = (low + high) / 2
    np.testing.assert_allclose(angles[:5], ((ticks - zero) * RAD_PER_TICK)[:5], atol=1e-9)
    assert angles[5] == pytest.approx(LOW[5] + (ticks[5] - low[5]) * RAD_PER_TICK)
    np.testing.assert_allclose(units.from_radians(angles), lerobot(ticks, unit, ranges), atol=1e-9)
    assert units.assumed == ()


def test_the_same_tick_means_other_numbers_on_two_real_arms() -> None:
    """Tick 3000 of the elbow: 87.5 and 80.1 degrees, 90.0 and 72.8 percent, and one angle from its own middle."""
    ticks = np.full(6, 3000.0)
    found = [
        lerobot(ticks, unit, {**CALIBRATIONS[0], "elbow_flex": motor})[2]
        for unit in UNITS
        for motor in (swept("elbow_flex", 900, 3110), swept("elbow_flex", 838, 3340))
    ]
    assert np.round(found, 1).tolist() == [87.5, 80.1, 90.0, 72.8]


def test_without_a_calibration_percent_are_of_the_models_range_and_it_is_said() -> None:
    units = JointUnits("percent")
    low, high = np.array(LOW), np.array(HIGH)
    low[4], high[4] = -np.pi, np.pi  # LeRobot gives wrist_roll the whole range of its encoder
    np.testing.assert_allclose(units.to_radians(np.array([-100.0] * 5 + [0.0])), low)
    np.testing.assert_allclose(units.to_radians(np.full(6, 100.0)), high)
    assert "model's range" in units.assumed[0]
    assert "gripper" in JointUnits("degrees").assumed[0]
    degrees = JointUnits("degrees").to_radians(np.array([90.0, -45, 0, 10, 180, 50]))
    np.testing.assert_allclose(np.degrees(degrees[:5]), [90, -45, 0, 10, 180], atol=0.05)


def test_unknown_units_are_refused() -> None:
    with pytest.raises(ValueError, match="'radians', allowed are degrees and percent"):
        JointUnits("radians")


def calibration(**changes: object) -> dict[str, dict[str, object]]:
    motors: dict[str, dict[str, object]] = {
        joint: {"id": index + 1, "drive_mode": 0, "homing_offset": 12, "range_min": 800, "range_max": 3200}
        for index, joint in enumerate(JOINTS)
    }
    motors["elbow_flex"].update(changes)
    return motors


def test_a_calibration_that_lerobot_wrote_is_read(tmp_path: Path) -> None:
    file = tmp_path / "arm.json"
    file.write_text(json.dumps(calibration(range_min=900, range_max=3110, drive_mode=1)))
    ranges = load_calibration(file).joints
    assert ranges["elbow_flex"] == swept("elbow_flex", 900, 3110, True, offset=12)
    assert list(ranges) == list(JOINTS)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "{}", "[" * 5000,
        json.dumps(calibration(range_min=3200)),
        json.dumps(calibration(range_max=float("nan"))),
        json.dumps(calibration(range_max=1e9)),
        json.dumps(calibration(range_max="3000")),
        json.dumps({**calibration(), "gripper": None}),
    ],
)  # fmt: skip
def test_a_damaged_calibration_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "arm.json"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"arm\.json"):
        load_calibration(file)
    with pytest.raises(ValueError, match=r"none\.json"):
        load_calibration(tmp_path / "none.json")
