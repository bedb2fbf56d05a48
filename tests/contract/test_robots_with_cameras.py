"""A robot with cameras keeps the contract of robots, in this process and over the network."""

from __future__ import annotations

import time

import numpy as np
import pytest

from hal import ConnectionLost, Guard
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.source import Frame, Wait
from hal.cameras.wrapper import WithCameras
from real import RemoteRobot, Server
from real.client.cameras import RemoteCameras
from rlenv_kit import check_robot
from rlenv_robot.robot_models import find_robot_model

pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")
pytestmark = pytest.mark.requirement("R1.1", "R6.6")


class Noise:
    """A source of sixty random images a second."""

    def __init__(self, settings: CameraSettings, wait: Wait) -> None:
        self._wait, self._random = wait, np.random.default_rng(0)

    def open(self) -> None: ...

    def read(self) -> Frame:
        if self._wait(1 / 60):
            raise ConnectionLost("closed")
        return Frame(self._random.integers(0, 255, (24, 32, 3), np.uint8), time.monotonic_ns())

    def cancel(self) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def cameras() -> list[Camera]:
    return [Camera(CameraSettings("noise", name, 32, 24, max_age_s=5.0), Noise) for name in ("wrist", "front")]


@pytest.mark.slow
@pytest.mark.soak
def test_a_local_robot_with_cameras_keeps_the_contract(cameras):
    report = check_robot(
        Guard(WithCameras(find_robot_model("so101").make_served_simulation("sim"), cameras)), steps=5, repeatable=False
    )
    report.raise_if_failed()


@pytest.mark.slow
def test_a_remote_robot_with_cameras_keeps_the_contract(cameras):
    robot = WithCameras(find_robot_model("so101").make_served_simulation("sim"), cameras)
    with Server(robot, paced_by_robot=True, watchdog_s=20.0, max_command_age_s=None, cameras=cameras) as server:
        remote = RemoteCameras(RemoteRobot(server.address, connect_timeout_s=20, step_timeout_s=20))
        assert [camera.name for camera in remote.spec.cameras] == ["overhead", "wrist", "front"]
        check_robot(Guard(remote), steps=5, repeatable=False).raise_if_failed()
