"""``sim2real contact`` fits recorded currents and writes the file that the driver takes; other runs are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import nominal_calibration
from hal.drivers.motion_watch import servo_stream
from hal.drivers.so101_arm import SO101_ARM
from hal.robot import Actuation, SampleSink
from hal.robots.so101 import HOME, SO101
from hal.wrapper import RobotWrapper
from rlenv_robot.cli.main import main
from rlenv_robot.tasks.free import Free
from sim.robot import SimRobot
from sim.robots.so101 import so101

GAINS = {"p": 16, "i": 0, "d": 32}


class Measuring(RobotWrapper):
    """A simulated arm that streams the currents of its position law, as the driver of a real one does."""

    streams = (servo_stream(SO101_ARM, 30.0),)
    spec = replace(SO101, actuation=Actuation.for_all(SO101.commands, GAINS))
    _sink: SampleSink | None = None

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        self._sink = sinks["servos"]

    def step(self, command: Mapping[str, np.ndarray]) -> Any:
        state = super().step(command)
        angle, speed = (state.sensors[f"joint_{what}"] for what in ("position", "velocity"))
        current = (8.9 * (command["joint_target"] - angle) - 0.549 * speed) / 1.2116
        if self._sink is not None:
            values = {
                "servo_position": angle,
                "servo_current": current,
                "servo_duty": current,
                "servo_volts": 0 * angle + 7.4,
            }
            self._sink.write({name: part.astype(np.float32) for name, part in values.items()}, state.stamp_ns)
        return state


def recorded(folder: Path, steps: int, robot: Any) -> Path:
    with rr.make(Free("so101", steps=steps), robot=robot, record=folder) as env:
        table = env.reset({"seed": 0})
        while not (table["terminated"] or table["truncated"]):
            number = table["frame_no"]
            sway = 0.25 * np.sin(number / 30 * np.array([2.0, 1.5, 2.5, 3.0, 2.2, 1.0])) - np.array(
                [0, 0, 0, 0, 0, -0.3]
            )
            goal = (np.array(HOME) + sway * min(number / 30, 1.0)).astype(np.float32)
            table, _ = env.step({"env_id": env.env_id, "frame_no": number, "action": {"joint_target": goal}})
            assert "error" not in table["extra_info"]
    (run,) = folder.glob("*")
    return run


def test_currents_become_the_file_of_a_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = recorded(tmp_path / "runs", 900, Measuring(SimRobot(so101()))), tmp_path / "arm.contact.json"
    code = main(["sim2real", "contact", str(run), "--payload", "0.05", "--output", str(file), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert (code, data["alarms"], data["judged_alarms"], data["file"]) == (0, 0, 0, str(file))
    assert data["threshold_nm"][5] is None
    BusArm("/dev/nowhere", nominal_calibration(), contact=file)
    with pytest.raises(ValueError, match="holds for gains"):
        BusArm("/dev/nowhere", nominal_calibration(), contact=file, p=32)
    assert main(["sim2real", "contact", str(tmp_path / "runs")]) == 0
    assert "contact from [N m]" in capsys.readouterr().out


def test_a_run_without_currents_is_refused_with_the_way_to_record_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded(tmp_path / "runs", 5, SimRobot(so101()))
    assert main(["sim2real", "contact", str(run)]) == 2
    assert "serve.record" in capsys.readouterr().err
    assert main(["sim2real", "contact", str(run), "--output", "arm.toml"]) == 2
