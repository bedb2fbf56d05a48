"""ROBOTIS's zenoh-ros2-sdk, which shares no code with this plug-in but its libraries, reads and moves a served arm."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal.robots.so101 import HOME, JOINTS
from plugins.ros2node.tests.conftest import Joined
from rlenv_ros2.messages import TRIGGER, MessageTypes

INTERPRETER = os.environ.get("RLENV_ROS2_SDK", "")
SCRIPT = Path(__file__).resolve().parents[2] / "ros2" / "tests" / "sdk_stranger.py"
GOAL = np.add(HOME, [0.4, 0.2, -0.2, 0.2, 0.5, 0.3])


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETER, reason="zenoh-ros2-sdk: RLENV_ROS2_SDK names no interpreter that has it")
def test_the_sdk_reads_moves_and_stops_the_arm(join: Callable[..., Joined]) -> None:
    joined = join(cameras=True)
    port = joined.endpoint.rpartition(":")[2]
    command = [INTERPRETER, str(SCRIPT), "visit", port, *map(str, GOAL)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    types = MessageTypes()
    assert said["hashes"] == {name: types.hash_of(name) for name in said["hashes"]}
    assert said["trigger_hash"] == types.hash_of(TRIGGER)
    assert said["reset"]["success"], said["reset"]
    assert said["joints"] == list(JOINTS)
    assert said["image"][0] == "jpeg"
    assert said["image"][2] == "ffd8"
    assert said["arrived"], (said["final"], joined.bridge.refused.last, joined.bridge._transport.refused.last)
    assert said["final"] == pytest.approx(GOAL, abs=0.05)
    assert joined.server.stopped is not None
    assert said["stop"]["success"]
    assert not said["reset after stop"]["success"]
    nodes = [token for token in said["tokens"] if "/NN/" in token]
    assert any(token.endswith("/%/%/rlenv_robot") for token in nodes)
