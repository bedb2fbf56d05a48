"""USB cameras, video files, folders of images and RTSP streams: sources that need OpenCV."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hal.cameras.settings import MAX_IMAGE_BYTES, CameraSettings
from hal.cameras.source import EndOfStream, Frame, Wait, opencv
from hal.errors import ConnectionLost, RobotError

__all__ = ["Device", "Folder", "Stream", "VideoFile"]

_TIMEOUT_MS = 5000
"""Longest wait of OpenCV for a stream to open, and for its next image."""

_RECENT_NS = 1_000_000_000


class _Capture:
    """A source that reads from one ``cv2.VideoCapture``."""

    def __init__(self, settings: CameraSettings) -> None:
        self._settings = settings
        self._cv2: ModuleType
        self._capture: Any = None

    def _opened(self, *arguments: object) -> Any:
        capture = self._cv2.VideoCapture(*arguments)
        if not capture.isOpened():
            raise ConnectionLost(f"{self._settings.shown} can't be opened by OpenCV; {self._hint}")
        self._capture = capture
        return capture

    _hint = "is it playing, and may this user open it?"

    def _grabbed(self) -> Frame | None:
        capture = self._capture
        if not capture.grab():
            return None
        stamp_ns = time.monotonic_ns()
        done, pixels = capture.retrieve()
        if not done or not isinstance(pixels, np.ndarray):
            return None
        return Frame(pixels, stamp_ns)

    def cancel(self) -> None:
        """Do nothing: OpenCV's waits can't be ended from outside, and have deadlines of their own."""

    def close(self) -> None:
        """Release the capture. Safe to call more than once."""
        if self._capture is not None:
            self._capture.release()
            self._capture = None


class Device(_Capture):
    """Read a USB camera (UVC) as motion JPEG, since 30 raw images a second fill a USB 2 bus."""

    _hint = "does another program use it?"

    def open(self) -> None:
        """Open the device, and request size, rate and motion JPEG.

        Raises:
            ConnectionLost: OpenCV can't open the device.
        """
        cv2, settings = opencv(), self._settings
        self._cv2 = cv2
        number = int(settings.source) if settings.source.isdigit() else settings.source
        capture = self._opened(number, cv2.CAP_V4L2)
        capture.set(cv2.CAP_PROP_FOURCC, cv2.VideoWriter.fourcc(*"MJPG"))
        capture.set(cv2.CAP_PROP_FRAME_WIDTH, settings.width)
        capture.set(cv2.CAP_PROP_FRAME_HEIGHT, settings.height)
        capture.set(cv2.CAP_PROP_FPS, settings.fps)

    def read(self) -> Frame:
        """Wait for the next image. Its stamp is the kernel's, if the driver stamps images by the monotonic clock.

        Raises:
            ConnectionLost: the device gives no more images.
        """
        frame = self._grabbed()
        if frame is None:
            raise ConnectionLost(f"{self._settings.shown} gives no images any more; look at its plug")
        kernel_ns = int(self._capture.get(self._cv2.CAP_PROP_POS_MSEC) * 1e6)
        recent = 0 <= frame.stamp_ns - kernel_ns < _RECENT_NS
        return frame._replace(stamp_ns=kernel_ns) if recent else frame


class Stream(_Capture):
    """Read an RTSP stream through OpenCV."""

    _hint = "is the address right, and does the camera want a user and a password (rtsp://USER:PASSWORD@HOST/...)?"

    def open(self) -> None:
        """Connect.

        Raises:
            ConnectionLost: OpenCV can't open the stream.
        """
        cv2 = self._cv2 = opencv()
        timeouts = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, _TIMEOUT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, _TIMEOUT_MS]
        self._opened(self._settings.source, cv2.CAP_FFMPEG, timeouts)

    def read(self) -> Frame:
        """Wait for the next image.

        Raises:
            ConnectionLost: the stream ended, or no image came in time.
        """
        frame = self._grabbed()
        if frame is None:
            raise ConnectionLost(f"{self._settings.shown} gave no image for {_TIMEOUT_MS / 1e3:g} s, or ended")
        return frame


class VideoFile(_Capture):
    """Play a video file at its own rate.

    Args:
        settings: the settings of the camera.
        wait: waits for the time of the next image.
    """

    def __init__(self, settings: CameraSettings, wait: Wait) -> None:
        super().__init__(settings)
        self._wait = wait
        self._due = 0.0

    def open(self) -> None:
        """Open the file.

        Raises:
            ConnectionLost: OpenCV can't open the file.
        """
        cv2 = self._cv2 = opencv()
        rate = self._opened(self._settings.source).get(cv2.CAP_PROP_FPS)
        self._period_s = 1.0 / (rate if 0 < rate < 1000 else self._settings.fps)
        self._due = time.monotonic()

    def read(self) -> Frame:
        """Wait until the next image is due, and return it; with ``loop``, restart at the end of the file.

        Raises:
            EndOfStream: the file has ended, and ``loop`` is false.
            RobotError: the file holds no image that OpenCV can read.
        """
        self._wait(max(0.0, self._due - time.monotonic()))
        self._due = max(self._due + self._period_s, time.monotonic() - self._period_s)
        frame = self._grabbed()
        if frame is None and self._settings.loop:
            self.close()
            self.open()
            frame = self._grabbed()
            if frame is None:
                raise RobotError(f"{self._settings.shown} holds no image that OpenCV can read")
        if frame is None:
            raise EndOfStream(f"{self._settings.shown} is at its end; loop = true plays it again")
        return frame


# -- folders ---------------------------------------------------------------------------------------------------------


_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp")


class Folder:
    """Play the images of a folder in the order of their names, ``fps`` a second.

    Args:
        settings: the settings of the camera.
        wait: waits for the time of the next image.
    """

    def __init__(self, settings: CameraSettings, wait: Wait) -> None:
        self._settings, self._wait = settings, wait
        self._files: list[Path] = []
        self._next, self._due = 0, 0.0

    def open(self) -> None:
        """List the images of the folder.

        Raises:
            RobotError: the folder holds no images.
        """
        folder = Path(self._settings.source)
        self._files = sorted(path for path in folder.iterdir() if path.suffix.lower() in _ENDINGS)
        if not self._files:
            raise RobotError(f"folder {folder} holds no image; expected files ending in {', '.join(_ENDINGS)}")
        self._next, self._due = 0, time.monotonic()

    def read(self) -> Frame:
        """Wait until the next image is due, and return it; a JPEG file is returned undecoded.

        Raises:
            EndOfStream: there are no more images, and ``loop`` is false.
            RobotError: the file is too large, or is not an image.
        """
        if self._next == len(self._files):
            if not self._settings.loop:
                raise EndOfStream(f"{self._settings.shown} is at its end; loop = true plays it again")
            self._next = 0
        self._wait(max(0.0, self._due - time.monotonic()))
        period_s = 1.0 / self._settings.fps
        self._due = max(self._due + period_s, time.monotonic() - period_s)
        path = self._files[self._next]
        self._next += 1
        return Frame(_image(path), time.monotonic_ns())

    def cancel(self) -> None:
        """Do nothing: the waits end by themselves."""

    def close(self) -> None:
        """Do nothing: no file stays open."""


def _image(path: Path) -> bytes | np.ndarray:
    if path.stat().st_size > MAX_IMAGE_BYTES:
        raise RobotError(f"{path} has {path.stat().st_size} bytes, allowed are {MAX_IMAGE_BYTES}")
    data = path.read_bytes()
    if path.suffix.lower() in (".jpg", ".jpeg"):
        return data
    cv2 = opencv()
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if pixels is None:
        raise RobotError(f"{path} is no image that OpenCV can read")
    return np.asarray(pixels)
