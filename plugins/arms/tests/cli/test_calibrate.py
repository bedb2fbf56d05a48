"""``rlenv-robot robot calibrate`` at a virtual arm behind a serial port."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hal.drivers.calibration import (
    STEP_RAD,
    CalibrationError,
    load_calibration,
    nominal_calibration,
    save_calibration,
)
from hal.drivers.so101_arm import SO101_ARM
from hal.robots.so101 import HIGH, JOINTS, LOW
from rlenv_arms.motor_sweep import sweep_plan
from rlenv_robot.cli.main import main
from sim.servo_bus.arm import ServoArm


@pytest.mark.process
def test_the_command_serves_an_arm_plants_faults_and_writes_its_calibration(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rlenv_robot", "robot", "twin", "so101", "--bus", "--seed", "3"]
    command += ["--link", str(tmp_path / "arm"), "--calibration", str(tmp_path / "arm.json")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert str(tmp_path / "arm") in process.stdout.readline()
        assert main(["robot", "ports", str(tmp_path / "arm"), "--highest", "6"]) == 0
        assert (
            main(["robot", "calibrate", str(tmp_path / "arm.json"), "--verify", "--port", str(tmp_path / "arm")]) == 0
        )
        print("hang 3", file=process.stdin, flush=True)
        assert process.stdout.readline() == "done: hang 3\n"
        assert (
            main(["robot", "calibrate", str(tmp_path / "arm.json"), "--verify", "--port", str(tmp_path / "arm")]) == 1
        )
        print("unplug", file=process.stdin, flush=True)
        assert process.stdout.readline() == "done: unplug\n"
        assert main(["robot", "ports", str(tmp_path / "arm")]) == 2
    finally:
        process.terminate()
        assert process.wait(30) == 0
        process.stdin.close()
        process.stdout.close()


def test_an_arm_that_calibrates_itself_goes_on_where_it_was(
    arm: ServoArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, ended = [], []

    class Sweep:
        eeprom_writes = 3

        def __init__(self, *_: object, **options: object) -> None:
            self.begin = lambda: None

        def sweep(self, name: str) -> tuple[int, int]:
            asked.append(name)
            if len(asked) == 3:
                raise CalibrationError(f"{name}: no end was found")
            index = JOINTS.index(name)
            return tuple(2048 + 5 + round(bound / STEP_RAD) for bound in (LOW[index], HIGH[index]))

        def fold(self) -> bool:
            return True

        def end(self) -> bool:
            ended.append(len(asked))
            return True

    monkeypatch.setattr("rlenv_arms.motor_sweep.MotorSweep", Sweep)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n\n"))
    arm.hand = np.zeros(6)
    arm.data.qpos[arm._qpos] = 0.0
    command = ["robot", "calibrate", str(tmp_path / "swept.json"), "--motor", "--port", str(tmp_path / "arm")]
    assert main(command) == 2
    assert ended == [3], "it was let down"
    assert main(command) == 0
    order = sweep_plan(SO101_ARM).order
    assert asked == [*order[:3], *order[2:]]
    assert "going on after gripper, wrist_roll" in capsys.readouterr().out
    assert {joint.homing_offset for joint in load_calibration(tmp_path / "swept.json").joints.values()} == {5}
    assert {servo.get("homing_offset") for servo in arm.servos} == {5}


def test_calibrations_are_converted_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_calibration(tmp_path / "lerobot.json", nominal_calibration(), lerobot=True)
    ours, back = tmp_path / "ours.json", tmp_path / "back.json"
    assert main(["robot", "calibrate", str(ours), "--from-lerobot", str(tmp_path / "lerobot.json")]) == 0
    assert main(["robot", "calibrate", str(ours), "--to-lerobot", str(back)]) == 0
    assert json.loads(back.read_text()) == json.loads((tmp_path / "lerobot.json").read_text())
    assert main(["robot", "calibrate", str(ours), "--report"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in JOINTS)
    plain = json.loads(back.read_text())
    plain["shoulder_pan"] |= {"range_min": 900, "range_max": 3110}
    back.write_text(json.dumps(plain))
    assert main(["robot", "calibrate", str(back), "--report"]) == 1
    assert load_calibration(back).joints["shoulder_pan"].range_min == 900
    assert main(["robot", "calibrate", str(ours)]) == 2, "no port was given"
