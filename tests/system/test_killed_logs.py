"""Programs that are killed at any instant: whatever they had answered or returned is in the recovered log.

`--kills 1000` tries each a thousand times. The programs are forked from one that has imported everything.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hal import ConnectionLost, EpisodeError, RobotState
from real import RemoteRobot
from recorder.read.reader import LogReader
from recorder.read.recover import recover

FORKS = """
import os, sys, time
import numpy as np
from hal import Field, Guard, RobotSpec, RobotState, Spec
from real import Server
from rlenv_robot.env import Environment
from rlenv_operate.controller_log import ControllerLog, ServerWatch
from rlenv_robot.recording.observer import record_to
from tests.fakes import Slider

SPEC = RobotSpec(
    "arm",
    Spec("arm_sensors", (Field("position", (6,), "float64", -10, 10, "rad"), Field("count", (), "int64"))),
    Spec("arm_commands", (Field("target", (6,), "float32", -1, 1, "rad"),)),
    500.0,
    home={"target": (0.0,) * 6},
    measured_by={"target": "position"},
)

class Arm:
    spec = SPEC

    def __init__(self):
        self.count, self.dice = 0, np.random.default_rng()

    def reset(self, options):
        return self.read(np.zeros(6, np.float32))

    def step(self, command):
        return self.read(command["target"].copy())

    def read(self, applied):
        self.count += 1
        sensors = {"position": self.dice.uniform(-1, 1, 6), "count": np.array(self.count)}
        return RobotState(sensors, {"target": applied}, time.monotonic_ns())

    def stop(self, reason):
        pass

    close = lambda self: None

def serve(folder):
    log = ControllerLog(folder)
    server = Server(Guard(log.wrap(Arm())), watchdog_s=5.0, max_command_age_s=None, observer=log)
    ServerWatch(server, log).start()
    server.start()
    os.write(1, f"{os.getpid()} {server.address}\\n".encode())
    time.sleep(60)

def play(folder):
    world = Slider()
    env = Environment(world, None, record_to(folder, world, None))
    os.write(1, f"{os.getpid()} -\\n".encode())
    dice, episode = np.random.default_rng(), -1
    while True:
        obs, episode = env.reset({}), episode + 1
        while not obs["truncated"]:
            action = {"push": dice.uniform(-1, 1, 2), "gear": 1}
            obs, reward = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
            head = np.array([episode, obs["frame_no"]], np.int64).tobytes()
            os.write(1, head + obs["observation"]["position"].tobytes() + np.float64(reward["reward"]).tobytes())

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        {"serve": serve, "play": play}[sys.argv[1]](line.strip())
        os._exit(1)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n" if sys.argv[1] == "serve" else b"\\xff" * 40)
"""


class Forks:
    """Fork a program for each trial."""

    def __init__(self, act: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", FORKS, act],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip

    def line(self) -> str:
        assert self.process.stdout is not None
        data = b""
        while not data.endswith(b"\n"):
            byte = self.process.stdout.read(1)
            assert byte, "the program that forks has ended"
            data += byte
        return data.decode().strip()

    def start(self, folder: Path) -> tuple[int, str]:
        """Start a program that records into a folder; return its process and its address."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{folder}\n".encode())
        pid, address = self.line().split()
        return int(pid), address

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def forks(request: pytest.FixtureRequest) -> Iterator[Forks]:
    forks = Forks(request.param)
    yield forks
    forks.end()


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    kills: int = request.config.getoption("--kills")
    return kills


def only_run(folder: Path) -> Path:
    (run,) = (path for path in folder.iterdir() if path.is_dir())
    return run


def steps_until_killed(pid: int, address: str, seconds: float) -> list[RobotState]:
    """Step a robot until its server, which is killed after some time, is gone; return every state that came."""
    remote = RemoteRobot(address, connect_timeout_s=20, step_timeout_s=0.5)
    states = [remote.reset({})]
    killer = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))
    killer.start()
    try:
        while True:
            states.append(remote.step({"target": np.array([states[-1].sensors["position"][0]] * 6, np.float32)}))
    except (ConnectionLost, EpisodeError):
        killer.join()
        return states
    finally:
        remote.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("forks", ["serve"], indirect=True)
def test_every_step_that_a_client_was_answered_is_in_the_log_of_a_killed_server(
    forks: Forks, tmp_path: Path, kills: int
) -> None:
    dice, unwritten = random.Random(time.time_ns()), 0
    for trial in range(kills):
        folder = tmp_path / str(trial)
        states = steps_until_killed(*forks.start(folder), dice.uniform(0.001, 0.4))
        assert forks.line() == "ended"
        run = only_run(folder)
        unwritten += len(states) - len(LogReader(run).frames())
        recover(run)
        frames = {int(row["sensor_count"]): row for row in LogReader(run).frames()}
        assert len(frames) in (len(states), len(states) + 1), "one more may have been on its way"
        for state in states:
            row = frames[int(state.sensors["count"])]
            assert row["sensor_position"].tobytes() == state.sensors["position"].tobytes(), trial
            assert row["applied_target"].tobytes() == state.applied["target"].tobytes(), trial
            assert row["stamp_ns"] == state.stamp_ns
        remove(folder)
    assert unwritten > 0, "without the tail some would be lost"


PLAYED = struct.Struct("<qq16sd")


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("forks", ["play"], indirect=True)
def test_every_step_that_returned_is_in_the_log_of_a_killed_client(forks: Forks, tmp_path: Path, kills: int) -> None:
    dice, unwritten = random.Random(time.time_ns()), 0
    assert forks.process.stdout is not None
    for trial in range(kills):
        folder = tmp_path / str(trial)
        pid, _ = forks.start(folder)
        threading.Timer(dice.uniform(0.001, 0.4), os.kill, (pid, signal.SIGKILL)).start()
        returned, data = [], b""
        while not data.startswith(b"\xff" * PLAYED.size):
            returned += [data[: PLAYED.size]] if data else []
            data = data[PLAYED.size :]
            while len(data) < PLAYED.size:
                data += forks.process.stdout.read(65536)
        if not returned:  # it was killed before its log was open
            continue
        run = only_run(folder)
        unwritten += len(returned) - int((LogReader(run).frames()["frame_no"] > 0).sum())
        recover(run)
        frames = {(int(row["episode"]), int(row["frame_no"])): row for row in LogReader(run).frames()}
        for step in returned:
            episode, frame_no, position, reward = PLAYED.unpack(step)
            row = frames[episode, frame_no]
            assert row["observation_position"].tobytes() == position, trial
            assert row["reward"] == reward
        remove(folder)
    assert unwritten > 0, "without the tail some would be lost"


def remove(folder: Path) -> None:
    """Remove a trial's run, so that a thousand do not fill the disk."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.unlink() if path.is_symlink() or path.is_file() else path.rmdir()
    folder.rmdir()
