"""Steps, angles and files: radians mean the same on every arm, and LeRobot's files go in and out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal.drivers.calibration import (
    STEP_RAD,
    Calibration,
    CalibrationError,
    calibration_from_sweep,
    load_calibration,
    nominal_calibration,
    portability_report,
    save_calibration,
)
from hal.robots.so101 import HIGH, JOINTS, LOW
from hal.robots.so101_units import JointUnits

NOMINAL = nominal_calibration()


@given(st.lists(st.integers(0, 4095), min_size=6, max_size=6))
def test_steps_and_angles_round_trip(steps: list[int]) -> None:
    assert NOMINAL.steps(NOMINAL.angles(steps)).tolist() == steps


def test_zero_is_the_models_whatever_the_offset_of_the_range() -> None:
    moved = {name: replace(joint, range_min=joint.range_min + 31, range_max=joint.range_max + 31)
             for name, joint in NOMINAL.joints.items() if name != "wrist_roll"}  # fmt: skip
    calibration = Calibration({**NOMINAL.joints, **moved})
    shift = NOMINAL.angles([2048] * 6) - calibration.angles([2048] * 6)
    np.testing.assert_allclose(shift, np.array([31, 31, 31, 31, 0, 31]) * STEP_RAD, atol=1e-12)


def test_angles_agree_with_lerobots_units_where_the_sweep_was_the_models_range() -> None:
    steps = np.array([900, 1200, 1900, 2600, 3000, 2500])
    units = [joint.lerobot_percent(step) for joint, step in zip(NOMINAL.joints.values(), steps, strict=True)]
    units[5] = (units[5] + 100) / 2  # the gripper is 0 to 100
    np.testing.assert_allclose(NOMINAL.angles(steps), JointUnits("percent").to_radians(np.array(units)), atol=2e-3)
    np.testing.assert_allclose(JointUnits("percent").from_radians(NOMINAL.angles(steps)), units, atol=0.12)


def test_the_same_step_is_another_angle_in_lerobots_units_on_two_real_arms() -> None:
    # Ranges of two real arms: field notes, section 3: 87.5 and 80.1 degrees, 90.0 and 72.8 percent.
    one = replace(NOMINAL.joints["shoulder_pan"], range_min=900, range_max=3110)
    two = replace(NOMINAL.joints["shoulder_pan"], range_min=838, range_max=3340)
    assert [round(joint.lerobot_degrees(3000), 1) for joint in (one, two)] == [87.5, 80.1]
    assert [round(joint.lerobot_percent(3000), 1) for joint in (one, two)] == [90.0, 72.8]
    report = portability_report(Calibration({**NOMINAL.joints, "shoulder_pan": one}))
    assert "-97.1 to 97.1 degrees on this arm and -110.0 to 110.0" in report[0]
    assert "+45.0 + d" in report[5], "LeRobot's zero of the gripper is the middle of its range"


def test_a_reversed_joint_turns_the_other_way() -> None:
    reversed_pan = Calibration(
        {**NOMINAL.joints, "shoulder_pan": replace(NOMINAL.joints["shoulder_pan"], drive_mode=1)}
    )
    assert reversed_pan.angles([2100] * 6)[0] == pytest.approx(-NOMINAL.angles([2100] * 6)[0])
    assert reversed_pan.steps(reversed_pan.angles([2100] * 6))[0] == 2100


def test_what_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        NOMINAL.steps([0, 0, 0, 0, 0, math.nan])


def test_files_of_both_formats_round_trip(tmp_path: Path) -> None:
    calibration = Calibration(NOMINAL.joints, {"gripper": {"model": 777, "firmware": "3.10"}})
    save_calibration(tmp_path / "deep" / "arm.json", calibration)
    assert load_calibration(tmp_path / "deep" / "arm.json") == calibration
    save_calibration(tmp_path / "lerobot.json", calibration, lerobot=True)
    plain = json.loads((tmp_path / "lerobot.json").read_text())
    assert plain["gripper"].keys() == {"id", "drive_mode", "homing_offset", "range_min", "range_max"}
    assert load_calibration(tmp_path / "lerobot.json") == NOMINAL


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"gripper": None}, "gripper"),
        ({"gripper": {"id": 6}}, "keys"),
        ({"gripper": {"range_min": math.nan}}, "range_min"),
        ({"gripper": {"range_min": 3000.0}}, "whole numbers"),
        ({"gripper": {"range_min": 3500}}, "below range_max"),
        ({"gripper": {"homing_offset": 5000}}, "homing_offset"),
        ({"gripper": {"id": 1}}, "same servo id"),
        ({"thumb": {}}, "thumb"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_name(tmp_path: Path, change: dict, word: str) -> None:
    plain = NOMINAL.to_lerobot()
    for name, values in change.items():
        if values is None:
            del plain[name]
        elif "id" in values and len(values) == 1 and values["id"] == 6:
            plain[name] = values
        else:
            plain[name] = {**plain.get(name, {}), **values}
    (tmp_path / "arm.json").write_text(json.dumps(plain))
    with pytest.raises(CalibrationError, match=word) as refused:
        load_calibration(tmp_path / "arm.json")
    assert "arm.json" in str(refused.value)


def test_a_file_that_is_missing_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="rlenv-robot robot calibrate"):
        load_calibration(tmp_path / "none.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(CalibrationError, match="list"):
        load_calibration(tmp_path / "list.json")


@pytest.mark.parametrize("name", JOINTS)
@given(zero=st.integers(0, 4095))
def test_a_sweep_finds_every_hidden_zero(name: str, zero: int) -> None:
    index = JOINTS.index(name)
    low, high = (round(zero + bound / STEP_RAD) for bound in (LOW[index], HIGH[index]))
    joint = calibration_from_sweep(name, index + 1, low, high)
    present = (zero - joint.homing_offset) % 4096
    assert abs(present - 2048) <= 2, "0.2 degrees"


def test_a_sweep_that_missed_an_end_is_refused() -> None:
    with pytest.raises(CalibrationError, match="both of its stops"):
        calibration_from_sweep("elbow_flex", 3, 1000, 3000)


def test_repeated_sweeps_agree_within_half_a_degree(virtual_arm: Callable) -> None:
    from hal.drivers.fitness import UnfitArm

    random, bounds = np.random.default_rng(1), list(zip(LOW, HIGH, strict=True))
    for _ in range(20):
        zeros = random.integers(0, 4096, 6)
        found = []
        for _ in range(5):
            joints = {
                name: calibration_from_sweep(
                    name, index + 1,
                    *(round(zeros[index] + bound / STEP_RAD + random.uniform(-4, 4)) for bound in bounds[index]),
                )
                for index, name in enumerate(JOINTS)
            }  # fmt: skip
            offsets = np.array([joint.homing_offset for joint in joints.values()])
            found.append(np.degrees(Calibration(joints).angles((zeros - offsets) % 4096)))
        assert np.abs(found).max() < 0.5, "degrees from the true zero; the ends were off by 0.35"
    with pytest.raises(UnfitArm):
        virtual_arm(calibrated=False).driver().reset({})


def test_a_file_without_an_end_is_no_calibration() -> None:
    with pytest.raises(CalibrationError, match="more than 1 MiB"):
        load_calibration("/dev/zero")
