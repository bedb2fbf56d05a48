"""From an instruction and an image to a moving arm, through openpi's own server file, by ``rlenv-robot run``.

The server's model is a stand-in without weights (judges/stand_in.py): these tests prove the path, not a VLA.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from plugins.policy_servers.tests.test_strangers import judge_server
from rlenv_policy_servers.images import resized

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.plugin("tabletop"), pytest.mark.timeout(400)]

TREE = Path(__file__).resolve().parents[3]
POLICY = """
server = "openpi://127.0.0.1:{port}"
horizon = 25
prompt = "move over the {colour} cube"
timeout_s = 5.0

[[observation]]
key = "observation/state"
field = "joint_position"
elements = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"]
unit = "deg"

[[observation]]
key = "observation/state"
field = "joint_position"
elements = ["gripper"]
ours = [-0.17453, 1.74533]
theirs = [0, 100]

[[observation]]
key = "observation/image"
field = "overhead_image"
size = [224, 224]

[[action]]
key = "actions"
field = "joint_target"
elements = ["shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"]
unit = "deg"

[[action]]
key = "actions"
field = "joint_target"
elements = ["gripper"]
theirs = [0, 100]
"""


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fit the stand-in's homography to 24 images whose cubes' places are known."""
    from plugins.policy_servers.tests import over_cube
    from plugins.policy_servers.tests.judges.stand_in import TESTS, find, fitted

    pixels, places = [], []
    with rr.make(over_cube.red()) as env:
        for seed in range(24):
            table = env.reset({"seed": 1000 + seed})
            image = resized(table["observation"]["overhead_image"], 224, 224, pad=True)
            for colour, cube in zip(TESTS, table["extra_info"]["state"]["cube_positions"], strict=False):
                pixel = find(image, colour)
                if pixel is not None:
                    pixels.append(pixel)
                    places.append(cube[:2])
    homography = fitted(np.array(pixels), np.array(places))
    path = tmp_path_factory.mktemp("stand_in") / "calibration.json"
    path.write_text(json.dumps({"homography": homography.tolist(), "height_m": over_cube.HEIGHT_M}))
    return path


def run(folder: Path, port: int, colour: str, *options: str) -> subprocess.CompletedProcess[str]:
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(port=port, colour=colour))
    task = f"plugins.policy_servers.tests.over_cube:{colour}"
    command = [sys.executable, "-m", "rlenv_robot", "run", task, "--policy", str(policy), *options]
    return subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=300)


def stand_in(calibration: Path, *arguments: str) -> Any:
    return judge_server("openpi", "websocket_policy_server.py", "stand_in.py", calibration, *arguments)


@pytest.mark.parametrize("colour", ["red", "blue"])
def test_the_arm_goes_over_the_cube_that_the_instruction_names(tmp_path: Path, calibration: Path, colour: str) -> None:
    with stand_in(calibration) as port:
        done = run(tmp_path, port, colour, "--episodes", "3", "--seed", "7", "--delay", "4")
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    reached = re.search(r"(\d) of 3 reached", done.stdout)
    assert reached is not None
    assert int(reached[1]) == 3, done.stdout


@contextmanager
def served_arm(folder: Path) -> Iterator[tuple[str, Path]]:
    """Serve the simulated arm in real time; yield its address and the file with its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    profile, log = folder / "robot.toml", folder / "robot.log"
    profile.write_text(
        '[robot]\nkind = "plugins.policy_servers.tests.over_cube:MODEL"\nwhere = "sim"\n'
        f'[reset]\nsignal = "automatic"\n[serve]\naddress = "{address}"\n'
    )
    command = [sys.executable, "-m", "rlenv_robot", "serve", str(profile)]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=TREE, stdout=file, stderr=file)
        try:
            awaited(log, "serving so101-table-3")
            yield address, log
        finally:
            process.terminate()
            process.wait(20)


def awaited(log: Path, words: str, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while words not in log.read_text():
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.1)


def test_a_served_arm_goes_over_the_cube_in_real_time(tmp_path: Path, calibration: Path) -> None:
    """The stand-in takes 0.15 s for each chunk, 4 to 5 frames at 30 Hz, which go on meanwhile."""
    with stand_in(calibration, "0.15") as port, served_arm(tmp_path) as (address, _):
        done = run(tmp_path, port, "green", "--episodes", "3", "--robot", address)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr
    assert "3 of 3 reached" in done.stdout
    passed = re.search(r"(\d+) actions dropped", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 0


def test_a_policy_server_that_dies_leaves_the_arm_held_then_stopped(tmp_path: Path, calibration: Path) -> None:
    with served_arm(tmp_path) as (address, log):
        with stand_in(calibration, "0.15") as port:
            (tmp_path / "policy.toml").write_text(POLICY.format(port=port, colour="green"))
            task = "plugins.policy_servers.tests.over_cube:long"
            command = [sys.executable, "-m", "rlenv_robot", "run", task, "--policy", str(tmp_path / "policy.toml"),
                       "--robot", address, "--episodes", "20"]  # fmt: skip
            running = subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            awaited(log, "-> running")
            time.sleep(1.0)
        died = time.monotonic()
        _, errors = running.communicate(timeout=30)
        assert time.monotonic() - died < 15.0
        awaited(log, "stopped", 5.0)
        status = subprocess.run(
            [sys.executable, "-m", "rlenv_robot", "robot", "status", address],
            cwd=TREE, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
    print(errors, status.stdout)
    assert running.returncode == 2
    assert re.search(r"the robot was held: openpi://127.0.0.1:\d+", errors), errors
    assert "stopped" in status.stdout
