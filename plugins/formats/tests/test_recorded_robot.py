"""Tests of `rlenv_formats.recorded_robot`: columns of another program as sensors and commands of a known robot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from hal.robots.so101 import SO101, forward_kinematics, sensors_from_joints
from rlenv_formats.recorded_robot import RecordedRobot

JOINTS, GOALS = [f"q{n}" for n in range(6)], [f"u{n}" for n in range(6)]
NAMES = {"observation.joint_position": JOINTS, "action.joint_target": GOALS, "time": "t", "episode": "trial"}


def table(path: Path, scale: float = 1.0, rate_hz: float = 20.0) -> tuple[np.ndarray, np.ndarray]:
    """Write six episodes of ten rows, and return the joints and the goals of the first."""
    random = np.random.default_rng(5)
    joints, goals = random.uniform(0.0, 0.5, (2, 6, 10, 6)) * scale
    lines = [",".join(["trial", "t", *JOINTS, *GOALS])]
    for trial in range(6):
        for row in range(10):
            lines.append(
                ",".join(map(repr, [trial, row / rate_hz, *joints[trial, row].tolist(), *goals[trial, row].tolist()]))
            )
    path.write_text("\n".join(lines))
    return joints[0], goals[0]


def test_a_task_rewards_what_another_program_recorded(tmp_path: Path) -> None:
    joints, goals = table(tmp_path / "arm.csv")
    source = rr.open_source(tmp_path / "arm.csv", "so101-reach", goal="hindsight", columns=NAMES, robot="so101")
    assert source.table.layout.sensors == SO101.sensors
    rows = source.table.rows[:9]
    np.testing.assert_allclose(rows["sensor_joint_position"], joints[:9], rtol=1e-6)
    np.testing.assert_allclose(rows["sensor_joint_velocity"][1:], np.diff(joints[:9], axis=0) * 20, rtol=1e-5)
    np.testing.assert_allclose(rows["sensor_gripper_position"], forward_kinematics(joints[:9]), atol=1e-6)
    np.testing.assert_allclose(rows["applied_joint_target"][1:], goals[:8], rtol=1e-6)
    assert np.isfinite(rows["reward"][1:]).all()


def test_degrees_are_refused_where_radians_are_declared(tmp_path: Path) -> None:
    table(tmp_path / "arm.csv", scale=180 / np.pi)
    with pytest.raises(SourceError, match="another unit") as caught:
        rr.open_source(tmp_path / "arm.csv", columns=NAMES, robot="so101")
    assert "rad" in str(caught.value)


def test_without_a_robot_nothing_is_assumed(tmp_path: Path) -> None:
    table(tmp_path / "arm.csv")
    source = rr.open_source(tmp_path / "arm.csv", columns=NAMES)
    assert source.table.layout.observation["joint_position"].unit == "1"
    assert not len(source.table.layout.sensors)


def test_an_unknown_robot_and_a_format_with_fields_of_its_own_are_refused(tmp_path: Path) -> None:
    table(tmp_path / "arm.csv")
    with pytest.raises(ValueError, match="so101"):
        rr.open_source(tmp_path / "arm.csv", columns=NAMES, robot="so102")


def test_sensors_that_can_not_be_computed_are_left_out() -> None:
    robot = RecordedRobot(SO101, sensors_from_joints)
    goals, stamps = {"joint_target": np.zeros((4, 6))}, np.arange(5) * 10**8
    assert robot.measured({"elsewhere": np.zeros((5, 6))}, goals, stamps) is None
    assert robot.measured({"joint_position": np.zeros((5, 6))}, {"other": np.zeros((4, 6))}, stamps) is None
    assert RecordedRobot(SO101).measured({"joint_position": np.zeros((5, 6))}, goals, stamps) is None
    found = robot.measured({"joint_position": np.zeros((5, 6))}, goals, stamps)
    assert found is not None
    assert set(found) == {f"sensor_{name}" for name in SO101.sensors.names} | {"applied_joint_target"}
