"""``operate teleop`` and ``operate latency``: a leader on a virtual bus moves a served robot, and Ctrl-C holds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Thread, Timer
from typing import Any

import numpy as np
import pytest

from hal import RobotState
from hal.drivers.calibration import nominal_calibration, save_calibration
from hal.robots.so101 import SO101
from real import Server
from rlenv_arms.servo_terminal import ServoTerminal
from rlenv_operate.teleop.latency import devices
from rlenv_operate.teleop.session import TeleopSettings, leader_of_profile, teleoperate
from rlenv_operate.teleop.terminal import TeleopKeys
from rlenv_robot.cli.main import main
from rlenv_robot.rendering.show import find_episode
from sim.robots.so101 import REST
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine
from tests.fakes import until
from tests.rlenv_robot.tasks.test_free import LabArm

PROFILE = """
[robot]
kind = "so101"
driver = "feetech"
options = {{port = "{folder}/leader", calibration = "{folder}/leader.json", latency_s = 0.3}}
"""


class Follower:
    """An SO-101 that reaches each command exactly."""

    spec, simulated = SO101, True

    def __init__(self) -> None:
        self.goals: list[np.ndarray] = []
        self._at = np.array(SO101.home["joint_target"], np.float32)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return self._read()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self._at = np.array(command["joint_target"])
        self.goals.append(self._at)
        return self._read()

    def _read(self) -> RobotState:
        zeros = np.zeros(6, np.float32)
        sensors = {
            "joint_position": self._at, "joint_velocity": zeros, "joint_goal": self._at, "gripper_position": zeros[:3],
        }  # fmt: skip
        return RobotState(sensors, {"joint_target": self._at.copy()}, time.monotonic_ns())

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[ServoArm]:
    """A virtual arm in a person's hand at ``leader`` in the test's folder, with its profile ``leader.toml``."""
    servos = so101_servos()
    arm = ServoArm(servos)
    arm.hand = np.array(REST)
    save_calibration(tmp_path / "leader.json", nominal_calibration())
    (tmp_path / "leader.toml").write_text(PROFILE.format(folder=tmp_path))
    with ServoTerminal(ServoLine(servos, before_request=arm.advance), tmp_path / "leader", arm.advance):
        yield arm


@pytest.mark.slow
@pytest.mark.process
def test_a_leader_moves_a_served_arm_is_recorded_as_an_expert_and_ctrl_c_leaves_the_robot_holding(
    leader: ServoArm, tmp_path: Path
) -> None:
    robot = Follower()
    with Server(robot, watchdog_s=1.0) as server:
        command = [sys.executable, "-m", "rlenv_robot", "operate", "teleop", server.address, "--leader", "leader.toml"]
        command += ["--record", "runs", "--operator", "ann", "--engaged"]
        process = subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        said: list[str] = []
        reader = Thread(target=lambda: said.extend(iter(process.stdout.readline, "")))  # type: ignore[union-attr]
        reader.start()

        def press(key: str) -> None:
            assert process.stdin is not None
            print(key, file=process.stdin, flush=True)

        def moves(number: int, degrees: float) -> None:
            """Move the leader until the follower has followed; engage anew where a busy machine lost the leader."""
            until(lambda: any(line.startswith(f"episode {number}:") for line in said), 30)
            begin, seen = len(robot.goals), 0
            for _ in range(300):
                assert leader.hand is not None
                leader.hand = leader.hand + np.radians([np.sign(degrees) * 0.5, 0, 0, 0, 0, 0])
                lost = sum("engage again" in line for line in said)
                if lost > seen:
                    press(" ")
                seen = lost
                time.sleep(0.03)
                goals = robot.goals[begin:]
                if goals and abs(goals[-1][0] - goals[0][0]) > np.radians(abs(degrees)):
                    return
            raise AssertionError(f"the robot was not moved: {said}")

        try:
            moves(0, 8)
            press("+")
            moves(1, -8)
            assert server.lifecycle.state == "running"
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            until(lambda: server.lifecycle.state == "holding")
            count = len(robot.goals)
            time.sleep(0.3)
            assert all(np.array_equal(goal, robot.goals[count - 1]) for goal in robot.goals[count:])
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            reader.join(10)
            process.stdout.close()  # type: ignore[union-attr]
    assert {servo.drive for servo in leader.servos} == {"off"}
    strides = np.abs(np.diff(np.array(robot.goals), axis=0)).max()
    assert strides <= 2.0 * SO101.period_s + 1e-5
    infos = find_episode(tmp_path / "runs", -1)[0].episodes
    assert [(info["operator"], info["source"], info["expert"]) for info in infos] == [("ann", "expert", True)] * 2
    assert [info.get("verdict") for info in infos] == ["success", None]


def test_a_robot_that_has_only_a_driver_is_teleoperated_without_a_task(tmp_path: Path) -> None:
    source, keys = os.pipe()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "(within" in line:  # the time limit ended the episode
            os.write(keys, b"+\n")

    with os.fdopen(source, "r") as pipe, Server(LabArm(), address="tcp://127.0.0.1:*", paced_by_robot=True) as server:
        settings = TeleopSettings(where=server.address, engaged=True, steps=10, episodes=1, record=tmp_path / "runs")
        assert teleoperate(settings, TeleopKeys(pipe), say) == 1
    os.close(keys)
    info = find_episode(tmp_path / "runs", -1)[0].episodes[0]
    assert (info["task"], info["robot"], info["expert"]) == (LabArm.spec.name, LabArm.spec.name, True)
    assert info.get("verdict") == "success", (said, info)


def test_a_device_and_its_settings_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operate", "teleop", "sim"]) == 2
    assert "twin" in capsys.readouterr().err
    with pytest.raises(ValueError, match="one device"):
        TeleopSettings(leader="leader.toml", gamepad="any")
    for wrong in ({"velocity": 0.0}, {"episodes": 0}, {"absolute": True}):
        with pytest.raises(ValueError):  # noqa: PT011 - each names its setting
            TeleopSettings(**wrong)  # type: ignore[arg-type]
    (tmp_path / "no.toml").write_text('[robot]\nkind = "so101"\n')
    with pytest.raises(ValueError, match=r"robot\.driver"):
        leader_of_profile(tmp_path / "no.toml")
    (tmp_path / "other.toml").write_text('[robot]\nkind = "x"\ndriver = "tests.fakes:Everything"\n')
    with pytest.raises(ValueError, match="lead"):
        leader_of_profile(tmp_path / "other.toml")


@pytest.mark.slow
def test_a_gamepad_of_ones_own_and_the_robot_of_a_profile_are_measured(tmp_path: Path) -> None:
    (tmp_path / "arm.toml").write_text('[robot]\nkind = "so101"\nwhere = "sim"\n')
    os.mkfifo(tmp_path / "gamepad")
    person = devices._Events(str(tmp_path / "gamepad"))

    def hear(line: str) -> None:
        """Do what the person is asked for, a moment later."""
        if "shoulder" in line:
            person.press()
        else:
            direction = 1 if int(line.removeprefix("trial ").split(":")[0]) % 2 else -1
            Timer(0.05, person.change, [direction]).start()
            Timer(0.40, person.rest).start()

    settings = devices.LatencySettings(
        device="gamepad", robot=str(tmp_path / "arm.toml"), source=str(tmp_path / "gamepad"), trials=2
    )
    figures = devices.measure_latency(settings, hear)
    person.close()
    assert (figures["source"], figures["robot"]) == (settings.source, settings.robot)
    assert (figures["trials"], figures["lost"], figures["input_to_moved"]["n"]) == (2, 0, 2)
    assert 0 < figures["input_to_written"]["p50_ms"] < figures["input_to_moved"]["worst_ms"] < 5000


@pytest.mark.slow
def test_the_latency_of_a_gamepad_to_a_simulated_robot_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operate", "latency", "gamepad", "--robot", "sim", "--trials", "2", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["trials"], figures["lost"], figures["rate_hz"]) == (2, 0, 30.0)
    whole = figures["input_to_moved"]
    assert 0 < figures["input_to_written"]["p50_ms"] < whole["worst_ms"]
    assert whole["n"] == 2
    assert main(["operate", "latency", "page", "--source", "x"]) == 2
