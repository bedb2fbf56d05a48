"""A robot with cameras adds the newest images to its states and treats a lost camera as its settings say."""

from __future__ import annotations

import logging
import time

import numpy as np
import pytest

from hal import Automatic, Fault, Guard, Homing, ResetFailed, RobotStopped, StaleReading
from hal.cameras import wrapper as module
from hal.cameras.camera import Look
from hal.cameras.settings import CameraSettings
from hal.cameras.wrapper import WithCameras
from hal.robot import CameraSpec, Image

HOLD = {"target": np.zeros(2, np.float32)}


class Eye:
    """The members of `hal.Camera` that `WithCameras` uses; the test sets the image."""

    def __init__(self, name: str, loss: str = "fault") -> None:
        self.settings = CameraSettings("nowhere", name, loss=loss)  # type: ignore[arg-type]
        self.spec = self.settings.spec
        self.opened = self.closed = 0
        self.see(1)

    def see(self, number: int) -> None:
        self.now = Look(Image(b"image %d" % number, "jpeg", number), 0.01, None)

    def lose(self) -> None:
        self.now = Look(None, 1.5, f"camera {self.settings.name!r} is gone")

    def open(self) -> None:
        self.opened += 1

    def look(self, at_ns: int | None = None) -> Look:
        return self.now

    def wait(self, timeout_s: float) -> Look:
        if self.now.fault is not None:
            time.sleep(timeout_s)
        return self.now

    def close(self) -> None:
        self.closed += 1


def test_each_state_has_the_newest_image_of_every_camera(puppet):
    left, right = Eye("left"), Eye("right")
    robot = Guard(WithCameras(puppet(), [left, right]))
    robot_state = robot.reset({})
    assert {name: image.stamp_ns for name, image in robot_state.images.items()} == {"left": 1, "right": 1}
    assert robot.step(HOLD).images["left"].stamp_ns == 1, "the same image until there is a newer one"
    left.see(2)
    robot_state = robot.step(HOLD)
    assert {name: image.stamp_ns for name, image in robot_state.images.items()} == {"left": 2, "right": 1}
    assert robot_state.faults == ()
    robot.close()
    assert (left.opened, left.closed, right.closed) == (1, 1, 1)


def test_the_spec_adds_the_cameras_to_the_robots(puppet):
    inner = puppet()
    robot = WithCameras(inner, [Eye("left")])
    assert robot.spec.cameras == (CameraSpec("left", 640, 480),)
    assert robot.spec.digest == inner.spec.digest, "a robot is the same one with another camera"


def test_a_lost_camera_is_a_fault_and_its_image_is_gone(puppet):
    eye = Eye("left")
    robot = Guard(WithCameras(puppet(), [eye]))
    robot.reset({})
    eye.lose()
    robot_state = robot.step(HOLD)
    assert robot_state.faults == (Fault("camera", "left", "camera 'left' is gone"),)
    assert robot_state.images == {}
    eye.see(5)
    assert robot.step(HOLD).faults == ()


def test_a_lost_camera_may_stop_the_robot(puppet):
    eye, inner = Eye("left", "stop"), puppet()
    robot = Guard(WithCameras(inner, [eye]))
    robot.reset({})
    eye.lose()
    with pytest.raises(StaleReading, match=r"^camera 'left' is gone$") as lost:
        robot.step(HOLD)
    assert lost.value.sensor == "left"
    assert inner.calls[-1] == "stop camera 'left' is gone", "latched in the robot, also where no server does it"


@pytest.mark.parametrize("when", ["step", "reset", "way home"])
def test_the_stop_for_a_lost_camera_is_latched_whenever_it_comes(puppet, when):
    """The latch stayed open, and the next reset needed no reason."""
    eye, inner = Eye("left", "stop"), puppet()
    guard = Guard(WithCameras(inner, [eye]))
    robot = Homing(guard, Automatic())
    robot.reset({})
    if when == "reset":
        inner.reset = lambda options: eye.lose() or type(inner).reset(inner, options)
    else:
        inner.step = lambda command: eye.lose() or type(inner).step(inner, command)
    with pytest.raises(StaleReading, match="is gone"):
        robot.step(HOLD) if when == "step" else robot.reset({})
    assert "is gone" in str(guard.stopped)
    eye.see(2)
    del inner.__dict__["reset" if when == "reset" else "step"]
    with pytest.raises(RobotStopped, match="is gone"):
        robot.reset({})
    robot.reset({"clear_stop": "plugged it in"})
    assert guard.stopped is None


def test_a_lost_camera_may_be_logged_once_only(puppet, caplog):
    eye = Eye("left", "note")
    robot = Guard(WithCameras(puppet(), [eye]))
    eye.lose()
    with caplog.at_level(logging.WARNING):
        assert robot.reset({}).images == {}
        for _ in range(3):
            assert robot.step(HOLD).faults == ()
    assert len([r for r in caplog.records if "is gone" in r.getMessage()]) == 1


def test_a_reset_without_a_first_image_fails_before_the_robot_is_reset(puppet, monkeypatch):
    monkeypatch.setattr(module, "FIRST_IMAGE_S", 0.1)
    inner, eyes = puppet(), [Eye("left"), Eye("right")]
    for eye in eyes:
        eye.lose()
    begin = time.monotonic()
    with pytest.raises(ResetFailed, match="camera 'left' is gone"):
        WithCameras(inner, eyes).reset({})
    assert time.monotonic() - begin >= 0.1
    assert inner.calls == []


def test_two_cameras_of_one_name_are_refused(puppet):
    with pytest.raises(ValueError, match="left, left"):
        WithCameras(puppet(), [Eye("left"), Eye("left")])


def test_a_stop_is_passed_on_and_the_cameras_run_on(puppet):
    inner, eye = puppet(), Eye("left")
    WithCameras(inner, [eye]).stop("enough")
    assert inner.calls == ["stop enough"]
    assert eye.closed == 0


def test_about_adds_the_cameras_to_the_robots_report(puppet):
    inner = puppet()
    inner.about = lambda: {"loop": "fine"}
    eye = Eye("left")
    eye.to_dict = lambda: {"pictures": 3}
    assert WithCameras(inner, [eye]).about() == {"loop": "fine", "cameras": {"left": {"pictures": 3}}}


def test_optional_members_are_passed_on(puppet):
    inner, armed = puppet(), []
    robot = WithCameras(inner, [Eye("left")])
    assert robot.arm_watchdog(0.1) is False
    assert robot.streams == ()
    inner.arm_watchdog = lambda timeout_s: not armed.append(timeout_s)
    inner.disarm_watchdog = lambda: armed.append(0)
    assert robot.arm_watchdog(0.1) is True
    robot.disarm_watchdog()
    assert armed == [0.1, 0]
