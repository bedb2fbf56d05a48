"""``rlenv-robot serve`` as the controller's supervisor sees it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rlenv_robot as rr
from hal.robots.so101 import SO101
from real import RemoteRobot
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import load_profile

LAUNCH = Path(__file__).resolve().parents[3] / "launch"


@pytest.mark.slow
@pytest.mark.parametrize("lower_s", ["5", "0"])
def test_sigterm_lowers_and_exits_in_time(lower_s):
    command = [sys.executable, "-m", "rlenv_robot", "serve", "--address", "tcp://127.0.0.1:*", "--lower-s", lower_s]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    remote = RemoteRobot(address, expect=SO101, connect_timeout_s=10)
    robot_state = remote.reset({})
    start = {name: value.copy() for name, value in robot_state.applied.items()}
    for _ in range(5):
        start["joint_target"][0] += 0.1
        robot_state = remote.step(start)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=15)[1]
    assert process.returncode == 0
    assert time.monotonic() - began < 11
    assert ("parking: the robot rests at its home" in told) == (lower_s == "5")
    assert re.search(r"so101: \w+ -> stopped: the server was closed", told)
    remote.close()


def test_the_unit_leaves_time_to_lower():
    unit = (LAUNCH / "rlenv-robot.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    (patience,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    lower_s = float(command.split("--lower-s")[1].split()[0])
    assert float(patience) >= lower_s + 1 + 5, "the way home, its last step, and a driver that hangs"
    assert "--keys" in command


def test_the_profile_that_the_unit_installs_is_sound():
    assert load_profile(LAUNCH / "robot.toml").serve.address == "tcp://*:5555"


SETTINGS = """
[robot]
where = "twin"
[serve]
address = "tcp://127.0.0.1:*"
loop_hz = 240.0
lower_s = 0.2
"""


@pytest.mark.process
def test_a_profile_with_a_fast_loop_serves_the_same_arm_and_its_log_says_how_regular_it_was(tmp_path):
    """A client that expects an SO-101 accepts a loop of 240 Hz; an episode's information has clock and cadence."""
    (tmp_path / "lab.toml").write_text(SETTINGS)
    command = [sys.executable, "-m", "rlenv_robot", "serve", str(tmp_path / "lab.toml"), "--priority", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    env = rr.make("so101-reach", robot=address)
    state = env.reset({"seed": 1})
    for _ in range(5):
        action = {"joint_target": state["observation"]["joint_goal"]}
        state, _ = env.step({"env_id": state["env_id"], "frame_no": state["frame_no"], "action": action})
        assert "error" not in state["extra_info"]
    told = env.world.episode_info()["controller"]
    env.close()
    process.send_signal(signal.SIGTERM)
    log = process.communicate(timeout=15)[1]
    assert process.returncode == 0
    assert "memory is" in log
    server, clock = told["server"], told["clock"]
    assert server["cadence"]["period_ms"] == pytest.approx(1e3 / 240)
    assert server["cadence"]["periods"] >= 5 * 8
    assert server["real_time"] == "not asked for"
    assert server["late_commands"] == 0
    assert abs(clock["offset_ns"]) <= clock["error_ns"], "both are one clock here"


def test_flags_go_before_the_profile(capsys, tmp_path):
    (tmp_path / "lab.toml").write_text(SETTINGS)
    for flags, told in (
        (["--loop-hz", "100"], "can't be run at 100 Hz: its physics has 240 steps a second"),
        (["--max-command-age-s", "-1"], "--max-command-age-s is -1.0, it must be above 0"),
        (["--lower-s", "-1"], "--lower-s is -1.0, it must be 0 or above"),
    ):
        assert main(["serve", str(tmp_path / "lab.toml"), *flags]) != 0
        assert told in capsys.readouterr().err
