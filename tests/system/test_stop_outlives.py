"""A stop outlives a server that is killed: after the restart nothing moves before a person clears the stop."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from hal import RobotError, RobotStopped
from real import RemoteRobot
from tests.fakes import looked, until

PROFILE = '[serve]\naddress = "tcp://127.0.0.1:*"\nwatchdog_s = 5.0\nlower_s = 0.2\npriority = 0\nlatch = "{}"\n'


class Serving:
    """A server in a process of its own."""

    def __init__(self, profile: Path) -> None:
        command = [sys.executable, "-m", "rlenv_robot", "serve", str(profile)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.address = next(line for line in self.process.stdout if "serving" in line).split(" at ")[-1].strip()

    def line(self) -> str:
        """Return the next line that the server prints for a person."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

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
        until(lambda: "a finger" in (tmp_path / "latch" / "stop-so101.json").read_text())  # on a busy machine later
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
        remote.reset(looked(remote))
        assert remote.status()["state"] == "ready"
        serving.end(signal.SIGTERM)

    serving = Serving(profile)
    with closing(RemoteRobot(serving.address)) as remote:
        assert remote.status()["state"] == "disarmed"
        remote.reset({})
        serving.end(signal.SIGTERM)


@pytest.mark.slow
def test_a_server_that_was_killed_says_why_it_begins_stopped_and_how_to_clear_that(tmp_path: Path) -> None:
    """Nothing was stopped, and nobody had moved the robot: a simulated one too begins stopped, and says so."""
    profile = tmp_path / "robot.toml"
    profile.write_text('[robot]\nwhere = "twin"\n' + PROFILE.format(tmp_path / "latch"))
    serving = Serving(profile)
    serving.end(signal.SIGKILL)

    serving = Serving(profile)
    line = serving.line()
    with closing(RemoteRobot(serving.address)) as remote:
        number = remote.status()["stop_number"]
        assert "did not end in good order" in line
        assert f'--clear-stop "WHAT YOU FOUND" --stop-number {number}' in line
        shutil.rmtree(tmp_path / "latch")  # a stop is kept although somebody tidies up
        with suppress(RobotError):  # on a busy machine it may say that the file is not made anew yet
            remote.stop("a finger in the gripper")
        until((tmp_path / "latch" / "stop-so101.json").exists)
        until(lambda: "good order" in (tmp_path / "latch" / "stop-so101.json").read_text())
        serving.end(signal.SIGKILL)

    serving = Serving(profile)
    assert "did not end in good order" in serving.line(), "the first reason stays"
    with closing(RemoteRobot(serving.address)) as remote:
        assert remote.status()["stop_number"] > number
        remote.reset(looked(remote))
        serving.end(signal.SIGTERM)
