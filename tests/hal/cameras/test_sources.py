"""Images from video files and folders, USB cameras as far as that goes without one, and what is no source at all."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hal import RobotError
from hal.cameras import sources
from hal.cameras.camera import Camera
from hal.cameras.opencv import Device
from hal.cameras.settings import CameraSettings
from hal.cameras.source import EndOfStream
from hal.cameras.sources import make_source

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")

SHADES = (20, 90, 160, 230)


def frame(shade: int) -> np.ndarray:
    return np.full((48, 64, 3), shade, np.uint8)


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 50.0, (64, 48))
    for shade in SHADES:
        writer.write(frame(shade))
    writer.release()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pictures"
    made.mkdir()
    (made / "notes.txt").write_text("no image")
    for number, shade in enumerate(SHADES):
        cv2.imwrite(str(made / f"{number:03d}.{'jpg' if number % 2 else 'png'}"), frame(shade))
    return made


def opened(source: Path, **settings):
    made = make_source(CameraSettings(str(source), **settings), threading.Event().wait)
    made.open()
    return made


def shade(data) -> int:
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR) if isinstance(data, bytes) else data
    return round(float(pixels.mean()))


@pytest.mark.parametrize("kind", ["film", "folder"])
def test_images_are_played_in_order_at_their_rate_and_repeated(kind, request):
    source = opened(request.getfixturevalue(kind), fps=50.0)
    start = time.monotonic()
    frames = [source.read() for _ in range(6)]
    took_s = time.monotonic() - start
    source.close()
    assert [shade(one.data) for one in frames] == pytest.approx([*SHADES, *SHADES[:2]], abs=3)
    assert took_s >= 4 / 50
    stamps = [one.stamp_ns for one in frames]
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("kind", ["film", "folder"])
def test_without_a_loop_the_end_is_an_error(kind, request):
    source = opened(request.getfixturevalue(kind), fps=500.0, loop=False)
    for _ in SHADES:
        source.read()
    with pytest.raises(EndOfStream, match="loop = true"):
        source.read()
    source.close()


def test_jpeg_files_are_kept_as_they_are(folder):
    source = opened(folder, fps=500.0)
    source.read()
    assert source.read().data == (folder / "001.jpg").read_bytes()


def test_a_folder_of_one_image_is_a_frozen_camera(folder):
    for path in sorted(folder.iterdir())[1:]:
        path.unlink()
    camera = Camera(CameraSettings(str(folder), "eye", 64, 48, fps=100.0, max_age_s=60.0, frozen_s=0.2))
    camera.open()
    assert camera.wait(10.0).fault is None
    end = time.monotonic() + 10.0
    while camera.look().fault is None and time.monotonic() < end:
        time.sleep(0.01)
    assert "is frozen" in camera.look().fault
    camera.close()


def test_an_empty_folder_and_a_file_that_is_no_video_are_refused(tmp_path):
    (tmp_path / "film.mp4").write_bytes(b"no film")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RobotError, match=r"no image.*\.jpg"):
        opened(tmp_path / "empty")
    with pytest.raises(RobotError, match=r"film\.mp4 "):
        opened(tmp_path / "film.mp4")


@pytest.mark.parametrize("source", ["97", "/dev/video97", "/dev/v4l/by-id/usb-nothing-video-index0"])
def test_a_missing_device_is_an_error_that_lists_the_devices(source, monkeypatch):
    monkeypatch.setattr(sources, "video_devices", lambda: ["/dev/v4l/by-id/usb-Maker_Eye-video-index0"])
    with pytest.raises(RobotError, match="/dev/v4l/by-id/usb-Maker_Eye"):
        opened(Path(source))
    monkeypatch.setattr(sources, "video_devices", list)
    with pytest.raises(RobotError, match="no USB camera is plugged in"):
        opened(Path(source))


def test_a_source_of_no_known_kind_is_refused():
    with pytest.raises(RobotError, match=r"'film\.mp4'.*rtsp://"):
        opened(Path("film.mp4"))


class FakeCapture:
    """The members of ``cv2.VideoCapture`` that the driver uses for a USB camera."""

    kernel_ms = 0.0

    def __init__(self, *how: object) -> None:
        self.how, self.settings, self.left = how, {}, 2

    def isOpened(self) -> bool:
        return True

    def set(self, key: int, value: float) -> bool:
        self.settings[key] = value
        return True

    def get(self, key: int) -> float:
        return self.kernel_ms if key == cv2.CAP_PROP_POS_MSEC else 0.0

    def grab(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def retrieve(self) -> tuple[bool, np.ndarray]:
        return True, frame(10)

    def release(self) -> None:
        pass


def test_a_usb_camera_gets_its_settings_and_the_kernels_stamp_is_used(monkeypatch):
    monkeypatch.setattr(cv2, "VideoCapture", FakeCapture)
    device = Device(CameraSettings("3", width=800, height=600, fps=25.0))
    device.open()
    capture = device._capture
    assert capture.how == (3, cv2.CAP_V4L2)
    assert capture.settings == {
        cv2.CAP_PROP_FOURCC: cv2.VideoWriter.fourcc(*"MJPG"), cv2.CAP_PROP_FRAME_WIDTH: 800,
        cv2.CAP_PROP_FRAME_HEIGHT: 600, cv2.CAP_PROP_FPS: 25.0,
    }  # fmt: skip
    kernel_ns = time.monotonic_ns() - 20_000_000
    capture.kernel_ms = kernel_ns / 1e6
    assert abs(device.read().stamp_ns - kernel_ns) < 1000
    capture.kernel_ms = 0.0  # a driver that does not tell
    before_ns = time.monotonic_ns()
    assert device.read().stamp_ns >= before_ns
    with pytest.raises(RobotError, match="look at its plug"):
        device.read()
    device.close()
    device.close()
