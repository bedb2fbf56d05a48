"""The same bridge over DDS: a process with Cyclone's own types reads, moves and stops the arm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hal import Automatic, Guard, Homing
from hal.robots.so101 import HOME, JOINTS
from real import RemoteRobot, Server
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.node_transport import open_transport
from rlenv_ros2node.bridge import Ros2Bridge

pytest.importorskip("cyclonedds", reason="needs cyclonedds: pip install 'rlenv-robot[dds]'")

GOAL = np.add(HOME, [0.4, 0.2, -0.2, 0.2, 0.5, 0.3])


def own_domain() -> int:
    """Return a domain that other test runs on this machine hardly use."""
    return 20 + os.getpid() % 200


@pytest.mark.process
@pytest.mark.slow
def test_cyclones_own_types_read_move_and_stop_the_arm() -> None:
    domain = own_domain()
    robot = Homing(Guard(find_robot_model("so101").make_served_simulation("sim")), Automatic())
    with (
        Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=50, watchdog_s=2.0) as server,
        closing(open_transport("dds", node="rlenv_robot", domain=domain)) as transport,
        closing(Ros2Bridge(transport, server.address)) as bridge,
    ):
        with closing(RemoteRobot(server.address)) as remote:
            bridge.start(remote.spec)
        script = Path(__file__).with_name("dds_stranger.py")
        command = [sys.executable, str(script), str(domain), *map(str, GOAL)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["reset"]["success"], said
        assert said["reset"]["mine"], "the answer carries the caller's guid and number"
        assert said["joints"] == list(JOINTS)
        assert said["arrived"]
        assert said["stop"]["success"]
        assert server.stopped is not None


def test_another_interface_needs_trust() -> None:
    with pytest.raises(ValueError, match="trust"):
        open_transport("dds", node="a", domain=own_domain(), interface="eth0")
