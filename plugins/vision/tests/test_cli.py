"""A virtual camera's images, and ``rlenv-robot robot camera``."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from hal import DeadlineExceeded
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from real import RemoteRobot, Server
from rlenv_robot.cli.main import main
from rlenv_robot.robot_models import find_robot_model
from rlenv_vision.virtual_camera import Follower, VirtualCamera

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
        program = [sys.executable, "-m", "rlenv_robot"]
        command = [*program, "robot", "camera", "so101", "--port", "0", "--watch", server.telemetry]
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
    assert main(["robot", "camera", "so101", *arguments]) == 2
    assert words in capsys.readouterr().err
