"""``robot twin``, ``robot calibrate`` and ``robot ports``: a virtual arm as a process, and the chain to its physics."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

import rlenv_robot as rr
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import (
    nominal_calibration,
)
from hal.errors import ConnectionLost, RobotStopped
from hal.robots.so101 import SO101
from rlenv_arms.cli.twin import obey
from rlenv_arms.servo_terminal import ServoTerminal
from rlenv_robot.config.profile import load_profile
from rlenv_robot.robot_models import make_driver
from rlenv_robot.serving import build_robot, serve
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine

PROFILE = """
[robot]
kind = "so101"
driver = "feetech"
options = {{port = "{folder}/arm", calibration = "{folder}/arm.json", latency_s = 0.3}}

[reset]
signal = "automatic"

[serve]
address = "tcp://127.0.0.1:*"
lower_s = 1.0
"""


@pytest.fixture(autouse=True)
def profile(tmp_path: Path) -> None:
    """Write a profile of the virtual arm into the test's folder."""
    (tmp_path / "robot.toml").write_text(PROFILE.format(folder=tmp_path))


def served(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start ``rlenv-robot serve`` in a process of its own; return it and its address."""
    command = [sys.executable, "-m", "rlenv_robot", "serve", str(folder / "robot.toml")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("serving"):
            return process, line.split()[-1]
    raise AssertionError("it did not serve")


def swing(env: rr.Environment, obs: rr.tables.Observation, steps: int) -> None:
    target = obs["observation"]["joint_goal"].copy()
    for _ in range(steps):
        target[0] = min(target[0] + 0.02, 0.5)
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": {"joint_target": target}})
        if obs["truncated"]:
            return


@pytest.mark.slow
@pytest.mark.process
def test_a_killed_server_leaves_the_arm_holding_and_its_successor_takes_over(arm: ServoArm, tmp_path: Path) -> None:
    first, address = served(tmp_path)
    second = None
    try:
        with rr.make("so101-reach", robot=address) as env:
            swing(env, env.reset({"seed": 1}), 15)
            first.kill()
            assert first.wait(30) == -signal.SIGKILL
        time.sleep(1.0)  # nobody talks to the servos
        before, goals = arm.joints, [servo.get("goal_position") for servo in arm.servos]
        assert {servo.drive for servo in arm.servos} == {"on"}
        second, address = served(tmp_path)  # as a supervisor does
        np.testing.assert_allclose(arm.joints, before, atol=0.05)
        assert [servo.get("goal_position") for servo in arm.servos] == goals, "nothing is commanded before a reset"
        with rr.make("so101-reach", robot=address) as env:
            obs = env.reset({"seed": 2})
            swing(env, obs, 5)
        second.terminate()
        assert second.wait(60) == 0
        assert {servo.drive for servo in arm.servos} == {"off"}, "it was let down"
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()


def test_an_adapter_that_was_unplugged_comes_back_by_an_explicit_act(tmp_path: Path) -> None:
    servos = so101_servos()
    arm = ServoArm(servos)
    link = tmp_path / "arm"
    with ServoTerminal(ServoLine(servos, before_request=arm.advance), link, arm.advance) as terminal:
        robot = BusArm(link, nominal_calibration(), latency_s=0.3)
        target = robot.reset({}).applied["joint_target"]
        robot.step({"joint_target": target})
        terminal.unplug()
        with pytest.raises(ConnectionLost):
            robot.step({"joint_target": target})
        robot.stop("the port is lost")
        with pytest.raises(ConnectionLost):
            robot.reset({"clear_stop": "tried"})
        before = arm.joints
        terminal.plug()
        with pytest.raises(RobotStopped):
            robot.reset({})
        state = robot.reset({"clear_stop": "plugged in"})
        np.testing.assert_allclose(state.sensors["joint_position"], before, atol=0.05)
        robot.step({"joint_target": state.applied["joint_target"]})
        robot.close()


def test_a_profile_alone_gives_the_driver(arm: ServoArm, tmp_path: Path) -> None:
    robot = build_robot(load_profile(tmp_path / "robot.toml"))
    assert robot.spec.digest == SO101.digest
    state = robot.reset({})
    np.testing.assert_allclose(state.sensors["joint_position"], arm.joints, atol=0.05)
    robot.close()


def test_unknown_drivers_and_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="feetech"):
        make_driver("feetek")
    with pytest.raises(ValueError, match="calibration"):
        make_driver("feetech", {"port": "/dev/null", "calibrations": "x"})


@pytest.mark.slow
def test_a_command_passes_environment_network_server_driver_and_servos(arm: ServoArm, tmp_path: Path) -> None:
    ended, said = Event(), []
    address = Event()

    def announce(line: str) -> None:
        said.append(line)
        if line.startswith("serving"):
            address.set()

    thread = Thread(target=lambda: said.append(serve(tmp_path / "robot.toml", until=ended, announce=announce)))
    thread.start()
    try:
        assert address.wait(60), said
        place = next(line for line in said if line.startswith("serving")).split()[-1]
        with rr.make("so101-reach", robot=place, steps=40) as env:
            obs = env.reset({"seed": 1})
            target = obs["observation"]["joint_goal"].copy()
            before = arm.joints
            while not obs["truncated"]:
                target[0] = min(target[0] + 0.02, 0.6)
                action = {"joint_target": target}
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
            np.testing.assert_allclose(obs["observation"]["joint_position"], arm.joints, atol=0.1)
            assert arm.joints[0] > before[0] + 0.2, "the bodies moved"
    finally:
        ended.set()
        thread.join(60)
    assert said[-1] == 0
    assert {servo.drive for servo in arm.servos} == {"off"}, "it was let down at the end"


def test_faults_are_planted_by_words(arm: ServoArm) -> None:
    terminal = ServoTerminal(ServoLine(arm.servos))
    faults = terminal.line.faults
    assert obey(["lose", "0.5"], arm, terminal) == "done: lose 0.5"
    assert obey(["volts", "6.5"], arm, terminal) == "done: volts 6.5"
    assert obey(["hang", "2"], arm, terminal) == "done: hang 2"
    assert obey(["wake", "2"], arm, terminal) == "done: wake 2"
    assert (faults.lose, faults.silent) == (0.5, set())
    for servo in arm.servos:
        servo.write(40, b"\x01")
    assert obey(["brown-out", "6"], arm, terminal) == "done: brown-out 6"
    assert [servo.drive for servo in arm.servos] == ["on"] * 5 + ["off"]
    assert obey(["brown-out"], arm, terminal) == "done: brown-out"
    assert {servo.drive for servo in arm.servos} == {"off"}
    assert obey(["brown-out", "7"], arm, terminal) == "brown-out 7: there is no servo 7, there are [1, 2, 3, 4, 5, 6]"
    assert obey(["torque-on-goal", "on"], arm, terminal) == "done: torque-on-goal on"
    arm.servos[2].write(42, b"\x00\x08")
    assert [servo.drive for servo in arm.servos] == ["off", "off", "on", "off", "off", "off"]
    assert obey(["no-thing"], arm, terminal).startswith("unknown"), "there is none yet"
    assert obey(["thing", "2.0"], arm, terminal) == "done: thing 2.0"
    assert arm.thing == pytest.approx((5, float(arm.joints[5]), 2.0))
    assert obey(["no-thing"], arm, terminal) == "done: no-thing"
    assert arm.thing == pytest.approx((5, float(arm.joints[5]), 0.0))
    assert obey(["volts", "many"], arm, terminal).startswith("volts many: ")
    assert obey(["explode"], arm, terminal).startswith("unknown: explode")
    assert obey(["plug"], arm, terminal).startswith("plugged in at")
    terminal.close()
