"""``rlenv-robot serve`` as the controller's supervisor sees it."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hal.robots.so101 import SO101
from real import RemoteRobot
from rlenv_robot.profile import load_profile

LAUNCH = Path(__file__).resolve().parents[2] / "launch"


@pytest.mark.parametrize("lower_s", ["5", "0"])
def test_sigterm_lowers_and_exits_in_time(lower_s):
    command = [sys.executable, "-m", "rlenv_robot", "serve", "--address", "tcp://127.0.0.1:*", "--lower-s", lower_s]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    address = process.stdout.readline().split()[-1]
    remote = RemoteRobot(address, expect=SO101, connect_timeout_s=10)
    reading = remote.reset({})
    start = {name: value.copy() for name, value in reading.applied.items()}
    for _ in range(5):
        start["joint_target"][0] += 0.1
        reading = remote.step(start)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=15)[1]
    assert process.returncode == 0
    assert time.monotonic() - began < 11
    assert ("lowering: it rests at its home" in told) == (lower_s == "5")
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
