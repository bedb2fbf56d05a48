"""A stop outlives a server that is killed: after the restart nothing moves before a person clears the stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hal import RobotStopped
from real import RemoteRobot

PROFILE = '[serve]\naddress = "tcp://127.0.0.1:*"\nwatchdog_s = 5.0\nlower_s = 0.2\npriority = 0\nlatch = "{}"\n'


class Serving:
    """A server in a process of its own."""

    def __init__(self, profile: Path) -> None:
        command = [sys.executable, "-m", "rlenv_robot", "serve", str(profile)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.address = next(line for line in self.process.stdout if "serving" in line).split(" at ")[-1].strip()

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.requirement("R6.6")
@pytest.mark.slow
def test_a_stop_is_there_after_a_kill_and_a_restart(tmp_path: Path) -> None:
    profile = tmp_path / "robot.toml"
    profile.write_text('[robot]\nwhere = "twin"\n' + PROFILE.format(tmp_path / "latch"))

    serving = Serving(profile)
    with closing(RemoteRobot(serving.address)) as remote:
        remote.reset({})
        remote.stop("a finger in the gripper")
        assert remote.status()["stop_file"] == {"path": str(tmp_path / "latch" / "stop-so101.json"), "failure": None}
        serving.end(signal.SIGKILL)

    for ending in (signal.SIGTERM, signal.SIGKILL):  # an orderly end and a further crash change nothing
        serving = Serving(profile)
        with closing(RemoteRobot(serving.address)) as remote:
            status = remote.status()
            assert status["state"] == "stopped"
            assert "a finger in the gripper (since 2" in status["why"]
            with pytest.raises(RobotStopped, match="a finger in the gripper"):
                remote.reset({})
            serving.end(ending)

    serving = Serving(profile)
    with closing(RemoteRobot(serving.address)) as remote:
        remote.reset({"clear_stop": "it is out"})
        assert remote.status()["state"] == "ready"
        serving.end(signal.SIGTERM)

    serving = Serving(profile)
    with closing(RemoteRobot(serving.address)) as remote:
        assert remote.status()["state"] == "disarmed"
        remote.reset({})
        serving.end(signal.SIGTERM)
    assert not list((tmp_path / "latch").glob("stop-*.json"))
