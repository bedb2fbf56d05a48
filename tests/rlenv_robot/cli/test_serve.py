"""``rlenv-robot serve`` as the controller's supervisor sees it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rlenv_robot as rr
from hal import DeadlineExceeded
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import load_profile
from rlenv_robot.rendering.virtual_camera import Follower, VirtualCamera
from rlenv_robot.robot_models import find_robot_model

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


# -- rlenv-robot robot camera --------------------------------------------------------------------------------------


cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")

SMALL = CameraSettings("simulation", width=160, height=120, quality=95)


def decoded(data: bytes) -> np.ndarray:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR).astype(int)


def test_a_still_scene_is_never_twice_the_same_image_but_nearly():
    camera = VirtualCamera(find_robot_model("so101").make_sim_model(), "overhead", SMALL)
    first, second = camera.shoot(), camera.shoot()
    camera.close()
    assert first != second, "a sensor has noise; a picture that stays the same counts as frozen"
    assert np.abs(decoded(first) - decoded(second)).mean() < 3
    assert decoded(first).std() > 10, "there is something to see"


def test_without_noise_it_is():
    camera = VirtualCamera(find_robot_model("so101").make_sim_model(), "overhead", SMALL, noise=0)
    assert camera.shoot() == camera.shoot()
    camera.close()
    with pytest.raises(ValueError, match="noise is 65"):
        VirtualCamera(find_robot_model("so101").make_sim_model(), "overhead", SMALL, noise=65)


class Watched:
    """Telemetry that the test writes."""

    def __init__(self) -> None:
        self.sensors: dict[str, np.ndarray] = {}
        self.closed = False

    def next(self, timeout_s: float) -> SimpleNamespace:
        time.sleep(0.01)
        if not self.sensors:
            raise DeadlineExceeded("no telemetry", timeout_s)
        return SimpleNamespace(sensors=self.sensors)

    def close(self) -> None:
        self.closed = True


def test_it_moves_as_the_robot_does():
    watched = Watched()
    follower = Follower(watched)
    camera = VirtualCamera(find_robot_model("so101").make_sim_model(), "overhead", SMALL, follower, noise=0)
    before = decoded(camera.shoot())
    watched.sensors = {"joint_position": np.float32([1.5, 0, 0, 0, 0, 0])}
    end = time.monotonic() + 10
    while not follower.sensors and time.monotonic() < end:
        time.sleep(0.01)
    after = decoded(camera.shoot())
    assert (np.abs(after - before) > 30).any(axis=2).sum() > 100, "the arm is elsewhere"
    camera.close()
    follower.close()
    assert watched.closed


@pytest.mark.process
def test_the_command_serves_a_image_of_a_served_robot():
    robot = find_robot_model("so101").make_served_simulation("twin")
    with Server(robot, paced_by_robot=True, telemetry="tcp://127.0.0.1:*") as server:
        command = [sys.executable, "-m", "rlenv_robot", "camera", "so101", "--port", "0", "--watch", server.telemetry]
        process = subprocess.Popen([*command, "--width", "160", "--height", "120"], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            eye = Camera(CameraSettings(url, "eye", 160, 120, max_age_s=5.0))
            eye.open()
            before = decoded(eye.wait(20.0).image.data)
            remote = RemoteRobot(server.address)
            robot_state = remote.reset({})
            target = robot_state.applied["joint_target"].copy()
            end = time.monotonic() + 20
            while True:
                target[0] = min(target[0] + 0.05, 1.5)
                remote.step({"joint_target": target})
                moved = np.abs(decoded(eye.look().image.data) - before) > 40
                if moved.any(axis=2).sum() > 100:
                    break
                assert time.monotonic() < end, "the picture does not follow the arm"
            remote.close()
            eye.close()
        finally:
            process.terminate()
            process.communicate(timeout=10)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--view", "nowhere"], "has no camera 'nowhere', it has"),
        (["--quality", "0"], "quality is 0, it must be 1 to 100"),
        (["--watch", "tcp://10.0.0.1:5556"], "no keys were given"),
    ],
)
def test_what_can_not_be_is_one_line(capsys, arguments, words):
    assert main(["camera", "so101", *arguments]) == 2
    assert words in capsys.readouterr().err
